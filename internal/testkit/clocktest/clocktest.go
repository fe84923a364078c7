// Package clocktest lets tests set the wall clock.
package clocktest

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
)

// A Wall is a wall clock that a test sets.
type Wall struct{ offset atomic.Int64 }

// StepWall makes clock.Now read a wall clock that the test sets, until the test ends. The test must run in
// a synctest bubble.
func StepWall(t *testing.T) *Wall {
	t.Helper()
	w := &Wall{}
	restore := clock.Step(func(i clock.Instant) clock.Instant {
		i.Wall = i.Wall.Round(0).Add(time.Duration(w.offset.Load()))
		return i
	})
	t.Cleanup(func() {
		synctest.Wait()
		restore()
	})
	return w
}

// Step sets the clock forward, or back if by is negative.
func (w *Wall) Step(by time.Duration) { w.offset.Add(int64(by)) }
