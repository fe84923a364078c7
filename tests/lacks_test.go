package redsync_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests nodes on which clients cannot use a command.

// A lacking is a row of the table in docs/permissions.md: commands, and what the page says for each embedded.Lack.
type lacking struct {
	commands []string
	cells    map[embedded.Lack]string
}

// lackings returns the rows of that table.
func lackings(t *testing.T) (rows []lacking) {
	t.Helper()
	_, table, found := strings.Cut(read(t, "../docs/permissions.md"), "| command | missing | denied | connection closed |\n")
	require.True(t, found)
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 4 {
			r := lacking{cells: map[embedded.Lack]string{embedded.Missing: cells[1], embedded.Denied: cells[2], embedded.Closing: cells[3]}}
			for _, c := range regexp.MustCompile("`([A-Z]+)`").FindAllStringSubmatch(cells[0], -1) {
				r.commands = append(r.commands, c[1])
			}
			rows = append(rows, r)
		}
	}
	require.Len(t, rows, 12)
	return rows
}

// checkCell checks that a cell of the page says what does not work and in which words, given the processes of clients.
func checkCell(t *testing.T, cell string, process func() *redsync.Redsync) {
	t.Helper()
	noError(t, wrongCell(t, cell, process))
}

func wrongCell(t *testing.T, cell string, process func() *redsync.Redsync) error {
	t.Helper()
	fails, said := whatFails(t, process)
	quoted := regexp.MustCompile("`([^`]+)`")
	words, _, _ := strings.Cut(quoted.ReplaceAllString(cell, ""), ":")
	right := words == fails
	for _, q := range quoted.FindAllStringSubmatch(cell, -1) {
		right = right && strings.Contains(said, q[1])
	}
	if right {
		return nil
	}
	return fmt.Errorf("the page says: %s\nfails: %s\nsaid: %s", cell, fails, said)
}

// whatFails tries locks with two processes. It returns what does not work, as the page writes it, and the errors and lines
// of the log.
func whatFails(t *testing.T, process func() *redsync.Redsync) (fails, said string) {
	t.Helper()
	log, ctx := &safeBuffer{}, t.Context()
	logger := redsync.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	a, b := process(), process()
	defer func() { _, _ = a.Close(context.Background()), b.Close(context.Background()) }()
	locks := opts{redsync.WithExpiry(8 * time.Second), logger, redsync.WithRetryDelay(time.Second), forever}
	a, b = a.With(locks...), b.With(locks...)
	var not, errs []string
	try := func(what string, err error) {
		if err != nil {
			not, errs = append(not, what), append(errs, fmt.Sprint(err))
		}
	}
	try("Ping", a.Ping(ctx))
	m := a.NewMutex("lock")
	if err := m.TryLock(); err != nil {
		return "nothing works", strings.Join(append(errs, err.Error()), "\n")
	}
	_, err := m.Extend()
	try("Extend", err)
	_, err = m.Valid()
	try("Valid", err)
	_, err = m.Unlock()
	try("Unlock", err)
	fair := a.NewMutex("fair", withFair)
	try("fair", fair.TryLock())
	_, _ = fair.Unlock()

	waiting, end := context.WithTimeout(ctx, 30*time.Second)
	defer end()
	held := a.NewMutex("held")
	try("waiting", held.LockContext(waiting)) // releases may be repeated meanwhile
	got := make(chan error, 1)
	var at time.Time
	go func() {
		w := b.NewMutex("held")
		err := w.LockContext(waiting)
		at = time.Now()
		_, _ = w.Unlock()
		got <- err
	}()
	time.Sleep(3300 * ms)
	released := time.Now()
	_, _ = held.Unlock()
	switch err := <-got; {
	case !slices.Contains(not, "waiting") && err != nil:
		try("waiting", err)
	case err == nil && at.Sub(released) > 100*ms:
		not = append(not, "waking")
	}
	said = strings.Join(append(errs, log.String()), "\n")
	if not == nil {
		return "all works", said
	}
	return "not " + strings.Join(not, ", "), said
}

// Each cell of the table is true.
func TestNodesThatLackACommand(t *testing.T) {
	parallelComputing(t)
	for _, row := range lackings(t) {
		for how, cell := range row.cells {
			if cell == "-" {
				continue
			}
			t.Run(fmt.Sprint(row.commands, how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes := embedded.Start(3)
					defer time.Sleep(time.Minute)
					defer nodes.Close()
					nodes.Lacks(how, row.commands...)
					plain, without, _ := strings.Cut(cell, "; with ")
					checkCell(t, plain, func() *redsync.Redsync { return process(nodes) })
					switch option, works, _ := strings.Cut(without, " "); option {
					case "`WithoutIdentity`":
						checkCell(t, works, func() *redsync.Redsync { return process(nodes, pool.WithoutIdentity()) })
					case "`DisableIdentity`":
						checkCell(t, works, func() *redsync.Redsync {
							var clients []*redis.Client
							for _, n := range nodes {
								clients = append(clients, n.Client(func(o *redis.Options) { o.DisableIdentity = true }))
							}
							return on(clients)
						})
					default:
						require.Empty(t, option)
					}
				})
			})
		}
	}
}

// Real servers without a command say and do the same.
func TestServersThatLackACommand(t *testing.T) {
	for _, row := range lackings(t) {
		if c := row.commands[0]; len(row.commands) > 1 || c == "HELLO" || c == "PING" { // realredis needs PING
			continue
		}
		t.Run(row.commands[0], func(t *testing.T) {
			t.Parallel()
			servers := realredis.Start(t, 1, "--rename-command", row.commands[0], "")
			stall.Replay(t, 100*ms, func() error {
				return wrongCell(t, row.cells[embedded.Missing], func() *redsync.Redsync { return realProcess(servers) })
			})
		})
	}
}

// A node without EVALSHA is asked for it once in a minute. So a node whose answers come late is sent each script in full at
// once: otherwise the others would have decided before it could be sent.
func TestANodeWithoutEVALSHAIsNotAskedEachTime(t *testing.T) {
	playMet(t, func(f field) {
		f.nodes.Lacks(embedded.Missing, "evalsha")
		before := f.commands("evalsha")
		m := locked(f, f.NewMutex("lock", redsync.WithExpiry(time.Hour)))
		for range 2 {
			for range 3 {
				confirmed(f, m.Extend)
				synctest.Wait() // else a node may not have answered yet that it has no EVALSHA
				confirmed(f, m.Valid)
				synctest.Wait()
			}
			f.keysOn(5)
			time.Sleep(59 * time.Second)
		}
		assert.Equal(f, 5, f.commands("evalsha")-before)
		time.Sleep(2 * time.Second)
		f.unlock(m)
		synctest.Wait()
		assert.Equal(f, 10, f.commands("evalsha")-before)
		f.keysOn(0)
	})
}
