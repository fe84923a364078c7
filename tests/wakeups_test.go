package redsync_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows what wakes a waiter, and for how long a process listens.

// C has two nodes and waits for two others, which will fail. B has these two, and waits until C rolls back.
func TestWaiterIsWokenByTheRollBackOfAnAttempt(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		b, c := f.another(mode...), f.another()
		f.kill(2)
		onEach(f.nodes[3:], "set", 1, embedded.Fault{Delay: 300 * ms, Err: "ERR no"})
		rolls := make(chan error)
		go func() { rolls <- c.NewMutex("lock").TryLock() }()
		synctest.Wait()
		w := f.waits(b)
		f.stillWait(w)
		assert.Equal(f, 300*ms, f.within(w, sec))
		erred(f, <-rolls)
		f.unlock(w)
		f.nobodyWaits()
	})
}

// The first waiter misses the message that the lock is free, and gives up. That must wake the second waiter.
func TestWaiterIsWokenByOneBeforeItThatGivesUp(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held(mode...)
		first := f.foreign(mode...)
		time.Sleep(ms)
		second := f.foreign(mode...)
		time.Sleep(600 * ms)
		loseMessages(f.nodes, 1)
		f.unlock(m)
		time.Sleep(100 * ms)
		f.stillWait(first)
		f.stillWait(second) // the second waiter comes after the first
		first.cancel()
		assert.Zero(f, f.within(second, 0))
		<-first.done
		errorIs(f, first.err, context.Canceled)
		errorIs(f, first.err, redsync.ErrFailed)
		f.unlock(second)
		f.nobodyWaits()
	})
}

func TestWaiterThatIsNotWokenGoesByTheTime(t *testing.T) {
	for delay, within := range map[time.Duration]time.Duration{hour: 400 * ms, 70 * ms: 70 * ms} {
		inEachMode(t, play, func(f field, mode opts) {
			m := f.held(mode...)
			w := f.calls(f.another(mode...), forever, withRetryDelay(delay))
			loseMessages(f.nodes, 100)
			time.Sleep(600 * ms)
			f.unlock(m)
			assert.Positive(f, f.within(w, within))
		})
	}
}

func TestWaiterIsWokenByAQuorum(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, fault := range map[string]func(f field){
		"two frozen":                      hit(field.freeze, 1, 3),
		"two dead":                        hit(field.kill, 0, 4),
		"one frozen, one dead":            func(f field) { f.freeze(1); f.kill(4) },
		"two messages lost":               func(f field) { loseMessages(f.nodes[:2], 1) },
		"all replies to the release lost": func(f field) { onEach(f.nodes, "evalsha", 1, embedded.Fault{LoseReply: true}) },
	} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, before it waits: %v", name, before), func(t *testing.T) {
				inEachMode(t, play, func(f field, mode opts) {
					m := f.held(mode...)
					b := f.another(mode...)
					if before {
						fault(f)
					}
					w := f.waits(b)
					time.Sleep(1100 * ms)
					if !before {
						fault(f)
					}
					f.atOnce(m, w)
					f.thaw(allNodes...)
					f.restart(0, 4)
				})
			})
		}
	}
}

// Wake-ups of fewer nodes than a quorum wake the waiter, too, a few milliseconds later.
func TestWaiterIsWokenByOneMessage(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held(mode...)
		w := f.foreign(mode...)
		time.Sleep(ms)
		loseMessages(f.nodes[1:], 1)
		f.unlock(m)
		assert.GreaterOrEqual(f, f.within(w, 4*ms), 2*ms)
	})
}

// The waiter's last attempt was granted on two nodes and rolled back. It counts these nodes as free, so one message
// from a third is enough.
func TestWaiterCountsTheNodesThatItFreed(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held()
		f.lose(3, 4)
		w := f.foreign(mode...)
		time.Sleep(ms)
		loseMessages(f.nodes[1:], 1)
		f.atOnce(m, w)
	})
}

// Messages may be lost while a waiter is disconnected, so it tries again when it has reconnected.
func TestWaiterLooksWhenItCanHearAgain(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held(mode...)
		w := f.foreign(mode...)
		time.Sleep(10 * ms)
		for _, n := range f.nodes {
			n.Disconnect()
		}
		time.Sleep(ms)
		_, _ = m.Unlock()
		f.stillWait(w)
		f.within(w, 150*ms)
	})
}

// A wake-up that comes while an attempt is under way counts. This attempt fails: two nodes return errors, and a third
// has refused before the lock is free.
func TestWakeUpDuringAnAttemptIsNotLost(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held(mode...)
		w := f.foreign(mode...)
		time.Sleep(499 * ms) // the next attempt is at 500 ms
		for i, n := range f.nodes {
			n.On("evalsha", 1, []embedded.Fault{
				{}, {Delay: 20 * ms}, {Delay: 20 * ms}, {Err: "ERR"}, {Err: "ERR"},
			}[i])
		}
		time.Sleep(11 * ms)
		f.unlock(m)
		assert.Equal(f, 10*ms, f.within(w, 10*ms))
	})
}

// subscribers counts the subscriptions on all nodes.
func (f field) subscribers() (count int) {
	for _, n := range f.nodes {
		for _, k := range n.PubSubNumSub(n.PubSubChannels("*")...) {
			count += k
		}
	}
	return count
}

func TestSubscriptionsOutlastTheLastWaiterByHalfAMinute(t *testing.T) {
	testlength.FromGate(t)
	play(t, func(f field) {
		b, c := f.another(), f.another()
		m := f.held(withExpiry(10 * minute))
		first := f.waits(b)
		time.Sleep(2 * minute)
		second := f.waits(c)
		assert.Equal(f, 10, f.subscribers()) // each process has one subscription on each node
		f.atOnce(m, first)                   // the second waiter is told, too ...
		f.unlock(first)                      // ... and its process remembers that
		f.served(second, 0)
		time.Sleep(20 * sec)
		m = f.held()
		third := f.waits(c)
		f.atOnce(m, third)
		f.unlock(third)
		time.Sleep(25 * sec)
		assert.Equal(f, 5, f.subscribers()) // half a minute after the last waiter of each process
		time.Sleep(10 * sec)
		assert.Zero(f, f.subscribers())
	})
}
