package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests how a holder learns that its lock is over: Lost, Err and Context.

// A cable is a connection that can be cut without an error: what is written vanishes.
type cable struct {
	net.Conn
	hole *atomic.Bool
}

func (c cable) Write(p []byte) (int, error) {
	if c.hole.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// partitioned returns a process whose connections lose everything that is written while hole is set.
func partitioned(nodes embedded.Nodes, hole *atomic.Bool) *redsync.Redsync {
	var pools []pool.Pool
	for _, n := range nodes {
		pools = append(pools, pool.New(redis.NewClient(&redis.Options{
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := n.Dial(ctx, network, addr)
				return cable{conn, hole}, err
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})))
	}
	return redsync.New(pools...)
}

// The holder must learn of the loss before anybody else can have the lock. It learns earlier by the drift, and by the
// time between the start of its last command and the nodes' execution of that command.
func TestLostIsClosedAtUntilBeforeAnotherAcquires(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	var hole *atomic.Bool
	for name, fault := range map[string]func(f field){
		"a majority frozen": func(f field) {
			f.freeze(majority...)
			time.AfterFunc(9*sec, func() { f.thaw(majority...) })
		},
		"a majority dead": func(f field) {
			f.kill(majority...)
			time.AfterFunc(9*sec, func() { f.restart(majority...) })
		},
		"every connection black-holed": func(field) { hole.Store(true) },
	} {
		for _, watched := range []bool{false, true} {
			playAs(t, name, func(f field) {
				hole = &atomic.Bool{}
				options := opts{withMaxHold(hour)} // which is not reached
				if watched {
					options = append(options, withWatchdog)
				}
				a := partitioned(f.nodes, hole)
				m := a.NewMutex("lock", options...)
				start := time.Now()
				locked(f, m)
				lost := m.Lost()
				require.Equal(f, validity, m.Until().Sub(start))
				time.Sleep(sec)
				fault(f)
				other := f.calls(f.Redsync, forever, waiting(start.Add(7900*ms)))
				<-lost
				took(f, start, validity) // Lost is closed exactly at Until
				assert.Zero(f, m.Remaining())
				errorIs(f, m.Err(), redsync.ErrLockLost, redsync.ErrLockAlreadyExpired)
				require.NotErrorIs(f, m.Err(), redsync.ErrMaxHold)
				<-other.done
				noError(f, other.err)
				acquired := other.at.Sub(start)
				assert.GreaterOrEqual(f, acquired, 8*sec) // another process acquires the lock no earlier than the drift after Until
				if name == "every connection black-holed" {
					assert.Less(f, acquired, 8*sec+2*ms)
				}
				_ = a.Close(f.Context())
			})
		}
	}
}

func TestLostAtOnceWhenAnExtensionOfTheWatchdogProvesTheLoss(t *testing.T) {
	for _, healing := range []opts{nil, {withSetNXOnExtend}} {
		play(t, func(f field) {
			m := f.held(append(healing, withWatchdog, nineSeconds)...)
			start := m.Until().Add(92*ms - 9*sec)
			lost, ctx := m.Lost(), m.Context(f.Context())
			f.occupy("lock", 1, 2, 3)
			<-lost
			took(f, start, 3*sec) // the watchdog finds the loss at the next third of the expiry
			errorIs(f, m.Err(), redsync.ErrLockLost, redsync.ErrLockAlreadyExpired)
			assert.Equal(f, []int{1, 2, 3}, isTaken(f, m.Err()).Nodes)
			assert.Zero(f, m.Until())
			synctest.Wait()
			errorIs(f, f.ended(ctx), redsync.ErrLockLost, redsync.ErrLockAlreadyExpired)
			before := f.traffic()
			failsWith(f, m.Extend, redsync.ErrLockLost)
			time.Sleep(minute)
			f.hasSent(before)
			failsWith(f, m.Unlock, redsync.ErrLockLost)
		})
	}
}

// The loss stays found, and no call asks again.
func TestLostAtOnceWhenACallProvesTheLoss(t *testing.T) {
	for _, name := range []string{"Extend", "Valid"} {
		play(t, func(f field) {
			m := f.held()
			lost, ctx := m.Lost(), m.Context(f.Context())
			f.lose(majority...)
			require.True(f, open(lost))
			proves := func(call string) {
				failsWith(f, operations(m)[call], redsync.ErrLockLost, redsync.ErrLockAlreadyExpired)
			}
			proves(name)
			assert.False(f, open(lost))
			assert.False(f, open(m.Lost()))
			isOver(f, m, redsync.ErrLockLost)
			assert.Zero(f, m.Until())
			assert.Zero(f, m.Remaining())
			f.silently("lost", func() { proves("Extend"); proves("Valid") })
			proves("Unlock")
			synctest.Wait()
			f.keysOn(0)
			errorIs(f, f.ended(ctx), redsync.ErrLockLost) // it keeps its cause
		})
	}
}

func TestLostBelongsToOneHold(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.NewMutex("lock")
		assert.Nil(k, m.Lost())
		isOver(k, m, redsync.ErrNotHeld)
		locked(k, m)
		first := m.Lost()
		assert.Equal(k, first, m.Lost())
		alive(k, m)
		k.unlock(m)
		assert.Nil(k, m.Lost())
		isOver(k, m, redsync.ErrNotHeld)
		locked(k, m)
		second := m.Lost()
		assert.NotEqual(k, first, second)
		<-second
		assert.True(k, open(first)) // a clean Unlock does not close it
		locked(k, m)
		assert.True(k, open(m.Lost()))
		alive(k, m)
		k.unlock(m)
		time.Sleep(minute)
		assert.True(k, open(first))
	})
}

// A context that a Mutex returns.

// ended checks that ctx has ended by now, without waiting for anything, and returns its cause.
func (u user) ended(ctx context.Context) error {
	u.Helper()
	isOver(u, ctx, context.Canceled)
	return context.Cause(ctx)
}

func TestContextEndsWithTheHold(t *testing.T) {
	parallelComputing(t)
	for name, c := range map[string]struct {
		end func(k kit, m *redsync.Mutex)
		is  []error // nil: the cause is context.Canceled
	}{
		"Unlock": {end: func(k kit, m *redsync.Mutex) { k.unlock(m) }},
		"Unlock fails": {end: func(k kit, m *redsync.Mutex) {
			k.freeze(majority...)
			erred(k, second(m.Unlock()))
			k.thaw(majority...)
		}},
		"Detach": {end: func(k kit, m *redsync.Mutex) {
			k.detaches(m)
			time.Sleep(guard) // nobody adopts it
		}},
		"Close": {
			func(k kit, _ *redsync.Mutex) { shut(k, k.Redsync) },
			[]error{redsync.ErrLockLost, redsync.ErrClosed},
		},
		"Until": {func(_ kit, m *redsync.Mutex) {
			time.Sleep(time.Until(m.Until()))
			synctest.Wait()
		}, []error{redsync.ErrLockLost, redsync.ErrLockAlreadyExpired}},
	} {
		for _, kind := range lockKinds {
			kitAs(t, name+", "+kind.column, func(k kit) {
				m := locked(k, kind.lock(k.Redsync))
				ctx := m.Context(k.Context())
				time.Sleep(time.Until(m.Until()) - 1)
				alive(k, ctx)
				c.end(k, m)
				cause := k.ended(ctx)
				if c.is == nil {
					assert.Equal(k, context.Canceled, cause)
					assert.Equal(k, redsync.ErrNotHeld, m.Err())
					assert.Equal(k, redsync.ErrNotHeld, k.ended(m.Context(k.Context())))
					return
				}
				assert.Equal(k, m.Err(), cause)
				errorIs(k, cause, c.is...)
				assert.Equal(k, cause, k.ended(m.Context(k.Context()))) // and so does a later one at once
			})
		}
	}
}

// The keys go only after the work was told to stop.
func TestContextEndsBeforeAReleaseIsSent(t *testing.T) {
	for name, end := range map[string]func(rs *redsync.Redsync, m *redsync.Mutex) error{
		"Unlock": func(_ *redsync.Redsync, m *redsync.Mutex) error {
			return second(m.Unlock())
		},
		"Close": func(rs *redsync.Redsync, _ *redsync.Mutex) error { return rs.Close(context.Background()) },
	} {
		playAs(t, name, func(f field) {
			var hook atomic.Pointer[func()]
			rs := f.wrapped(func(p pool.Pool) pool.Pool { return hooked{p, &hook} })
			m := locked(f, rs.NewMutex("lock"))
			time.Sleep(sec)
			ctx, sent := m.Context(f.Context()), false
			check := func() {
				sent = true
				assert.Error(f, ctx.Err())
			}
			hook.Store(&check)
			noError(f, end(rs, m))
			assert.True(f, sent)
		})
	}
}

// An endingCall is a call that may end the lock that its own context belongs to.
type endingCall struct {
	byHand bool          // Do and Lead refuse it
	thaws  time.Duration // for how long the nodes are frozen: longer than a call goes on whose context has ended
	before func(k kit, m *redsync.Mutex)
	call   func(k kit, m *redsync.Mutex, ctx context.Context) error
}

const slowly = 700 * ms

var endingCalls = map[string]endingCall{
	"Unlock": {true, slowly, nil, func(_ kit, m *redsync.Mutex, ctx context.Context) error {
		return second(m.UnlockContext(ctx))
	}},
	"Detach": {true, slowly, nil, func(_ kit, m *redsync.Mutex, ctx context.Context) error {
		go func() { _, _ = m.Extend() }() // its command may still set the key
		synctest.Wait()
		_, err := m.Detach(ctx)
		return err
	}},
	"Close": {false, slowly, nil, func(k kit, _ *redsync.Mutex, ctx context.Context) error { return k.Close(ctx) }},
	"ForceUnlock by the holder, while an Unlock comes": {
		true, slowly, nil,
		func(k kit, m *redsync.Mutex, ctx context.Context) error {
			k.thaw(allNodes...)
			st, err := m.Inspect(k.Context())
			if err != nil {
				return err
			}
			k.freeze(allNodes...)
			time.AfterFunc(100*ms, func() { _, _ = m.Unlock() })
			return m.ForceUnlock(ctx, st.Holders[0])
		},
	},
	"Extend that finds the loss": {
		false, slowly, func(k kit, _ *redsync.Mutex) { k.lose(allNodes...) },
		func(_ kit, m *redsync.Mutex, ctx context.Context) error {
			return second(m.ExtendContext(ctx))
		},
	},
	"Extend beyond Until": {false, 3 * guard, nil, func(_ kit, m *redsync.Mutex, ctx context.Context) error {
		return second(m.ExtendContext(ctx))
	}},
}

// An ownWork is what holds a lock, and has a context that ends with it.
type ownWork = func(m *redsync.Mutex, ctx context.Context) //nolint:revive // as a call has them

// An ownContext holds a lock, and calls work with a context that ends with it.
type ownContext func(k kit, parent context.Context, work ownWork)

var ownContexts = map[string]ownContext{
	"Context": func(k kit, parent context.Context, work ownWork) {
		m := k.held(withWatchdog)
		work(m, m.Context(parent))
	},
	"Do": func(k kit, parent context.Context, work ownWork) {
		_ = k.Do(parent, "lock", func(ctx context.Context) error {
			work(redsync.FromContext(ctx), ctx)
			return nil
		})
	},
	"Lead": func(k kit, parent context.Context, work ownWork) {
		parent, cancel := context.WithCancel(parent)
		_ = k.Lead(parent, "lock", func(ctx context.Context) error {
			defer cancel()
			work(redsync.FromContext(ctx), ctx)
			return nil
		})
	},
	"Context beside another lock's": func(k kit, parent context.Context, work ownWork) {
		m, other := k.held(withWatchdog), k.NewMutex("other", withWatchdog)
		locked(k, other)
		work(m, other.Context(m.Context(other.Context(parent))))
	},
}

// A derivation makes the context of a call of one that ends with the lock. end ends the parent of that one.
type derivation func(k kit, ctx context.Context, end func()) context.Context

var derivations = map[string]derivation{
	"itself": func(_ kit, ctx context.Context, _ func()) context.Context { return ctx },
	"a child at its deadline": func(k kit, ctx context.Context, _ func()) context.Context {
		return k.limited(ctx, slowly-100*ms)
	},
	"its parent ends": func(_ kit, ctx context.Context, end func()) context.Context {
		time.AfterFunc(slowly-100*ms, end)
		return ctx
	},
}

// limited returns a child of ctx with a deadline.
func (k kit) limited(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	k.Cleanup(cancel)
	return ctx
}

// A call whose context belongs to the lock does what it does with a context that does not.
func TestCallIgnoresTheEndOfItsContextThatItCauses(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	outcome := func(t *testing.T, c endingCall, hold ownContext, derive derivation, isOwn bool) (did string) {
		t.Helper()
		kitMet(t, func(k kit) {
			k.Redsync = k.With(withExpiry(6*sec), withNodeTimeout(2*sec),
				withOwner("holder"), withSetNXOnExtend)
			parent, end := context.WithCancelCause(k.Context())
			enough := errors.New("enough")
			hold(k, parent, func(m *redsync.Mutex, ctx context.Context) {
				time.Sleep(1500 * ms) // it hears of a force by then
				if c.before != nil {
					c.before(k, m)
				}
				if !isOwn {
					ctx = parent
				}
				k.freeze(allNodes...)
				thaws := time.AfterFunc(c.thaws, func() { k.thaw(allNodes...) })
				ctx = derive(k, ctx, func() { end(enough) })
				start := time.Now()
				err := c.call(k, m, ctx)
				did = fmt.Sprint("in ", time.Since(start), ": ")
				if err != nil {
					did += fmt.Sprint(wordsOf(t, err), errors.Is(err, enough))
				}
				if thaws.Stop() {
					k.thaw(allNodes...)
				}
			})
			end(nil)
			require.NotEmpty(k, did)
		})
		return did
	}
	every := testlength.InGate(9, 5, 2, 1)
	for i, name := range slices.Sorted(maps.Keys(endingCalls)) {
		c := endingCalls[name]
		for j, where := range slices.Sorted(maps.Keys(ownContexts)) {
			for k, which := range slices.Sorted(maps.Keys(derivations)) {
				if c.byHand && (where == "Do" || where == "Lead") || (2*i+j+k)%every != 0 {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, %s", name, where, which), func(t *testing.T) {
					hold, derive := ownContexts[where], derivations[which]
					assert.Equal(t, outcome(t, c, hold, derive, false), outcome(t, c, hold, derive, true))
				})
			}
		}
	}
}

func TestContextOfAMutexThatIsNotHeld(t *testing.T) {
	onKit(t, func(k kit) {
		adopts := k.NewMutex("lock", withSequencer(k.given()))
		for _, m := range []*redsync.Mutex{k.NewMutex("other"), {}, adopts} {
			assert.Equal(k, redsync.ErrNotHeld, k.ended(m.Context(k.Context())))
		}
		k.extends(adopts)
		noError(k, adopts.Context(k.Context()).Err()) // it is held from here on
		k.unlock(adopts)
	})
}

func TestContextEndsWithItsParent(t *testing.T) {
	type key struct{}
	onKit(t, func(k kit) {
		m, enough := k.held(withWatchdog), errors.New("enough")
		parent, cancel := context.WithCancelCause(context.WithValue(k.Context(), key{}, "of the parent"))
		ctx := m.Context(parent)
		assert.Equal(k, "of the parent", ctx.Value(key{}))
		_, has := ctx.Deadline()
		assert.False(k, has)
		cancel(enough)
		assert.Equal(k, enough, k.ended(ctx))
		assert.Equal(k, enough, k.ended(m.Context(parent))) // the parent is done already

		parent, stop := context.WithTimeout(k.Context(), 30*sec)
		defer stop()
		ctx = m.Context(parent)
		want, _ := parent.Deadline()
		got, _ := ctx.Deadline()
		assert.Equal(k, want, got)
		time.Sleep(30 * sec)
		synctest.Wait()
		isOver(k, ctx, context.DeadlineExceeded)

		alive(k, m)          // the hold goes on
		ctx = m.Context(nil) //nolint:staticcheck // nil is context.Background
		alive(k, ctx)
		k.unlock(m)
		assert.Equal(k, context.Canceled, k.ended(ctx))
		assert.Equal(k, enough, k.ended(m.Context(parentOf(enough)))) // also if m is not held
	})
}

// parentOf returns a context that is over for a cause.
func parentOf(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

// Within Do the Mutex of FromContext has the hold. A Mutex that has joined the hold has none.
func TestContextWithinDo(t *testing.T) {
	onKit(t, func(k kit) {
		var held context.Context
		noError(k, k.does("lock", func(ctx context.Context) error {
			joins := k.NewMutex("lock")
			return joins.Do(ctx, func(ctx context.Context) error {
				assert.Equal(k, redsync.ErrNotHeld, k.ended(joins.Context(ctx)))
				held = redsync.FromContext(ctx).Context(k.Context()) //nolint:fatcontext // to look at it afterwards
				time.Sleep(minute)
				return held.Err()
			})
		}))
		assert.Equal(k, context.Canceled, k.ended(held))
	})
}

// A foreign context is of no type that package context knows, and never ends.
type foreign struct {
	context.Context //nolint:containedctx // it is one
	done            chan struct{}
}

func (f foreign) Done() <-chan struct{} { return f.done }

// While the lock is held, a context needs no goroutine. Afterwards nothing is left of it, although its parent goes on:
// a bubble ends with its goroutines. Package context has one for each foreign parent.
func TestContextLeavesNothingBehind(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(withWatchdog)
		var ctxs []context.Context
		synctest.Wait()
		before := inStacks(", synctest bubble")
		for range 100 {
			ctxs = append(ctxs, m.Context(k.Context()), m.Context(context.Background()))
		}
		synctest.Wait()
		assert.Positive(k, before)
		assert.Equal(k, before, inStacks(", synctest bubble"))
		ctxs = append(ctxs, m.Context(foreign{context.Background(), make(chan struct{})}))
		k.unlock(m)
		for _, ctx := range ctxs {
			assert.Equal(k, context.Canceled, k.ended(ctx))
		}
	})
}

// A hold that goes on for long does not keep what came with parents that have ended.
func TestContextIsForgottenWithItsParent(t *testing.T) {
	type key struct{}
	onKit(t, func(k kit) {
		m := k.held(withWatchdog)
		value := func() weak.Pointer[[1 << 10]byte] {
			value := new([1 << 10]byte)
			parent, cancel := context.WithCancel(context.WithValue(k.Context(), key{}, value))
			defer cancel()
			_ = m.Context(parent)
			return weak.Make(value)
		}()
		synctest.Wait()
		runtime.GC()
		assert.Nil(k, value.Value())
		alive(k, m)
		k.unlock(m)
	})
}
