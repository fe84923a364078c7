package redsync_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows which waiters have a place in the queues on the nodes, and how they lose it.

// If the clocks of all nodes are set back meanwhile, the second begins when the waiter shows its ticket again, which it
// does every half second.
func TestWaiterBehindADeadProcessIsServedWithinASecond(t *testing.T) {
	for name, c := range map[string]struct {
		queue  string
		holder opts
		mode   opts
	}{
		"default": {queue: "{lock}:queue"},
		"fair":    {"{lock}:queue", modes["fair"], modes["fair"]},
		"reader":  {"{lock}:queue", nil, opts{withShared}},
		"permits": {"{lock}:slots", opts{onePermit}, opts{onePermit, withFair}},
	} {
		for _, back := range []time.Duration{0, minute} {
			playAs(t, fmt.Sprintf("%s, %v back", name, back), func(f field) {
				m := f.locks(c.holder...)
				w := f.foreign(c.mode...)
				time.Sleep(777 * ms)
				f.strangerIn(c.queue, sec, true, allNodes...)
				limit := 1015 * ms
				if back > 0 {
					limit += 500 * ms
					for _, n := range f.nodes {
						n.SetClock(-back, 1)
					}
				}
				f.unlock(m)
				assert.GreaterOrEqual(f, f.served(w, limit), sec)
				f.nobodyWaits()
			})
		}
	}
}

// A waiter that has waited for a long time still counts as alive.
func TestWaiterKeepsItsPlaceWhileItLives(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held(append(mode, lasting)...)
		first := f.foreign(mode...)
		time.Sleep(10*sec + 499*ms)
		second := f.foreign(mode...)
		f.atOnce(m, first)
		f.stillWait(second)
		for range 20 {
			time.Sleep(97 * ms)
			ttl := f.nodes[0].TTL("{lock}:queue")
			assert.GreaterOrEqual(f, ttl, sec)
			assert.LessOrEqual(f, ttl, 2*sec)
		}
		f.atOnce(first, second)
	})
}

func TestWaiterThatReachesAMinorityIsInNoQueue(t *testing.T) {
	parallelComputing(t)
	for name, fault := range map[string]func(f field, nodes ...int){"dead": field.kill, "frozen": field.freeze, "refusing": field.refuse} {
		t.Run(name, func(t *testing.T) {
			inEachMode(t, play, func(f field, mode opts) {
				b := f.another(mode...)
				f.held()
				fault(f, 0, 1, 2)
				w := f.calls(b, forever, withRetryDelay(sec))
				time.Sleep(450 * ms) // the node deadline
				inQueues := func() {
					assert.Empty(f, f.inQueue(3))
					assert.Empty(f, f.inQueue(4))
				}
				for range 20 {
					f.stillWait(w)
					if name != "frozen" { // frozen nodes make attempts last, and the waiter is in queues meanwhile
						inQueues()
					}
					time.Sleep(97 * ms)
				}
				w.cancel()
				<-w.done
				synctest.Wait()
				inQueues()
				f.thaw(majority...)
			})
		})
	}
}

// A waiter gives up while the holder's release that enters its ticket into the queues is on its way. It does not
// release the lock itself, so that another process cannot acquire it before the nodes have answered the holder.
func TestWaiterThatGivesUpAsItEntersTheQueuesDoesNotReleaseForTheHolder(t *testing.T) {
	play(t, func(f field) {
		fair := withFair
		var hook atomic.Pointer[func()]
		rs := f.wrapped(func(p pool.Pool) pool.Pool { return hooked{p, &hook} })
		before := f.held(fair)
		holder := f.waits(rs, fair)
		time.Sleep(10 * ms)
		w := f.waits(rs, fair) // it makes no attempt, because its process gets the lock next
		f.unlock(before)
		<-holder.done
		noError(f, holder.err)
		time.Sleep(30 * ms) // longer than a process may hand a lock over within itself
		givesUp := func() { w.cancel(); <-w.done; synctest.Wait() }
		hook.Store(&givesUp)
		f.unlock(holder)
		f.nobodyWaits()
	})
}

func TestWaiterWithAShortNodeDeadlineGivesWay(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		for _, expiry := range []time.Duration{minute, sec} { // it is unlocked, or runs out
			m := f.held(append(mode, withExpiry(expiry))...)
			b := f.another(mode...)
			f.slow(5 * ms)
			hasty := f.waits(b, withNodeTimeout(2*ms))
			hastier := f.waits(b, withNodeTimeout(ms))
			usual := f.waits(b)
			time.Sleep(1500 * ms)
			_, _ = m.Unlock()
			f.within(usual, 20*ms)
			f.stillWait(hasty)

			// Once the nodes are fast enough, the hasty waiter has its turn in the order of the calls.
			for _, n := range f.nodes {
				n.Heal()
			}
			f.unlock(usual)
			for _, c := range []*call{hasty, hastier} {
				f.served(c, sec)
			}
			time.Sleep(sec)
		}
	})
}

// A node does not let the waiter queue. The waiter leaves the queues of all nodes, and does
// not enter them again.
func TestWaiterWhomANodeDeniesTheQueueLeavesAllQueues(t *testing.T) {
	play(t, func(f field) {
		m := f.held(lasting)
		b := f.another()
		f.nodes[4].On("evalsha", 1000, embedded.Fault{Delay: 5 * ms, Err: "NOPERM No permissions to access a key"})
		w := f.waits(b, naps(20*ms))
		time.Sleep(3 * sec) // the queues that it was in have expired
		f.nobodyWaits()
		f.nodes[4].Heal()
		for range 20 {
			time.Sleep(97 * ms)
			f.nobodyWaits()
		}
		w.cancel()
		<-w.done
		f.unlock(m)
	})
}

// A waiter that shows its ticket deletes no key of another program, not even an empty one.
func TestWaiterLeavesAnEmptyKeyAlone(t *testing.T) {
	play(t, func(f field) {
		f.sets("lock", "", hour, allNodes...)
		errorIs(f, f.lockError(), redsync.ErrFailed)
		f.keysOn(5)
	})
}

// While the other nodes are a quorum, the waiter waits in their queues.
func TestAListInPlaceOfTheQueueOnAMinorityCostsNoWakeUp(t *testing.T) {
	for key, permits := range map[string]opts{
		"{lock}:queue": nil,
		"{lock}:slots": {onePermit},
	} {
		t.Run(key, func(t *testing.T) {
			inEachMode(t, play, func(f field, mode opts) {
				mode = append(mode, permits...)
				for _, n := range f.nodes[3:] {
					_, err := n.Lpush(key, "x")
					noError(f, err)
				}
				m := f.locks(append(mode, lasting)...)
				w := f.waits(f.another(), mode...)
				time.Sleep(10*sec + 100*ms)
				f.unlock(m)
				assert.Less(f, f.served(w, sec), 50*ms)
			})
		})
	}
}
