package claim_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// This file shows that each claim does on a node what its interface says. A new claim has a row here.

// A subject is a claim that all the rest of the library could use.
type subject struct {
	claim claim.Claim                                     // without a value
	won   func(c claim.Claim, a claim.Answer) claim.Claim // what an attempt has won whose Acquire a node answered with a
	rival claim.Claim                                     // cannot be held beside it
	keys  []string                                        // of the claim, on a node where nothing else is
}

// asItIs is for a claim that is won as it was acquired.
func asItIs(c claim.Claim, _ claim.Answer) claim.Claim { return c }

func subjects() map[string]subject {
	slots := func(c claim.Claim, a claim.Answer) claim.Claim {
		return c.(*claim.Permits).Of(a.Details().Own.(*script.EnteredPermits).Slots)
	}
	return map[string]subject{
		"exclusive":     {claimtest.Exclusive("a"), asItIs, claimtest.Shared("a"), []string{"a"}},
		"shared":        {claimtest.Shared("a"), asItIs, claimtest.Exclusive("a"), []string{"a"}},
		"several names": {claimtest.Exclusive("a", "b"), asItIs, claimtest.Exclusive("b"), []string{"a", "b"}},
		"a permit":      {claim.NewPermits("a", 1, 1), slots, claim.NewPermits("a", 1, 1), []string{"{a}:slot:0"}},
		"two permits": {
			claim.NewPermits("a", 2, 2), slots, claim.NewPermits("a", 2, 1),
			[]string{"{a}:slot:0", "{a}:slot:1"},
		},
	}
}

// What a node answers that has the claim before an Acquire or a Fill, that has nothing of it, or that has taken it again.
var (
	there = []claim.Found{claim.Mine, claim.Other}
	gone  = []claim.Found{claim.Missing, claim.PartMissing}
	made  = []claim.Found{claim.Created, claim.PartCreated}
)

func (n node) acquiresNow(c claim.Claim) claim.Answer {
	n.Helper()
	return n.says(c.Acquire(time.Minute, noPlace, noFence))
}

// has returns the shortest TTL of keys, 0 if one is missing.
func (n node) has(keys []string) (shortest time.Duration) {
	n.Helper()
	shortest = time.Hour
	for _, key := range keys {
		ttl, err := n.client.PTTL(n.Context(), key).Result()
		require.NoError(n, err)
		shortest = min(shortest, max(ttl, 0))
	}
	return shortest
}

func TestEachClaimDoesWhatTheInterfaceSays(t *testing.T) {
	for name, s := range subjects() {
		t.Run(name, func(t *testing.T) {
			n := startNode(t)
			var rooms [2]claim.Room
			c := s.claim.With("v", &rooms[0])
			assert.Equal(t, "v", c.Value())
			assert.Equal(t, s.claim.Name(), c.Name())
			assert.NotEmpty(t, c.Lines())

			a := n.acquiresNow(c)
			require.Equal(t, claim.Mine, a.Found, "Acquire takes what is free")
			won, rival := s.won(c, a), s.rival.With("rival", &rooms[1])
			require.Positive(t, n.has(s.keys))
			assert.Contains(t, there, n.acquiresNow(c).Found)
			assert.Equal(t, claim.Other, n.acquiresNow(rival).Found)

			for _, looking := range []claim.Claim{c, won} {
				for _, alone := range []bool{false, true} {
					seen := n.says(looking.Inspect(alone)).Details().Own.(*script.Report)
					require.Len(t, seen.Holds, len(s.keys))
					for i, h := range seen.Holds {
						assert.Equal(t, script.Held{At: i, Value: "v", TTL: h.TTL, Shared: won.Shares()}, h)
						assert.Positive(t, h.TTL)
					}
					assert.Equal(t, alone, seen.Tickets == nil)
				}
			}
			n.finds(claim.Mine, won.Check())
			n.finds(claim.Mine, won.Extend(time.Second, false))
			assert.Greater(t, n.has(s.keys), 50*time.Second, "Extend never shortens")
			n.finds(claim.Mine, won.Extend(2*time.Minute, false))
			assert.Greater(t, n.has(s.keys), 110*time.Second)
			assert.Contains(t, there, n.says(won.Fill(time.Second)).Found)
			assert.Greater(t, n.has(s.keys), 110*time.Second, "Fill never shortens")

			assert.NotEqual(t, claim.Mine, n.says(release(rival)).Found, "a release of another value takes nothing")
			n.finds(claim.Mine, won.Check())
			n.finds(claim.Mine, release(won))
			assert.Zero(t, n.has(s.keys))
			for _, call := range []claim.Call{release(won), won.Check(), won.Extend(time.Minute, false)} {
				assert.Contains(t, gone, n.says(call).Found)
				assert.Zero(t, n.has(s.keys), "what was released does not come back")
			}
			for _, call := range []claim.Call{won.Extend(time.Minute, true), won.Fill(time.Minute)} {
				assert.Contains(t, made, n.says(call).Found)
				assert.Positive(t, n.has(s.keys))
				n.finds(claim.Mine, release(won))
			}

			require.Equal(t, claim.Mine, n.acquiresNow(rival).Found)
			assert.Equal(t, claim.Other, n.acquiresNow(c).Found)
			for _, call := range []claim.Call{won.Extend(time.Minute, true), won.Fill(time.Minute), won.Check(), release(won)} {
				assert.NotContains(t, append(made, claim.Mine), n.says(call).Found, "the rival has it")
			}
			assert.Len(t, n.client.Keys(n.Context(), "*").Val(), 1, "only what the rival has")
		})
	}
}

// A claim that can stay for a while lasts for the rest, and no longer.
func TestEachShortenerStaysForTheRest(t *testing.T) {
	for name, s := range subjects() {
		t.Run(name, func(t *testing.T) {
			n := startNode(t)
			var room claim.Room
			c := s.claim.With("v", &room)
			won := s.won(c, n.acquiresNow(c))
			shortener, can := won.(claim.Shortener)
			require.Equal(t, name != "shared", can)
			if !can {
				return
			}
			shorten := func(rest time.Duration) claim.Found {
				return n.says(shortener.Shorten(rest, script.ProcessOf(ours), noTurn, noFence)).Found
			}
			assert.Equal(t, claim.Mine, shorten(time.Hour))
			assert.LessOrEqual(t, n.has(s.keys), time.Minute, "it never lasts longer")
			assert.Equal(t, claim.Mine, shorten(5*time.Second))
			left := n.has(s.keys)
			assert.True(t, left > 0 && left <= 5*time.Second, "%v", left)
		})
	}
}

// A node without memory grants nothing, but a lease that it has granted is kept and given back as ever.
func TestEachClaimIsKeptWithoutMemory(t *testing.T) {
	server := realredis.Start(t, 1)[0]
	all := subjects()
	all["shared, downgraded"] = subject{
		all["exclusive"].claim, func(c claim.Claim, _ claim.Answer) claim.Claim {
			return c.(*claim.Exclusive).Downgraded(script.Downgrade{})
		}, all["exclusive"].rival, []string{"a"},
	}
	all["shared, beside others"] = subject{all["shared"].claim, func(c claim.Claim, a claim.Answer) claim.Claim {
		for _, value := range []string{"first", "v second", "third"} {
			var room claim.Room
			node{t, server.Client()}.acquiresNow(c.With(value, &room))
		}
		return c
	}, all["shared"].rival, []string{"a"}}
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			n := node{t, server.Client()}
			memory := func(bytes int) {
				require.NoError(t, n.client.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(bytes)).Err())
			}
			require.NoError(t, n.client.FlushAll(t.Context()).Err())
			var room claim.Room
			c := s.claim.With("v", &room)
			won := s.won(c, n.acquiresNow(c))
			memory(1)
			defer memory(0)
			for _, rival := range []claim.Claim{s.rival, claimtest.Shared("a"), claimtest.Exclusive("free")} {
				call := rival.With("rival", new(claim.Room)).Acquire(time.Minute, noPlace, noFence)
				if reply, err := n.client.Do(t.Context(), call.Command.InFull()...).Result(); err == nil {
					a, err := call.Read(reply)
					require.NoError(t, err)
					assert.NotEqual(t, claim.Mine, a.Found)
				}
			}
			for i, heal := range []bool{false, true} {
				ttl := time.Duration(2+i) * time.Minute
				n.finds(claim.Mine, won.Extend(ttl, heal))
				assert.Greater(t, n.has(s.keys), ttl-10*time.Second)
				n.finds(claim.Mine, won.Check())
			}
			n.finds(claim.Mine, release(won))
			assert.Contains(t, gone, n.says(won.Check()).Found)
		})
	}
}
