// Package stall is for tests that need real time: it tells a machine that stood still from code that is late.
package stall

import (
	"context"
	"sync"
	"testing"
	"time"
)

const (
	// beat is the time between two looks at the clock.
	beat = 5 * time.Millisecond

	// LongestLook is the most time that Within counts between two of its looks.
	LongestLook = 50 * time.Millisecond

	// plays is how often Replay plays a scene on a machine that stands still in each play.
	plays = 20
)

// A Watch watches for how long this process gets no processor.
type Watch struct {
	ended   chan struct{}
	told    chan time.Duration
	longest func() time.Duration
}

// Begin begins to watch. The end of the test ends it.
func Begin(tb testing.TB) *Watch {
	tb.Helper()
	w := &Watch{ended: make(chan struct{}), told: make(chan time.Duration, 1)}
	w.longest = sync.OnceValue(func() time.Duration { close(w.ended); return <-w.told })
	go w.run()
	tb.Cleanup(func() { w.Longest() })
	return w
}

// Longest ends w. It returns the longest time for which the machine stood still.
func (w *Watch) Longest() time.Duration { return w.longest() }

// run watches until ended is closed, and tells by how much the longest time between two beats was too long.
func (w *Watch) run() {
	heart, last, most := time.NewTicker(beat), time.Now(), time.Duration(0)
	defer heart.Stop()
	for goesOn := true; goesOn; {
		select {
		case <-heart.C:
		case <-w.ended:
			goesOn = false
		}
		now := time.Now()
		most, last = max(most, now.Sub(last)-beat), now
	}
	w.told <- most
}

// Replay plays a scene until nothing is wrong. If something is, the test fails, unless the machine stood still
// for least or longer meanwhile: then the play has shown nothing, and the scene is played again. If that is so in each play,
// the test is skipped.
func Replay(tb testing.TB, least time.Duration, play func() (wrong error)) {
	tb.Helper()
	for range plays {
		w := Begin(tb)
		wrong := play()
		gap := w.Longest()
		switch {
		case wrong == nil:
			return
		case gap < least:
			tb.Fatalf("%v; the machine stood still for %v at most", wrong, gap)
		}
		tb.Logf("%v; but the machine stood still for %v", wrong, gap)
	}
	tb.Skipf("the machine stood still for %v or longer in each of %d plays", least, plays)
}

// Within waits for condition, at most for limit, and returns for how long it has waited. It looks several times before limit
// is used up, even if the machine stands still or condition is slow, because it counts at most LongestLook between two looks.
func Within(limit time.Duration, condition func() bool) (waited time.Duration, ok bool) {
	for last := time.Now(); ; time.Sleep(2 * time.Millisecond) { //nolint:forbidigo // for tests in real time
		ok = condition()
		now := time.Now()
		waited += min(now.Sub(last), LongestLook)
		last = now
		if ok || waited >= limit {
			return waited, ok
		}
	}
}

// Timeout returns a context that ends after limit. A machine that stands still does not use up limit: see Within.
func Timeout(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		Within(limit, func() bool { return ctx.Err() != nil })
		cancel()
	}()
	return ctx, cancel
}
