package redsync

import (
	"context"
	"errors"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A puppet is a node whose replies the test decides: answer returns the reply,
// none for the time being, or a refusal.
type puppet struct {
	answer func(req pool.Request) (*pool.Reply, error)

	mu   sync.Mutex
	sent []pool.Request
}

func (p *puppet) Send(req pool.Request) error {
	p.mu.Lock()
	p.sent = append(p.sent, req)
	p.mu.Unlock()
	reply, err := p.answer(req)
	if reply != nil {
		go req.To.Receive(req.Tag, *reply)
	}
	return err
}

func (p *puppet) CloseIdle()     {}
func (p *puppet) Close() error   { return nil }
func (p *puppet) String() string { return "puppet" }

// count counts what was sent by the name of the command.
func (p *puppet) count(name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, req := range p.sent {
		if req.Args[0] == name {
			n++
		}
	}
	return n
}

// yes is the reply of a node on which everything succeeds.
func yes(req pool.Request) (*pool.Reply, error) {
	if req.Args[0] == "set" {
		return &pool.Reply{Value: "OK", Fate: pool.Answered, Conn: 1}, nil
	}
	return &pool.Reply{Value: script.Mine, Fate: pool.Answered, Conn: 1}, nil
}

var errPuppet = errors.New("the string broke")

func TestReleaseReservesNoRoomWhereTheAcquireWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if !req.Reserved {
				return nil, &pool.OutstandingError{Limit: 1}
			}
			return nil, nil
		}}
		require.Error(t, New(p).NewMutex("lock").TryLock())
		synctest.Wait()
		for _, req := range p.sent {
			assert.False(t, req.Reserved, "%v", req.Args)
		}
	})
}

// Close sends a release that the pool has refused once more, as any that is pending. Where the
// node owes too much to others Close waits for a reply, and tries again.
func TestCloseKeepsARefusedReleaseForLaterOnlyIfTheNodeOwesTooMuch(t *testing.T) {
	for name, c := range map[string]struct {
		refusal error
		times   []time.Duration
	}{
		"it owes too much": {&pool.OutstandingError{Limit: 3}, []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond}},
		"it cannot be":     {errPuppet, []time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var start time.Time
				var times []time.Duration
				answered := make(chan func(), 2)
				rs := New(&puppet{answer: func(req pool.Request) (*pool.Reply, error) {
					reply, _ := yes(req)
					switch {
					case req.Args[0] == "set":
						return reply, nil
					case req.Args[3] == "refused":
						times = append(times, time.Since(start))
						return nil, c.refusal
					}
					answered <- func() { req.To.Receive(req.Tag, *reply) }
					return nil, nil
				}})
				for _, name := range []string{"first", "second", "refused"} {
					require.NoError(t, rs.NewMutex(name, WithExpiry(time.Minute)).Lock())
					time.Sleep(time.Millisecond) // they are released in this order
				}
				start = time.Now()
				go func() {
					for range 2 {
						time.Sleep(100 * time.Millisecond)
						(<-answered)()
					}
				}()
				require.NoError(t, rs.Close(t.Context()))
				assert.Equal(t, c.times, times)
			})
		})
	}
}

func TestReleaseIsNotRepeatedWhereNothingWasSent(t *testing.T) {
	for name, answer := range map[string]func(pool.Request) (*pool.Reply, error){
		"refused by the limit": func(pool.Request) (*pool.Reply, error) {
			return nil, &pool.OutstandingError{Limit: 1}
		},
		"no connection": func(pool.Request) (*pool.Reply, error) {
			return &pool.Reply{Err: errPuppet, Fate: pool.NotSent, Conn: 1}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &puppet{answer: answer}
				require.Error(t, New(p).NewMutex("lock").TryLock())
				time.Sleep(20 * time.Second)
				assert.Equal(t, 1, p.count("evalsha"))
			})
		})
	}
}

func TestReleaseRepeatsUntilALateKeyHasRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var last time.Duration
		p := &puppet{}
		p.answer = func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "set" { // executed after 3 s: the key lives for 11 s
				time.AfterFunc(3*time.Second, func() {
					req.To.Receive(req.Tag, pool.Reply{Value: "OK", Fate: pool.Answered, Conn: 1})
				})
				return nil, nil
			}
			last = time.Since(start)
			return &pool.Reply{Err: errPuppet, Conn: 1}, nil // cut off since
		}
		rs := New(p)
		require.Error(t, rs.NewMutex("lock").TryLock())
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Greater(t, last, 10*time.Second)
		assert.Less(t, last, 12*time.Second)
		assert.LessOrEqual(t, p.count("evalsha"), 20, "with growing delays")
		require.NoError(t, rs.Close(t.Context()))
	})
}

// A second release of the same value, of a waiter that leaves, is repeated for as long as
// the first was.
func TestReleaseOnceMoreIsRepeatedAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reached atomic.Bool
		p := &puppet{}
		p.answer = func(req pool.Request) (*pool.Reply, error) {
			if !reached.Load() {
				return &pool.Reply{Err: errPuppet, Conn: 1}, nil
			}
			return yes(req)
		}
		rs := New(p)
		m := rs.NewMutex("lock", WithExpiry(time.Second))
		timing, err := m.set.timing()
		require.NoError(t, err)
		h := m.newHold("v", timing, clock.Now())
		h.sending(0)
		h.answered(0, pool.Answered)
		for range 2 {
			before := p.count("evalsha")
			startRelease(h, releasing{})
			time.Sleep(5 * time.Second)
			assert.Equal(t, before+5, p.count("evalsha"), "after 0, 50, 150, 350 and 750 ms")
		}
		reached.Store(true)
		require.NoError(t, rs.Close(t.Context()))
	})
}

// Without an order of execution a release settles nothing that was sent before
// the acquire was answered.
func TestReleaseOnAPoolWithoutOrderIsRepeatedBehindTheAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Bool // the node has the key
		p := &puppet{}
		p.answer = func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "set" { // overtaken by the release
				time.AfterFunc(time.Second, func() {
					held.Store(true)
					req.To.Receive(req.Tag, pool.Reply{Value: "OK", Fate: pool.Answered})
				})
				return nil, nil
			}
			found := script.Missing
			if held.Swap(false) {
				found = script.Mine
			}
			return &pool.Reply{Value: found, Fate: pool.Answered}, nil
		}
		require.Error(t, New(p).NewMutex("lock").TryLock())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.False(t, held.Load())
	})
}

// never is what an alarm is for that does not fire.
type never struct{}

func (never) Fire(bool) {}

func TestReleasesThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s alarm.Schedule
		defer s.Close()
		accepted := 0
		for range maxRepeats + 10 {
			if s.SetUnlessFull(&alarm.Alarm{What: never{}}, time.Now().Add(time.Hour), maxRepeats) {
				accepted++
			}
		}
		assert.Equal(t, maxRepeats, accepted)
	})
}

// testHold returns a hold on n nodes that do not exist.
func testHold(t *testing.T, n int, start clock.Instant) *hold {
	t.Helper()
	set := defaultSettings()
	timing, err := set.timing()
	require.NoError(t, err)
	m := &Mutex{core: &core{nodes: make([]*node, n)}, set: &set, name: "lock"}
	return m.newHold("v", timing, start)
}

func TestHoldClearedGoesByTheMonotonicClock(t *testing.T) {
	h := testHold(t, 0, at(0, 0))
	assert.False(t, h.cleared(at(time.Second, time.Hour)))
	assert.False(t, h.cleared(at(8*time.Second+82*time.Millisecond, 0)))
	assert.True(t, h.cleared(at(8*time.Second+83*time.Millisecond, 0)))
}

func TestHoldClearedAtTheLongestExpiry(t *testing.T) {
	timing, err := bases{expiry: math.MaxInt64, driftFactor: 0.01, timeoutFactor: 0.05}.derive()
	require.NoError(t, err)
	m := &Mutex{core: &core{}, set: &settings{}, name: "lock"}
	assert.False(t, m.newHold("v", timing, at(0, 0)).cleared(at(time.Hour, 0)))
}

func TestHoldFootprintCountsMany(t *testing.T) {
	h := testHold(t, 1, at(0, 0))
	for range 1 << 16 {
		h.sending(0)
	}
	assert.False(t, h.footprint(0).settled())
	for range 1 << 16 {
		h.answered(0, pool.Answered)
	}
	assert.True(t, h.footprint(0).settled())
	h.sending(0)
	h.answered(0, pool.Unknown)
	assert.False(t, h.footprint(0).settled(), "what was lost may come yet")
}

func TestHoldFootprintCountsNoFurtherThanMaxSent(t *testing.T) {
	h := testHold(t, 1, at(0, 0))
	h.nodes[0].Store((maxSent - 1) * oneSent)
	for range 3 {
		h.sending(0)
		assert.EqualValues(t, maxSent, h.footprint(0).sent())
	}
}

func TestHoldComparesClocksNotTooOften(t *testing.T) {
	for expiry, every := range map[time.Duration]time.Duration{
		20 * time.Millisecond:  10 * time.Millisecond,
		200 * time.Millisecond: 20 * time.Millisecond,
		8 * time.Second:        800 * time.Millisecond,
		time.Hour:              time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			rs := New(&puppet{answer: yes})
			require.NoError(t, rs.NewMutex("lock", WithExpiry(expiry)).Lock())
			assert.Equal(t, every, rs.core.holds.Comparing())
			require.NoError(t, rs.Close(t.Context()))
		})
	}
}

func TestCloseReleasesAHoldWhoseEventIsFiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{answer: yes}
		rs := New(p)
		m := rs.NewMutex("lock")
		require.NoError(t, m.Lock())
		h := m.hold
		rs.core.holds.Drop(&h.expiry) // the schedule has taken it off
		require.NoError(t, rs.Close(t.Context()))
		h.Fire(false) // and fires it
		synctest.Wait()
		assert.Equal(t, 1, p.count("evalsha"))
	})
}

// Either Unlock or Close ends a hold, never both, and Unlock knows which of them did.
func TestUnlockThatACloseForestallsSaysSo(t *testing.T) {
	rs := New(&puppet{answer: yes})
	defer func() { require.NoError(t, rs.Close(t.Context())) }()
	for i := range 1000 {
		m := rs.NewMutex(strconv.Itoa(i), WithExpiry(time.Hour))
		require.NoError(t, m.Lock())
		h, _ := m.take()
		var wg sync.WaitGroup
		var unlocked, closed bool
		var err error
		wg.Go(func() { unlocked, err = m.unlock(t.Context(), h, clock.Now()) })
		wg.Go(func() { closed = h.end(because(ErrLockLost, ErrClosed)) })
		wg.Wait()
		assert.Equal(t, !closed, unlocked)
		assert.Equal(t, closed, errors.Is(err, ErrClosed))
	}
}

func TestSecondCloseKeepsToItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if req.Args[0] == "set" {
				return yes(req)
			}
			return nil, nil
		}}
		rs := New(p)
		require.NoError(t, rs.NewMutex("lock").Lock())
		var wg sync.WaitGroup
		wg.Go(func() { assert.Error(t, rs.Close(t.Context())) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, rs.Close(ctx), context.DeadlineExceeded)
		assert.Equal(t, 10*time.Millisecond, time.Since(start))
		wg.Wait()
	})
}

// A Lock is held up between its attempt and begin until its validity is over. Another
// call of the same Mutex has acquired the lock meanwhile.
func TestBeginRefusesAHoldThatIsPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{answer: yes}
		rs := New(p)
		m := rs.NewMutex("lock")
		timing, err := m.enter()
		require.NoError(t, err)
		stale, err := m.acquire(t.Context(), timing, clock.Now(), 1)
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		require.NoError(t, m.Lock())
		lost, until := m.Lost(), m.Until()
		handed := stale.pass(m.set)
		for i, h := range []*hold{stale, handed} {
			require.ErrorIs(t, m.begin(h), ErrLockAlreadyExpired)
			synctest.Wait()
			assert.Equal(t, i+1, p.count("evalsha"), "it is released")
			assert.False(t, h.begun())
		}
		select {
		case <-lost:
			assert.Fail(t, "the hold that stands was ended")
		default:
		}
		assert.Equal(t, until, m.Until())
		m.core.exit()
		require.NoError(t, rs.Close(t.Context()))
	})
}

func TestAHoldThatIsWithdrawnShowsNothing(t *testing.T) {
	for name, end := range map[string]func(h *hold){
		"unlocked":  func(h *hold) { h.end(nil) },
		"detached":  func(h *hold) { assert.NoError(t, h.endHeld(clock.Now())) },
		"withdrawn": func(h *hold) { assert.True(t, h.withdraw()) },
	} {
		t.Run(name, func(t *testing.T) {
			h := testHold(t, 0, clock.Now())
			h.core = newCore(nil)
			end(h)
			assert.Empty(t, h.show())
			assert.Empty(t, h.showHeld(clock.Now()))
			assert.True(t, h.withdraw(), "nobody has seen it")
		})
	}
	h := testHold(t, 0, clock.Now())
	h.core = newCore(nil)
	h.end(lost(nil))
	assert.Equal(t, "v", h.show(), "kept after a loss")
	assert.False(t, h.withdraw())
}

// The line of those who wait looks at a hold before it has begun.
func TestBeginAndTheLooksOfOthersDoNotRace(t *testing.T) {
	for range 100 {
		h := testHold(t, 0, clock.Now())
		h.core = newCore(nil)
		h.validity.span = 50 * time.Microsecond
		l := &line{holder: h}
		var wg sync.WaitGroup
		wg.Go(func() {
			for l.held() > 0 {
				continue
			}
		})
		_ = h.begin()
		wg.Wait()
		h.end(nil)
		h.core.holds.Close()
	}
}

func TestTakeOverOfAHoldFoundLostFails(t *testing.T) {
	c := newCore([]pool.Pool{&puppet{}})
	set := defaultSettings()
	m := &Mutex{core: c, name: "lock", set: &set, adopted: "v"}
	timing, err := m.set.timing()
	require.NoError(t, err)
	h1 := m.adoptedHold("v", timing, clock.Now())
	h2 := m.adoptedHold("v", timing, clock.Now())
	e := h1.extensionFrom(h1.first)
	ok, err := m.takeOver(h1, e)
	require.NoError(t, err)
	require.True(t, ok)
	h1.end(lost(nil)) // Valid found out
	ok, err = m.takeOver(h2, e)
	assert.False(t, ok)
	require.ErrorIs(t, err, ErrLockLost)
}

func TestTakeOverKeepsToTheMaxHoldOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rs := New(&puppet{answer: func(req pool.Request) (*pool.Reply, error) {
			if isExtend(req) {
				time.AfterFunc(300*time.Millisecond, func() {
					reply, _ := yes(req)
					req.To.Receive(req.Tag, *reply)
				})
				return nil, nil
			}
			return yes(req)
		}})
		m := rs.NewMutex("lock", WithValue("v"), WithMaxHold(7950*time.Millisecond))
		start := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				ok, err := m.Extend()
				assert.NoError(t, err)
				assert.True(t, ok)
			})
			time.Sleep(250 * time.Millisecond)
		}
		wg.Wait()
		assert.Equal(t, 550*time.Millisecond, time.Since(start))
		assert.Equal(t, 7950*time.Millisecond, m.Until().Sub(start))
		require.NoError(t, rs.Close(t.Context()))
	})
}
