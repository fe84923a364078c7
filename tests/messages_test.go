package redsync_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file provokes what the library says to a user, and compares it with the pages that list it.

// A speech is a field whose Redsync writes a log.
type speech struct {
	field
	log redsync.Option
}

// uses makes rs the Redsync of f.
func (f *speech) uses(rs *redsync.Redsync) {
	f.Redsync = rs.With(f.log)
	f.closes(rs)
}

// ends kills nodes, and waits until the ends of the connections have been noticed.
func (f *speech) ends(nodes ...int) {
	f.kill(nodes...)
	synctest.Wait()
}

// provocations are what makes the library say something, by name. Each is played on five nodes of its own, in virtual
// time. What returns no error is there for the log.
var provocations = map[string]func(f speech) error{
	// Others have the lock.

	"taken": func(f speech) error {
		f.occupy("lock")
		return f.tries()
	},
	"several names, one taken": func(f speech) error {
		f.occupy("b")
		return f.NewMultiMutex(both).TryLock()
	},
	"taken by an owner": func(f speech) error {
		f.owned("lock", 12*sec)
		return f.tries(withOwner("worker-8@host"))
	},
	"several names, one taken by an owner": func(f speech) error {
		f.owned("b", 0)
		return f.NewMultiMutex(both, withOwner("worker-8@host")).TryLock()
	},
	"other callers ahead, TryLock": func(f speech) error {
		f.freeze(majority...)
		f.inLine(withFair)
		return f.tries(withFair)
	},
	"taken, adopted, others on one node": func(f speech) error {
		m := f.held()
		f.lose(0, 1)
		f.occupy("lock", 2)
		return second(f.NewMutex("lock", withValue(m.Value()), hearsAll).Unlock())
	},

	"a queue that is too long": func(f speech) error {
		for _, n := range f.nodes {
			_ = n.Set("{lock}:queue", strings.Repeat("0", 1<<20+1))
		}
		return f.tries(withFair)
	},
	"taken, waited for": func(f speech) error {
		f.occupy("lock")
		for _, n := range f.nodes[:3] {
			n.SetTTL("lock", 12*sec)
		}
		return f.lockError()
	},
	"taken, by itself": func(f speech) error { return f.held().Lock() },
	"taken, by this process": func(f speech) error {
		f.held()
		return f.lockError()
	},

	// Too few nodes answered.

	"nodes silent": func(f speech) error {
		f.freeze(majority...)
		return f.tries()
	},
	"nodes silent, WithWait": func(f speech) error {
		f.freeze(majority...)
		return f.lockError(redsync.WithWait(20 * ms))
	},
	"nodes down": func(f speech) error {
		f.ends(0, 1, 2)
		return f.tries()
	},
	"split, and one node silent": after("Valid", func(f speech) {
		f.occupy("lock", 0, 1)
		f.freeze(2)
	}),
	"Inspect, nodes silent": func(f speech) error {
		f.freeze(majority...)
		return f.inspection(f.Context())
	},
	"Inspect, one node down that decides": func(f speech) error {
		f.occupy("lock", 0, 1)
		f.ends(2)
		return f.inspection(f.Context())
	},
	"Inspect, no permission": func(f speech) error {
		f.three("evalsha", 1<<20, embedded.Fault{Err: "NOPERM this user has no permissions to run the command"})
		return f.inspection(f.Context())
	},
	"no answer to a dial":                    func(f speech) error { return f.undialed(f.Context()) },
	"no answer to a dial, deadline exceeded": func(f speech) error { return f.undialed(limited(f, sec)) },
	"too few in both sets": func(f speech) error {
		pools := f.pools()
		f.uses(redsync.NewJoint(pools[:3], pools[1:4]))
		f.freeze(1, 2)
		return f.tries()
	},
	"Ping, a node down": func(f speech) error {
		f.ends(3)
		return f.Ping(f.Context())
	},
	"Ping, nodes down": func(f speech) error {
		f.ends(0, 1, 2)
		return f.Ping(f.Context())
	},
	"Open, nodes down": func(f speech) error {
		_, err := redsync.Open(f.Context(), []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, f.log)
		return err
	},
	"one node, silent": func(f speech) error {
		f.uses(on(clientsOf(f.nodes[:1])))
		f.freeze(0)
		return f.tries()
	},
	"one node, Ping, deadline exceeded": func(f speech) error {
		f.uses(on(clientsOf(f.nodes[:1])))
		f.freeze(0)
		return f.Ping(limited(f, sec))
	},
	"pool.Ping, a silent node": func(f speech) error {
		f.freeze(0)
		return pool.Ping(limited(f, sec), pool.New(clientsOf(f.nodes[:1])[0], pool.WithName("redis-1:6379")))
	},
	"no permission":              denied("NOPERM this user has no permissions to run the command"),
	"a node of a Cluster":        denied("MOVED 5 10.0.0.2:7000"),
	"no permission for the name": denied("NOPERM No permissions to access a key"),
	"no login":                   denied("NOAUTH Authentication required."),
	"a key of another type": func(f speech) error {
		for _, n := range f.nodes[:3] {
			_, _ = n.Lpush("x", "")
		}
		return f.NewMutex("x").TryLock()
	},
	"no EVAL": func(f speech) error {
		f.nodes.Lacks(embedded.Missing, "eval", "evalsha")
		return second(f.held().Extend())
	},
	"a proxy ends connections": func(f speech) error {
		f.nodes.Lacks(embedded.Closing, "info")
		f.uses(f.process())
		return f.tries()
	},
	"a proxy ends connections, anonymous": func(f speech) error {
		f.nodes.Lacks(embedded.Closing, "hello")
		f.uses(f.process())
		return f.tries()
	},
	"wrong login":                    denied("WRONGPASS invalid username-password pair"),
	"wrong password in the greeting": greeted("WRONGPASS invalid username-password pair or user is disabled."),
	"too many clients":               greeted("ERR max number of clients reached"),
	"paused before the nodes answer": func(f speech) error {
		hook := &atomic.Pointer[func()]{}
		f.uses(f.wrapped(func(p pool.Pool) pool.Pool { return hooked{p, hook} }))
		f.meet()
		pause := func() { time.Sleep(guard) }
		hook.Store(&pause)
		return f.tries()
	},
	"paused before Lock returns": func(f speech) error { return f.tries(naps(guard)) },

	// What one node says.

	"connections lost": func(f speech) error {
		f.three("set", 1, embedded.Fault{LoseReply: true})
		f.three("evalsha", 1, embedded.Fault{LoseReply: true})
		return f.tries()
	},
	"a release may come late": func(f speech) error {
		constant := repeating("worker 7")
		m := f.held(constant)
		f.three("evalsha", 1, embedded.Fault{LoseReply: true})
		_, _ = m.Unlock()
		return f.tries(constant)
	},
	"too much outstanding": func(f speech) error {
		f.uses(f.process(pool.WithOutstanding(1)))
		f.meet()
		f.freeze(majority...)
		f.begins(f.NewMutex("another"))
		return f.tries()
	},
	"calls that misbehave": func(f speech) error {
		f.uses(redsync.New(calls(func() { panic("oops") }), calls(runtime.Goexit), calls(func() {})))
		return f.tries(hearsAll)
	},
	"calls that do not return": func(f speech) error {
		f.uses(redsync.New(calls(func() { time.Sleep(minute / 2) })))
		for range 4 {
			_ = f.tries()
			time.Sleep(6 * sec)
		}
		return f.tries()
	},
	"nodes have restarted": func(f speech) error {
		time.Sleep(minute)
		f.reboot(true, majority...)
		f.uses(f.process(guards[true]...))
		_ = f.tries()
		time.Sleep(3 * sec)
		return f.tries()
	},
	"no INFO": func(f speech) error {
		f.three("info", 1000, embedded.Fault{Err: "NOPERM User has no permissions to run the 'info' command"})
		f.uses(f.process(guards[true]...))
		return f.tries()
	},
	"TLS to a port without TLS": func(f speech) error {
		clients := clientsOf(f.nodes[:2])
		for _, n := range f.nodes[2:] {
			clients = append(clients, n.Client(func(o *redis.Options) {
				o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
				o.Dialer = func(context.Context, string, string) (net.Conn, error) {
					return nil, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}
				}
			}))
		}
		f.uses(on(clients))
		return f.tries()
	},
	"clients closed, Lock": func(f speech) error {
		clients := clientsOf(f.nodes)
		f.uses(on(clients))
		f.meet()
		closeClients(f.T, clients[:3]...)
		time.Sleep(sec)
		return f.tries()
	},
	"clients closed, held": func(f speech) error {
		clients := clientsOf(f.nodes)
		f.uses(on(clients))
		m := f.held()
		closeClients(f.T, clients[:3]...)
		time.Sleep(2 * sec)
		return m.Err()
	},
	"keys gone":             after("Extend", func(f speech) { f.lose(majority...) }),
	"keys of one name gone": func(f speech) error { return second(f.lostKeys(both, "b").Valid()) },

	// The lock is over, or was not extended.

	"not extended, commands lost": after("Extend", func(f speech) { f.three("evalsha", 2, embedded.Fault{LoseCommand: true}) }),
	"expired, Err": func(f speech) error {
		m := f.held()
		time.Sleep(guard)
		return m.Err()
	},
	"expired while nodes are silent": func(f speech) error {
		m := f.held(withExpiry(4 * sec))
		f.freeze(majority...)
		return second(m.Extend())
	},
	"expired, Unlock":        after("Unlock", func(f speech) { time.Sleep(guard) }),
	"not confirmed, Unlock":  after("Unlock", func(f speech) { f.ends(0, 1, 2) }),
	"another holds the lock": after("Extend", func(f speech) { f.occupy("lock") }),
	"closed meanwhile": func(f speech) error {
		m := f.held()
		shut(f, f.Redsync)
		return m.Err()
	},
	"held for the longest time": func(f speech) error {
		m := f.held(withMaxHold(sec))
		time.Sleep(sec)
		return m.Err()
	},
	"extended for the longest time": func(f speech) error {
		m := f.held(withMaxHold(9 * sec))
		time.Sleep(5 * sec)
		f.extends(m)
		return second(m.Extend())
	},
	"released elsewhere, Unlock": func(f speech) error {
		m := f.held()
		f.unlock(f.another().NewMutex("lock", withValue(m.Value())))
		return second(m.Unlock())
	},
	"released twice, by the value": func(f speech) error {
		value := f.held(withExpiry(hour)).Value()
		adopted := f.NewMutex("lock", withValue(value), oneSecond)
		time.Sleep(minute) // its Unlock has no time condition
		f.unlock(adopted)
		return second(f.another().NewMutex("lock", withValue(value)).Unlock())
	},
	"not locked": func(f speech) error { return second(f.NewMutex("lock").Unlock()) },

	// The call itself.

	"context canceled": func(f speech) error {
		return f.NewMutex("lock").LockContext(parentOf(errors.New("enough")))
	},
	"deadline exceeded": func(f speech) error {
		m := f.held()
		f.freeze(majority...)
		return second(m.ExtendContext(limited(f, sec)))
	},
	"deadline exceeded, Do": func(f speech) error { return f.NewMutex("lock").Do(limited(f, sec), lasts(2*sec)) },
	"released by force, and told": func(f speech) error {
		var held *redsync.Mutex
		noError(f, f.forces(2*sec, func(m *redsync.Mutex) { held = m }))
		time.Sleep(100 * ms)
		return second(held.Unlock())
	},
	"force, nobody holds": func(f speech) error {
		return f.forces(0, func(m *redsync.Mutex) { f.unlock(m) })
	},
	"force, another holds": func(f speech) error {
		return f.forces(0, func(m *redsync.Mutex) { f.unlock(m); f.occupy("lock") })
	},
	"force, nodes silent": func(f speech) error {
		return f.forces(0, func(*redsync.Mutex) { f.freeze(majority...) })
	},
	"force, no holder":          func(f speech) error { return f.NewMutex("lock").ForceUnlock(f.Context(), redsync.Holder{}) },
	"Inspect, context canceled": func(f speech) error { return f.inspection(parentOf(errors.New("enough"))) },
	"Inspect, deadline exceeded": func(f speech) error {
		f.freeze(majority...)
		return f.inspection(limited(f, 100*ms))
	},
	"an owner that is empty":      locking(withOwner("")),
	"an owner that does not show": locking(withOwner("worker\u200b")),
	"option out of range":         locking(withExpiry(-1)),
	"a number without a unit":     locking(withExpiry(8)),
	"options exclude each other":  locking(twoPermits, withShared),
	"no name":                     func(f speech) error { return f.NewMutex("").Lock() },
	"reserved name":               func(f speech) error { return f.NewMutex("{x}:queue").Lock() },
	"closed": func(f speech) error {
		shut(f, f.Redsync)
		return f.lockError()
	},
	"no pools": func(speech) error { return redsync.New().NewMutex("lock").Lock() },
	"one server twice": func(f speech) error {
		f.uses(process(f.pick(0, 0, 0)))
		return f.lockError()
	},
	"one run_id": func(f speech) error {
		for _, n := range f.nodes {
			n.TellRunID("run_id:constant\r\n")
		}
		f.uses(process(f.pick(0, 1, 2)))
		return f.lockError()
	},
	"one address twice": func(f speech) error {
		pools := f.pools()
		return redsync.New(append(pools, pools[0])...).NewMutex("lock").Lock()
	},
	"a writer within a reader": func(f speech) error {
		return f.does("lock", func(ctx context.Context) error { return f.NewMutex("lock").LockContext(ctx) },
			withShared)
	},
	"a Lock within a Do": func(f speech) error {
		return f.does("lock", func(ctx context.Context) error { return f.NewMutex("lock").LockContext(ctx) })
	},
	"a second Lock of a reader": func(f speech) error { return f.held(withShared).TryLock() },

	// What is only in the log.

	"a quorum again": func(f speech) error {
		f.ends(0, 1, 2)
		_ = f.tries()
		f.restart(majority...)
		time.Sleep(sec)
		return f.lockError()
	},
	"some keys gone, set again": func(f speech) error {
		m := f.locked(both, withSetNXOnExtend, hearsAll)
		for _, n := range f.nodes[:3] {
			n.Del("b")
		}
		return second(m.Extend())
	},
	"an address that moves": func(f speech) error {
		var moving movable
		moving.to.Store(f.nodes[0])
		f.uses(on(append(clientsOf(f.nodes[:4]), moving.client())))
		f.meet()
		moving.to.Store(f.nodes[4])
		f.nodes[0].Disconnect()
		time.Sleep(sec)
		f.meet()
		return nil
	},
	"Ping, one server twice": func(f speech) error {
		f.uses(process(f.pick(0, 0, 1)))
		return f.Ping(f.Context())
	},
	"a register that nobody can have written": func(f speech) error {
		_ = f.nodes[0].Set(fenceKey, strings.Repeat("9", 19))
		return f.tries(withFencing, hearsAll)
	},
	"Close, a node down": func(f speech) error {
		f.held()
		f.ends(0)
		return f.Close(f.Context())
	},
	"waiters without SUBSCRIBE": func(f speech) error {
		onEach(f.nodes, "subscribe", 1<<20, embedded.Fault{Err: "NOPERM this user has no permissions to run the command"})
		m := locked(f, f.another().NewMutex("lock"))
		time.AfterFunc(sec, func() { _, _ = m.Unlock() })
		return f.lockError()
	},
}

// notProvoked are lines of the log, with the reason why they are not provoked.
var notProvoked = map[string]string{
	"Warn `release given up`":    "65,536 releases must wait for one node",
	"Warn `events were dropped`": "an observer must be 65,536 events behind",
}

// after returns a function that returns the error of an operation of a lock, after given.
func after(operation string, given func(f speech)) func(f speech) error {
	return func(f speech) error {
		m := f.held()
		given(f)
		return second(operations(m)[operation]())
	}
}

// locking returns a function that returns the error of a Lock.
func locking(options ...redsync.Option) func(f speech) error {
	return func(f speech) error { return f.lockError(options...) }
}

// calls returns a node whose function does something, and returns what no node answers.
func calls(does func()) pool.Pool {
	return pool.Func(func(context.Context, ...any) (any, error) {
		does()
		return 1.5, nil
	})
}

// forces returns the error of a ForceUnlock of the holder, between whose inspection and release meanwhile is called.
func (f *speech) forces(held time.Duration, meanwhile func(m *redsync.Mutex)) error {
	m, operator := f.owned("lock", held), f.NewMutex("lock")
	h := f.holderOf(operator)
	meanwhile(m)
	return operator.ForceUnlock(f.Context(), h)
}

// three makes three nodes answer some commands with a fault.
func (f *speech) three(command string, times int, fault embedded.Fault) {
	onEach(f.nodes[:3], command, times, fault)
}

func second(_ bool, err error) error { return err }

// undialed returns the error of a TryLock of a new process, whose dials three nodes do not answer.
func (f *speech) undialed(ctx context.Context) error {
	f.uses(f.process())
	for _, n := range f.nodes[:3] {
		n.TurnOff()
	}
	return f.NewMutex("lock").TryLockContext(ctx)
}

// occupy gives a name to another client on the first nodes, by default on three.
func (f field) occupy(name string, nodes ...int) {
	if nodes == nil {
		nodes = []int{0, 1, 2}
	}
	for _, i := range nodes {
		noError(f, f.nodes[i].Set(name, "another's"))
	}
}

// owned gives a name to another process, which says its owner, on all nodes, and waits for a while.
func (f field) owned(name string, held time.Duration) *redsync.Mutex {
	m := locked(f, f.another(withOwner("worker-7@host"), withWatchdog).NewMutex(name))
	synctest.Wait() // the lock is held as soon as a quorum has answered
	time.Sleep(held)
	return m
}

// inspection returns the error of an Inspect.
func (f *speech) inspection(ctx context.Context) error {
	_, err := f.NewMutex("lock").Inspect(ctx)
	return err
}

// denied returns a function that returns the error of a Lock that three nodes answer with an error.
func denied(answer string) func(f speech) error {
	return func(f speech) error {
		f.three("set", 1<<20, embedded.Fault{Err: answer})
		return f.tries()
	}
}

// greeted returns a function that returns the error of a Lock of a new process, whose greeting three nodes answer with an
// error.
func greeted(answer string) func(f speech) error {
	return func(f speech) error {
		var clients []*redis.Client
		for _, command := range []string{"hello", "auth"} {
			f.three(command, 1<<20, embedded.Fault{Err: answer})
		}
		for _, n := range f.nodes {
			clients = append(clients, n.Client(func(o *redis.Options) { o.Password = "secret" }))
		}
		f.uses(on(clients))
		return f.tries()
	}
}

// pools returns new pools of the nodes.
func (f field) pools() []pool.Pool {
	return poolsOf(clientsOf(f.nodes))
}

// saying is what a provocation has made the library say.
type saying struct {
	log string
	err error
}

// provoked has the sayings by name. Each is provoked once.
var provoked = map[string]saying{}

// provoke returns the lines of the log from Info on, without their times, and the error of a provocation.
func provoke(t *testing.T, name string) (log string, err error) {
	t.Helper()
	if s, ok := provoked[name]; ok {
		return s.log, s.err
	}
	defer func() { provoked[name] = saying{log, err} }()
	play(t, func(f field) {
		var text safeBuffer
		s := speech{f, redsync.WithLogger(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		})))}
		s.Redsync = f.With(s.log)
		s.meet()
		time.Sleep(ms)
		err = provocations[name](s)
		synctest.Wait()
		log = text.String()
	})
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
	parallelComputing(t)
	testlength.NotShort(t)
	patterns, seen := texts(read(t, "../docs/errors.md")), map[string]bool{}
	row, rows := regexp.MustCompile("(?m)^\\| (Error|Warn|Info) \\| (`[^`]+`)"), map[string]bool{} // whether it was seen
	for _, match := range row.FindAllStringSubmatch(read(t, "../docs/operating.md"), -1) {
		rows[match[1]+" "+match[2]] = false
	}
	line := regexp.MustCompile(`level=(\w)(\w+) msg="redsync: ([^"]+)"`)
	for name := range provocations {
		t.Run(name, func(t *testing.T) {
			log, err := provoke(t, name)
			t.Logf("%v\n%s", err, log)
			require.True(t, err != nil || log != "") // it has provoked nothing
			found := false
			for text, p := range patterns {
				if err != nil && p.MatchString(err.Error()) {
					seen[text], found = true, true
				}
			}
			assert.True(t, found || err == nil, "the page has no text of %q", err)
			for _, match := range line.FindAllStringSubmatch(log, -1) {
				row := match[1] + strings.ToLower(match[2]) + " `" + match[3] + "`"
				assert.Contains(t, rows, row)
				rows[row] = true
			}
		})
	}
	for text, p := range patterns {
		assert.True(t, seen[text], "nothing says %q (%v)", text, p)
	}
	for row, seen := range rows {
		assert.Equal(t, notProvoked[row] == "", seen, row)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must(os.ReadFile(path)))
}

func TestPageOfErrorsNamesEachExportedError(t *testing.T) {
	page, exported := read(t, "../docs/errors.md"), exportedErrors(t)
	require.Greater(t, len(exported), 10)
	for _, name := range exported {
		assert.True(t, strings.Contains(page, "`"+name+"`"), "the page does not name %s", name)
	}
}

// exportedErrors returns the exported variables and types of errors. A type has a * before it.
func exportedErrors(t *testing.T) (names []string) {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^(?:type |var |\t)(Err[A-Z]\w*|[A-Z]\w*Error)( struct| +=)`)
	for _, source := range sources(t) {
		for _, match := range declared.FindAllStringSubmatch(source, -1) {
			star := map[bool]string{true: "*"}[match[2] == " struct"]
			names = append(names, star+match[1])
		}
	}
	return names
}

// sources returns the files of the package without its tests.
func sources(t *testing.T) (texts []string) {
	t.Helper()
	files := must(filepath.Glob("../*.go"))
	for _, path := range files {
		if !strings.HasSuffix(path, "_test.go") {
			texts = append(texts, read(t, path))
		}
	}
	return texts
}

// goldenTexts has everything that provocations and serverProvocations make the library say, for people to read.
const goldenTexts = "testdata/texts.txt"

// said returns what a provocation has made the library say, a line each. Equal lines of the log stand there once.
func said(log string, err error) []string {
	var lines []string
	if err != nil {
		lines = append(lines, "error: "+err.Error())
	}
	seen := map[string]bool{}
	var logged []string
	for line := range strings.Lines(log) {
		if alike := normal(line); !seen[alike] {
			seen[alike] = true
			logged = append(logged, strings.TrimSpace(line))
		}
	}
	slices.SortFunc(logged, func(a, b string) int { return strings.Compare(normal(a), normal(b)) })
	return append(lines, logged...)
}

// normal returns a line without what differs from run to run: numbers, ids, and how many nodes say the same.
func normal(line string) string {
	for _, r := range []struct{ pattern, by string }{
		{`[0-9a-f]{16,40}`, "ID"},
		{`[\d.]*\d((ms|µs|s|m|h)\b)?`, "N"},
		{`(NN?[smh]?)+`, "N"},
		{`nodes?( #N)+`, "nodes #N"},
		{`level=`, "level="},
		{` (for|omitted|after|tries|attempts)=N`, ""},
		{`NOPERM (this user|User \w+) has no permissions to run the '(\w+)' command( or its subcommand)?`, "NOPERM $2"}, // by version
	} {
		line = regexp.MustCompile(r.pattern).ReplaceAllString(line, r.by)
	}
	var parts []string
	for part := range strings.SplitSeq(strings.TrimSpace(line), "; ") {
		if !slices.ContainsFunc(parts, func(before string) bool { return strings.HasSuffix(before, part) }) {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}

func normalLines(text string) (all []string) {
	for line := range strings.Lines(text) {
		all = append(all, normal(line))
	}
	return all
}

// serverProvocations make real servers say something, in their own words, by name: the command that sets up a server, and
// what its client says.
var serverProvocations = map[string]struct {
	command, user, password string
	db                      int
}{
	"a password is missing":        {command: "config set requirepass secret"},
	"the password is wrong":        {"acl setuser locker reset on >secret", "locker", "wrong", 0},
	"the user may not SET":         {"acl setuser locker reset on >secret ~* &* +@all -set", "locker", "secret", 0},
	"out of memory":                {command: "config set maxmemory 1"},
	"a database that is not there": {command: "ping", db: 99},
	"a replica":                    {command: "replicaof 127.0.0.1 1"},
	"too few replicas":             {command: "config set min-replicas-to-write 1"},
}

// TestTextsOfServers compares what servers make the library say with the golden file. Servers of another version may use
// other words.
func TestTextsOfServers(t *testing.T) {
	t.Parallel()
	golden := read(t, goldenTexts)
	for _, name := range slices.Sorted(maps.Keys(serverProvocations)) {
		t.Run(name, func(t *testing.T) {
			c, s := serverProvocations[name], realredis.Start(t, 1)[0]
			var command []any
			for word := range strings.FieldsSeq(c.command) {
				command = append(command, word)
			}
			realredis.Must(t, s, command...)
			opt := *s.Client().Options()
			opt.Dialer, opt.Username, opt.Password, opt.DB = nil, c.user, c.password, c.db
			client := redis.NewClient(&opt)
			rs := on([]*redis.Client{client}).With(redsync.WithTimeoutFactor(0.4), hearsAll) // all nodes are heard
			t.Cleanup(func() { _ = errors.Join(rs.Close(t.Context()), client.Close()) })
			err := rs.NewMutex("lock").TryLock()
			errorIs(t, err, redsync.ErrNoQuorum)
			text := "server: " + name + "\n\terror: " + err.Error() + "\n"
			if os.Getenv("REDSYNC_TEXTS") == "rewrite" {
				t.Log(text)
				noError(t, os.WriteFile(goldenTexts, []byte(read(t, goldenTexts)+text), 0o644))
				return
			}
			assert.Subset(t, normalLines(golden), normalLines(text))
		})
	}
}

// A reviewer reads the golden file. REDSYNC_TEXTS=rewrite writes it.
func TestTextsAreThoseOfTheGoldenFile(t *testing.T) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(provocations)) {
		log, err := provoke(t, name)
		b.WriteString(name + "\n\t" + strings.Join(said(log, err), "\n\t") + "\n")
	}
	if os.Getenv("REDSYNC_TEXTS") == "rewrite" {
		noError(t, os.MkdirAll(filepath.Dir(goldenTexts), 0o755))
		noError(t, os.WriteFile(goldenTexts, []byte(b.String()), 0o644))
	}
	golden, _, _ := strings.Cut(read(t, goldenTexts), "server: ") // see TestTextsOfServers
	assert.Equal(t, normalLines(golden), normalLines(b.String()), "REDSYNC_TEXTS=rewrite writes %s", goldenTexts)
}
