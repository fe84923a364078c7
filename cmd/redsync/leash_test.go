//go:build unix

package main

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A sent is a signal that a leash has asked for, and when.
type sent struct {
	signal syscall.Signal
	after  time.Duration
}

// watched looks at a leash as the holder does, for d, and returns its signals. left is how long the lock is valid.
func watched(l *leash, d time.Duration, left func(now time.Time) time.Duration) (signals []sent) {
	for start := time.Now(); time.Since(start) <= d; {
		now := time.Now()
		if s := l.look(now, left(now)); s != 0 {
			signals = append(signals, sent{s, now.Sub(start)})
		}
		if l.killed { // COMMAND ends
			d = min(d, now.Sub(start)+100*time.Millisecond)
		}
		time.Sleep(l.wait(now))
	}
	return signals
}

func TestLeashSignals(t *testing.T) {
	const killAfter, never = 10 * time.Second, time.Hour // so the margin is 500 ms
	for name, c := range map[string]struct {
		valid    time.Duration // at the begin
		lost     time.Duration // when it is lost early
		extended time.Duration // when it is extended to the end of time
		term     time.Duration // of the first signal, unless it is never
		kill     time.Duration
	}{
		"no extension succeeds":           {30 * time.Second, never, never, 20 * time.Second, 29500 * time.Millisecond},
		"the lock is valid all the time":  {30 * time.Second, never, 0, never, never},
		"lost early, with time left":      {30 * time.Second, 5 * time.Second, never, 5 * time.Second, 15 * time.Second},
		"lost early, with less time left": {12 * time.Second, time.Second, never, time.Second, 11 * time.Second},
		"lost after TERM":                 {30 * time.Second, 25 * time.Second, never, 20 * time.Second, 29500 * time.Millisecond},
		"lost before it was seen":         {30 * time.Second, 0, never, never, 0},
		"seen too late for TERM":          {400 * time.Millisecond, never, never, never, 0},
		"an extension comes after TERM":   {30 * time.Second, never, 22 * time.Second, 20 * time.Second, 29500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			start, l := time.Now(), leash{killAfter: killAfter}
			got := watched(&l, 35*time.Second, func(now time.Time) time.Duration {
				switch age := now.Sub(start); {
				case age >= c.lost:
					return 0
				case age >= c.extended:
					return never
				default:
					return max(c.valid-age, 0)
				}
			})
			var want []sent
			if c.term != never {
				want = append(want, sent{syscall.SIGTERM, c.term})
			}
			if c.kill != never {
				want = append(want, sent{syscall.SIGKILL, c.kill})
			}
			for i := range got {
				got[i].after = got[i].after.Truncate(10 * time.Millisecond)
			}
			require.Equal(t, want, got, name)
			require.Equal(t, len(want) > 0, l.isEnding(), name)
		})
	}
}

// A leash is shorter if one of the clocks has gone further than the other: the machine has slept, or the wall clock was set.
func TestLeashBothClocks(t *testing.T) {
	for name, shift := range map[string]func(*deadline){
		"the wall clock is ahead":      func(d *deadline) { d.wall = d.wall.Add(-time.Hour) },
		"the monotonic clock is ahead": func(d *deadline) { d.at = d.at.Add(-time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			l := leash{killAfter: 10 * time.Second}
			require.Zero(t, l.look(now, 30*time.Second))
			shift(&l.valid)
			require.Equal(t, syscall.SIGKILL, l.look(now, 0), "early loss: nothing is left by that clock")

			l = leash{killAfter: 10 * time.Second}
			require.Equal(t, syscall.SIGTERM, l.look(now, 10*time.Second))
			require.Zero(t, l.look(now, 10*time.Second))
			shift(&l.kill)
			require.Equal(t, time.Millisecond, l.wait(now))
			require.Equal(t, syscall.SIGKILL, l.look(now, 10*time.Second))
			require.Zero(t, l.look(now, 0), "only once")
		})
	}
}
