package redsync_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file tests how soon another leader follows, and what the waiting candidates cost the nodes.

// takeOver is how long after the expiry of a dead leader another leads; headDied is added if the first of the queue
// has died, too.
const (
	takeOver = 100 * time.Millisecond
	headDied = time.Second
)

// TestTakeOver shows the bounds of docs/leaders.md. A process that is cut off plays one that has died.
func TestTakeOver(t *testing.T) {
	for name, c := range map[string]struct {
		die   int // how many candidates die, in the order of the queue; the leader is the first
		delay time.Duration
		bound time.Duration
	}{
		"the leader died": {1, 0, guard + takeOver},
		"the leader and the first of the queue died":     {2, 0, guard + takeOver + headDied},
		"the leader died, with a lock delay":             {1, 3 * time.Second, guard + 3*time.Second + takeOver},
		"both died, with a lock delay":                   {2, 3 * time.Second, guard + 3*time.Second + takeOver + headDied},
		"the leader and the first two of the queue died": {3, 0, guard + takeOver + 2*headDied},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && c.die != 1 {
				return
			}
			inEachMode(t, onElection, func(e *election, mode []redsync.Option) {
				options := append([]redsync.Option{redsync.WithLockDelay(c.delay)}, mode...)
				all := []*candidate{e.runs(e.newProcess(), options...)}
				for range c.die + 1 {
					time.Sleep(time.Second) // they stand in the queue in this order
					all = append(all, e.runs(e.newProcess(), options...))
				}
				time.Sleep(rand.N(guard)) // somewhere between two extensions
				e.leads(all[0], 1)
				died := time.Now()
				for _, dead := range all[:c.die] {
					e.nodes.CutOff(dead.rs)
				}
				time.Sleep(c.bound)
				next := e.term(2) // which checks that the context of the first leader has ended before
				assert.Contains(e, all[c.die:], next.of)
				assert.LessOrEqual(e, next.began.Sub(died), c.bound)
				assert.LessOrEqual(e, e.term(1).ended.Sub(died), validity)
			})
		})
	}
}

// A leader that is cut off from the nodes, or whose nodes have all failed, learns of its loss before the next leader
// begins.
func TestLeadersNeverOverlap(t *testing.T) {
	for seed := range testlength.InGate(1, 2, 3, 100) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			onElection(t, func(e *election) {
				random := rand.New(rand.NewPCG(uint64(seed), 24))
				var all []*candidate
				for range 3 {
					all = append(all, e.runs(e.newProcess(), redsync.WithExpiry(2*time.Second)))
				}
				for range 10 {
					e.suffers(random, all)
					time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
				}
				time.Sleep(10 * time.Second)
				last := e.term(e.count())
				require.Zero(e, last.ended, "nobody leads at the end")
				e.nodes.CutOff(last.of.rs)
				time.Sleep(10 * time.Second)
				assert.Zero(e, e.term(e.count()).ended)
				assert.Greater(e, e.count(), 1)
			})
		})
	}
}

// suffers makes a random fault happen, which ends within four seconds.
func (e *election) suffers(random *rand.Rand, all []*candidate) {
	e.Helper()
	c, nodes := all[random.IntN(len(all))], random.Perm(5)[:1+random.IntN(5)]
	pause := time.Duration(random.IntN(4000)) * time.Millisecond
	switch random.IntN(4) {
	case 0:
		e.nodes.CutOff(c.rs)
		time.Sleep(pause)
		e.nodes.Reconnect(c.rs)
	case 1:
		e.freeze(nodes...)
		time.Sleep(pause)
		e.thaw(nodes...)
	case 2:
		e.down(nodes...)
		time.Sleep(pause)
		e.up(nodes...)
	case 3:
		for _, i := range nodes {
			e.nodes.Node(i).LoseReply()
		}
	}
}
