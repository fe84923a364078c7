package notice

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A listener counts what it is told.
type listener struct{ told, dropped int }

func (l *listener) Dropped(notices int) { l.dropped += notices }

// playStuck runs f while the queue's goroutine is stuck in a notice. Then it lets the goroutine go on.
func playStuck(t *testing.T, f func(q *Queue)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		q, release := &Queue{}, make(chan struct{})
		q.Add(&listener{}, func() { <-release })
		synctest.Wait()
		f(q)
		close(release)
		synctest.Wait()
		assert.False(t, q.running)
	})
}

// A receiver blocks for longer than Close waits. Afterwards nobody is told anything, not even how many notices were dropped.
func TestQueueIsSilentAfterClose(t *testing.T) {
	l := &listener{}
	playStuck(t, func(q *Queue) {
		for range Max + 1000 {
			q.Add(l, func() { l.told++ })
		}
		q.Close(time.Second)
	})
	assert.Zero(t, l.told)
	assert.Zero(t, l.dropped)
}

func TestQueueIsBoundedForManyReceivers(t *testing.T) {
	all := make([]listener, 3*Max)
	playStuck(t, func(q *Queue) {
		for i := range all {
			q.Add(&all[i], func() { all[i].told++ })
		}
		assert.Len(t, q.waiting, Max)
		assert.Len(t, q.dropped, Max)
	})
	var sum listener
	for _, l := range all {
		sum.told += l.told
		sum.dropped += l.dropped
	}
	assert.Equal(t, listener{told: Max, dropped: Max}, sum)
}

// A receiver that ends its goroutine, as t.FailNow does, keeps nobody else from being told.
func TestNoticesGoOnBehindOneThatEndsTheGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		var told []int
		for i := range 6 {
			q.Add(nil, func() {
				told = append(told, i)
				if i%2 == 1 { // the last one as well
					runtime.Goexit()
				}
			})
		}
		synctest.Wait()
		q.Add(nil, func() { told = append(told, 6) })
		synctest.Wait()
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6}, told)
	})
}

// A leaver is a receiver that ends the goroutine when it is told of what was dropped.
type leaver struct{ told int }

func (l *leaver) Dropped(int) {
	l.told++
	runtime.Goexit()
}

// What was dropped is told once, even to a receiver that ends the goroutine.
func TestDroppedIsToldOnceToOneThatEndsTheGoroutine(t *testing.T) {
	a, b := &leaver{}, &leaver{}
	playStuck(t, func(q *Queue) {
		for range Max {
			q.Add(a, func() {})
		}
		q.Add(a, func() {})
		q.Add(b, func() {})
	})
	assert.Equal(t, 1, a.told)
	assert.Equal(t, 1, b.told)
}
