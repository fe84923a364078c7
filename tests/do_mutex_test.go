package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
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

// A doing is a Do of a Mutex.
type doing = func(m *redsync.Mutex, ctx context.Context, fn work) error //nolint:revive // a method

// dos are the ways to run a function under a lock of m.
var dos = map[string]doing{
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
func inEachDo[On any](t *testing.T, run func(*testing.T, func(On)), test func(on On, do doing)) {
	t.Helper()
	for name, do := range dos {
		t.Run(name, func(t *testing.T) {
			run(t, func(on On) { test(on, do) })
		})
	}
}

func TestMutexDoExtendsItsOwnHoldAlone(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do doing) {
		m := k.NewMutex("lock")
		require.NoError(k, do(m, k.Context(), func(ctx context.Context) error {
			assert.Same(k, m, redsync.FromContext(ctx))
			assert.Equal(k, 5, k.keys("lock"))
			return lasts(time.Minute)(ctx)
		}))
		isOver(k, m, redsync.ErrNotHeld)
		time.Sleep(ms)
		k.nothingLeft()

		locked(k, m)
		time.Sleep(validity)
		require.ErrorIs(k, m.Err(), redsync.ErrLockAlreadyExpired, "a later Lock has no watchdog: Do has not changed the settings of m")
	})
}

func TestTryDoOfATakenLockReturnsAtOnceWithoutAnError(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(withWatchdog)
		for name, do := range map[string]func() (bool, error){
			"Mutex":   func() (bool, error) { return k.NewMutex("lock").TryDo(k.Context(), never) },
			"Redsync": func() (bool, error) { return k.TryDo(k.Context(), "lock", never) },
			"fair":    func() (bool, error) { return k.TryDo(k.Context(), "lock", never, withFair) },
		} {
			start := time.Now()
			require.ErrorIs(k, k.notRun(do()), errOthers, name)
			took(k, start, 0, name)
		}
		require.ErrorIs(k, k.ran(k.TryDo(k.Context(), "other", func(context.Context) error { return errWork }, withFencing)), errWork)
		require.NoError(k, k.ran(k.TryDo(k.Context(), "other", nothing)))
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
			require.ErrorIs(k, err, redsync.ErrFailed, name)
			require.ErrorAs(k, err, new(*redsync.ErrTaken), name)
		}
	})
}

func TestDoThatCannotBegin(t *testing.T) {
	for name, c := range map[string]struct {
		m    func(k kit) *redsync.Mutex
		fn   work
		want string
		is   error
	}{
		"nil function": {func(k kit) *redsync.Mutex { return k.NewMultiMutex(both) }, nil, `redsync: do "a, b": the function is nil`, nil},
		"no name":      {func(k kit) *redsync.Mutex { return k.NewMutex("") }, never, "must not be empty", nil},
		"zero Mutex":   {func(kit) *redsync.Mutex { return new(redsync.Mutex) }, never, "no pools", redsync.ErrNoPools},
		"closed, and it adopts": {func(k kit) *redsync.Mutex {
			rs := k.another()
			shut(k, rs)
			return rs.NewMutex("lock", redsync.WithValue("v"))
		}, never, "closed", redsync.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inEachDo(t, onKit, func(k kit, do doing) {
				m := c.m(k)
				err := do(m, k.Context(), c.fn)
				require.ErrorContains(k, err, c.want)
				if c.is != nil {
					require.ErrorIs(k, err, c.is)
				}
				require.NotErrorIs(k, err, redsync.ErrFailed)
				isOver(k, m, redsync.ErrNotHeld)
				k.nothingLeft()
			})
		})
	}
	var none *redsync.Mutex
	assert.Panics(t, func() { _ = none.Do(t.Context(), nothing) }, "Do of a nil Mutex panics, as Lock does")
}

// Do fails while an earlier Lock of the same Mutex holds the lock, and that hold goes on.
func TestDoOfAMutexThatIsHeld(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do doing) {
		m := locked(k, k.NewMutex("lock", redsync.WithTries(2), hearsAll))
		until := m.Until()
		if err := do(m, k.Context(), never); !errors.Is(err, errOthers) { // of Do
			isTaken(k, err)
			require.ErrorIs(k, err, redsync.ErrFailed)
		}
		alive(k, m)
		assert.Equal(k, until, m.Until())
		_, err := m.Detach(k.Context())
		require.NoError(k, err, "Detach works: the hold is that of Lock, not of a Do")
	})
}

// The Dos take turns. Detach fails within each of them, no matter which Dos have ended before.
func TestManyDosOfOneMutex(t *testing.T) {
	inEachMode(t, onKit, func(k kit, mode opts) {
		m := k.NewMutex("lock", append(mode, forever)...)
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

// The function of the first Do unlocks by hand, or loses the lock, and works on. Its end must not end the hold of the
// second Do.
func TestDoThatOutlivesItsHoldLeavesTheNextDoAlone(t *testing.T) {
	for want, end := range map[error]func(k kit, m *redsync.Mutex){
		redsync.ErrNotHeld: func(k kit, m *redsync.Mutex) { k.unlock(m) },
		redsync.ErrLockLost: func(k kit, m *redsync.Mutex) {
			k.lose(allNodes...)
			<-m.Lost()
		},
	} {
		kitAs(t, want.Error(), func(k kit) {
			m := k.NewMutex("lock", forever)
			begun, ended := make(chan struct{}), make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				err := m.Do(k.Context(), func(ctx context.Context) error {
					time.Sleep(time.Second)
					end(k, redsync.FromContext(ctx))
					<-begun
					time.Sleep(time.Minute)
					return nil
				})
				assert.ErrorIs(k, err, want)
				assert.ErrorContains(k, err, `do "lock"`)
				close(ended)
			})
			time.Sleep(ms)
			wg.Go(func() {
				assert.NoError(k, m.Do(k.Context(), func(ctx context.Context) error {
					close(begun)
					<-ended
					assert.NoError(k, m.Err())
					assert.Equal(k, 5, k.keys("lock"))
					_, err := m.Detach(ctx)
					assert.ErrorContains(k, err, "Do unlocks it")
					return lasts(time.Minute)(ctx)
				}))
			})
			wg.Wait()
			time.Sleep(time.Second)
			k.nothingLeft()
		})
	}
}

func TestDoAndClose(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do doing) {
		rs := k.another()
		m := rs.NewMutex("lock")
		err := do(m, k.Context(), func(ctx context.Context) error {
			require.NoError(k, rs.Close(k.Context()), "Close does not wait for the function of Do")
			<-ctx.Done()
			assert.ErrorIs(k, context.Cause(ctx), redsync.ErrClosed)
			assert.ErrorIs(k, context.Cause(ctx), redsync.ErrLockLost)
			return nil
		})
		errorIs(k, err, redsync.ErrLockLost, redsync.ErrClosed)
		k.nothingLeft()
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
			inEachDo(t, onKit, func(k kit, do doing) {
				s, r := k.given(), &redsynctest.Recorder{}
				time.Sleep(5 * time.Second)
				m := k.another().NewMutex("lock", adopt(s), redsync.WithObserver(r))
				require.NoError(k, do(m, k.Context(), func(ctx context.Context) error {
					assert.Equal(k, s.Value, peek.Value(m))
					_, err := m.Detach(ctx)
					assert.ErrorContains(k, err, "Do unlocks it")
					return lasts(time.Minute)(ctx)
				}))
				time.Sleep(ms)
				k.nothingLeft()
				_, _ = only[observe.Acquired](k.T, r)
				_, _ = only[observe.Released](k.T, r)
				assert.Empty(k, redsynctest.Events[observe.Attempt](r), "a Do that adopts makes no attempt to lock")

				require.NoError(k, do(m, k.Context(), nothing))
				assert.Len(k, redsynctest.Events[observe.Attempt](r), 1, "the second Do does not adopt again: it locks")
			})
		})
	}
}

func TestDoThatCannotAdoptCallsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(k kit, s *redsync.Sequencer)
		want  []error
	}{
		"another's":  {func(_ kit, s *redsync.Sequencer) { s.Value = "wrong" }, []error{redsync.ErrLockAlreadyExpired}},
		"no answers": {func(k kit, _ *redsync.Sequencer) { k.freeze(majority...) }, []error{redsync.ErrExtendFailed, redsync.ErrNoQuorum}},
	} {
		t.Run(name, func(t *testing.T) {
			inEachDo(t, onKit, func(k kit, do doing) {
				s, r := k.given(), &redsynctest.Recorder{}
				rs := k.another(redsync.WithObserver(r))
				c.fault(k, &s)
				m := rs.NewMutex("lock", redsync.WithSequencer(s))
				forget(r)
				err := do(m, k.Context(), never)
				errorIs(k, err, c.want...)
				require.NotErrorIs(k, err, redsync.ErrFailed)
				require.NotErrorIs(k, err, redsync.ErrLockLost)
				require.Regexp(k, `^redsync: (failed to extend lock|extend) "lock": `, err.Error())
				assert.Equal(k, s.Value, m.Value(), "it is as it was")
				_, why := only[observe.Extended](k.T, r)
				require.ErrorIs(k, err, why)
				assert.Empty(k, redsynctest.Events[observe.NotAcquired](r))
				k.thaw(majority...)
				if s.Value != "wrong" {
					require.NoError(k, do(m, k.Context(), lasts(time.Minute)), "it can adopt the lock later")
				}
			})
		})
	}
}

// Another call comes while the nodes answer an Extend or a Do that adopts.
func TestACallThatAdoptsMeetsAnotherCall(t *testing.T) {
	for name, adopt := range map[string]func(f field, m *redsync.Mutex) error{
		"Do":     func(f field, m *redsync.Mutex) error { return m.Do(f.Context(), never) },
		"Extend": func(_ field, m *redsync.Mutex) error { return second(m.Extend()) },
	} {
		for other, c := range map[string]struct {
			meanwhile func(f field, m *redsync.Mutex)
			want      error
			keys      int
		}{
			"Unlock": {func(f field, m *redsync.Mutex) { f.unlock(m) }, redsync.ErrNotHeld, 0},
			"Close":  {func(f field, _ *redsync.Mutex) { require.NoError(f, f.Close(f.Context())) }, redsync.ErrClosed, 5},
		} {
			playAs(t, name+" "+other, func(f field) {
				m := f.NewMutex("lock", redsync.WithValue(f.given().Value))
				f.slowly(1, 100*ms, allNodes...)
				var wg sync.WaitGroup
				wg.Go(func() {
					err := adopt(f, m)
					assert.ErrorIs(f, err, c.want)
					assert.NotErrorIs(f, err, redsync.ErrFailed)
				})
				synctest.Wait()
				c.meanwhile(f, m)
				wg.Wait()
				assert.Zero(f, m.Until())
				time.Sleep(time.Second)
				assert.Equal(f, c.keys, f.nodes.Keys("lock"), "what it has not taken over is not released")
			})
		}
	}
}

// Once an Extend has adopted the lock, the hold belongs to no Do: TryDo finds the lock taken, and does not end that
// hold.
func TestDoAfterAnExtendThatAdopted(t *testing.T) {
	play(t, func(f field) {
		m := f.NewMutex("lock", redsync.WithSequencer(f.given()))
		f.confirms(m.Extend())
		require.ErrorIs(f, f.notRun(m.TryDo(f.Context(), never)), errOthers)
		require.NoError(f, m.Err(), "the hold that Extend adopted goes on")
		time.Sleep(validity)
		require.ErrorIs(f, m.Err(), redsync.ErrLockAlreadyExpired, "the hold that Extend adopted has no watchdog, so it expires")
	})
}
