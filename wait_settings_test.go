package redsync_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// Waiters of one process whose settings differ, or that are many.

// frozenExpiries are those by which the node deadline is 0.4 s, and 6 s.
var frozenExpiries = []time.Duration{8 * time.Second, 2 * time.Minute}

func TestFrozenNodeDelaysNoWaiter(t *testing.T) {
	for _, expiry := range frozenExpiries {
		t.Run(fmt.Sprint(expiry), func(t *testing.T) {
			inEachMode(t, func(f field, mode []redsync.Option) {
				mode = append(mode, redsync.WithExpiry(expiry))
				b := f.another()
				f.closes(b)
				m := f.held(mode...)
				f.freeze(0)
				w := f.calls(b, patient(mode...)...)
				time.Sleep(10 * time.Millisecond)
				start := time.Now()
				_, _ = m.Unlock()
				<-w.done
				require.NoError(f, w.err)
				assert.Less(f, w.at.Sub(start), 10*time.Millisecond)
				f.thaw(0)
			})
		})
	}
}

func TestFrozenNodeDelaysNoHandOver(t *testing.T) {
	for _, expiry := range frozenExpiries {
		t.Run(fmt.Sprint(expiry), func(t *testing.T) {
			play(t, func(f field) {
				rs := f.With(redsync.WithExpiry(expiry))
				f.meet()
				f.freeze(0, 1, 2) // not even a quorum can be heard
				f.thaw(1, 2)
				for _, n := range f.nodes {
					n.On("subscribe", 1, embedded.Fault{Delay: 4 * time.Second})
				}
				m := rs.NewMutex("lock")
				require.NoError(t, m.Lock())
				value := redsync.PeekValue(m)
				w := f.calls(rs, patient()...)
				time.Sleep(time.Millisecond)
				f.atOnce(m, w)
				assert.Equal(t, value, redsync.PeekValue(w.Mutex))
				f.unlock(w.Mutex)
				f.thaw(0)
			})
		})
	}
}

// A fair waiter shows itself in time, although it cannot hear a node.
func TestFrozenNodeCostsNoFairWaiterItsPlace(t *testing.T) {
	play(t, func(f field) {
		options := patient(redsync.WithFair(), redsync.WithExpiry(time.Minute))
		first, second := f.another(), f.another()
		f.closes(first, second)
		m := f.held(options...)
		hears := f.calls(second, options...)
		time.Sleep(10 * time.Millisecond)
		hears.cancel()
		<-hears.done
		f.freeze(0)
		a := f.calls(first, options...)
		time.Sleep(100 * time.Millisecond)
		b := f.calls(second, options...)
		time.Sleep(1500 * time.Millisecond)
		f.atOnce(m, a)
		require.False(t, b.isDone())
		f.thaw(0)
		f.unlock(a.Mutex)
		f.within(b, 0)
	})
}

// Nodes that can be heard late may have told something before.
func TestWaiterTriesAgainOnceItCanHear(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		m := f.held(append(mode, redsync.WithExpiry(time.Minute))...)
		b := f.another(mode...)
		for _, n := range f.nodes {
			n.On("subscribe", 1, embedded.Fault{Delay: 2 * time.Second})
		}
		w := f.calls(b, patient()...)
		start := time.Now()
		time.Sleep(1950 * time.Millisecond) // it has tried at 0.4, 0.9, 1.4 and 1.9 s
		f.unlock(m)
		<-w.done
		require.NoError(f, w.err)
		assert.Equal(f, 2*time.Second, w.at.Sub(start))
	})
}

// slow makes every node answer late, from now on.
func (f field) slow(by time.Duration) {
	for _, n := range f.nodes {
		n.On("evalsha", 1000, embedded.Fault{Delay: by})
		n.On("set", 1000, embedded.Fault{Delay: by})
	}
}

func TestWaiterWithAShortNodeDeadlineGivesWay(t *testing.T) {
	for name, expiry := range map[string]time.Duration{"released": time.Minute, "run out": time.Second} {
		t.Run(name, func(t *testing.T) {
			inEachMode(t, func(f field, mode []redsync.Option) {
				m := f.held(append(mode, redsync.WithExpiry(expiry))...)
				b := f.another(mode...)
				f.slow(5 * time.Millisecond)
				hasty := f.calls(b, patient(redsync.WithNodeTimeout(2*time.Millisecond))...)
				hastier := f.calls(b, patient(redsync.WithNodeTimeout(time.Millisecond))...)
				usual := f.calls(b, patient()...)
				time.Sleep(1500 * time.Millisecond)
				if name == "released" {
					f.unlock(m)
				}
				f.within(usual, 20*time.Millisecond)
				require.False(f, hasty.isDone())

				// It has its turn once the nodes are quick enough, in its order.
				for _, n := range f.nodes {
					n.Heal()
				}
				f.unlock(usual.Mutex)
				f.within(hasty, time.Second)
				f.unlock(hasty.Mutex)
				f.within(hastier, time.Second)
			})
		})
	}
}

// Two waiters have heard no quorum, because the nodes were too slow for them. Now the first
// one has, and the second one would have, too: nobody with a longer node deadline overtakes it.
func TestWaiterThatHeardNobodyKeepsItsPlaceOnceTheFirstHears(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithExpiry(time.Minute))
		b := f.another()
		f.slow(5 * time.Millisecond)
		hasty := []redsync.Option{
			redsync.WithTries(0), redsync.WithRetryDelay(100 * time.Millisecond), redsync.WithNodeTimeout(2 * time.Millisecond),
		}
		first := f.calls(b, hasty...)
		time.Sleep(time.Millisecond)
		second := f.calls(b, hasty...)
		time.Sleep(20 * time.Millisecond)
		for _, n := range f.nodes {
			n.Heal()
		}
		time.Sleep(100 * time.Millisecond)
		third := f.calls(b, patient()...)
		f.atOnce(m, first)
		require.False(t, third.isDone())
		f.atOnce(first.Mutex, second)
		require.False(t, third.isDone())
		f.atOnce(second.Mutex, third)
		f.unlock(third.Mutex)
	})
}

// A lock of another program, which tells nobody that it is released.
func (f field) anothers() {
	for _, n := range f.nodes {
		require.NoError(f, n.Set("lock", "another's"))
		n.SetTTL("lock", time.Minute)
	}
}

func TestWaiterPollsAtTheShortestRetryDelayInLine(t *testing.T) {
	short := redsync.WithRetryDelay(50 * time.Millisecond)
	for name, behind := range map[string][]redsync.Option{
		"the second": {redsync.WithTries(0), short},
		"of a function": {redsync.WithTries(0), redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			return time.Duration(max(10-tries, 5)) * 10 * time.Millisecond
		})},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				b := f.another()
				f.anothers()
				first := f.calls(b, patient()...)
				middle := f.calls(b, patient()...)
				last := f.calls(b, behind...)
				time.Sleep(1030 * time.Millisecond)
				before := f.traffic()
				time.Sleep(time.Second)
				polls := (f.traffic() - before) / 10
				assert.InDelta(t, 20, polls, 3)
				f.lose(0, 1, 2, 3, 4)
				f.within(first, 50*time.Millisecond)
				assert.False(t, middle.isDone())
				f.unlock(first.Mutex)
				f.within(middle, 0)

				// Nobody paces the others any more.
				last.cancel()
				<-last.done
				f.unlock(middle.Mutex)
			})
		})
	}
}

// The retry delays of a function change, and so does who has the shortest.
func TestWaiterPollsAtTheRetryDelayThatIsTheShortestNow(t *testing.T) {
	for name, delay := range map[string]redsync.DelayFunc{
		"the first's become longer than the second's": func(tries int) time.Duration {
			return time.Duration(min(tries, 5)) * 20 * time.Millisecond
		},
		"the first's become shorter and stay longer": func(tries int) time.Duration {
			return time.Duration(max(7-tries, 2)) * 50 * time.Millisecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				b := f.another()
				f.anothers()
				first := f.calls(b, redsync.WithTries(0), redsync.WithRetryDelayFunc(delay))
				f.calls(b, redsync.WithTries(0), redsync.WithRetryDelay(50*time.Millisecond))
				time.Sleep(2030 * time.Millisecond)
				before := f.traffic()
				time.Sleep(time.Second)
				assert.GreaterOrEqual(t, (f.traffic()-before)/10, 19, "by the second's delay, or by both")
				f.lose(0, 1, 2, 3, 4)
				f.within(first, 50*time.Millisecond)
				f.unlock(first.Mutex)
			})
		})
	}
}

// Who is gone paces nobody.
func TestWaiterPollsAtItsOwnRetryDelayAgain(t *testing.T) {
	play(t, func(f field) {
		b := f.another()
		f.anothers()
		first := f.calls(b, redsync.WithTries(0), redsync.WithRetryDelay(400*time.Millisecond))
		f.calls(b, patient()...)
		quick := f.calls(b, redsync.WithTries(5), redsync.WithRetryDelay(20*time.Millisecond))
		<-quick.done
		require.ErrorIs(t, quick.err, redsync.ErrFailed)
		time.Sleep(time.Second)
		before := f.traffic()
		time.Sleep(4 * time.Second)
		assert.LessOrEqual(t, (f.traffic()-before)/10, 11)
		f.lose(0, 1, 2, 3, 4)
		f.within(first, 400*time.Millisecond)
	})
}

// No node has said that the lock is taken.
func TestErrTakenIsReportedOnlyWhereANodeWasAsked(t *testing.T) {
	play(t, func(f field) {
		b := f.another(redsync.WithFair())
		f.held(redsync.WithFair())
		f.slow(100 * time.Millisecond)
		first := f.calls(b, patient()...)
		var taken *redsync.ErrTaken
		err := b.NewMutex("lock").TryLock()
		require.ErrorIs(t, err, redsync.ErrFailed)
		require.ErrorContains(t, err, "others of this process wait")
		assert.NotErrorAs(t, err, &taken)

		second := f.calls(b, redsync.WithTries(2), redsync.WithRetryDelay(10*time.Millisecond))
		<-second.done
		require.ErrorContains(t, second.err, "others of this process wait")
		assert.NotErrorAs(t, second.err, &taken)

		time.Sleep(time.Second) // the first has been told
		require.ErrorAs(t, b.NewMutex("lock").TryLock(), &taken)
		first.cancel()
		<-first.done
		require.ErrorAs(t, first.err, &taken)
	})
}

// delays notes with what it is called as a DelayFunc.
type delays struct {
	mu    sync.Mutex
	tries []int
	delay time.Duration
}

func (d *delays) of(tries int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries = append(d.tries, tries)
	return d.delay
}

func (d *delays) taken() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.tries)
}

// The retry delays of one who waits behind others are counted, and do not wake it: it asks
// for them ahead, and once each.
func TestWaitersBehindOthersSleep(t *testing.T) {
	inEachMode(t, func(f field, mode []redsync.Option) {
		const waiters = 100
		holder := f.held(append(mode, redsync.WithExpiry(time.Minute))...)
		b := f.another(mode...)
		f.calls(b, patient()...)
		var all []*call
		var asked []*delays
		start := time.Now()
		for i := range waiters {
			d := &delays{delay: 100 * time.Millisecond}
			tries := 0
			if i%2 == 0 {
				tries = 32
			}
			asked = append(asked, d)
			all = append(all, f.calls(b, redsync.WithTries(tries), redsync.WithRetryDelayFunc(d.of)))
		}
		calls := func() (n int) {
			for _, d := range asked[1:] { // but for the one by which the first polls
				n += len(d.taken())
			}
			return n
		}
		before := calls()
		time.Sleep(3 * time.Second)
		assert.LessOrEqual(f, calls()-before, 31)
		for i := 0; i < waiters; i += 2 {
			<-all[i].done
			assert.Equal(f, 3100*time.Millisecond, all[i].at.Sub(start), "#%d", i)
			require.ErrorIs(f, all[i].err, redsync.ErrFailed)
			want := ascending(32)[1:]
			assert.Equal(f, want, asked[i].taken(), "#%d", i)
		}
		f.unlock(holder)
		synctest.Wait()
	})
}

// A delay that is of no use is an error when its turn has come.
func TestWaiterBehindOthersFailsAtADelayThatIsNegative(t *testing.T) {
	play(t, func(f field) {
		f.held(redsync.WithExpiry(time.Minute))
		b := f.another()
		f.calls(b, patient()...)
		start := time.Now()
		w := f.calls(b, redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			return time.Duration(4-tries) * 100 * time.Millisecond
		}))
		<-w.done
		require.ErrorContains(t, w.err, "WithRetryDelayFunc(-100ms) is out of range")
		assert.Equal(t, 600*time.Millisecond+10*time.Millisecond, w.at.Sub(start), "0 is a little")
	})
}

// A waiter that becomes the first goes on with the delays that it has left.
func TestWaiterBehindOthersGoesOnWithItsTries(t *testing.T) {
	play(t, func(f field) {
		f.held(redsync.WithExpiry(time.Minute))
		b := f.another()
		first := f.calls(b, patient()...)
		before := f.calls(b, redsync.WithTries(0), redsync.WithRetryDelay(time.Millisecond)) // paces
		d := &delays{delay: time.Second}
		start := time.Now()
		w := f.calls(b, redsync.WithTries(10), redsync.WithRetryDelayFunc(d.of))
		time.Sleep(4500 * time.Millisecond)
		for _, c := range []*call{first, before} {
			c.cancel()
			<-c.done
		}
		<-w.done
		require.ErrorIs(t, w.err, redsync.ErrFailed)
		assert.InDelta(t, 9*time.Second, w.at.Sub(start), float64(10*time.Millisecond))
		assert.Equal(t, ascending(10)[1:], d.taken())
	})
}
