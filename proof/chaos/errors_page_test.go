package main

import (
	"context"
	"errors"
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
	"github.com/seed14bd9ef4/redsync/internal/testkit/safety"
)

// This file plays every line of testdata/errors.txt with both libraries, on embedded nodes in virtual time. It compares
// what the errors match with the two cells of the line. docs/from-redsync-v4.md has some of these lines.

// A cast is what a play has.
type cast struct {
	*safety.Env
	*testing.T
	open safety.Open
	rs   safety.Library
	m    safety.Mutex
	ctx  context.Context //nolint:containedctx // of the call
	end  context.CancelFunc
	down int // how many nodes fail
	errs []error
}

func (c *cast) lock(ctx context.Context, rs safety.Library, o safety.Options) error {
	c.m = rs.NewMutex("lock", o)
	return c.m.LockContext(ctx)
}

// step plays one step. Its last word may be a duration.
func (c *cast) step(what string) {
	what, of, _ := strings.Cut(what, " for ")
	d, _ := time.ParseDuration(of)
	result := func(_ bool, err error) { c.errs = append(c.errs, err) }
	switch what {
	case "another has it": // another process takes the lock, which must be free
		mine := c.m
		assert.NoError(c.T, c.lock(context.Background(), c.Process(), safety.Options{Expiry: time.Minute}))
		time.Sleep(time.Millisecond) // the last nodes have answered
		c.m = mine
	case "held": // for 4 s, which is less than the time after which a connection is given up
		assert.NoError(c.T, c.lock(context.Background(), c.rs, safety.Options{Expiry: 4 * time.Second}))
		time.Sleep(time.Millisecond)
	case "released":
		_, err := c.m.UnlockContext(c.ctx)
		assert.NoError(c.T, err)
		time.Sleep(time.Millisecond)
	case "new":
		c.m = c.rs.NewMutex("lock", safety.Options{})
	case "keys gone":
		for i := range safety.N {
			c.Delete(i, "lock")
		}
	case "nodes down", "nodes silent":
		c.down = safety.Quorum
		for i := range c.down {
			if what == "nodes down" {
				c.Kill(i)
			} else {
				c.Freeze(i)
			}
		}
		if what == "nodes down" {
			time.Sleep(time.Millisecond) // the ends of the connections have been noticed
		}
	case "no pools":
		c.rs = c.open(nil)
	case "sleep":
		time.Sleep(d)
	case "past Until":
		time.Sleep(time.Until(c.m.Until()))
	case "end":
		c.down = safety.N
		c.end()
	case "another goroutine waits":
		m := c.rs.NewMutex("lock", safety.Options{Tries: 100})
		go func() { m.LockContext(c.ctx) }()
		time.Sleep(d)
	case "Close":
		if v4, is := c.rs.(rivalLibrary); is {
			_, has := reflect.TypeOf(v4.rs).MethodByName("Close")
			assert.False(c.T, has)
			c.errs = []error{errNoClose}
			return
		}
		c.rs.Close()
	case "Lock": // with two tries, or until the context ends
		o := safety.Options{Tries: 2, RetryDelay: 10 * time.Millisecond}
		if d > 0 {
			o = safety.Options{Tries: 100}
			time.AfterFunc(d, c.end)
		}
		mine := c.m
		result(false, c.lock(c.ctx, c.rs, o))
		c.m = mine
	case "Lock with the expiry -1":
		c.down = safety.N
		result(false, c.lock(c.ctx, c.rs, safety.Options{Expiry: -1, Tries: 1}))
	case "Extend", "Extend in vain":
		until := c.m.Until()
		result(c.m.ExtendContext(c.ctx))
		assert.True(c.T, what == "Extend" || c.m.Until().Equal(until))
	case "Valid":
		result(c.m.ValidContext(c.ctx))
	case "Unlock":
		result(c.m.UnlockContext(c.ctx))
	default:
		assert.Fail(c.T, "there is no such step", what)
	}
}

// errNoClose stands for a library that cannot be closed.
var errNoClose = errors.New("it has no Close")

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

func TestErrorsPageSaysWhatBothLibrariesReturn(t *testing.T) {
	const head = "\n| call, with five nodes | redsync v4 | this library |\n|---|---|---|\n"
	_, page, found := strings.Cut(read(t, "../../docs/from-redsync-v4.md"), head)
	require.True(t, found)
	page, _, _ = strings.Cut(page, "\n\n")
	var lines []string
	for line := range strings.Lines(read(t, "testdata/errors.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, "\n"), " | ")
		require.Len(t, cells, 4, line)
		lines = append(lines, "| "+strings.Join(cells[:3], " | ")+" |")
		t.Run(cells[0], func(t *testing.T) {
			v4 := compareCell(t, openRival, cells[3], cells[1])
			var options []redsync.Option
			if strings.Contains(cells[0], "`WithFair`") { // redsync v4 has no such option
				options = append(options, redsync.WithFair())
			}
			for i, err := range compareCell(t, safety.Ours(options...), cells[3], cells[2]) {
				if i < len(v4) {
					matchAlike(t, v4[i], err)
				}
			}
		})
	}
	assert.Subset(t, lines, strings.Split(page, "\n"))
}

// matchAlike checks that the error of this library has the outermost type of that of redsync v4, and its words. If redsync
// v4 says that the lock is taken, and this library does not, there is nothing to compare.
func matchAlike(t *testing.T, v4, err error) {
	switch _, taken := v4.(*rival.ErrTaken); { //nolint:errorlint // as programs do
	case v4 == nil, taken && !has[*redsync.ErrTaken](err):
		return
	case taken:
		assert.IsType(t, &redsync.ErrTaken{}, err)
	}
	if _, is := v4.(interface{ Unwrap() []error }); is { //nolint:errorlint // as programs do
		assert.Implements(t, (*interface{ Unwrap() []error })(nil), err)
	}
	for _, words := range []string{
		"lock already taken, locked nodes: [", rival.ErrFailed.Error(), rival.ErrExtendFailed.Error(), rival.ErrLockAlreadyExpired.Error(),
	} {
		if strings.Contains(v4.Error(), words) {
			assert.Contains(t, err.Error(), words)
		}
	}
}

// compareCell plays with one library, and compares the errors with a cell such as "`A`, `B` and `C`, sometimes also
// `D`, not `E`".
func compareCell(t *testing.T, open safety.Open, play, cell string) []error {
	c := &cast{T: t, open: open}
	safety.PlayEmbedded(t, open, safety.Scene{Play: func(e *safety.Env) error {
		c.Env, c.rs = e, e.Process()
		c.ctx, c.end = context.WithCancel(context.Background())
		defer c.end()
		for step := range strings.SplitSeq(play, ", ") {
			if c.step(step); slices.Contains(c.errs, errNoClose) {
				break
			}
		}
		return nil
	}})
	cell, not, _ := strings.Cut(cell, ", not ")
	cell, atTimes, _ := strings.Cut(cell, ", sometimes also ")
	want := regexp.MustCompile(`, | and `).Split(cell, -1)
	slices.Sort(want)
	for _, claim := range []string{not, atTimes} {
		assert.True(t, claim == "" || claims[claim] != nil, claim)
	}
	for _, err := range c.errs {
		got := slices.DeleteFunc(claimed(err, c.down), func(claim string) bool { return claim == atTimes })
		assert.Equal(t, want, got, err)
		assert.NotContains(t, got, not)
	}
	assert.NotEmpty(t, c.errs)
	return c.errs
}
