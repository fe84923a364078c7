//go:build unix

package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestVigilKillsInTime: the holder is stopped when the lock is valid for the rest of its --ttl, after n extensions. However late the
// machine is, COMMAND is dead before the validity ends, and not before a third of it. While the holder extends, COMMAND lives.
func TestVigilKillsInTime(t *testing.T) {
	const ms = time.Millisecond
	for _, ttl := range []time.Duration{400 * ms, time.Second, 3 * time.Second, 30 * time.Second} {
		valid, killAfter := ttl-ttl/100-2*ms, ttl/3
		for late := time.Duration(0); late <= 300*ms; late += 3 * ms {
			synctest.Test(t, func(t *testing.T) {
				extensions := 5
				if late+late/8 > killAfter/2 {
					extensions = 0 // no holder extends in time on such a machine
				}
				start, v := time.Now(), vigil{killAfter: killAfter}
				v.told(start, deadlineIn(start, valid))
				stopped := start.Add(time.Duration(extensions) * killAfter)
				for n := 1; ; {
					time.Sleep(v.next.wait(time.Now()) + late)
					now := time.Now()
					for ; n <= extensions && now.Sub(start) >= time.Duration(n)*killAfter; n++ {
						v.told(now, deadlineIn(start.Add(time.Duration(n)*killAfter), valid))
					}
					if v.look(now) == goOn {
						continue
					}
					left := stopped.Add(valid).Sub(now)
					require.Positive(t, left, "ttl %v, late by %v", ttl, late)
					require.LessOrEqual(t, left, killMargin(killAfter)+late+ms, "ttl %v, late by %v", ttl, late)
					return
				}
			})
		}
	}
}

// TestVigilLooks: what it decides at a moment.
func TestVigilLooks(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name string
		left time.Duration // of the validity
		late time.Duration // this look
		seen time.Duration // how late looks were before
		want decision
	}{
		{"more than the margin", 101 * ms, 0, 0, goOn},
		{"the margin", 100 * ms, 0, 0, kill},
		{"over, in time", 0, 0, 0, kill},
		{"less than the margin and what the machine is late by", 350 * ms, 251 * ms, 0, kill},
		{"more than that", 352 * ms, 251 * ms, 0, goOn},
		{"it was late a moment ago", 300 * ms, 0, 240 * ms, kill},
		{"over, the machine is late", -time.Millisecond, absence, 0, kill},
		{"over after an absence", -time.Hour, 2 * time.Hour, 0, ask},
		{"nearly over after an absence", 50 * ms, time.Hour, 0, kill},
		{"not over after an absence", 150 * ms, time.Hour, 0, goOn},
	} {
		now := time.Now()
		v := vigil{killAfter: time.Second, valid: deadlineIn(now, c.left), next: deadlineIn(now, -c.late), late: c.seen}
		require.Equal(t, c.want, v.look(now), c.name)
		require.LessOrEqual(t, v.next.left(now), max(c.left-100*ms, ms), c.name)
		if c.want != ask {
			continue
		}
		now = now.Add(grace - ms)
		v.next = deadlineIn(now, 0)
		require.Equal(t, goOn, v.look(now), "the holder may answer")
		answered := v
		answered.told(now, deadlineIn(now, time.Second))
		require.Equal(t, goOn, answered.look(now.Add(2*ms)), "it has answered")
		require.Equal(t, kill, answered.look(now.Add(950*ms)), "that is over, too")
		require.Equal(t, kill, v.look(now.Add(ms)), "it has not")
	}
}
