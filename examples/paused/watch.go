package main

import "time"

// A watch measures the longest time in which the process did not run.
type watch struct {
	done    chan struct{}
	longest chan time.Duration
}

func startWatch() *watch {
	w := &watch{make(chan struct{}), make(chan time.Duration, 1)}
	go w.run(time.Now()) // reads the clock here, because the goroutine may start only after the pause
	return w
}

func (w *watch) run(last time.Time) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var longest time.Duration
	for running := true; running; last = time.Now() {
		select {
		case <-w.done:
			running = false
		case <-tick.C:
		}
		longest = max(longest, time.Since(last))
	}
	w.longest <- longest
}

// stop ends w, and returns the longest pause.
func (w *watch) stop() time.Duration {
	close(w.done)
	return <-w.longest
}
