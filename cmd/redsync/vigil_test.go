//go:build unix

package main

import (
	"strings"
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

// In each row there are how much is left of the validity, how late this look is, and how late looks were before.
func TestVigilLooks(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range cellsOf(`
		more than the margin                                  | 101ms | 0s       | 0s    | go on
		the margin                                            | 100ms | 0s       | 0s    | kill
		over, in time                                         | 0s    | 0s       | 0s    | kill
		less than the margin and what the machine is late by  | 350ms | 251ms    | 0s    | kill
		more than that                                        | 352ms | 251ms    | 0s    | go on
		it was late a moment ago                              | 300ms | 0s       | 240ms | kill
		over, the machine is late                             | -1ms  | absence  | 0s    | kill
		over after an absence                                 | -1h   | 2h       | 0s    | ask
		nearly over after an absence                          | 50ms  | 1h       | 0s    | kill
		not over after an absence                             | 150ms | 1h       | 0s    | go on`) {
		left, late := spanOf(c[1]), spanOf(strings.Replace(c[2], "absence", absence.String(), 1))
		want := map[string]decision{"go on": goOn, "kill": kill, "ask": ask}[c[4]]
		now := time.Now()
		v := vigil{killAfter: time.Second, valid: deadlineIn(now, left), next: deadlineIn(now, -late), late: spanOf(c[3])}
		require.Equal(t, want, v.look(now), c[0])
		require.LessOrEqual(t, v.next.left(now), max(left-100*ms, ms), c[0])
		if want != ask {
			continue
		}
		now = now.Add(grace - ms)
		v.next = deadlineIn(now, 0)
		require.Equal(t, goOn, v.look(now)) // the holder may answer
		answered := v
		answered.told(now, deadlineIn(now, time.Second))
		require.Equal(t, goOn, answered.look(now.Add(2*ms)))   // it has answered
		require.Equal(t, kill, answered.look(now.Add(950*ms))) // that is over, too
		require.Equal(t, kill, v.look(now.Add(ms)))            // it has not
	}
}
