package redsync_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows that the locks that are held, and the calls that wait, can be counted by events, however a lock ends.

// An ending is a test of one kind of lock on a kit.
type ending struct {
	kit
	kind lockKind
}

// lock returns a lock of the kind.
func (s ending) lock(options ...redsync.Option) *redsync.Mutex {
	return s.kind.lock(s.Redsync, options...)
}

// holds returns a lock of the kind that is held on all nodes.
func (s ending) holds(options ...redsync.Option) *redsync.Mutex {
	s.Helper()
	m := locked(s, s.lock(options...))
	time.Sleep(ms)
	return m
}

// forget makes three nodes forget the lock.
func (s ending) forget() {
	for _, key := range s.kind.keys {
		for i := range 3 {
			require.NotNil(s, s.command(i, "del", key))
		}
	}
}

// panicking calls do, which must panic.
func (s ending) panicking(do func()) {
	s.Helper()
	assert.PanicsWithValue(s, "the user's", do)
}

// counts is how many locks begin and end by which event. A Released that does not end a lock is late.
type counts struct{ acquired, released, detached, lost, late int }

// Each ending is played with one kind of lock, in turn. From the length of the gate on, it is played with each kind.
func TestEachLockEndsOnce(t *testing.T) {
	ends := maps.Clone(endings)
	for name, lose := range losses {
		for call, do := range doings {
			ends[call+", "+name] = func(s ending) counts { return s.loses(do, lose) }
		}
	}
	for i, name := range slices.Sorted(maps.Keys(ends)) {
		for k, kind := range lockKinds {
			plays := (i+k)%testlength.InGate(4, 4, 1, 1) == 0
			if strings.HasPrefix(name, "Lead") {
				plays = kind.mode == observe.Plain
			}
			if !plays {
				continue
			}
			t.Run(kind.column+", "+name, func(t *testing.T) {
				observingKit(t, func(k kit, r *redsynctest.Recorder) {
					want := ends[name](ending{k, kind})
					time.Sleep(10 * guard)
					synctest.Wait()
					assert.Equal(t, want, count(r.All()))
					assert.Equal(t, want.acquired, want.released+want.detached+want.lost, "each lock ends once")
					assertWaitsEnd(t, r.All())
					assertMode(t, r.All(), kind.mode)
				})
			})
		}
	}
}

// assertWaitsEnd checks that each call that waits says so once, and then ends once.
func assertWaitsEnd(t *testing.T, events []any) {
	t.Helper()
	waits := map[uint64]bool{}
	end := func(call uint64) {
		if call != 0 {
			assert.True(t, waits[call], "the call %d waits until it ends, which it does once", call)
			delete(waits, call)
		}
	}
	for _, e := range events {
		switch e := e.(type) {
		case observe.Waiting:
			assert.NotZero(t, e.Call)
			assert.NotContains(t, waits, e.Call)
			waits[e.Call] = true
		case observe.Acquired:
			end(e.Call)
		case observe.NotAcquired:
			end(e.Call)
		}
	}
	assert.Empty(t, waits, "these calls still wait")
}

// rivalOf has the mode of a kind's rival, if it is another one.
var rivalOf = map[observe.Mode]observe.Mode{observe.Shared: observe.Plain}

// assertMode checks the mode of each event of a lock, which is that of the kind or of its rival.
func assertMode(t *testing.T, events []any, want observe.Mode) {
	t.Helper()
	for _, e := range events {
		if mode := reflect.ValueOf(e).FieldByName("Mode"); mode.IsValid() {
			assert.Contains(t, []observe.Mode{want, cmp.Or(rivalOf[want], want)}, observe.Mode(mode.String()), "%T", e)
		}
	}
}

// endings are the ways in which a lock ends. Each returns what observers must be told, apart from calls that wait.
var endings = map[string]func(s ending) counts{
	"Unlock": func(s ending) counts {
		s.unlock(s.holds())
		return counts{acquired: 1, released: 1}
	},
	"Unlock without a quorum": func(s ending) counts {
		m := s.holds()
		s.freeze(majority...)
		failsWith(s, m.Unlock, redsync.ErrNoQuorum)
		s.thaw(majority...)
		return counts{acquired: 1, released: 1}
	},
	"Unlock after Until": func(s ending) counts {
		m := s.holds()
		time.Sleep(guard)
		failsWith(s, m.Unlock, redsync.ErrLockAlreadyExpired)
		return counts{acquired: 1, lost: 1, late: 1}
	},
	"Extend finds it forgotten": func(s ending) counts {
		m := s.holds()
		s.forget()
		failsWith(s, m.Extend, redsync.ErrLockLost)
		_, _ = m.Unlock()
		return counts{acquired: 1, lost: 1, late: 1}
	},
	"the watchdog finds it forgotten": func(s ending) counts {
		m := s.holds(withWatchdog)
		s.forget()
		time.Sleep(guard)
		_, _ = m.Unlock()
		return counts{acquired: 1, lost: 1, late: 1}
	},
	"WithMaxHold": func(s ending) counts {
		_ = s.holds(withWatchdog, redsync.WithMaxHold(guard))
		return counts{acquired: 1, lost: 1}
	},
	"nobody unlocks": func(s ending) counts {
		_ = s.holds()
		return counts{acquired: 1, lost: 1}
	},
	"Close": func(s ending) counts {
		m := s.holds(withWatchdog)
		shut(s, s.Redsync)
		_, _ = m.Unlock()
		return counts{acquired: 1, lost: 1}
	},
	"the next Lock, as the nodes have forgotten it": func(s ending) counts {
		m := s.holds(redsync.WithTries(3))
		s.forget()
		if s.kind.shared || s.kind.permit { // the nodes would grant it a second one, so it waits for its own
			require.ErrorIs(s, m.Lock(), redsync.ErrFailed)
			_, _ = m.Unlock()
			return counts{acquired: 1, released: 1}
		}
		locked(s, m)
		s.unlock(m)
		return counts{acquired: 2, lost: 1, released: 1}
	},
	"a hand-over": func(s ending) counts {
		m := locked(s, s.kind.rival(s.Redsync))
		c := s.begins(s.lock(patient()...))
		s.unlock(m)
		s.within(c, time.Second)
		s.unlock(c.Mutex)
		return counts{acquired: 2, released: 2}
	},
	"Detach": func(s ending) counts {
		s.detaches(s.holds())
		return counts{acquired: 1, detached: 1}
	},
	"Detach, adoption, Unlock": func(s ending) counts {
		q := s.detaches(s.holds())
		m := s.lock(redsync.WithSequencer(q))
		s.confirms(m.Extend())
		s.unlock(m)
		return counts{acquired: 2, detached: 1, released: 1}
	},
	"Unlock of what was not adopted yet": func(s ending) counts {
		q := s.detaches(s.holds())
		s.unlock(s.lock(redsync.WithSequencer(q)))
		return counts{acquired: 1, detached: 1, late: 1}
	},
	"Do": func(s ending) counts {
		require.NoError(s, s.lock().Do(s.Context(), func(context.Context) error { return nil }))
		return counts{acquired: 1, released: 1}
	},
	"Do inside Do": func(s ending) counts {
		m := s.lock()
		err := m.Do(s.Context(), func(ctx context.Context) error {
			return m.Do(ctx, func(context.Context) error { return nil })
		})
		assert.Equal(s, s.kind.permit, errors.Is(err, redsync.ErrNested), "a permit is not joined")
		return counts{acquired: 1, released: 1}
	},
	"the function of Do panics": func(s ending) counts {
		s.panicking(func() { _ = s.lock().Do(s.Context(), func(context.Context) error { panic("the user's") }) })
		return counts{acquired: 1, released: 1}
	},
	"another observer panics at Acquired": func(s ending) counts {
		s.panicking(func() { _ = s.lock(redsync.WithObserver(panics{on: "acquired"})).Lock() })
		return counts{acquired: 1, lost: 1}
	},
	"another observer panics at Released": func(s ending) counts {
		m := s.holds(redsync.WithObserver(panics{on: "released"}))
		s.panicking(func() { _, _ = m.Unlock() })
		return counts{acquired: 1, released: 1}
	},
	"another observer panics at Detached": func(s ending) counts {
		m := s.holds(redsync.WithObserver(panics{on: "detached"}))
		s.panicking(func() { _, _ = m.Detach(s.Context()) })
		return counts{acquired: 1, detached: 1}
	},
	"another observer panics at Attempt": func(s ending) counts {
		s.panicking(func() { _ = s.lock(redsync.WithObserver(panics{on: "attempt"})).Lock() })
		return counts{}
	},
	"its own Mutex has it": func(s ending) counts {
		m := s.holds(redsync.WithTries(3))
		require.ErrorIs(s, m.Lock(), redsync.ErrFailed)
		s.unlock(m)
		return counts{acquired: 1, released: 1}
	},
	"TryLock does not wait": func(s ending) counts {
		m := locked(s, s.kind.rival(s.Redsync))
		require.Error(s, s.lock().TryLock())
		s.unlock(m)
		return counts{acquired: 1, released: 1}
	},
}

// doings are the calls that lock, call a function and unlock.
var doings = map[string]func(s ending, work func(context.Context) error) error{
	"Do": func(s ending, work func(context.Context) error) error {
		return s.lock(redsync.WithMaxHold(3*guard)).Do(s.Context(), work)
	},
	"TryDo": func(s ending, work func(context.Context) error) error {
		ran, err := s.lock(redsync.WithMaxHold(3*guard)).TryDo(s.Context(), work)
		assert.True(s, ran)
		return err
	},
	"Lead": func(s ending, work func(context.Context) error) error {
		ctx, cancel := context.WithCancel(s.Context())
		return s.Lead(ctx, s.kind.names[0], func(term context.Context) error {
			defer cancel() // it leads once
			return work(term)
		}, redsync.WithMaxHold(3*guard))
	},
}

// loses calls do with a function that loses its lock. do must return that.
func (s ending) loses(do func(ending, func(context.Context) error) error, lose func(ending, context.Context) counts) (want counts) {
	own := errors.New("of the function")
	err := do(s, func(ctx context.Context) error {
		time.Sleep(ms) // until all nodes have it
		want = lose(s, ctx)
		return own
	})
	require.ErrorIs(s, err, redsync.ErrLockLost)
	require.ErrorIs(s, err, own)
	require.NotErrorIs(s, err, redsync.ErrNotHeld)
	require.NotErrorIs(s, err, redsync.ErrNoQuorum)
	return want
}

// losses are the ways in which the function of a Do loses its lock. Each returns what observers must be told.
var losses = map[string]func(s ending, ctx context.Context) counts{
	"whose watchdog finds it forgotten": func(s ending, ctx context.Context) counts {
		s.forget()
		<-ctx.Done()
		require.ErrorIs(s, context.Cause(ctx), redsync.ErrLockLost)
		return counts{acquired: 1, lost: 1, late: 1}
	},
	"whose Extend finds it forgotten": func(s ending, ctx context.Context) counts {
		s.forget()
		_, err := redsync.FromContext(ctx).ExtendContext(ctx)
		require.ErrorIs(s, err, redsync.ErrLockLost)
		return counts{acquired: 1, lost: 1, late: 1}
	},
	"whose release finds it forgotten": func(s ending, _ context.Context) counts {
		s.forget()
		return counts{acquired: 1, released: 1}
	},
	"whose release finds that it was forced": func(s ending, ctx context.Context) counts {
		other := s.kind.lock(s.another())
		st, err := other.Inspect(ctx)
		require.NoError(s, err)
		require.NoError(s, other.ForceUnlock(ctx, st.Holders[0]))
		return counts{acquired: 1, released: 1}
	},
	"and unlocks it afterwards": func(s ending, ctx context.Context) counts {
		s.freeze(majority...)
		<-ctx.Done()
		s.thaw(majority...)
		_, err := redsync.FromContext(ctx).Unlock()
		require.Error(s, err)
		return counts{acquired: 1, lost: 1, late: 1}
	},
	"as it ends WithMaxHold": func(_ ending, ctx context.Context) counts {
		<-ctx.Done()
		return counts{acquired: 1, lost: 1, late: 1}
	},
	"by Close": func(s ending, ctx context.Context) counts {
		require.NoError(s, s.Close(ctx))
		return counts{acquired: 1, lost: 1}
	},
}

// count counts the events that say that a lock begins or ends.
func count(events []any) (c counts) {
	for _, e := range events {
		switch e := e.(type) {
		case observe.Acquired:
			c.acquired++
		case observe.Detached:
			c.detached++
		case observe.Lost:
			c.lost++
		case observe.Released:
			if e.Ended {
				c.released++
			} else {
				c.late++
			}
		}
	}
	return c
}

// Each reader that shares the lock of another has an Acquired and an end of its own.
func TestEachReaderThatSharesALockEndsOnce(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		var readers []*redsync.Mutex
		for range 4 {
			readers = append(readers, locked(k, k.NewMutex("lock", withShared)))
		}
		assert.Equal(k, readers[0].Value(), readers[3].Value(), "they share a lock")
		k.unlock(readers[1])
		k.unlock(readers[2])
		time.Sleep(10 * guard)
		synctest.Wait()
		assert.Equal(t, counts{acquired: 4, released: 2, lost: 2}, count(r.All()))
		assertMode(t, r.All(), observe.Shared)
	})
}

func TestObserveWaiting(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		m := k.held()
		forget(r)
		first, second := k.calls(k.Redsync, patient()...), k.calls(k.Redsync, patient()...)
		waits, _ := of[observe.Waiting](r)
		require.Len(k, waits, 2, "the second waits behind the first")
		assert.Equal(k, observe.Waiting{Name: "lock", Mode: observe.Plain, Call: waits[0].Call}, waits[0])
		second.cancel()
		<-second.done
		k.unlock(m)
		k.within(first, time.Second)
		gaveUp, _ := only[observe.NotAcquired](k.T, r)
		acquired, _ := only[observe.Acquired](k.T, r)
		assert.Equal(k, []uint64{waits[0].Call, waits[1].Call}, []uint64{acquired.Call, gaveUp.Call})
		assert.NotEqual(k, acquired.Call, gaveUp.Call)
	})
}

// An observer that panics does not keep the others from their events.
func TestObserversBehindAPanicAreTold(t *testing.T) {
	kitMet(t, func(k kit) {
		r := &redsynctest.Recorder{}
		m := k.NewMutex("lock", redsync.WithObserver(panics{on: "acquired"}), redsync.WithObserver(r))
		panicked(t, func() { _ = m.Lock() })
		acquired, _ := only[observe.Acquired](t, r)
		assert.Equal(t, "lock", acquired.Name)
		_, why := only[observe.Lost](t, r)
		require.ErrorIs(t, why, redsync.ErrLockLost)
		assert.ErrorContains(t, why, "panicked")
	})
}
