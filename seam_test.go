package redsync

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// These tests put claims on the engine that the library does not have yet, and change nothing
// else: a permit whose place is known only after the round, and a lease whose claim is replaced while it is
// held. They keep the seam open for the primitives to come; none of these claims is complete.

// onNodes runs f on a Redsync of n embedded nodes in virtual time. Afterwards no key may be left.
func onNodes(t *testing.T, n int, f func(t *testing.T, rs *Redsync, nodes embedded.Nodes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(n)
		var pools []pool.Pool
		for _, node := range nodes {
			pools = append(pools, pool.New(node.Client()))
		}
		rs := New(pools...)
		f(t, rs, nodes)
		require.NoError(t, rs.Close(t.Context()))
		for i, node := range nodes {
			assert.Empty(t, node.Keys(), "node %d", i)
		}
		nodes.Close()
		time.Sleep(time.Minute) // what ends by itself has ended
	})
}

// give makes every hold of m one of a claim.
func give(m *Mutex, c claim.Claim) { m.terms.Claim = c }

// eval returns a command that runs a script.
func eval(source string, keys []string, args ...any) script.Command {
	all := []any{"eval", source, len(keys)}
	for _, key := range keys {
		all = append(all, key)
	}
	return script.Command{Args: append(all, args...)}
}

// A permit is one of n places of a name. Which one is known when a quorum has given the same.
type permit struct {
	name, value string
	n           int
	first       *atomic.Int64 // preferred by the next attempt: nodes that are asked by several disagree else
	won         claim.Claim   // the place; nil until it is known
}

func (p *permit) keys() (keys []string) {
	for i := range p.n {
		keys = append(keys, fmt.Sprintf("{%s}:slot:%d", p.name, i))
	}
	return keys
}

func (p *permit) Name() string    { return p.name }
func (p *permit) Value() string   { return p.value }
func (p *permit) Lines() []string { return []string{"permits of " + p.name} }
func (p *permit) Shares() bool    { return false }

func (p *permit) PassesTo(claim.Claim) bool { return false }

func (p *permit) With(value string, _ *claim.Room) claim.Claim {
	return &permit{name: p.name, value: value, n: p.n, first: p.first}
}

func (p *permit) Acquire(ttl time.Duration, _ script.Place, _ script.Fence) claim.Call {
	return claim.Call{
		Command: eval(`for i = 0, #KEYS - 1 do
				local at = (ARGV[3] + i) % #KEYS
				if redis.call('SET', KEYS[at + 1], ARGV[1], 'NX', 'PX', ARGV[2]) then return at end
			end
			return -1`, p.keys(), p.value, ttl.Milliseconds(), p.first.Add(1)),
		Read: func(reply any) (claim.Answer, error) {
			if at, ok := reply.(int64); ok && at >= 0 {
				return claim.Answer{Found: claim.Mine, Detail: &claim.Detail{Own: int(at)}}, nil
			}
			return claim.Answer{Found: claim.Other}, nil
		},
	}
}

func (p *permit) Extend(ttl time.Duration, heal bool) claim.Call { return p.won.Extend(ttl, heal) }
func (p *permit) Check() claim.Call                              { return p.won.Check() }

// Release takes the value out of all places: the one that was won, and those that single nodes gave.
func (p *permit) Release(script.Process, script.Turnover, script.Fence) claim.Call {
	return claim.Call{
		Command: eval(`local found = 0
			for _, key in ipairs(KEYS) do
				if redis.call('GET', key) == ARGV[1] then found = redis.call('DEL', key) end
			end
			return found`, p.keys(), p.value),
		Read: func(reply any) (claim.Answer, error) {
			if reply == script.Mine {
				return claim.Answer{Found: claim.Mine}, nil
			}
			return claim.Answer{Found: claim.Missing}, nil
		},
	}
}

func (p *permit) ReleaseQuietly(f script.Fence) claim.Call {
	return p.Release(script.Process{}, script.Turnover{}, f)
}

// Tally implements claim.Tallier: a quorum must have given the same place.
func (p *permit) Tally(r claim.Rule) claim.Tally {
	return &permitTally{rule: r, permit: p, gave: make([]claim.Nodes, p.n)}
}

type permitTally struct {
	rule   claim.Rule
	permit *permit
	count  claim.Count
	gave   []claim.Nodes // by place
}

func (t *permitTally) Add(i int, v claim.Vote) {
	t.count = t.count.With(i, v.Choice)
	if v.Choice == claim.Granted {
		at := v.Answer.Detail.Own.(int)
		t.gave[at] = t.gave[at].With(i)
	}
}

func (t *permitTally) Standing() claim.Standing {
	s := standing(t.rule, t.count)
	s.Won, s.Blocked = false, true
	for _, nodes := range t.gave {
		s.Won = s.Won || t.rule.Quorum(nodes)
		s.Blocked = s.Blocked && t.rule.Blocks(t.count.Voted()&^nodes)
	}
	return s
}

// Won implements claim.LateTally.
func (t *permitTally) Won() claim.Claim {
	won := *t.permit
	for at, nodes := range t.gave {
		if t.rule.Quorum(nodes) {
			slot := claim.NewExclusive(won.keys()[at])
			won.won = slot.With(won.value, &claim.Room{})
		}
	}
	return &won
}

func TestSeamAPermitIsKnownAfterItsRound(t *testing.T) {
	const places, clients, turns = 3, 7, 20
	onNodes(t, 5, func(t *testing.T, rs *Redsync, nodes embedded.Nodes) {
		nodes[4].Freeze()
		var holders, most, total atomic.Int64
		var wg sync.WaitGroup
		var first atomic.Int64
		for range clients {
			wg.Go(func() {
				for range turns {
					m := rs.NewMutex("printer", WithTries(0), WithWatchdog(), WithExpiry(time.Second))
					give(m, &permit{name: "printer", n: places, first: &first})
					require.NoError(t, m.Lock())
					n := holders.Add(1)
					assert.LessOrEqual(t, n, int64(places))
					most.Store(max(most.Load(), n))
					total.Add(1)
					time.Sleep(1500 * time.Millisecond) // it is extended by then
					valid, err := m.Valid()
					assert.True(t, valid, "%v", err)
					holders.Add(-1)
					released, err := m.Unlock()
					assert.True(t, released, "%v", err)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, clients*turns, total.Load())
		assert.EqualValues(t, places, most.Load(), "at once")
		nodes[4].Thaw()
	})
}

// A lease's claim is replaced while it is held, extended and asked about: from then on every command is
// about the new one, and nothing of either is left.
func TestSeamAClaimIsReplacedWhileItIsHeld(t *testing.T) {
	onNodes(t, 5, func(t *testing.T, rs *Redsync, nodes embedded.Nodes) {
		m := rs.NewMutex("lock", WithWatchdog(), WithExpiry(900*time.Millisecond))
		require.NoError(t, m.Lock())
		time.Sleep(time.Second) // it has been extended

		h := m.current()
		next := claim.NewExclusive("lock:reader")
		for _, n := range nodes { // as the script of a downgrade would
			require.NoError(t, n.Set("lock:reader", h.Value()))
			n.SetTTL("lock:reader", n.TTL("lock"))
			n.Del("lock")
		}
		h.Replace(next.With(h.Value(), &claim.Room{}))

		other := rs.NewMutex("lock")
		require.NoError(t, other.TryLock(), "what was replaced is free")
		time.Sleep(5 * time.Second)
		require.NoError(t, m.Err(), "the watchdog extends what it has become")
		valid, err := m.Valid()
		require.True(t, valid, "%v", err)
		for _, n := range nodes {
			assert.Positive(t, n.TTL("lock:reader"))
		}
		require.Error(t, rs.NewMutex("lock:reader").TryLock(), "it is taken")
		ok, err := m.Unlock()
		require.True(t, ok, "%v", err)
		require.NoError(t, rs.NewMutex("lock:reader").TryLock(), "it is free")
		_, err = other.Unlock()
		require.NoError(t, err)
	})
}
