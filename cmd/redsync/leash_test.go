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
	const killAfter = 10 * time.Second // so the margin is 500 ms
	validFor := func(d time.Duration) func(time.Time) func(time.Time) time.Duration {
		return func(start time.Time) func(time.Time) time.Duration {
			return func(now time.Time) time.Duration { return max(start.Add(d).Sub(now), 0) }
		}
	}
	lostAfter := func(valid, early time.Duration) func(time.Time) func(time.Time) time.Duration {
		return func(start time.Time) func(time.Time) time.Duration {
			return func(now time.Time) time.Duration {
				if now.Sub(start) >= early {
					return 0
				}
				return start.Add(valid).Sub(now)
			}
		}
	}
	for _, c := range []struct {
		name string
		left func(start time.Time) func(now time.Time) time.Duration
		want []sent
	}{
		{"no extension succeeds", validFor(30 * time.Second), []sent{{syscall.SIGTERM, 20 * time.Second}, {syscall.SIGKILL, 29500 * time.Millisecond}}},
		{"the lock is valid all the time", func(time.Time) func(time.Time) time.Duration {
			return func(time.Time) time.Duration { return 25 * time.Second }
		}, nil},
		{"lost early, with more time left than COMMAND gets", lostAfter(30*time.Second, 5*time.Second), []sent{{syscall.SIGTERM, 5 * time.Second}, {syscall.SIGKILL, 15 * time.Second}}},
		{"lost early, with less time left", lostAfter(12*time.Second, time.Second), []sent{{syscall.SIGTERM, time.Second}, {syscall.SIGKILL, 11 * time.Second}}},
		{"lost after TERM", lostAfter(30*time.Second, 25*time.Second), []sent{{syscall.SIGTERM, 20 * time.Second}, {syscall.SIGKILL, 29500 * time.Millisecond}}},
		{"lost before it was seen", lostAfter(30*time.Second, 0), []sent{{syscall.SIGKILL, 0}}},
		{"seen too late for TERM", validFor(400 * time.Millisecond), []sent{{syscall.SIGKILL, 0}}},
		{"an extension comes after TERM", func(start time.Time) func(time.Time) time.Duration {
			return func(now time.Time) time.Duration {
				if now.Sub(start) > 22*time.Second {
					return time.Minute
				}
				return start.Add(30 * time.Second).Sub(now)
			}
		}, []sent{{syscall.SIGTERM, 20 * time.Second}, {syscall.SIGKILL, 29500 * time.Millisecond}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := leash{killAfter: killAfter}
				got := watched(&l, 35*time.Second, c.left(time.Now()))
				require.Len(t, got, len(c.want), "%v", got)
				for i, want := range c.want {
					require.Equal(t, want.signal, got[i].signal)
					require.InDelta(t, want.after, got[i].after, float64(time.Millisecond))
				}
				require.Equal(t, len(c.want) > 0, l.isEnding())
			})
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
