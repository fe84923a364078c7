package redsync_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// Lock, Do and Lead wait as long as WithWait says, whatever the nodes do. Their error is that of a last try.
func TestWithWaitBoundsTheWaitAlone(t *testing.T) {
	testlength.FromGate(t)
	calls := map[string]func(*redsync.Redsync, context.Context, string, work, ...redsync.Option) error{
		"Do": (*redsync.Redsync).Do, "Lead": (*redsync.Redsync).Lead,
		"Lock": func(rs *redsync.Redsync, ctx context.Context, name string, _ work, o ...redsync.Option) error { //nolint:revive // as the others
			return rs.NewMutex(name, o...).LockContext(ctx)
		},
	}
	frozen, fair := hit(field.freeze, majority...), opts{withFair}
	scenes := map[string]struct {
		wait    time.Duration
		options opts
		fails   func(f field) // if not nil, ErrNoQuorum comes of it, and otherwise *ErrTaken
	}{
		"taken":                         {3 * sec, nil, nil},
		"taken, fair":                   {3 * sec, fair, nil},
		"taken, polling":                {3 * sec, opts{withRetryDelay(70 * ms)}, nil},
		"taken, for a minute":           {minute, nil, nil},
		"nodes are silent":              {3 * sec, nil, frozen},
		"nodes are silent, shortly":     {20 * ms, nil, frozen},
		"nodes are silent, fair, short": {20 * ms, fair, frozen},
		"nodes are down":                {3 * sec, nil, hit(field.kill, majority...)},
	}
	for title, s := range sorted(scenes) {
		for name, call := range sorted(calls) {
			playAs(t, title+"/"+name, func(f field) {
				locked(f, f.process().NewMutex("lock", withExpiry(hour)))
				rs, want := f.process(), redsync.ErrFailed
				if s.fails != nil {
					want = redsync.ErrNoQuorum
					s.fails(f)
				}
				start := time.Now()
				err := call(rs, f.Context(), "lock", nothing, append(opts{redsync.WithWait(s.wait)}, s.options...)...)
				assert.Equal(f, s.wait, time.Since(start))
				errorIs(f, err, want)
				require.NotErrorIs(f, err, context.DeadlineExceeded)
				var taken *redsync.ErrTaken
				assert.Equal(f, s.fails == nil, errors.As(err, &taken), err)
			})
		}
	}
}

// The end of the wait is no end of the work, nor of the caller's own deadline.
func TestWithWaitEndsNoWork(t *testing.T) {
	play(t, func(f field) {
		t := f.T
		rs := f.process()
		m := locked(t, rs.NewMutex("lock"))
		time.AfterFunc(2*sec, func() { _, _ = m.Unlock() })
		noError(t, f.another().Do(t.Context(), "lock", func(ctx context.Context) error {
			time.Sleep(minute)
			return ctx.Err()
		}, redsync.WithWait(3*sec)))

		locked(t, rs.NewMutex("lock", withExpiry(hour)))
		waits := f.another().With(redsync.WithWait(3 * sec))
		errorIs(t, waits.NewMutex("lock").LockContext(limited(t, sec)), context.DeadlineExceeded, redsync.ErrFailed)

		for _, names := range [][]string{{"other"}, {"other", "other"}, {"other", "third"}} { // the innermost Do says it
			within := lasts(2 * sec)
			for _, name := range names[1:] {
				fn := within
				within = func(ctx context.Context) error { return waits.Do(ctx, name, fn) }
			}
			err := waits.Do(limited(t, sec), names[0], within)
			errorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err, `redsync: do "`+names[len(names)-1]+
				`": the caller's context ended after the lock was acquired: context deadline exceeded`)
		}
	})
}

// One of WithWait and WithTries replaces the other that With was given, and excludes it beside it.
func TestWithWaitReplacesTries(t *testing.T) {
	play(t, func(f field) {
		t := f.T
		rs := f.process()
		locked(t, rs.NewMutex("lock", withExpiry(hour)))
		const wait = sec
		waits := redsync.WithWait(wait)
		for _, test := range []struct {
			rs      *redsync.Redsync
			options opts
			takes   time.Duration
		}{
			{rs.With(waits), nil, wait},
			{rs.With(waits), opts{withTries(1)}, 0},
			{rs.With(withTries(1)), opts{waits}, wait},
			{rs.With(waits).With(withTries(1)), opts{withWatchdog}, 0},
			{rs.With(withTries(1)).With(waits), opts{withWatchdog}, wait},
		} {
			start := time.Now()
			errorIs(t, test.rs.NewMutex("lock", test.options...).Lock(), redsync.ErrFailed)
			assert.InDelta(t, test.takes, time.Since(start), float64(ms))
		}
		says(t, rs.NewMutex("lock", waits, withTries(1)).Lock(), "WithWait excludes WithTries")
		says(t, rs.With(withTries(1), waits).NewMutex("lock").Lock(), "WithWait excludes WithTries")
		says(t, rs.NewMutex("lock", redsync.WithWait(0)).Lock(), "WithWait(0s) is out of range: more than 0")
		reader := locked(t, rs.NewMutex("read", withShared, waits)) // its own second Lock waits without the nodes
		for takes, lock := range map[time.Duration]func() error{0: rs.NewMutex("lock", waits).TryLock, wait: reader.Lock} {
			start := time.Now()
			errorIs(t, lock(), redsync.ErrFailed)
			assert.Equal(t, takes, time.Since(start))
		}
	})
}

// A fair waiter keeps its place in the queues for as long as WithWait says, and leaves them then.
func TestWithWaitKeepsAFairPlace(t *testing.T) {
	parallelComputing(t)
	for wait, keeps := range map[time.Duration]bool{20 * sec: false, minute: true} {
		playAs(t, wait.String(), func(f field) {
			m := f.held(withFair, withExpiry(hour))
			start := time.Now()
			first := f.calls(f.another(withFair), redsync.WithWait(wait))
			time.Sleep(ms) // else either may be the first
			second := f.foreign(withFair)
			time.Sleep(30 * sec)
			f.stillWait(second)
			require.Equal(f, keeps, !first.isDone())
			if !keeps {
				errorIs(f, first.err, redsync.ErrFailed)
				assert.Equal(f, wait, first.at.Sub(start))
				assert.Len(f, f.inQueue(0), 1)
			}
			f.unlock(m)
			if keeps {
				f.served(first, ms)
			}
			f.served(second, ms)
			f.nobodyWaits()
		})
	}
}
