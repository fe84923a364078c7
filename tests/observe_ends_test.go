package redsync_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
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

// Each ending is played with one kind of lock, in turn. From the length of the gate on, it is played with each kind.
func TestEachLockEndsOnce(t *testing.T) {
	testlength.FromGate(t)
	ends := maps.Clone(endings)
	for name, lose := range losses {
		for call, do := range doings {
			ends[call+", "+name] = func(s ending) string { return s.loses(do, lose) }
		}
	}
	for i, name := range slices.Sorted(maps.Keys(ends)) {
		for k, kind := range lockKinds {
			plays := (i+k)%testlength.InGate(4, 4, 2, 1) == 0
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
					assert.Equal(t, strings.Count(want, "acquired"), len(regexp.MustCompile("released|detached|lost").FindAllString(want, -1))) // each lock ends once
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
	assert.Empty(t, waits) // these calls still wait
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

// endings are the ways in which a lock ends. Each returns, sorted, what observers must be told, apart from calls that wait.
var endings = map[string]func(s ending) string{
	"Unlock": func(s ending) string {
		s.unlock(s.holds())
		return "acquired released"
	},
	"Unlock without a quorum": func(s ending) string {
		m := s.holds()
		s.freeze(majority...)
		failsWith(s, m.Unlock, redsync.ErrNoQuorum)
		s.thaw(majority...)
		return "acquired released"
	},
	"Unlock after Until": func(s ending) string {
		m := s.holds()
		time.Sleep(guard)
		failsWith(s, m.Unlock, redsync.ErrLockAlreadyExpired)
		return "acquired late lost"
	},
	"Extend finds it forgotten": func(s ending) string {
		m := s.holds()
		s.forget()
		failsWith(s, m.Extend, redsync.ErrLockLost)
		_, _ = m.Unlock()
		return "acquired late lost"
	},
	"the watchdog finds it forgotten": func(s ending) string {
		m := s.holds(withWatchdog)
		s.forget()
		time.Sleep(guard)
		_, _ = m.Unlock()
		return "acquired late lost"
	},
	"WithMaxHold": func(s ending) string {
		_ = s.holds(withWatchdog, withMaxHold(guard))
		return "acquired lost"
	},
	"nobody unlocks": func(s ending) string {
		_ = s.holds()
		return "acquired lost"
	},
	"Close": func(s ending) string {
		m := s.holds(withWatchdog)
		shut(s, s.Redsync)
		_, _ = m.Unlock()
		return "acquired lost"
	},
	"the next Lock, as the nodes have forgotten it": func(s ending) string {
		m := s.holds(withTries(3))
		s.forget()
		if s.kind.shared || s.kind.permit { // the nodes would grant it a second one, so it waits for its own
			errorIs(s, m.Lock(), redsync.ErrFailed)
			_, _ = m.Unlock()
			return "acquired released"
		}
		locked(s, m)
		s.unlock(m)
		return "acquired acquired lost released"
	},
	"a hand-over": func(s ending) string {
		m := locked(s, s.kind.rival(s.Redsync))
		c := s.begins(s.lock(patient()...))
		s.unlock(m)
		s.served(c, sec)
		return "acquired acquired released released"
	},
	"Detach": func(s ending) string {
		s.detaches(s.holds())
		return "acquired detached"
	},
	"Detach, adoption, Unlock": func(s ending) string {
		q := s.detaches(s.holds())
		m := s.lock(withSequencer(q))
		s.extends(m)
		s.unlock(m)
		return "acquired acquired detached released"
	},
	"Unlock of what was not adopted yet": func(s ending) string {
		q := s.detaches(s.holds())
		s.unlock(s.lock(withSequencer(q)))
		return "acquired detached late"
	},
	"Do": func(s ending) string {
		noError(s, s.lock().Do(s.Context(), nothing))
		return "acquired released"
	},
	"Do inside Do": func(s ending) string {
		m := s.lock()
		err := m.Do(s.Context(), func(ctx context.Context) error { return m.Do(ctx, nothing) })
		assert.Equal(s, s.kind.permit, errors.Is(err, redsync.ErrNested)) // a permit is not joined
		return "acquired released"
	},
	"the function of Do panics": func(s ending) string {
		panicked(s, func() { _ = s.lock().Do(s.Context(), func(context.Context) error { panic("the user's") }) })
		return "acquired released"
	},
	"another observer panics at Acquired": func(s ending) string {
		r := &redsynctest.Recorder{}
		panicked(s, func() { _ = s.lock(panicsAt("Acquired"), recordsTo(r)).Lock() })
		_, why := only[observe.Lost](s, r)
		says(s, why, "panicked")
		return "acquired lost"
	},
	"another observer panics at Released": func(s ending) string {
		m := s.holds(panicsAt("Released"))
		panicked(s, func() { _, _ = m.Unlock() })
		return "acquired released"
	},
	"another observer panics at Detached": func(s ending) string {
		m := s.holds(panicsAt("Detached"))
		panicked(s, func() { _, _ = m.Detach(s.Context()) })
		return "acquired detached"
	},
	"another observer panics at Attempt": func(s ending) string {
		panicked(s, func() { _ = s.lock(panicsAt("Attempt")).Lock() })
		return ""
	},
	"its own Mutex has it": func(s ending) string {
		m := s.holds(withTries(3))
		errorIs(s, m.Lock(), redsync.ErrFailed)
		s.unlock(m)
		return "acquired released"
	},
	"TryLock does not wait": func(s ending) string {
		m := locked(s, s.kind.rival(s.Redsync))
		erred(s, s.lock().TryLock())
		s.unlock(m)
		return "acquired released"
	},
}

// doings are the calls that lock, call a function and unlock.
var doings = map[string]func(s ending, do work) error{
	"Do": func(s ending, do work) error {
		return s.lock(withMaxHold(3*guard)).Do(s.Context(), do)
	},
	"TryDo": func(s ending, do work) error {
		return s.ran(s.lock(withMaxHold(3*guard)).TryDo(s.Context(), do))
	},
	"Lead": func(s ending, do work) error {
		ctx, cancel := context.WithCancel(s.Context())
		return s.Lead(ctx, s.kind.names[0], func(term context.Context) error {
			defer cancel() // it leads once
			return do(term)
		}, withMaxHold(3*guard))
	},
}

// loses calls do with a function that loses its lock. do must return that.
func (s ending) loses(do func(ending, work) error, lose func(ending, context.Context) string) (want string) {
	own := errors.New("of the function")
	err := do(s, func(ctx context.Context) error {
		time.Sleep(ms) // until all nodes have it
		want = lose(s, ctx)
		return own
	})
	errorIs(s, err, redsync.ErrLockLost, own)
	require.NotErrorIs(s, err, redsync.ErrNotHeld)
	require.NotErrorIs(s, err, redsync.ErrNoQuorum)
	return want
}

// losses are the ways in which the function of a Do loses its lock. Each returns what observers must be told.
var losses = map[string]func(s ending, ctx context.Context) string{
	"whose watchdog finds it forgotten": func(s ending, ctx context.Context) string {
		s.forget()
		<-ctx.Done()
		errorIs(s, context.Cause(ctx), redsync.ErrLockLost)
		return "acquired late lost"
	},
	"whose Extend finds it forgotten": func(s ending, ctx context.Context) string {
		s.forget()
		failsWith(s, redsync.FromContext(ctx).Extend, redsync.ErrLockLost)
		return "acquired late lost"
	},
	"whose release finds it forgotten": func(s ending, _ context.Context) string {
		s.forget()
		return "acquired released"
	},
	"whose release finds that it was forced": func(s ending, ctx context.Context) string {
		other := s.kind.lock(s.another())
		s.releases(other, s.inspected(other).Holders[0])
		return "acquired released"
	},
	"and unlocks it afterwards": func(s ending, ctx context.Context) string {
		s.freeze(majority...)
		<-ctx.Done()
		s.thaw(majority...)
		erred(s, second(redsync.FromContext(ctx).Unlock()))
		return "acquired late lost"
	},
	"as it ends WithMaxHold": func(_ ending, ctx context.Context) string {
		<-ctx.Done()
		return "acquired late lost"
	},
	"by Close": func(s ending, ctx context.Context) string {
		noError(s, s.Close(ctx))
		return "acquired lost"
	},
}

// count names the events that say that a lock begins or ends, sorted. A Released that does not end a lock is late.
func count(events []any) string {
	var words []string
	for _, e := range events {
		word := strings.ToLower(reflect.TypeOf(e).Name())
		if released, ok := e.(observe.Released); ok && !released.Ended {
			word = "late"
		}
		if slices.Contains([]string{"acquired", "detached", "lost", "released", "late"}, word) {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// Each reader that shares the lock of another has an Acquired and an end of its own.
func TestEachReaderThatSharesALockEndsOnce(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		var readers []*redsync.Mutex
		for range 4 {
			readers = append(readers, k.locks(withShared))
		}
		assert.Equal(k, readers[0].Value(), readers[3].Value()) // they share a lock
		k.unlock(readers[1])
		k.unlock(readers[2])
		time.Sleep(10 * guard)
		synctest.Wait()
		assert.Equal(t, "acquired acquired acquired acquired lost lost released released", count(r.All()))
		assertMode(t, r.All(), observe.Shared)
	})
}

func TestObserveWaiting(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		m := k.held()
		forget(r)
		first, second := k.inLine(), k.inLine()
		waits, _ := of[observe.Waiting](r)
		require.Len(k, waits, 2) // the second waits behind the first
		assert.Equal(k, observe.Waiting{Name: "lock", Mode: observe.Plain, Call: waits[0].Call}, waits[0])
		second.cancel()
		<-second.done
		k.unlock(m)
		k.within(first, sec)
		gaveUp, _ := only[observe.NotAcquired](k, r)
		acquired, _ := only[observe.Acquired](k, r)
		assert.Equal(k, []uint64{waits[0].Call, waits[1].Call}, []uint64{acquired.Call, gaveUp.Call})
		assert.NotEqual(k, acquired.Call, gaveUp.Call)
	})
}
