package redsync_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file tests locks with a watchdog on whole sets of nodes.

func TestWatchdogUnlockedWithAnExtensionOnTheWayLeavesNoKey(t *testing.T) {
	for name, healing := range map[string][]redsync.Option{"healing": {redsync.WithSetNXOnExtend()}, "not healing": nil} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.held(append(healing, redsync.WithWatchdog())...)
				f.freeze(0, 1, 2)
				time.Sleep(3 * time.Second)
				f.lose(0, 1, 2) // an extension with WithSetNXOnExtend would set them again
				_, err := m.Unlock()
				require.Error(t, err)
				f.thaw(0, 1, 2)
				for range 100 {
					time.Sleep(100 * time.Millisecond)
					assert.Zero(t, f.nodes.Keys("lock"))
				}
			})
		})
	}
}

// A lock with a watchdog survives these faults.

func TestWatchdogSurvives(t *testing.T) {
	for name, c := range map[string]struct{ begin, end func(f field) }{
		"three nodes dead for 4 s": {
			func(f field) { f.kill(0, 2, 4) },
			func(f field) { f.restart(0, 2, 4) },
		},
		"three nodes frozen for 4 s": {
			func(f field) { f.freeze(0, 2, 4) },
			func(f field) { f.thaw(0, 2, 4) },
		},
		"all nodes frozen for 4 s": {
			func(f field) { f.freeze(0, 1, 2, 3, 4) },
			func(f field) { f.thaw(0, 1, 2, 3, 4) },
		},
		"two dead, one frozen": {
			func(f field) { f.kill(0, 2); f.freeze(4) },
			func(f field) { f.restart(0, 2) },
		},
		"three nodes lose the next command": {
			func(f field) {
				for _, n := range f.nodes[:3] {
					n.On("evalsha", 1, embedded.Fault{LoseCommand: true})
				}
			},
			func(field) {},
		},
		"all nodes lose a few replies": {
			func(f field) {
				for _, n := range f.nodes {
					n.On("evalsha", 3, embedded.Fault{LoseReply: true})
				}
			},
			func(field) {},
		},
		"nodes that need a second": {
			func(f field) {
				for _, n := range f.nodes {
					n.On("evalsha", 3, embedded.Fault{Delay: time.Second})
				}
			},
			func(field) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.held(redsync.WithWatchdog())
				lost, until := m.Lost(), m.Until()
				time.Sleep(2 * time.Second)
				c.begin(f)
				time.Sleep(4 * time.Second)
				c.end(f)
				time.Sleep(time.Until(until))
				assert.True(t, open(lost))
				assert.Greater(t, m.Until(), until.Add(2*time.Second))
				time.Sleep(time.Minute)
				assert.True(t, open(lost))
				require.NoError(t, m.Err())
				f.thaw(0, 1, 2, 3, 4)
				f.unlocks(m)
			})
		})
	}
}

func TestWatchdogHealsNodesThatRestartEmpty(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held(redsync.WithSetNXOnExtend(), redsync.WithWatchdog(), redsync.WithExpiry(9*time.Second))
		lost := m.Lost()
		for _, i := range []int{1, 3, 2, 0, 4} { // all of them, in the end
			time.Sleep(time.Second)
			k.nodes.Node(i).Restart(true)
			require.Equal(t, 4, k.keys("lock"))
			// The extension at the next third of the expiry finds the connection dead. The one after that uses a new
			// connection.
			time.Sleep(5 * time.Second)
			require.Equal(t, 5, k.keys("lock"))
		}
		assert.True(t, open(lost))
		k.unlocks(m)
		time.Sleep(time.Minute)
		k.nothingLeft()
	})
}

func TestWatchdogHealsNothingAfterUntil(t *testing.T) {
	play(t, func(f field) {
		m := f.held(redsync.WithSetNXOnExtend(), redsync.WithWatchdog())
		f.kill(0, 1, 2)
		<-m.Lost()
		f.lose(0, 1, 2, 3, 4)
		f.restart(0, 1, 2)
		time.Sleep(time.Minute)
		assert.Zero(t, f.nodes.Keys("lock"))
	})
}

// Many goroutines use locks with a watchdog, while nodes fail.

// Real servers.

// extensions is an observer that counts the extensions of watchdogs, and what goes wrong.
type extensions struct {
	confirmed, failed, down, lost atomic.Int64
}

func (e *extensions) ObserveExtended(_ context.Context, x observe.Extended) {
	if x.Err == nil {
		e.confirmed.Add(1)
	} else {
		e.failed.Add(1)
	}
}

func (e *extensions) ObserveNodeDown(context.Context, observe.NodeDown) { e.down.Add(1) }
func (e *extensions) ObserveLost(context.Context, observe.Lost)         { e.lost.Add(1) }

// manyHeld takes n locks at once, through clients whose messages take what delay says.
func (f field) manyHeld(n int, delay *atomic.Int64, told *extensions, options ...redsync.Option) []*redsync.Mutex {
	rs := f.processes(1, func(int, int) time.Duration { return time.Duration(delay.Load()) })[0]
	rs = rs.With(append(options, redsync.WithWatchdog(), redsync.WithObserver(told))...)
	f.as(rs).meet()
	time.Sleep(time.Millisecond)
	ms := make([]*redsync.Mutex, n)
	var calls sync.WaitGroup
	for i := range ms {
		ms[i] = rs.NewMutex(fmt.Sprintf("%d of %d", i, n))
		calls.Go(func() { assert.NoError(f, ms[i].TryLock()) })
		if i%1000 == 999 {
			calls.Wait() // no more than the limit of outstanding replies
		}
	}
	calls.Wait()
	return ms
}

// Very many locks are due at once, and the nodes are far: the limit of outstanding replies refuses no extension.
func TestWatchdogsOfVeryManyLocksWaitForNodesThatAreBehind(t *testing.T) {
	testlength.NotShort(t)
	parallelComputing(t)
	play(t, func(f field) {
		var delay atomic.Int64
		var told extensions
		ms := f.manyHeld(5000, &delay, &told, redsync.WithExpiry(30*time.Second))
		delay.Store(int64(50 * time.Millisecond)) // all extensions would begin before the first reply comes
		time.Sleep(15 * time.Second)
		assert.EqualValues(f, len(ms), told.confirmed.Load())
		assert.Zero(f, told.failed.Load())
		assert.Zero(f, told.down.Load())
		assert.Zero(f, told.lost.Load())
	})
}
