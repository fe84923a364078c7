package redsync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file tests how often a waiter tries if no message wakes it.

func TestPollTakesAFreeLockExceptInFairMode(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		m := f.held(mode...)
		w := f.calls(f.another(mode...), forever, withRetryDelay(200*ms))
		f.stranger(900*ms, true, allNodes...)
		time.Sleep(10 * ms)
		f.unlock(m)
		if mode == nil {
			assert.Equal(f, 190*ms, f.within(w, sec))
		} else {
			assert.GreaterOrEqual(f, f.within(w, sec), 890*ms)
		}
	})
}

// A waiting process asks each node at most three times a second, in every mode and however many of its calls wait, while
// the nodes can wake it. If they cannot, it asks after each retry delay.
func TestWaitingProcessAsksSeldomWhileNodesCanWakeIt(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for mode, options := range map[string]opts{
		"plain": nil, "fair": {withFair}, "readers": {withShared}, "permits": {twoPermits}, "fencing": {withFencing},
		"several": nil, "several, fair": {withFair},
	} {
		for _, deaf := range []bool{false, true} {
			if deaf && strings.HasPrefix(mode, "several") {
				continue
			}
			playAs(t, fmt.Sprintf("%s, deaf: %v", mode, deaf), func(f field) {
				keys := []string{"b", "{b}:slot:0", "{b}:slot:1"}
				if mode != "permits" {
					keys = keys[:1]
				}
				if deaf {
					onEach(f.nodes, "subscribe", 1<<20, embedded.Fault{Err: "NOPERM no"})
				}
				for _, key := range keys {
					f.sets(key, "another's", hour, allNodes...)
				}
				b := f.another(append(options, forever)...)
				var calls []*call
				for range 5 {
					m := b.NewMutex("b")
					if strings.HasPrefix(mode, "several") {
						m = b.NewMultiMutex([]string{"a", "b", "c"})
					}
					calls = append(calls, f.begins(m))
				}
				time.Sleep(sec)
				before := f.traffic()
				time.Sleep(5 * sec)
				perSecond := float64(f.traffic()-before) / 5 / 5
				if deaf {
					assert.Greater(f, perSecond, 8.)
				} else {
					assert.LessOrEqual(f, perSecond, 3.)
				}
				f.drop(keys...)
				if !deaf { // a release without a message is seen all the same
					f.within(calls[0], 510*ms)
				}
				for _, c := range calls {
					c.cancel()
					<-c.done
				}
			})
		}
	}
}

// anothers sets a lock of another program, which publishes no message when it is released.
func (f field) anothers() {
	f.sets("lock", "another's", minute, allNodes...)
}

func TestWaiterPollsAtTheShortestRetryDelayInLine(t *testing.T) {
	for name, behind := range map[string]opts{
		"the second": {withRetryDelay(50 * ms)},
		"of a function": {redsync.WithRetryDelayFunc(func(tries int) time.Duration {
			return time.Duration(max(10-tries, 5)) * 10 * ms
		})},
	} {
		playAs(t, name, func(f field) {
			b := f.another()
			f.anothers()
			first, middle, last := f.waits(b), f.waits(b), f.calls(b, append(behind, forever)...)
			time.Sleep(1030 * ms)
			before := f.traffic()
			time.Sleep(sec)
			assert.InDelta(f, 200, f.traffic()-before, 30)
			f.lose(allNodes...)
			f.within(first, 50*ms)
			f.stillWait(middle)
			f.unlock(first)
			f.within(middle, 0)

			// No waiter in line sets a pace for the others any more.
			last.cancel()
			<-last.done
			f.unlock(middle)
		})
	}
}
