package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/safety"
)

// This file plays every row of the table of docs/from-redsync-v4-errors.md with both libraries, on embedded nodes in
// virtual time. It compares what the errors match with the two cells of the row.

// A cast is what a play has.
type cast struct {
	*safety.Env
	*testing.T
	open safety.Open
	rs   safety.Library
	ctx  context.Context //nolint:containedctx // of the call
	end  context.CancelFunc
	down int // how many nodes fail
}

func (c *cast) must(_ bool, err error) { assert.NoError(c.T, err) }

// held returns a Mutex that has the lock for 4 s, which is less than the time after which a connection is given up.
func (c *cast) held() safety.Mutex {
	m := c.rs.NewMutex("lock", safety.Options{Expiry: 4 * time.Second})
	c.must(true, m.LockContext(context.Background()))
	time.Sleep(time.Millisecond) // the last nodes have answered
	return m
}

// another makes another process take the lock, which must be free.
func (c *cast) another() {
	m := c.Process().NewMutex("lock", safety.Options{Expiry: time.Minute})
	c.must(true, m.LockContext(context.Background()))
	time.Sleep(time.Millisecond)
}

func (c *cast) empty() {
	for i := range safety.N {
		c.Delete(i, "lock")
	}
}

func (c *cast) kill() {
	c.down = safety.Quorum
	for i := range c.down {
		c.Kill(i)
	}
	time.Sleep(time.Millisecond) // the ends of the connections have been noticed
}

func (c *cast) freeze() {
	c.down = safety.Quorum
	for i := range c.down {
		c.Freeze(i)
	}
}

// lock calls Lock with two tries.
func (c *cast) lock() []error {
	m := c.rs.NewMutex("lock", safety.Options{Tries: 2, RetryDelay: 10 * time.Millisecond})
	return []error{m.LockContext(c.ctx)}
}

// lockUntilEnd calls Lock. The context ends after a time, before the tries are used up.
func (c *cast) lockUntilEnd(after time.Duration) []error {
	time.AfterFunc(after, c.end)
	return []error{c.rs.NewMutex("lock", safety.Options{Tries: 100}).LockContext(c.ctx)}
}

// waits makes another goroutine of the process wait for the lock, until the play ends.
func (c *cast) waits(after time.Duration) {
	m := c.rs.NewMutex("lock", safety.Options{Tries: 100})
	go func() { _ = m.LockContext(c.ctx) }()
	time.Sleep(after)
}

func (c *cast) extend(m safety.Mutex) error { return second(m.ExtendContext(c.ctx)) }
func (c *cast) valid(m safety.Mutex) error  { return second(m.ValidContext(c.ctx)) }
func (c *cast) unlock(m safety.Mutex) error { return second(m.UnlockContext(c.ctx)) }

func second(_ bool, err error) error { return err }

// An errorRow is how a row is played.
type errorRow struct {
	errs      func(c *cast) []error // each must match the cell
	explained string                // how the page's function explain begins, for each error of this library
}

// errNoClose stands for a library that cannot be closed.
var errNoClose = errors.New("it has no Close")

// errorRows has the play of each row, by its first cell.
var errorRows = map[string]errorRow{
	"Lock, taken": {func(c *cast) []error {
		c.another()
		return c.lock()
	}, "another process has the lock"},
	"Lock, taken; the context ends while it waits": {func(c *cast) []error {
		c.another()
		return c.lockUntilEnd(time.Second)
	}, "another process has the lock"},
	"Lock, nodes down": {func(c *cast) []error {
		c.kill()
		return c.lock()
	}, "too few nodes answered: node #"},
	"Lock, nodes down; the context ends after an attempt": {func(c *cast) []error {
		c.kill()
		return c.lockUntilEnd(3 * time.Second)
	}, "too few nodes answered: node #"},
	"Lock, nodes silent": {func(c *cast) []error {
		c.freeze()
		return c.lock()
	}, "too few nodes answered: node #"},
	"Lock, nodes silent; the context ends during the first attempt": {func(c *cast) []error {
		c.freeze()
		return c.lockUntilEnd(10 * time.Millisecond)
	}, "the context ended"},
	"Lock, taken; other goroutines of the process wait for it": {func(c *cast) []error {
		c.another()
		c.waits(time.Second)
		return c.lock()
	}, "another process has the lock"},
	"Lock `WithFair`, nodes silent; another goroutine of the process is ahead": {func(c *cast) []error {
		c.freeze()
		c.waits(time.Millisecond)
		return c.lock()
	}, "other callers of this process are ahead"},
	"Lock, no pools": {func(c *cast) []error {
		c.rs = c.open(nil)
		return c.lock()
	}, "redsync: "},
	"Lock, `WithExpiry(-1)`": {func(c *cast) []error {
		c.down = safety.N
		return []error{c.rs.NewMutex("lock", safety.Options{Expiry: -1, Tries: 1}).LockContext(c.ctx)}
	}, `redsync: lock "lock": WithExpiry(-1ns) is out of range`},
	"Lock, Extend, Valid, Unlock after `Close`": {func(c *cast) []error {
		if v4, is := c.rs.(rivalLibrary); is {
			_, has := reflect.TypeOf(v4.rs).MethodByName("Close")
			assert.False(c.T, has)
			return []error{errNoClose}
		}
		m := c.held()
		c.rs.Close()
		return append(c.lock(), c.extend(m), c.valid(m), c.unlock(m))
	}, "redsync: "},
	"Extend, nodes down": {func(c *cast) []error {
		m := c.held()
		until := m.Until()
		c.kill()
		err := c.extend(m)
		assert.Equal(c.T, until, m.Until())
		return []error{err}
	}, "not extended; held until the old Until"},
	"Extend, nodes silent until `Until`": {func(c *cast) []error {
		m := c.held()
		c.freeze()
		return []error{c.extend(m)}
	}, "the lock is over"},
	"Extend, the context has ended": {func(c *cast) []error {
		m := c.held()
		c.down = safety.N
		c.end()
		return []error{c.extend(m)}
	}, "not extended; held until the old Until"},
	"Valid, Unlock, nodes down": {func(c *cast) []error {
		m := c.held()
		c.kill()
		return []error{c.valid(m), c.unlock(m)}
	}, "too few nodes answered: node #"},
	"Extend, Valid, keys are gone": {func(c *cast) []error {
		m := c.held()
		c.empty()
		extended := c.extend(m)
		m = c.held()
		c.empty()
		return []error{extended, c.valid(m)}
	}, "the lock is over"},
	"Extend, Valid, another process holds the lock": {func(c *cast) []error {
		m := c.held()
		c.empty()
		c.another()
		extended := c.extend(m)
		c.empty()
		m = c.held()
		c.empty()
		c.another()
		return []error{extended, c.valid(m)}
	}, "the lock is over"},
	"Extend, Valid, Unlock after `Until`, nodes still have the keys": {func(c *cast) []error {
		m := c.held()
		time.Sleep(time.Until(m.Until()))
		return []error{c.valid(m), c.extend(m), c.unlock(m)}
	}, "the lock is over"},
	"Extend, Valid after `Until`, keys have expired": {func(c *cast) []error {
		m := c.held()
		time.Sleep(4 * time.Second)
		return []error{c.valid(m), c.extend(m)}
	}, "the lock is over"},
	"Unlock, keys are gone or have expired": {func(c *cast) []error {
		m := c.held()
		c.empty()
		gone := c.unlock(m)
		m = c.held()
		time.Sleep(4 * time.Second)
		return []error{gone, c.unlock(m)}
	}, "the lock is over"},
	"Unlock, another process holds the lock": {func(c *cast) []error {
		m := c.held()
		c.empty()
		c.another()
		return []error{c.unlock(m)}
	}, "the lock is over"},
	"second Unlock, lock is free": {func(c *cast) []error {
		m := c.held()
		c.must(true, c.unlock(m))
		time.Sleep(time.Millisecond)
		return []error{c.unlock(m)}
	}, "not locked, or already unlocked"},
	"second Unlock, another process holds the lock": {func(c *cast) []error {
		m := c.held()
		c.must(true, c.unlock(m))
		time.Sleep(time.Millisecond)
		c.another()
		return []error{c.unlock(m)}
	}, "not locked, or already unlocked"},
	"Extend, Valid without Lock": {func(c *cast) []error {
		m := c.rs.NewMutex("lock", safety.Options{})
		return []error{c.extend(m), c.valid(m)}
	}, "not locked, or already unlocked"},
	"Unlock without Lock, lock is free": {func(c *cast) []error {
		return []error{c.unlock(c.rs.NewMutex("lock", safety.Options{}))}
	}, "not locked, or already unlocked"},
}

// claims are what a cell can say of an error.
var claims = map[string]func(err error) bool{
	"`ErrFailed`":                matches(rival.ErrFailed, redsync.ErrFailed),
	"`ErrNoQuorum`":              matches(redsync.ErrNoQuorum),
	"`*ErrTaken`":                func(err error) bool { return has[*rival.ErrTaken](err) || has[*redsync.ErrTaken](err) },
	"`ErrExtendFailed`":          matches(rival.ErrExtendFailed, redsync.ErrExtendFailed),
	"`ErrLockLost`":              matches(redsync.ErrLockLost),
	"`ErrLockAlreadyExpired`":    matches(rival.ErrLockAlreadyExpired, redsync.ErrLockAlreadyExpired),
	"`ErrNotHeld`":               matches(redsync.ErrNotHeld),
	"`ErrNoPools`":               matches(redsync.ErrNoPools),
	"`ErrClosed`":                matches(redsync.ErrClosed),
	"the context's error":        matches(context.Canceled),
	"`context.DeadlineExceeded`": matches(context.DeadlineExceeded),
	"it has no `Close`":          matches(errNoClose),
}

func matches(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

func has[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

// claimed returns all that a cell can say of err, sorted. down nodes have failed.
func claimed(err error, down int) (all []string) {
	if err == nil {
		return []string{"no error"}
	}
	for claim, is := range claims {
		if is(err) {
			all = append(all, claim)
		}
	}
	switch failed := failures(err); {
	case failed > 0 && failed == down:
		all = append(all, "`*RedisError` for each")
	case failed > 0:
		all = append(all, "`*RedisError`")
	case len(all) == 0:
		return []string{"an error that matches none"}
	}
	slices.Sort(all)
	return all
}

// failures counts the errors of nodes that failed.
func failures(err error) (count int) {
	switch err := err.(type) { //nolint:errorlint // it walks
	case *rival.RedisError, *redsync.RedisError:
		return 1
	case interface{ Unwrap() []error }:
		for _, each := range err.Unwrap() {
			count += failures(each)
		}
	case interface{ Unwrap() error }:
		return failures(err.Unwrap())
	}
	return count
}

// explain is the function of the page, letter by letter.
func explain(err error) string {
	var taken *redsync.ErrTaken
	var node *redsync.RedisError
	switch {
	case err == nil:
		return "no error"
	case errors.Is(err, redsync.ErrNotHeld): // before ErrLockAlreadyExpired, which it matches too
		return "not locked, or already unlocked"
	case errors.Is(err, redsync.ErrLockAlreadyExpired), errors.Is(err, redsync.ErrLockLost): // before RedisError, which may come with it
		return "the lock is over"
	case errors.Is(err, redsync.ErrExtendFailed):
		return "not extended; held until the old Until"
	case errors.As(err, &taken): // before the context's error, which may come with it
		return "another process has the lock"
	case errors.Is(err, redsync.ErrFailed):
		return "other callers of this process are ahead"
	case errors.Is(err, redsync.ErrNoQuorum) && errors.As(err, &node):
		return "too few nodes answered: " + node.Error()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "the context ended"
	}
	return err.Error()
}

func TestErrorsPageSaysWhatBothLibrariesReturn(t *testing.T) {
	page, err := os.ReadFile("../docs/from-redsync-v4-errors.md")
	require.NoError(t, err)
	const head = "\n| call, with five nodes | redsync v4 | this library |\n|---|---|---|\n"
	_, table, found := strings.Cut(string(page), head)
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		require.Len(t, cells, 3, line)
		rows = append(rows, cells[0])
		t.Run(cells[0], func(t *testing.T) {
			row := errorRows[cells[0]]
			require.NotNil(t, row.errs, "there is no play of this row")
			compareCell(t, openRival, row, cells[1])
			var options []redsync.Option
			if strings.Contains(cells[0], "`WithFair`") { // redsync v4 has no such option
				options = append(options, redsync.WithFair())
			}
			for _, err := range compareCell(t, safety.Ours(options...), row, cells[2]) {
				assert.True(t, strings.HasPrefix(explain(err), row.explained), "explained: %s", explain(err))
			}
		})
	}
	assert.ElementsMatch(t, rows, slices.Collect(maps.Keys(errorRows)), "rows, and plays")
}

// compareCell plays with one library, and compares the errors with a cell such as "`A`, `B` and `C`, sometimes also
// `D`, not `E`".
func compareCell(t *testing.T, open safety.Open, row errorRow, cell string) (errs []error) {
	t.Helper()
	c := &cast{T: t, open: open}
	_ = safety.PlayEmbedded(t, open, safety.Scene{Play: func(e *safety.Env) error {
		c.Env, c.rs = e, e.Process()
		c.ctx, c.end = context.WithCancel(context.Background())
		defer c.end()
		errs = row.errs(c)
		return nil
	}})
	cell, not, _ := strings.Cut(cell, ", not ")
	cell, atTimes, _ := strings.Cut(cell, ", sometimes also ")
	want := regexp.MustCompile(`, | and `).Split(cell, -1)
	slices.Sort(want)
	for _, claim := range []string{not, atTimes} {
		assert.True(t, claim == "" || claims[claim] != nil, claim)
	}
	for _, err := range errs {
		got := slices.DeleteFunc(claimed(err, c.down), func(claim string) bool { return claim == atTimes })
		assert.Equal(t, want, got, "%v", err)
		assert.NotContains(t, got, not)
	}
	assert.NotEmpty(t, errs)
	return errs
}

func TestErrorsPageHasTheFunctionExplain(t *testing.T) {
	page, err := os.ReadFile("../docs/from-redsync-v4-errors.md")
	require.NoError(t, err)
	source, err := os.ReadFile("errors_page_test.go")
	require.NoError(t, err)
	_, function, found := strings.Cut(string(page), "```go\nfunc explain(")
	require.True(t, found)
	function, _, _ = strings.Cut(function, "```")
	assert.Contains(t, string(source), "\nfunc explain("+function)
}
