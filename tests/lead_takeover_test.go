package redsync_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// This file tests how soon another leader follows, and what the waiting candidates cost the nodes.

// takeOver is how long after the expiry of a dead leader another leads; headDied is added if the first of the queue
// has died, too.
const (
	takeOver = 100 * ms
	headDied = sec
)

// TestTakeOver shows the bounds of docs/leaders.md. A process that is cut off plays one that has died. The leader dies, or
// also the first of the queue, or the first two.
func TestTakeOver(t *testing.T) {
	for _, c := range []struct {
		die   int // how many candidates die, in the order of the queue; the leader is the first
		delay time.Duration
	}{{1, 0}, {2, 0}, {1, 3 * sec}, {2, 3 * sec}, {3, 0}} {
		if testing.Short() && c.die != 1 {
			continue
		}
		inEachMode(t, onElection, func(e *election, mode opts) {
			options := append(opts{withLockDelay(c.delay)}, mode...)
			all := []*candidate{e.runs(e.newProcess(), options...)}
			for range c.die + 1 {
				time.Sleep(sec) // they stand in the queue in this order
				all = append(all, e.runs(e.newProcess(), options...))
			}
			time.Sleep(rand.N(guard)) // somewhere between two extensions
			e.leads(all[0], 1)
			died, bound := time.Now(), guard+c.delay+takeOver+time.Duration(c.die-1)*headDied
			for _, dead := range all[:c.die] {
				e.nodes.CutOff(dead.rs)
			}
			time.Sleep(bound)
			next := e.term(2) // which checks that the context of the first leader has ended before
			assert.Contains(e, all[c.die:], next.of)
			assert.LessOrEqual(e, next.began.Sub(died), bound)
			assert.LessOrEqual(e, e.term(1).ended.Sub(died), validity)
		})
	}
}
