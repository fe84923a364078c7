package redsync_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file provokes what the library says to a user, and compares it with the pages that list it.

// provocations are what makes the library say something, by name. Each is played on five nodes of its own, in virtual
// time, and returns an error. The field's Redsync writes a log.
var provocations = map[string]func(f field) error{
	// Others have the lock.

	"taken": func(f field) error {
		f.occupy("lock")
		return f.NewMutex("lock").TryLock()
	},
	"several names, one taken": func(f field) error {
		f.occupy("b")
		return f.NewMultiMutex(both).TryLock()
	},
	"other callers ahead, TryLock": func(f field) error {
		f.freeze(0, 1, 2)
		f.calls(f.Redsync, patient(redsync.WithFair())...)
		return f.NewMutex("lock", redsync.WithFair()).TryLock()
	},
	"other callers ahead, Lock": func(f field) error {
		f.freeze(0, 1, 2)
		f.calls(f.Redsync, patient(redsync.WithFair())...)
		return f.NewMutex("lock", redsync.WithFair(), redsync.WithTries(2), redsync.WithRetryDelay(time.Millisecond)).Lock()
	},
	"taken, adopted, others on one node": func(f field) error {
		m := f.held()
		f.lose(0, 1)
		require.NoError(f, f.nodes[2].Set("lock", "another's"))
		return second(f.NewMutex("lock", redsync.WithValue(m.Value()), redsync.WithFailFast(false)).Unlock())
	},

	// Too few nodes answered.

	"nodes silent": func(f field) error {
		f.freeze(0, 1, 2)
		return f.NewMutex("lock").TryLock()
	},
	"nodes down": func(f field) error {
		f.kill(0, 1, 2)
		return f.NewMutex("lock").TryLock()
	},
	"split, and one node silent": func(f field) error {
		m := f.held()
		f.occupy("lock", 0, 1)
		f.freeze(2)
		return second(m.Valid())
	},
	"too few in both sets": func(f field) error {
		pools := f.pools()
		f.closes(f.Redsync)
		f.freeze(0, 1, 2)
		f.Redsync = redsync.NewJoint(pools[:3], pools)
		f.closes(f.Redsync)
		return f.NewMutex("lock").TryLock()
	},
	"Open, nodes down": func(f field) error {
		_, err := redsync.Open(f.Context(), []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"})
		return err
	},
	"no permission": func(f field) error { return f.denied("NOPERM this user has no permissions to run the command") },
	"no login":      func(f field) error { return f.denied("NOAUTH Authentication required.") },
	"a key of another type": func(f field) error {
		for _, n := range f.nodes[:3] {
			n.Between(func(m *miniredis.Miniredis) { _, _ = m.Lpush(fenceKey, "") })
		}
		return f.NewMutex("lock", redsync.WithFencing()).TryLock()
	},
	"wrong login": func(f field) error { return f.denied("WRONGPASS invalid username-password pair") },
	"paused before the nodes answer": func(f field) error {
		hook := &atomic.Pointer[func()]{}
		f.Redsync = f.wrapped(func(p pool.Pool) pool.Pool { return hooked{p, hook} })
		f.meet()
		pause := func() { time.Sleep(guard) }
		hook.Store(&pause)
		return f.NewMutex("lock").TryLock()
	},
	"paused before Lock returns": func(f field) error {
		return f.NewMutex("lock", redsync.WithObserver(pauses{})).TryLock()
	},

	// What one node says.

	"connections lost": func(f field) error {
		for _, n := range f.nodes[:3] {
			n.On("set", 1, embedded.Fault{LoseReply: true})
		}
		return f.NewMutex("lock").TryLock()
	},
	"too much outstanding": func(f field) error {
		f.Redsync = f.process(pool.WithOutstanding(1))
		f.closes(f.Redsync)
		f.meet()
		f.freeze(0, 1, 2)
		f.begins(f.NewMutex("another"))
		return f.NewMutex("lock").TryLock()
	},
	"nodes have restarted": func(f field) error {
		time.Sleep(time.Minute)
		f.reboot(true, 0, 1, 2)
		f.Redsync = f.process(guards[true]...)
		f.closes(f.Redsync)
		_ = f.NewMutex("lock").TryLock()
		time.Sleep(3 * time.Second)
		return f.NewMutex("lock").TryLock()
	},
	"no INFO": func(f field) error {
		for _, n := range f.nodes[:3] {
			n.On("info", 1000, embedded.Fault{Err: "NOPERM User has no permissions to run the 'info' command"})
		}
		f.Redsync = f.process(guards[true]...)
		f.closes(f.Redsync)
		return f.NewMutex("lock").TryLock()
	},
	"keys gone": func(f field) error {
		m := f.held()
		f.lose(0, 1, 2)
		return second(m.Extend())
	},
	"keys of one name gone": func(f field) error { return second(f.lostKeys(both, "b").Valid()) },

	// The lock is over, or was not extended.

	"not extended, commands lost": func(f field) error {
		m := f.held()
		for _, n := range f.nodes[:3] {
			n.On("evalsha", 1, embedded.Fault{LoseCommand: true})
		}
		return second(m.Extend())
	},
	"expired, Err": func(f field) error {
		m := f.held()
		time.Sleep(guard)
		return m.Err()
	},
	"expired while nodes are silent": func(f field) error {
		m := f.held(redsync.WithExpiry(4 * time.Second))
		f.freeze(0, 1, 2)
		return second(m.Extend())
	},
	"expired, Unlock": func(f field) error {
		m := f.held()
		time.Sleep(guard)
		return second(m.Unlock())
	},
	"another holds the lock": func(f field) error {
		m := f.held()
		f.occupy("lock")
		return second(m.Extend())
	},
	"closed meanwhile": func(f field) error {
		m := f.held()
		require.NoError(f, f.Close(f.Context()))
		return m.Err()
	},
	"held for the longest time": func(f field) error {
		m := f.held(redsync.WithMaxHold(time.Second))
		time.Sleep(time.Second)
		return m.Err()
	},
	"extended for the longest time": func(f field) error {
		m := f.held(redsync.WithMaxHold(9 * time.Second))
		time.Sleep(5 * time.Second)
		_, err := m.Extend()
		require.NoError(f, err)
		return second(m.Extend())
	},
	"not locked": func(f field) error { return second(f.NewMutex("lock").Unlock()) },

	// The call itself.

	"context canceled": func(f field) error {
		ctx, cancel := context.WithCancelCause(f.Context())
		cancel(errors.New("enough"))
		return f.NewMutex("lock").LockContext(ctx)
	},
	"deadline exceeded": func(f field) error {
		m := f.held()
		f.freeze(0, 1, 2)
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		return second(m.ExtendContext(ctx))
	},
	"option out of range": func(f field) error { return f.NewMutex("lock", redsync.WithExpiry(-1)).Lock() },
	"options exclude each other": func(f field) error {
		return f.NewMutex("lock", redsync.WithPermits(2), redsync.WithShared()).Lock()
	},
	"no name":       func(f field) error { return f.NewMutex("").Lock() },
	"reserved name": func(f field) error { return f.NewMutex("{x}:queue").Lock() },
	"closed": func(f field) error {
		require.NoError(f, f.Close(f.Context()))
		return f.NewMutex("lock").Lock()
	},
	"no pools": func(field) error { return redsync.New().NewMutex("lock").Lock() },
	"one server twice": func(f field) error {
		f.Redsync = process(f.pick(0, 0, 0))
		f.closes(f.Redsync)
		return f.NewMutex("lock").Lock()
	},
	"one address twice": func(f field) error {
		pools := f.pools()
		return redsync.New(append(pools, pools[0])...).NewMutex("lock").Lock()
	},
	"a writer within a reader": func(f field) error {
		return f.Do(f.Context(), "lock", func(ctx context.Context) error { return f.NewMutex("lock").LockContext(ctx) },
			redsync.WithShared())
	},
	"a Lock within a Do": func(f field) error {
		return f.Do(f.Context(), "lock", func(ctx context.Context) error { return f.NewMutex("lock").LockContext(ctx) })
	},
	"a second Lock of a reader": func(f field) error { return f.held(redsync.WithShared()).TryLock() },
}

// pauses is an observer of attempts that is stuck for the whole expiry.
type pauses struct{}

func (pauses) ObserveAttempt(context.Context, observe.Attempt) { time.Sleep(guard) }

func second(_ bool, err error) error { return err }

// occupy gives a name to another client on the first nodes, by default on three.
func (f field) occupy(name string, nodes ...int) {
	if nodes == nil {
		nodes = []int{0, 1, 2}
	}
	for _, i := range nodes {
		require.NoError(f, f.nodes[i].Set(name, "another's"))
	}
}

// denied returns the error of a Lock that three nodes answer with an error.
func (f field) denied(answer string) error {
	for _, n := range f.nodes[:3] {
		n.On("set", 1<<20, embedded.Fault{Err: answer})
	}
	return f.NewMutex("lock").TryLock()
}

// pools returns new pools of the nodes.
func (f field) pools() (pools []pool.Pool) {
	for _, c := range clientsOf(f.nodes) {
		pools = append(pools, pool.New(c))
	}
	return pools
}

// provoke returns the error of a provocation, and the lines of the log from Info on, without their times.
func provoke(t *testing.T, do func(f field) error) (log string, err error) {
	t.Helper()
	play(t, func(f field) {
		f.meet()
		time.Sleep(time.Millisecond)
		var text strings.Builder
		f.Redsync = f.With(redsync.WithLogger(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))))
		err = do(f)
		synctest.Wait()
		log = text.String()
	})
	require.Error(t, err)
	return log, err
}

// texts returns a pattern for each text of the page of errors. A text is in backquotes in the first cell of a row, or
// stands in a block. Names, addresses and numbers of the page stand for any others.
func texts(page string) map[string]*regexp.Regexp {
	patterns := map[string]*regexp.Regexp{}
	add := func(text string) {
		p := regexp.QuoteMeta(text)
		p = regexp.MustCompile(`[\d.]*\d`).ReplaceAllString(strings.ReplaceAll(p, `\.`, "."), `[\d.]+`)
		p = regexp.MustCompile(`"[^"]*"`).ReplaceAllString(p, `"[^"]*"`)
		p = strings.ReplaceAll(p, "...", ".+")
		patterns[text] = regexp.MustCompile(`(^|: |; )` + p + `($|: |; )`)
	}
	for line := range strings.Lines(page) {
		cell, isRow := strings.CutPrefix(line, "| `")
		cell, _, _ = strings.Cut(cell, "` | ")
		switch {
		case isRow:
			for text := range strings.SplitSeq(cell, "`, `") {
				add(text)
			}
		case strings.HasPrefix(line, "redsync: "):
			add(strings.TrimSpace(line))
		}
	}
	return patterns
}

// docs/errors.md has each error that is provoked, and nothing else. docs/operating.md has each line of the log.
func TestPagesHaveWhatTheLibrarySays(t *testing.T) {
	patterns, operating := texts(read(t, "docs/errors.md")), read(t, "docs/operating.md")
	require.Greater(t, len(patterns), 40)
	line := regexp.MustCompile(`level=(\w)(\w+) msg="redsync: ([^"]+)"`)
	seen, lines := map[string]bool{}, 0
	for name, do := range provocations {
		t.Run(name, func(t *testing.T) {
			log, err := provoke(t, do)
			found := false
			for text, p := range patterns {
				if p.MatchString(err.Error()) {
					seen[text], found = true, true
				}
			}
			assert.True(t, found, "the page has no text of %q", err)
			for _, match := range line.FindAllStringSubmatch(log, -1) {
				row := "\n| " + match[1] + strings.ToLower(match[2]) + " `" + match[3] + "`"
				assert.True(t, strings.Contains(operating, row), "the page has no row%s", row)
				lines++
			}
		})
	}
	for text, p := range patterns {
		assert.True(t, seen[text], "nothing says %q (%v)", text, p)
	}
	assert.Greater(t, lines, 10)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestPageOfErrorsNamesEachExportedError(t *testing.T) {
	page, exported := read(t, "docs/errors.md"), exportedErrors(t)
	require.Greater(t, len(exported), 10)
	for _, name := range exported {
		assert.True(t, strings.Contains(page, "`"+name+"`"), "the page does not name %s", name)
	}
}

// exportedErrors returns the exported variables and types of errors. A type has a * before it.
func exportedErrors(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			general, _ := decl.(*ast.GenDecl)
			if general == nil {
				continue
			}
			for _, spec := range general.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, "*"+spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	isError := regexp.MustCompile(`^\*?(Err[A-Z]\w*|[A-Z]\w*Error)$`)
	return slices.DeleteFunc(names, func(name string) bool { return !isError.MatchString(name) })
}
