package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

var errWork = errors.New("work went wrong")

// A function that returns the cause of its context returns the very loss that Do tells of. A loss is told of whatever the
// function returns, and work that has run must not look like work that another process does.
func TestALossThatTheFunctionReturnsIsSaidOnce(t *testing.T) {
	parallelComputing(t)
	for name, call := range map[string]func(k kit, ctx context.Context, fn work) error{
		"Do":    func(k kit, ctx context.Context, fn work) error { return k.Do(ctx, "lock", fn) },
		"TryDo": func(k kit, ctx context.Context, fn work) error { return k.ran(k.TryDo(ctx, "lock", fn)) },
		"Mutex.Do": func(k kit, ctx context.Context, fn work) error {
			return k.NewMutex("lock").Do(ctx, fn)
		},
		"Lead": func(k kit, ctx context.Context, fn work) error {
			ctx, cancel := context.WithCancel(ctx)
			return k.Lead(ctx, "lock", func(ctx context.Context) error {
				defer cancel() // otherwise Lead campaigns again
				return fn(ctx)
			})
		},
		"Do inside of Do": func(k kit, ctx context.Context, fn work) error {
			return k.Do(ctx, "lock", func(ctx context.Context) error { return k.Do(ctx, "lock", fn) })
		},
	} {
		returns := func(err error) work { return func(context.Context) error { return err } }
		for what, c := range map[string]struct {
			returned work
			losses   int
		}{
			"the cause":          {context.Cause, 1},
			"a step's error":     {func(ctx context.Context) error { return fmt.Errorf("step 3: %w", context.Cause(ctx)) }, 2},
			"the context's":      {context.Context.Err, 1},
			"of work":            {returns(errWork), 1},
			"of another lock":    {returns(fmt.Errorf("redsync: extend \"other\": %w", redsync.ErrLockLost)), 2},
			"nothing":            {nothing, 1},
			"the sentinel alone": {returns(redsync.ErrLockLost), 2},
		} {
			if name != "Do" && what != "the cause" && testlength.InGate(0, 0, 1, 1) == 0 {
				continue
			}
			kitAs(t, name+" "+what, func(k kit) {
				var returned error
				err := call(k, k.Context(), func(ctx context.Context) error {
					k.nodes.Steal("lock")
					<-ctx.Done()
					errorIs(k, context.Cause(ctx), redsync.ErrLockLost)
					returned = c.returned(ctx)
					return returned
				})
				errorIs(k, err, redsync.ErrLockLost)
				isTaken(k, err)
				require.NotErrorIs(k, err, redsync.ErrFailed)
				if returned != nil {
					errorIs(k, err, returned)
				}
				assert.Equal(k, c.losses, strings.Count(err.Error(), "lock lost"), "%v", err)
				assert.Regexp(k, `^redsync: (do|lead) "lock": lock lost: `, err.Error(), "the reason comes first")
			})
		}
	}
}

func TestDoUnlocksWhateverTheFunctionDoes(t *testing.T) {
	for _, c := range []struct {
		end   func()
		panic any
	}{{func() {}, nil}, {func() { panic(errWork) }, errWork}, {runtime.Goexit, nil}} {
		onKit(t, func(k kit) {
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() { assert.Equal(k, c.panic, recover()) }()
				_ = k.Do(k.Context(), "lock", func(context.Context) error {
					sleep(10 * sec)
					c.end()
					return nil
				})
			})
			wg.Wait()
			k.nothingLeft()
		})
	}
}

// Several Dos inside each other lose two locks. Each loss is said once, by the innermost call, and the others pass it on.
func TestEachLossOfNestedDosIsSaidOnce(t *testing.T) {
	kitMet(t, func(k kit) {
		o := withMaxHold(10 * sec)
		err := k.Do(k.Context(), "a", func(ctx context.Context) error {
			return k.Do(ctx, "b", func(ctx context.Context) error {
				return k.Do(ctx, "a", func(ctx context.Context) error {
					<-ctx.Done()
					return errors.Join(errWork, context.Cause(ctx))
				}, o)
			}, o)
		}, o)
		errorIs(k, err, errWork, redsync.ErrMaxHold)
		for _, name := range both {
			assert.Equal(k, 1, strings.Count(err.Error(), `"`+name+`"`), "%v", err)
		}
	})
}

// What follows tests Do and TryDo of a Mutex. Each call has a hold of its own, and ends no other hold.

// A work is the function that a Do calls.
type work = func(context.Context) error

func nothing(context.Context) error { return nil }

func failing(context.Context) error { return errWork }

func never(context.Context) error { panic("it was called") }

// lasts returns a function for Do. The function sleeps for d, and returns an error if its context has ended by then.
func lasts(d time.Duration) work {
	return func(ctx context.Context) error {
		sleep(d)
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
		ran, err := m.TryDo(ctx, watched)
		if ran != called {
			panic("TryDo says that its function was called, and it was not, or the other way round")
		}
		if !ran && err == nil {
			return errOthers
		}
		return err
	},
}

// errOthers stands for a TryDo that returns false without an error.
var errOthers = errors.New("others have the lock")

// isOfDo checks that the hold of m cannot be given away, because a Do ends it.
func (u user) isOfDo(ctx context.Context, m *redsync.Mutex) {
	_, err := m.Detach(ctx)
	assert.ErrorContains(u, err, "Do unlocks it")
}

// ran checks that a TryDo has called its function, and returns its error.
func (u user) ran(ran bool, err error) error {
	assert.True(u, ran, "%v", err)
	return err
}

// notRun checks that a TryDo has not called its function, and returns its error: errOthers if others have the lock.
func (u user) notRun(ran bool, err error) error {
	assert.False(u, ran, "%v", err)
	if err == nil {
		return errOthers
	}
	return err
}

// inEachDo runs test with Do and with TryDo.
func inEachDo[On any](t *testing.T, run func(*testing.T, func(On)), test func(on On, do doing)) {
	for name, do := range dos {
		asSubtest(run)(t, name, func(on On) { test(on, do) })
	}
}

// A later Lock has no watchdog: Do has not changed the settings of m.
func TestMutexDoExtendsItsOwnHoldAlone(t *testing.T) {
	inEachDo(t, onKit, func(k kit, do doing) {
		m := k.NewMutex("lock")
		require.NoError(k, do(m, k.Context(), func(ctx context.Context) error {
			assert.Same(k, m, redsync.FromContext(ctx))
			assert.Equal(k, 5, k.keys("lock"))
			return lasts(minute)(ctx)
		}))
		isOver(k, m, redsync.ErrNotHeld)
		sleep(ms)
		k.nothingLeft()

		locked(k, m)
		sleep(validity)
		isOver(k, m, redsync.ErrLockAlreadyExpired)
	})
}

func TestTryDoOfATakenLockReturnsAtOnceWithoutAnError(t *testing.T) {
	onKit(t, func(k kit) {
		k.held(withWatchdog)
		ctx, start := k.Context(), time.Now()
		errorIs(k, k.notRun(k.NewMutex("lock").TryDo(ctx, never)), errOthers)
		errorIs(k, k.notRun(k.TryDo(ctx, "lock", never)), errOthers)
		errorIs(k, k.notRun(k.TryDo(ctx, "lock", never, withFair)), errOthers)
		took(k, start, 0)
		errorIs(k, k.ran(k.TryDo(ctx, "other", failing, withFencing)), errWork)
		require.NoError(k, k.ran(k.TryDo(ctx, "other", nothing)))
	})
}

// Work that is half done must not look like work that another process does, whatever its error matches, and also where an
// outer TryDo passes the error on.
func TestTryDoWhoseFunctionFindsAnotherLockTaken(t *testing.T) {
	onKit(t, func(k kit) {
		k.nodes.HoldBySomebody("inner")
		inner := func(context.Context) error { return k.NewMutex("inner").TryLock() }
		try := func(ctx context.Context) error { return k.ran(k.TryDo(ctx, "lock", inner)) }
		for _, err := range []error{try(k.Context()), k.ran(k.TryDo(k.Context(), "lock", try))} {
			errorIs(k, err, redsync.ErrFailed)
			isTaken(k, err)
		}
	})
}

// Do fails while an earlier Lock of the same Mutex holds the lock, or an Extend that adopted it, and that hold goes on.
func TestDoOfAMutexThatIsHeld(t *testing.T) {
	for _, adopts := range []bool{false, true} {
		inEachDo(t, onKit, func(k kit, do doing) {
			m := k.NewMutex("lock", withTries(2), hearsAll)
			if adopts {
				m = k.NewMutex("lock", withTries(2), hearsAll, withSequencer(k.given()))
				k.confirms(m.Extend())
			} else {
				locked(k, m)
			}
			until := m.Until()
			if err := do(m, k.Context(), never); !errors.Is(err, errOthers) { // of Do
				isTaken(k, err)
				errorIs(k, err, redsync.ErrFailed)
			}
			alive(k, m)
			assert.Equal(k, until, m.Until())
			k.detaches(m) // it works: the hold is not that of a Do
		})
	}
}

// The Dos take turns. Detach fails within each of them, no matter which Dos have ended before.
func TestManyDosOfOneMutex(t *testing.T) {
	parallelComputing(t)
	inEachMode(t, onKit, func(k kit, mode opts) {
		m := k.NewMutex("lock", append(mode, forever)...)
		inside, count := 0, 0
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				assert.NoError(k, m.Do(k.Context(), func(ctx context.Context) error {
					inside++
					assert.Equal(k, 1, inside)
					for range 20 {
						sleep(sec)
						k.isOfDo(ctx, m)
					}
					inside--
					count++
					return context.Cause(ctx)
				}))
			})
		}
		wg.Wait()
		assert.Equal(k, 5, count)
		sleep(sec)
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
		onKit(t, func(k kit) {
			m := k.NewMutex("lock", forever)
			begun, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				err := m.Do(k.Context(), func(context.Context) error {
					sleep(sec)
					end(k, m)
					<-begun
					return lasts(minute)(k.Context())
				})
				assert.ErrorIs(k, err, want)
				assert.ErrorContains(k, err, `do "lock"`)
			}()
			sleep(ms)
			require.NoError(k, m.Do(k.Context(), func(ctx context.Context) error {
				close(begun)
				<-ended
				alive(k, m)
				assert.Equal(k, 5, k.keys("lock"))
				k.isOfDo(ctx, m)
				return lasts(minute)(ctx)
			}))
			sleep(sec)
			k.nothingLeft()
		})
	}
}

// Do of a Mutex that adopts a lock extends that lock. A second Do does not adopt again: it locks.
func TestDoAdopts(t *testing.T) {
	parallelComputing(t)
	for _, adopt := range []func(s redsync.Sequencer) redsync.Option{
		withSequencer, func(s redsync.Sequencer) redsync.Option { return withValue(s.Value) },
	} {
		inEachDo(t, onKit, func(k kit, do doing) {
			s, r := k.given(), &redsynctest.Recorder{}
			sleep(5 * sec)
			m := k.another().NewMutex("lock", adopt(s), recordsTo(r))
			require.NoError(k, do(m, k.Context(), func(ctx context.Context) error {
				assert.Equal(k, s.Value, fortests.Value(m))
				k.isOfDo(ctx, m)
				return lasts(minute)(ctx)
			}))
			sleep(ms)
			k.nothingLeft()
			_, _ = only[observe.Acquired](k.T, r)
			_, _ = only[observe.Released](k.T, r)
			assert.Empty(k, redsynctest.Events[observe.Attempt](r))
			require.NoError(k, do(m, k.Context(), nothing))
			assert.Len(k, redsynctest.Events[observe.Attempt](r), 1)
		})
	}
}

// It leaves the Mutex as it was: it can adopt the lock later.
func TestDoThatCannotAdoptCallsNothing(t *testing.T) {
	for anothers, want := range map[bool][]error{
		true:  {redsync.ErrLockAlreadyExpired},
		false: {redsync.ErrExtendFailed, redsync.ErrNoQuorum},
	} {
		inEachDo(t, onKit, func(k kit, do doing) {
			s, r := k.given(), &redsynctest.Recorder{}
			rs := k.another(recordsTo(r))
			if anothers {
				s.Value = "wrong"
			} else {
				k.freeze(majority...)
			}
			m := rs.NewMutex("lock", withSequencer(s))
			forget(r)
			err := do(m, k.Context(), never)
			errorIs(k, err, want...)
			require.NotErrorIs(k, err, redsync.ErrFailed)
			require.NotErrorIs(k, err, redsync.ErrLockLost)
			require.Regexp(k, `^redsync: (failed to extend lock|extend) "lock": `, err.Error())
			assert.Equal(k, s.Value, m.Value())
			_, why := only[observe.Extended](k.T, r)
			errorIs(k, err, why)
			assert.Empty(k, redsynctest.Events[observe.NotAcquired](r))
			k.thaw(majority...)
			if !anothers {
				require.NoError(k, do(m, k.Context(), lasts(minute)))
			}
		})
	}
}

// Another call comes while the nodes answer an Extend or a Do that adopts. What that has not taken over is not released.
func TestACallThatAdoptsMeetsAnotherCall(t *testing.T) {
	for _, adopt := range []func(m *redsync.Mutex) error{
		func(m *redsync.Mutex) error { return m.Do(context.Background(), never) },
		func(m *redsync.Mutex) error { return second(m.Extend()) },
	} {
		for want, keys := range map[error]int{redsync.ErrNotHeld: 0, redsync.ErrClosed: 5} {
			play(t, func(f field) {
				m := f.NewMutex("lock", withValue(f.given().Value))
				f.slowly(1, 100*ms, allNodes...)
				time.AfterFunc(ms, func() {
					if keys == 0 {
						f.unlock(m)
					} else {
						shut(f, f.Redsync)
					}
				})
				err := adopt(m)
				errorIs(f, err, want)
				require.NotErrorIs(f, err, redsync.ErrFailed)
				assert.Zero(f, m.Until())
				sleep(sec)
				f.keysOn(keys)
			})
		}
	}
}
