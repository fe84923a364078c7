package redsync_test

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows the events of one hold: acquired, extended, released, lost.

// Every event of a call has the call's context and its Start. Extensions of the watchdog have the values of the Lock's
// context. All other events have no caller's context, and no Start.
func TestObserveContextsAndStarts(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		type told struct {
			ctx   context.Context //nolint:containedctx // it is what is recorded
			event any
		}
		var mu sync.Mutex
		var seen []told
		k.Redsync = k.With(atEach(func(ctx context.Context, event any) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, told{ctx, event})
		}))
		taken := func() []told {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer func() { seen = nil }()
			return seen
		}
		type key struct{}
		var called time.Time
		call := func(name string) context.Context {
			time.Sleep(ms)
			called = time.Now()
			return context.WithValue(k.Context(), key{}, name)
		}
		tells := func(name, want string) {
			got := map[string]bool{}
			for _, e := range taken() {
				kind := reflect.TypeOf(e.event).Name()
				got[kind] = true
				switch {
				case name != "":
					assert.Equal(k, name, e.ctx.Value(key{}), "%s of %s", kind, name)
					assert.Equal(k, called, reflect.ValueOf(e.event).FieldByName("Start").Interface(), "%s of %s", kind, name)
				case kind == "Extended":
					assert.Equal(k, "lock", e.ctx.Value(key{})) // the watchdog has the values of Lock
					assert.Nil(k, e.ctx.Done())
				default:
					assert.Equal(k, context.Background(), e.ctx, kind)
				}
			}
			assert.Equal(k, strings.Fields(want), slices.Sorted(maps.Keys(got)), name)
		}
		m := k.NewMutex("lock", withWatchdog)
		noError(k, m.LockContext(call("lock")))
		tells("lock", "Acquired Attempt Vote")
		k.confirms(m.ExtendContext(call("extend")))
		tells("extend", "Extended Vote")
		k.confirms(m.ValidContext(call("valid")))
		tells("valid", "Vote")
		k.confirms(m.UnlockContext(call("unlock")))
		tells("unlock", "Released Vote")
		noError(k, m.LockContext(call("lock")))
		forget(r)
		err := k.NewMutex("lock").TryLockContext(call("not acquired"))
		erred(k, err)
		failed, why := only[observe.NotAcquired](k, r)
		assert.Equal(k, observe.NotAcquired{Name: "lock", Mode: observe.Plain}, failed)
		assert.Equal(k, err, why)
		_ = taken()
		_, err = m.Detach(call("detach"))
		noError(k, err)
		tells("detach", "Detached")
		k.lose(allNodes...)
		noError(k, m.LockContext(call("lock")))
		_ = taken()
		time.Sleep(3 * sec)
		k.lose(majority...)
		time.Sleep(3 * sec)
		tells("", "Extended Lost Vote")
		_, _ = m.Unlock()
	})
}

// A lock that is unlocked before its Mutex has adopted it has no times.
func TestObserveAdoption(t *testing.T) {
	observing(t, func(f field, r *redsynctest.Recorder) {
		a := f.NewMutex("lock", withValue(f.held().Value()))
		forget(r)
		f.delays("evalsha")
		f.extends(a)
		acquired, _ := only[observe.Acquired](f, r)
		assert.Equal(t, observe.Acquired{
			Name: "lock", Mode: observe.Plain, Took: 20 * ms, Left: validity - 20*ms,
		}, acquired)
		assert.Empty(t, redsynctest.Events[observe.Extended](r))
		time.Sleep(sec)
		f.unlock(a)
		released, _ := only[observe.Released](f, r)
		assert.Equal(t, observe.Released{
			Name: "lock", Mode: observe.Plain, Ended: true, Held: 1020 * ms, Left: validity - 1020*ms,
		}, released)

		a = f.NewMutex("lock", withValue(f.held().Value()))
		forget(r)
		f.unlock(a)
		released, _ = only[observe.Released](f, r)
		assert.Equal(t, observe.Released{Name: "lock", Mode: observe.Plain}, released)
	})
}

func TestObserveReleased(t *testing.T) {
	at := func(held, took time.Duration) observe.Released {
		return observe.Released{Ended: true, Held: held, Left: validity - held, Took: took}
	}
	for name, c := range map[string]struct {
		given func(f field)
		want  observe.Released
		is    error // what Unlock fails with, nil if it succeeds
	}{
		"in time": {func(f field) {
			time.Sleep(2999 * ms)
			f.delays("evalsha")
		}, at(3*sec, 20*ms), nil},
		"over before":             {func(field) { time.Sleep(minute - ms) }, observe.Released{Held: minute}, redsync.ErrLockAlreadyExpired},
		"found to be over":        {hit(field.lose, majority...), at(ms, 0), redsync.ErrLockAlreadyExpired},
		"too few answers to tell": {hit(field.freeze, majority...), at(ms, patience), redsync.ErrNoQuorum},
	} {
		observingAs(t, name, func(f field, r *redsynctest.Recorder) {
			m := f.held()
			c.given(f)
			_, unlocked := m.Unlock()
			_, _ = m.Unlock() // ErrNotHeld is no event
			got, err := only[observe.Released](f, r)
			c.want.Name, c.want.Mode = "lock", observe.Plain
			assert.Equal(f, c.want, got)
			assert.Equal(f, unlocked, err)
			errorIs(f, err, c.is)
		})
	}
}

func TestObserveExtendedByHand(t *testing.T) {
	const left = validity - 5*sec
	for name, c := range map[string]struct {
		given func(f field)
		want  observe.Extended
		err   error
		max   time.Duration // WithMaxHold
	}{
		"confirmed by the third": {func(f field) { f.delays("evalsha") }, observe.Extended{Took: 20 * ms, Left: left - 20*ms}, nil, hour},
		"unconfirmed":            {hit(field.refuse, majority...), observe.Extended{Left: left}, redsync.ErrExtendFailed, hour},
		"no answer until Until":  {hit(field.freeze, majority...), observe.Extended{Took: left}, redsync.ErrLockLost, hour},
		"proven lost":            {hit(field.lose, majority...), observe.Extended{Left: left}, redsync.ErrLockLost, hour},
		"at WithMaxHold":         {func(field) {}, observe.Extended{Left: 2 * sec}, redsync.ErrMaxHold, 7 * sec},
	} {
		observingAs(t, name, func(f field, r *redsynctest.Recorder) {
			m := f.held(withMaxHold(c.max))
			time.Sleep(4999 * ms)
			c.given(f)
			_, extended := m.Extend()
			got, err := only[observe.Extended](f, r)
			c.want.Name, c.want.Mode = "lock", observe.Plain
			assert.Equal(f, c.want, got)
			errorIs(f, err, c.err)
			assert.Equal(f, extended, err)
		})
	}
}

func TestObserveExtendedByTheWatchdog(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		m := k.held(nineSeconds, withWatchdog)
		each := observe.Extended{Name: "lock", Mode: observe.Plain, Watchdog: true, Left: 6*sec - 92*ms}
		extended := func(failed error, want ...observe.Extended) {
			got, errs := of[observe.Extended](r)
			assert.Equal(t, want, got)
			for _, err := range errs {
				errorIs(k, err, failed)
			}
			forget(r)
		}
		time.Sleep(6999 * ms)
		extended(nil, each, each)

		k.freeze(majority...) // at 7 s; the extension begins at 9 s, and waits for 900 ms
		time.Sleep(4 * sec)
		late := func(took, later time.Duration) observe.Extended {
			e := each
			e.Took, e.Left = took, each.Left-later
			return e
		}
		extended(redsync.ErrExtendFailed, late(900*ms, 900*ms), late(900*ms, 1800*ms))

		k.thaw(allNodes...)
		time.Sleep(500 * ms)
		extended(nil, late(200*ms, 2*sec))
		k.unlock(m)
		assert.Empty(t, redsynctest.Events[observe.Lost](r))
	})
}
