package lease

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows how a lease of permits gives back what nodes have granted to it beyond the permits that it
// has won. The semaphore has three permits.

const (
	permits = 3
	gives   = "give 0 2 keep 1" // the release of what is not the slot that the tests win
)

// A counter is a node that grants permits.
type counter struct {
	*scripted.Node

	mu    sync.Mutex
	asked []wire.Request // acquires without a reply
	gets  []string       // releases: which slots are given back and which are kept
	found int64          // the reply to a release
}

func newCounter() *counter {
	c := &counter{found: script.Mine}
	c.Node = &scripted.Node{Answer: c.answer}
	return c
}

func slotsOf(list ...int) (slots script.Slots) {
	for _, slot := range list {
		slots = slots.With(slot)
	}
	return slots
}

// answer answers a release or an extension. It keeps an acquire for the test to answer.
func (c *counter) answer(req wire.Request) (*wire.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys, args := split(req)
	switch {
	case len(keys) == permits && len(args) == 3: // a value, a TTL and how many are wanted
		c.asked = append(c.asked, req)
		return nil, nil
	case len(keys) == 1: // an extension
		return answered(script.Mine), nil
	case len(keys) == 2: // the release of a single slot
		c.gets = append(c.gets, "unlock "+keys[0][len("{lock}:slot:"):])
	default:
		kept := args[2].(int)
		slots := keys[:len(keys)-1]
		text := "give"
		for i, key := range slots {
			if i == len(slots)-kept {
				text += " keep"
			}
			text += " " + key[len("{lock}:slot:"):]
		}
		for _, ticket := range args[min(6, len(args)):] {
			text += " leave " + fmt.Sprint(ticket)
		}
		c.gets = append(c.gets, text)
	}
	return answered(c.found), nil
}

// split returns the keys and the arguments of a script.
func split(req wire.Request) (keys []string, args []any) {
	n := req.Args[2].(int)
	for _, key := range req.Args[3 : 3+n] {
		keys = append(keys, key.(string))
	}
	return keys, req.Args[3+n:]
}

// replies answers the acquire that was sent last.
func (c *counter) replies(reply wire.Reply) {
	c.mu.Lock()
	req := c.asked[len(c.asked)-1]
	c.mu.Unlock()
	tells(req, reply)
}

// grants answers that the node grants a slot.
func (c *counter) grants(slot int) {
	c.mu.Lock()
	keys, _ := split(c.asked[len(c.asked)-1])
	c.mu.Unlock()
	at := slices.Index(keys, fmt.Sprintf("{lock}:slot:%d", slot))
	c.replies(said(int64(at)))
}

// released returns the releases that came since the last call.
func (c *counter) released() (gets []string) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	gets, c.gets = c.gets, nil
	return gets
}

// oddReplies are replies to an acquire that are no grants. isSurplus says that the node may have granted
// something all the same.
var oddReplies = map[string]struct {
	reply     wire.Reply
	isSurplus bool
}{
	"refused":              {wire.Reply{Value: []any{int64(0), int64(-1), []any{}, []any{}}, Fate: wire.Answered, Conn: 1}, false},
	"the connection broke": {lost, true},
	"not sent":             {wire.Reply{Err: errBroken, Fate: wire.NotSent, Conn: 1}, false},
	"no memory":            {wire.Reply{Err: answer("OOM command not allowed"), Fate: wire.Answered, Conn: 1}, true},
	"odd":                  {said("what?"), true},
}

type (
	trio   = [3]*counter
	winner = func(slot int, nodes ...*counter) *Lease
)

// acquiring runs f in a bubble with three nodes that have been asked for a permit. won lets nodes grant a slot, and waits
// until the lease has won it.
func acquiring(t *testing.T, f func(t *testing.T, nodes trio, won winner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nodes := trio{newCounter(), newCounter(), newCounter()}
		terms := newTerms(t, nodes[0], nodes[1], nodes[2])
		terms.Claim = claim.NewPermits("lock", permits, 1)
		type attempt struct {
			lease *Lease
			Outcome
		}
		attempts := make(chan attempt, 1)
		go func() {
			l, o := Acquire(t.Context(), terms, clock.Now(), 1, script.Place{}, nil)
			attempts <- attempt{l, o}
		}()
		synctest.Wait()
		f(t, nodes, func(slot int, granting ...*counter) *Lease {
			t.Helper()
			for _, n := range granting {
				n.grants(slot)
			}
			a := <-attempts
			require.Equal(t, Won, a.Kind)
			require.Equal(t, slotsOf(slot), a.lease.Claim().(*claim.Permit).Slots())
			require.NoError(t, a.lease.Begin())
			return a.lease
		})
	})
}

// A node that grants the slot that the lease wins is sent nothing, whether its reply comes early or late.
func TestNoSurplus(t *testing.T) {
	acquiring(t, func(t *testing.T, nodes trio, won winner) {
		l := won(1, nodes[:2]...)
		nodes[2].grants(1)
		for _, n := range nodes {
			assert.Empty(t, n.released())
		}
		l.End(nil)
	})
}

// A node that may have granted something is sent a release. The other nodes are sent nothing.
func TestSurplusOfNodesThatDoNotGrant(t *testing.T) {
	for name, c := range oddReplies {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late %v", name, late), func(t *testing.T) {
				acquiring(t, func(t *testing.T, nodes trio, won winner) {
					if !late {
						nodes[0].replies(c.reply)
					}
					l := won(1, nodes[1:]...)
					if late {
						nodes[0].replies(c.reply)
					}
					if c.isSurplus {
						assert.Equal(t, []string{gives}, nodes[0].released())
					} else {
						assert.Empty(t, nodes[0].released())
					}
					time.Sleep(5 * sec)
					assert.Empty(t, nodes[0].released(), "once is enough: it has found the value, or nothing was under way")
					l.End(nil)
				})
			})
		}
	}
}

// If a reply was lost, the node may grant later. So the release of the surplus is repeated until it finds
// something to give back, or until a grant must have run out.
func TestSurplusOfALostReplyIsRepeated(t *testing.T) {
	acquiring(t, func(t *testing.T, nodes trio, won winner) {
		nodes[0].found = script.Missing
		nodes[0].replies(lost)
		l := won(1, nodes[1:]...)
		assert.Len(t, nodes[0].released(), 1)
		time.Sleep(2 * sec)
		again := nodes[0].released()
		assert.Greater(t, len(again), 2)
		l.End(nil)
		time.Sleep(sec)
		for _, text := range append(again, nodes[0].released()...) {
			assert.Equal(t, gives, text)
		}
		nodes[0].mu.Lock()
		nodes[0].found = script.Mine
		nodes[0].mu.Unlock()
		time.Sleep(2 * sec)
		assert.Len(t, nodes[0].released(), 1)
		time.Sleep(10 * sec)
		assert.Empty(t, nodes[0].released())
	})
	acquiring(t, func(t *testing.T, nodes trio, won winner) {
		nodes[0].found = script.Missing
		l := won(1, nodes[1:]...)
		nodes[0].replies(lost)
		l.End(nil)
		time.Sleep(12 * sec)
		assert.Greater(t, len(nodes[0].released()), 5)
		time.Sleep(time.Minute)
		assert.Empty(t, nodes[0].released())
	})
}

// A node is asked once more if its connection broke. It may have granted a slot to each of the two commands, although it answers only
// the second one. So it is sent a release of all slots but the one that the lease has won.
func TestSurplusOfTheFirstOfTwoSendings(t *testing.T) {
	acquiring(t, func(t *testing.T, nodes trio, won winner) {
		for _, n := range nodes[:2] {
			n.replies(lost)
		}
		for _, n := range nodes[:2] {
			require.Len(t, n.asked, 2)
			n.grants(1)
		}
		l := won(1)
		nodes[2].grants(1)
		for i, want := range [][]string{{gives}, {gives}, nil} {
			assert.Equal(t, want, nodes[i].released(), "node %d", i)
		}
		l.End(nil)
	})
}

// A connection may break long after the win. The node may execute the acquire as late as that, so the release of the surplus
// is repeated for a whole TTL from then on.
func TestSurplusOfAReplyThatIsLostLateIsRepeatedForAWholeTTL(t *testing.T) {
	acquiring(t, func(t *testing.T, nodes trio, won winner) {
		nodes[0].found = script.Missing
		l := won(1, nodes[1:]...)
		time.Sleep(6 * sec)
		nodes[0].replies(lost)
		time.Sleep(6 * sec)
		assert.NotEmpty(t, nodes[0].released())
		time.Sleep(2 * sec)
		assert.Equal(t, []string{gives, gives}, nodes[0].released(), "from 12 to 14 s")
		time.Sleep(2 * sec)
		nodes[0].released()
		time.Sleep(time.Minute)
		assert.Empty(t, nodes[0].released(), "the TTL has passed")
		l.End(nil)
	})
}

// Extensions renew only what the lease has won. So the release of a surplus ends when the surplus must have run
// out, although the lease is still held.
func TestReleaseOfASurplusEndsAlthoughTheLeaseIsExtended(t *testing.T) {
	for name, heals := range map[string]bool{"extends": false, "heals": true} {
		t.Run(name, func(t *testing.T) {
			acquiring(t, func(t *testing.T, nodes trio, won winner) {
				nodes[0].found = script.Missing
				nodes[0].replies(lost)
				l := won(1, nodes[1:]...)
				l.terms.Heals = heals
				for range 4 {
					time.Sleep(3 * sec)
					res, err := l.Extend(t.Context())
					require.NoError(t, err)
					require.True(t, res.Won)
				}
				assert.Greater(t, strings.Count(strings.Join(nodes[0].released(), ","), gives), 5)
				for range 20 {
					time.Sleep(3 * sec)
					_, err := l.Extend(t.Context())
					require.NoError(t, err)
				}
				assert.NotContains(t, strings.Join(nodes[0].released(), ","), "give")
				l.End(nil)
			})
		})
	}
}

// The ticket of a waiter that has won leaves the queues with a release of its own, and with the later ones.
func TestLeaver(t *testing.T) {
	ticket := script.NewTicket(0, 1, script.ProcessOf("2222222222222222"), 1)
	acquiring(t, func(t *testing.T, nodes trio, won winner) {
		l := won(1, nodes[:2]...)
		leaver := l.Leaver(ticket)
		for _, n := range nodes {
			assert.Empty(t, n.released())
		}
		leaver.Release(Releasing{})
		for _, n := range nodes {
			assert.Equal(t, []string{"give 0 1 2 leave " + ticket.String()}, n.released())
		}
		nodes[2].grants(2)
		assert.Equal(t, []string{gives + " leave " + ticket.String()}, nodes[2].released(), "the late acquire may have put the ticket into the queue again")
		l.End(nil)
	})
	l := New(nowhere(t, 1), "v", clock.Now())
	assert.Nil(t, l.Leaver(ticket), "nobody else can have the lock while it has it")
	l.needRare(script.Place{}, nil)
	assert.Nil(t, l.rare.surplus, "a node grants a lock or it does not")
}
