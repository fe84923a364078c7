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

// Each row has how long the lock is valid at the begin, when it is lost early, when it is extended to the end of time, and when
// the first TERM and KILL come. An empty cell is "never".
func TestLeashSignals(t *testing.T) {
	for _, c := range cellsOf(`
		no extension succeeds           | 30s   |     |     | 20s | 29.5s
		the lock is valid all the time  | 30s   |     | 0s  |     |
		lost early, with time left      | 30s   | 5s  |     | 5s  | 15s
		lost early, with less time left | 12s   | 1s  |     | 1s  | 11s
		lost after TERM                 | 30s   | 25s |     | 20s | 29.5s
		lost before it was seen         | 30s   | 0s  |     |     | 0s
		seen too late for TERM          | 400ms |     |     |     | 0s
		an extension comes after TERM   | 30s   |     | 22s | 20s | 29.5s`) {
		synctest.Test(t, func(t *testing.T) {
			start, l := time.Now(), leash{killAfter: 10 * time.Second} // so the margin is 500 ms
			is := func(cell int, age time.Duration) bool { return c[cell] != "" && age >= spanOf(c[cell]) }
			got := watched(&l, 35*time.Second, func(now time.Time) time.Duration {
				switch age := now.Sub(start); {
				case is(2, age):
					return 0
				case is(3, age):
					return time.Hour
				default:
					return max(spanOf(c[1])-age, 0)
				}
			})
			var want []sent
			for i, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
				if at := c[4+i]; at != "" {
					want = append(want, sent{s, spanOf(at)})
				}
			}
			for i := range got {
				got[i].after = got[i].after.Truncate(10 * time.Millisecond)
			}
			require.Equal(t, want, got, c[0])
			require.Equal(t, len(want) > 0, l.isEnding(), c[0])
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
			now, l := time.Now(), leash{killAfter: 10 * time.Second}
			looks := func(want syscall.Signal, left time.Duration) {
				require.Equal(t, want, l.look(now, left))
			}
			looks(0, 30*time.Second)
			shift(&l.valid)
			looks(syscall.SIGKILL, 0) // early loss: nothing is left by that clock

			l = leash{killAfter: 10 * time.Second}
			looks(syscall.SIGTERM, 10*time.Second)
			looks(0, 10*time.Second)
			shift(&l.kill)
			require.Equal(t, time.Millisecond, l.wait(now))
			looks(syscall.SIGKILL, 10*time.Second)
			looks(0, 0) // only once
		})
	}
}
