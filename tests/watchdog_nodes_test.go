package redsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file tests locks with a watchdog on whole sets of nodes.

func TestWatchdogUnlockedWithAnExtensionOnTheWayLeavesNoKey(t *testing.T) {
	for name, healing := range map[string]opts{"healing": {withSetNXOnExtend}, "not healing": nil} {
		playAs(t, name, func(f field) {
			m := f.held(append(healing, withWatchdog)...)
			f.freeze(majority...)
			time.Sleep(3 * sec)
			f.lose(majority...) // an extension with WithSetNXOnExtend would set them again
			erred(f, second(m.Unlock()))
			f.thaw(majority...)
			for range 100 {
				time.Sleep(100 * ms)
				f.keysOn(0)
			}
		})
	}
}

// A lock with a watchdog survives faults of four seconds.
func TestWatchdogSurvives(t *testing.T) {
	testlength.NotShort(t)
	next := func(times int, fault embedded.Fault) func(f field) {
		return func(f field) { onEach(f.nodes, "evalsha", times, fault) }
	}
	for name, begin := range map[string]func(f field){
		"three nodes dead":             hit(field.kill, 0, 2, 4),
		"all nodes frozen":             hit(field.freeze, allNodes...),
		"two dead, one frozen":         func(f field) { f.kill(0, 2); f.freeze(4) },
		"nodes lose the next command":  next(1, embedded.Fault{LoseCommand: true}),
		"all nodes lose a few replies": next(3, embedded.Fault{LoseReply: true}),
		"nodes that need a second":     next(3, embedded.Fault{Delay: sec}),
	} {
		playAs(t, name, func(f field) {
			m := f.held(withWatchdog)
			lost, until := m.Lost(), m.Until()
			time.Sleep(2 * sec)
			begin(f)
			time.Sleep(4 * sec)
			f.restart(0, 2, 4)
			f.thaw(allNodes...)
			time.Sleep(time.Until(until))
			assert.True(f, open(lost))
			assert.Greater(f, m.Until(), until.Add(2*sec))
			time.Sleep(minute)
			alive(f, m)
			f.unlocks(m)
		})
	}
}

func TestWatchdogHealsNodesThatRestartEmpty(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(withSetNXOnExtend, withWatchdog, nineSeconds)
		lost := m.Lost()
		for _, i := range []int{1, 3, 2, 0, 4} { // all of them, in the end
			time.Sleep(sec)
			k.nodes.Node(i).Restart(true)
			require.Equal(t, 4, k.keys("lock"))
			// The extension at the next third of the expiry finds the connection dead. The one after that uses a new
			// connection.
			time.Sleep(5 * sec)
			require.Equal(t, 5, k.keys("lock"))
		}
		assert.True(t, open(lost))
		k.unlocks(m)
		time.Sleep(minute)
		k.nothingLeft()
	})
}

func TestWatchdogHealsNothingAfterUntil(t *testing.T) {
	play(t, func(f field) {
		m := f.held(withSetNXOnExtend, withWatchdog)
		f.kill(majority...)
		<-m.Lost()
		f.lose(allNodes...)
		f.restart(majority...)
		time.Sleep(minute)
		f.keysOn(0)
	})
}
