package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/peek"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests Do and TryDo of a Mutex. Each call has a hold of its own, and ends no other hold.

// A work is the function that a Do calls.
type work = func(context.Context) error

func nothing(context.Context) error { return nil }

func never(context.Context) error { panic("it was called") }

// lasts returns a function for Do. The function sleeps for d, and returns an error if its context has ended by then.
func lasts(d time.Duration) work {
	return func(ctx context.Context) error {
		time.Sleep(d)
		return context.Cause(ctx)
	}
}

// dos are the ways to run a function under a lock of m.
var dos = map[string]func(m *redsync.Mutex, ctx context.Context, fn work) error{ //nolint:revive // methods
	"Do": (*redsync.Mutex).Do,
	"TryDo": func(m *redsync.Mutex, ctx context.Context, fn work) error { //nolint:revive // as above
		called, watched := false, fn
		if fn != nil {
			watched = func(ctx context.Context) error {
				called = true
				return fn(ctx)
			}
		}
		switch ran, err := m.TryDo(ctx, watched); {
		case ran != called:
			panic(fmt.Sprintf("TryDo says %t, and its function was called: %t", ran, called))
		case !ran && err == nil:
			return errOthers
		default:
			return err
		}
	},
}

// errOthers stands for a TryDo that returns false without an error.
var errOthers = errors.New("others have the lock")

// ran checks that a TryDo has called its function, and returns its error.
func (u user) ran(ran bool, err error) error {
	u.Helper()
	assert.True(u, ran, "%v", err)
	return err
}

// notRun checks that a TryDo has not called its function, and returns its error: errOthers if others have the lock.
func (u user) notRun(ran bool, err error) error {
	u.Helper()
	assert.False(u, ran, "%v", err)
	if err == nil {
		return errOthers
	}
	return err
}

// inEachDo runs test with Do and with TryDo.
func inEachDo[On any](t *testing.T, run func(*testing.T, func(On)), test func(on On, do func(*redsync.Mutex, context.Context, work) error)) {
	t.Helper()
	for name, do := range dos {
		t.Run(name, func(t *testing.T) {
			run(t, func(on On) { test(on, do) })
		})
	}
}

func TestMutexDoExtendsItsOwnHoldAlone(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
		m := k.NewMutex("lock")
		require.NoError(k, do(m, k.Context(), func(ctx context.Context) error {
			assert.Same(k, m, redsync.FromContext(ctx))
			assert.Equal(k, 5, k.keys("lock"))
			return lasts(time.Minute)(ctx)
		}))
		require.ErrorIs(k, m.Err(), redsync.ErrNotHeld)
		time.Sleep(time.Millisecond)
		k.nothingLeft()

		require.NoError(k, m.Lock())
		time.Sleep(validity)
		require.ErrorIs(k, m.Err(), redsync.ErrLockAlreadyExpired, "a later Lock has no watchdog: Do has not changed the settings of m")
	})
}

func TestTryDoOfATakenLockReturnsAtOnceWithoutAnError(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(redsync.WithWatchdog())
		for name, do := range map[string]func() (bool, error){
			"Mutex":   func() (bool, error) { return k.NewMutex("lock").TryDo(k.Context(), never) },
			"Redsync": func() (bool, error) { return k.TryDo(k.Context(), "lock", never) },
			"fair":    func() (bool, error) { return k.TryDo(k.Context(), "lock", never, redsync.WithFair()) },
		} {
			start := time.Now()
			require.ErrorIs(t, k.notRun(do()), errOthers, name)
			assert.Zero(t, time.Since(start), name)
		}
		require.ErrorIs(t, k.ran(k.TryDo(k.Context(), "other", func(context.Context) error { return errWork }, redsync.WithFencing())), errWork)
		require.NoError(t, k.ran(k.TryDo(k.Context(), "other", nothing)))
	})
}

// Work that is half done must not look like work that another process does, whatever its error matches.
func TestTryDoWhoseFunctionFindsAnotherLockTaken(t *testing.T) {
	onKit(t, func(k kit) {
		k.nodes.HoldBySomebody("inner")
		inner := func(context.Context) error { return k.NewMutex("inner").TryLock() }
		try := func(ctx context.Context) error { return k.ran(k.TryDo(ctx, "lock", inner)) }
		for name, do := range map[string]func() error{
			"alone": func() error { return try(k.Context()) },
			"joined": func() error { // and the outer TryDo passes the error on
				return k.ran(k.TryDo(k.Context(), "lock", try))
			},
		} {
			err := do()
			require.ErrorIs(t, err, redsync.ErrFailed, name)
			require.ErrorAs(t, err, new(*redsync.ErrTaken), name)
		}
	})
}

// If the lock is lost or cannot be released, that comes first, and then what the function has returned.
func TestDoTellsOfTheLockFirst(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
		begins := func(what string, err error) {
			require.ErrorIs(k, err, errWork, what)
			first, _, _ := strings.Cut(err.Error(), "\n")
			require.Contains(k, first, `redsync: `+what)
			require.NotContains(k, first, errWork.Error(), what)
		}
		begins(`do "lock": `, do(k.NewMutex("lock"), k.Context(), func(ctx context.Context) error {
			return do(k.NewMutex("lock"), ctx, func(ctx context.Context) error {
				k.lose(0, 1, 2, 3, 4)
				<-ctx.Done()
				return errWork
			})
		}))
		var joined error
		_ = do(k.NewMutex("lock"), k.Context(), func(ctx context.Context) error {
			joined = do(k.NewMutex("lock"), ctx, func(ctx context.Context) error {
				k.lose(0, 1, 2, 3, 4)
				<-ctx.Done()
				return errWork
			})
			return nil
		})
		begins(`do "lock": `, joined)
		begins(`unlock "lock": `, do(k.NewMutex("lock"), k.Context(), func(context.Context) error {
			k.freeze(0, 1, 2)
			return errWork
		}))
	})
}

// Nobody has the lock, and the function is not called all the same: that is an error.
func TestTryDoThatCannotTell(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		k.down(0, 1, 2)
		require.ErrorAs(t, k.notRun(k.TryDo(k.Context(), "lock", never)), new(*redsync.RedisError))
		k.up(0, 1, 2)
		require.NoError(t, k.ran(k.TryDo(k.Context(), "lock", func(ctx context.Context) error {
			assert.ErrorIs(t, k.notRun(k.TryDo(ctx, "lock", never, redsync.WithNesting(1))), redsync.ErrNested)
			return nil
		})))
	})
}

func TestDoThatCannotBegin(t *testing.T) {
	canceled, cancel := context.WithCancelCause(context.Background())
	enough := errors.New("enough")
	cancel(enough)
	for name, c := range map[string]struct {
		ctx  context.Context //nolint:containedctx // it is for the call
		m    func(k kit) *redsync.Mutex
		fn   work
		want string
		is   []error
	}{
		"nil function": {fn: nil, want: `redsync: do "lock": the function is nil`},
		"nil function, several names": {fn: nil, m: func(k kit) *redsync.Mutex {
			return k.NewMultiMutex([]string{"b", "a"})
		}, want: `redsync: do "a, b": the function is nil`},
		"no name": {fn: never, m: func(k kit) *redsync.Mutex { return k.NewMutex("") }, want: "must not be empty"},
		"bad option": {fn: never, m: func(k kit) *redsync.Mutex {
			return k.NewMutex("lock", redsync.WithExpiry(-1))
		}, want: "WithExpiry(-1ns) is out of range"},
		"zero Mutex": {fn: never, m: func(kit) *redsync.Mutex { return new(redsync.Mutex) }, want: "no pools", is: []error{redsync.ErrNoPools}},
		"canceled":   {fn: never, ctx: canceled, want: "enough", is: []error{context.Canceled, enough}},
		"closed": {fn: never, m: func(k kit) *redsync.Mutex {
			rs := k.another()
			require.NoError(k, rs.Close(k.Context()))
			return rs.NewMutex("lock")
		}, want: "closed", is: []error{redsync.ErrClosed}},
		"closed, and it adopts": {fn: never, m: func(k kit) *redsync.Mutex {
			rs := k.another()
			require.NoError(k, rs.Close(k.Context()))
			return rs.NewMutex("lock", redsync.WithValue("v"))
		}, want: "closed", is: []error{redsync.ErrClosed}},
	} {
		t.Run(name, func(t *testing.T) {
			inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
				m := k.NewMutex("lock")
				if c.m != nil {
					m = c.m(k)
				}
				err := do(m, c.ctx, c.fn)
				require.ErrorContains(k, err, c.want)
				for _, is := range c.is {
					require.ErrorIs(k, err, is)
				}
				require.NotErrorIs(k, err, redsync.ErrFailed)
				require.ErrorIs(k, m.Err(), redsync.ErrNotHeld)
				k.nothingLeft()
			})
		})
	}
	var none *redsync.Mutex
	assert.Panics(t, func() { _ = none.Do(t.Context(), func(context.Context) error { t.Error("called"); return nil }) }, "Do of a nil Mutex panics, as Lock does")
}

// Do fails while an earlier Lock of the same Mutex holds the lock, and that hold goes on.
func TestDoOfAMutexThatIsHeld(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
		m := k.NewMutex("lock", redsync.WithTries(2), redsync.WithFailFast(false))
		require.NoError(k, m.Lock())
		until := m.Until()
		if err := do(m, k.Context(), never); !errors.Is(err, errOthers) { // of Do
			require.ErrorAs(k, err, new(*redsync.ErrTaken))
			require.ErrorIs(k, err, redsync.ErrFailed)
		}
		require.NoError(k, m.Err())
		assert.Equal(k, until, m.Until())
		_, err := m.Detach(k.Context())
		require.NoError(k, err, "Detach works: the hold is that of Lock, not of a Do")
	})
}

// A Do that waits does not stop the holder from giving the lock away.
func TestDetachWhileADoWaits(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.NewMutex("lock", redsync.WithTries(0))
		require.NoError(t, m.Lock())
		ctx, cancel := context.WithTimeout(k.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, m.Do(ctx, never), context.DeadlineExceeded) })
		time.Sleep(100 * time.Millisecond)
		s, err := m.Detach(k.Context())
		require.NoError(t, err)
		wg.Wait()
		k.unlock(k.NewMutex("lock", redsync.WithSequencer(s)))
	})
}

// The Dos take turns. Detach fails within each of them, no matter which Dos have ended before.
func TestManyDosOfOneMutex(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode []redsync.Option) {
		m := k.NewMutex("lock", append(mode, redsync.WithTries(0))...)
		inside, count := 0, 0
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				assert.NoError(k, m.Do(nil, func(ctx context.Context) error { //nolint:staticcheck // nil is context.Background
					inside++
					assert.Equal(k, 1, inside)
					for range 20 {
						time.Sleep(time.Second)
						_, err := m.Detach(ctx)
						assert.ErrorContains(k, err, "Do unlocks it")
					}
					inside--
					count++
					return context.Cause(ctx)
				}))
			})
		}
		wg.Wait()
		assert.Equal(k, 5, count)
		time.Sleep(time.Second)
		k.nothingLeft()
	})
}

// The lock comes to a Do by direct hand-off.
func TestDoThatIsHandedTheLock(t *testing.T) {
	onKit(t, func(k kit) {
		k.meet()
		giver := k.NewMutex("lock")
		require.NoError(t, giver.Lock())
		m := k.NewMutex("lock", patient()...)
		var wg sync.WaitGroup
		value := peek.Value(giver)
		wg.Go(func() {
			assert.NoError(t, m.Do(k.Context(), func(ctx context.Context) error {
				assert.Equal(t, value, peek.Value(m))
				time.Sleep(time.Minute)
				_, err := m.Detach(ctx)
				assert.ErrorContains(t, err, "Do unlocks it")
				return context.Cause(ctx)
			}))
		})
		synctest.Wait()
		k.unlock(giver)
		wg.Wait()
	})
}

func TestDoWhoseFunctionUnlocks(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
		m := k.NewMutex("lock")
		err := do(m, k.Context(), func(ctx context.Context) error {
			k.unlock(m)
			assert.ErrorIs(k, m.Err(), redsync.ErrNotHeld)
			time.Sleep(time.Minute)
			assert.NoError(k, ctx.Err(), "the context of the Do has not ended: its lock was not lost")
			k.nothingLeft()
			return errWork
		})
		require.ErrorIs(k, err, errWork)
		require.ErrorIs(k, err, redsync.ErrNotHeld)
		require.ErrorContains(k, err, `do "lock": lock not held`)
		require.NotErrorIs(k, err, redsync.ErrLockLost)
		require.NotErrorIs(k, err, redsync.ErrFailed)
	})
}

// The function unlocks the hold of Do and calls Lock. The new hold does not belong to Do, so the function may detach
// it.
func TestDoWhoseFunctionGivesALaterHoldAway(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.NewMutex("lock")
		var s redsync.Sequencer
		require.ErrorIs(t, m.Do(k.Context(), func(ctx context.Context) error {
			k.unlock(m)
			require.NoError(t, m.Lock())
			var err error
			s, err = m.Detach(ctx)
			return err
		}), redsync.ErrNotHeld)
		require.NoError(t, k.Current(k.Context(), s))
		k.unlocks(k.NewMutex("lock", redsync.WithSequencer(s)))
	})
}

// The function of the first Do unlocks by hand, or loses the lock, and works on. Its end must not end the hold of the
// second Do.
func TestDoThatOutlivesItsHoldLeavesTheNextDoAlone(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(k kit, ctx context.Context) //nolint:revive // the order of the table
		want error
	}{
		"unlocked": {func(k kit, ctx context.Context) { k.unlock(redsync.FromContext(ctx)) }, redsync.ErrNotHeld},
		"lost": {func(k kit, ctx context.Context) {
			k.lose(0, 1, 2, 3, 4)
			<-ctx.Done()
		}, redsync.ErrLockLost},
	} {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				m := k.NewMutex("lock", redsync.WithTries(0))
				begun, ended := make(chan struct{}), make(chan struct{})
				var wg sync.WaitGroup
				wg.Go(func() {
					err := m.Do(k.Context(), func(ctx context.Context) error {
						time.Sleep(time.Second)
						c.end(k, ctx)
						<-begun
						time.Sleep(time.Minute)
						return nil
					})
					assert.ErrorIs(t, err, c.want)
					assert.ErrorContains(t, err, `do "lock"`)
					close(ended)
				})
				time.Sleep(time.Millisecond)
				wg.Go(func() {
					assert.NoError(t, m.Do(k.Context(), func(ctx context.Context) error {
						close(begun)
						<-ended
						assert.NoError(t, m.Err())
						assert.Equal(t, 5, k.keys("lock"))
						_, err := m.Detach(ctx)
						assert.ErrorContains(t, err, "Do unlocks it")
						return lasts(time.Minute)(ctx)
					}))
				})
				wg.Wait()
				time.Sleep(time.Second)
				k.nothingLeft()
			})
		})
	}
}

func TestDoWhoseContextEndsWhileItWaits(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(redsync.WithWatchdog())
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(k.Context(), 3*time.Second, enough)
		defer cancel()
		start := time.Now()
		err := k.NewMutex("lock", redsync.WithTries(0)).Do(ctx, never)
		assert.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, err, redsync.ErrFailed)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, enough)
	})
}

func TestDoAndClose(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
		rs := k.another()
		m := rs.NewMutex("lock")
		err := do(m, k.Context(), func(ctx context.Context) error {
			require.NoError(k, rs.Close(k.Context()), "Close does not wait for the function of Do")
			<-ctx.Done()
			assert.ErrorIs(k, context.Cause(ctx), redsync.ErrClosed)
			assert.ErrorIs(k, context.Cause(ctx), redsync.ErrLockLost)
			return nil
		})
		require.ErrorIs(k, err, redsync.ErrLockLost)
		require.ErrorIs(k, err, redsync.ErrClosed)
		k.nothingLeft()
	})
}

func TestDoWithFencing(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
		m := k.NewMutex("lock", redsync.WithFencing())
		var last uint64
		for range 3 {
			require.NoError(k, do(m, k.Context(), func(ctx context.Context) error {
				assert.Greater(k, redsync.FromContext(ctx).Fence(), last)
				last = m.Fence()
				return nil
			}))
			assert.Zero(k, m.Fence())
		}
	})
}

// The events of Do are those of Lock and Unlock.
func TestObserversOfDo(t *testing.T) {
	observingKit(t, func(k kit, r *redsynctest.Recorder) {
		type seen struct {
			acquired    []observe.Acquired
			notAcquired []observe.NotAcquired
			released    []observe.Released
			extended    []observe.Extended
			lost        []observe.Lost
		}
		all := func() (s seen) {
			s.acquired, _ = of[observe.Acquired](r)
			s.notAcquired, _ = of[observe.NotAcquired](r)
			s.released, _ = of[observe.Released](r)
			s.extended, _ = of[observe.Extended](r)
			s.lost, _ = of[observe.Lost](r)
			forget(r)
			return s
		}
		m := k.NewMutex("lock", redsync.WithWatchdog())
		require.NoError(t, m.Lock())
		require.Error(t, m.TryLock())
		time.Sleep(10 * time.Second)
		k.unlock(m)
		want := all()
		require.Len(t, want.acquired, 1)
		require.Len(t, want.notAcquired, 1)
		require.Len(t, want.released, 1)
		require.Len(t, want.extended, 3)

		m = k.NewMutex("lock")
		require.NoError(t, m.Do(k.Context(), func(ctx context.Context) error {
			require.ErrorIs(t, k.notRun(m.TryDo(k.Context(), never)), errOthers)
			return lasts(10 * time.Second)(ctx)
		}))
		assert.Equal(t, want, all())
	})
}

// Do of a Mutex that adopts a lock extends that lock.

// adopts has the options with which a Mutex adopts a lock.
var adopts = map[string]func(s redsync.Sequencer) redsync.Option{
	"WithValue":     func(s redsync.Sequencer) redsync.Option { return redsync.WithValue(s.Value) },
	"WithSequencer": redsync.WithSequencer,
}

func TestDoAdopts(t *testing.T) {
	for name, adopt := range adopts {
		t.Run(name, func(t *testing.T) {
			inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
				giver, other := k.another().NewMutex("lock"), k.another()
				require.NoError(k, giver.Lock())
				s, err := giver.Detach(k.Context())
				require.NoError(k, err)
				time.Sleep(5 * time.Second)
				r := &redsynctest.Recorder{}
				m := other.NewMutex("lock", adopt(s), redsync.WithObserver(r))
				require.NoError(k, do(m, k.Context(), func(ctx context.Context) error {
					assert.Equal(k, s.Value, peek.Value(m))
					_, err := m.Detach(ctx)
					assert.ErrorContains(k, err, "Do unlocks it")
					return lasts(time.Minute)(ctx)
				}))
				time.Sleep(time.Millisecond)
				k.nothingLeft()
				_, _ = only[observe.Acquired](k.T, r)
				_, _ = only[observe.Released](k.T, r)
				assert.Empty(k, redsynctest.Events[observe.Attempt](r), "a Do that adopts makes no attempt to lock")

				require.NoError(k, do(m, k.Context(), func(context.Context) error {
					assert.NotEqual(k, s.Value, peek.Value(m), "the second Do does not adopt again: it locks with a new value")
					return nil
				}))
				assert.Len(k, redsynctest.Events[observe.Attempt](r), 1)
			})
		})
	}
}

func TestDoThatCannotAdoptCallsNothing(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context //nolint:containedctx // it is for the call
		value string
		fault func(k kit)
		want  []error
		taken bool
	}{
		"another's":       {value: "wrong", want: []error{redsync.ErrLockAlreadyExpired}, taken: true},
		"no answers":      {fault: func(k kit) { k.freeze(0, 1, 2) }, want: []error{redsync.ErrExtendFailed, redsync.ErrNoQuorum}},
		"expired":         {fault: func(kit) { time.Sleep(guard) }, want: []error{redsync.ErrLockAlreadyExpired}},
		"context is over": {ctx: canceled, fault: func(k kit) { k.freeze(0, 1, 2) }, want: []error{context.Canceled, redsync.ErrExtendFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			inEachDo(t, onKit, func(k kit, do func(*redsync.Mutex, context.Context, work) error) {
				giver := k.another().NewMutex("lock")
				require.NoError(k, giver.Lock())
				s, err := giver.Detach(k.Context())
				require.NoError(k, err)
				if c.value != "" {
					s.Value = c.value
				}
				r := &redsynctest.Recorder{}
				m := k.another(redsync.WithObserver(r)).NewMutex("lock", redsync.WithSequencer(s))
				if c.fault != nil {
					c.fault(k)
				}
				forget(r)
				start := time.Now()
				err = do(m, c.ctx, never)
				assert.LessOrEqual(k, time.Since(start), patience)
				for _, want := range c.want {
					require.ErrorIs(k, err, want)
				}
				require.NotErrorIs(k, err, redsync.ErrFailed)
				require.NotErrorIs(k, err, redsync.ErrLockLost)
				var taken *redsync.ErrTaken
				assert.Equal(k, c.taken, errors.As(err, &taken))
				require.Regexp(k, `^redsync: (failed to extend lock|extend) "lock": `, err.Error())
				assert.Equal(k, s.Value, m.Value(), "it is as it was")
				got, why := only[observe.Extended](k.T, r)
				assert.Equal(k, "lock", got.Name)
				require.ErrorIs(k, err, why)
				assert.Empty(k, redsynctest.Events[observe.NotAcquired](r))

				if name == "no answers" {
					k.thaw(0, 1, 2)
					require.NoError(k, do(m, k.Context(), lasts(time.Minute)), "it can adopt the lock later")
					return
				}
				k.thaw(0, 1, 2)
				_, _ = m.Unlock()
				time.Sleep(2 * guard)
				require.NoError(k, do(m, k.Context(), nothing), "the adopted lock is unlocked, so the next Do locks")
			})
		})
	}
}

// Another call comes while the nodes answer a Do that adopts.
func TestDoThatAdoptsMeetsAnotherCall(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(f field, m *redsync.Mutex)
		want      error
	}{
		"Unlock": {func(f field, m *redsync.Mutex) { f.unlock(m) }, redsync.ErrNotHeld},
		"Close":  {func(f field, _ *redsync.Mutex) { require.NoError(f, f.Close(f.Context())) }, redsync.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				giver := f.another().NewMutex("lock")
				require.NoError(t, giver.Lock())
				m := f.NewMutex("lock", redsync.WithValue(giver.Value()), redsync.WithTries(1))
				for _, n := range f.nodes {
					n.On("evalsha", 1, embedded.Fault{Delay: 100 * time.Millisecond})
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					err := m.Do(f.Context(), never)
					assert.ErrorIs(t, err, c.want)
					assert.NotErrorIs(t, err, redsync.ErrFailed)
				})
				synctest.Wait()
				c.meanwhile(f, m)
				wg.Wait()
			})
		})
	}
}

// Once an Extend has adopted the lock, the hold belongs to no Do: TryDo finds the lock taken, and does not end that
// hold.
func TestDoAfterAnExtendThatAdopted(t *testing.T) {
	for name, extend := range map[string]func(f field, m *redsync.Mutex){
		"before": func(f field, m *redsync.Mutex) {
			_, err := m.Extend()
			require.NoError(f, err)
		},
		"meanwhile": func(f field, m *redsync.Mutex) {
			for _, n := range f.nodes {
				n.On("evalsha", 2, embedded.Fault{Delay: 100 * time.Millisecond})
			}
			go func() {
				_, err := m.Extend()
				assert.NoError(f, err)
			}()
			time.Sleep(time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				giver := f.another().NewMutex("lock")
				require.NoError(t, giver.Lock())
				s, err := giver.Detach(f.Context())
				require.NoError(t, err)
				m := f.NewMutex("lock", redsync.WithSequencer(s))
				extend(f, m)
				require.ErrorIs(t, f.notRun(m.TryDo(f.Context(), never)), errOthers)
				require.NoError(t, m.Err(), "the hold that Extend adopted goes on")
				time.Sleep(validity)
				require.ErrorIs(t, m.Err(), redsync.ErrLockAlreadyExpired, "the hold that Extend adopted has no watchdog, so it expires")
			})
		})
	}
}
