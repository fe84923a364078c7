package simulation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file lets nodes be newer servers, whose commands stand for scripts.

// The versions of nodes, by the command that deletes there; the last one has only scripts.
var (
	nativeVersions = []string{"Redis 8.6.3", "Valkey 9.1.2", ""}
	nativeDeletes  = []string{"delex", "delifeq", "evalsha"}
)

// beNewer gives the nodes versions: in some seeds one for all, in the others each its own.
func (s *simulation) beNewer(r *rand.Rand) {
	alike, versions := r.IntN(4), len(nativeVersions)
	if s.few() {
		versions-- // a node that tells is enough
	}
	gap := between(r, 120*time.Millisecond, 170*time.Millisecond)
	for i := range s.nodes {
		s.version[i] = alike
		if alike >= 2 {
			s.version[i] = r.IntN(versions)
		}
		s.nodes[i].SetVersion(nativeVersions[s.version[i]])
		if s.few() {
			s.parts(i, gap)
		}
	}
}

// parts makes a node wait between a deletion and the look at the queue, whichever comes first: a waiter may come then.
func (s *simulation) parts(i int, gap time.Duration) {
	var last [2]time.Time
	for k, command := range []string{nativeDeletes[s.version[i]], "exists"} {
		s.nodes[i].On(command, math.MaxInt, embedded.Fault{Then: func([]string) {
			s.mu.Lock()
			last[k] = time.Now()
			second := last[1-k].Equal(last[k])
			s.mu.Unlock()
			if second {
				time.Sleep(gap)
			}
		}})
	}
}

// changeVersion makes a node another server.
func (s *simulation) changeVersion(r *rand.Rand, i int) {
	s.version[i] = r.IntN(len(nativeVersions))
	s.fault(node(i), fmt.Sprintf("is %q", nativeVersions[s.version[i]]), func() { s.nodes[i].SetVersion(nativeVersions[s.version[i]]) })
}

// changeCommands makes a node another server while its connections stay, or takes a command from clients for a while.
func (s *simulation) changeCommands(r *rand.Rand) {
	i := s.some(r, 1)[0]
	if oneIn(r, 3) {
		for _, i := range s.some(r, 1+r.IntN(len(s.nodes))) {
			s.failsFor(spent, i)
			s.fault(node(i), "loses the reply to the next "+nativeDeletes[s.version[i]], func() {
				s.nodes[i].On(nativeDeletes[s.version[i]], 1, embedded.Fault{LoseReply: true})
			})
			moment(r)
		}
		return
	}
	s.failsFor(spent, i) // its connection may end
	command := []string{nativeDeletes[s.version[i]], "msetex"}[r.IntN(2)]
	if command == "evalsha" || oneIn(r, 3) {
		s.changeVersion(r, i)
		return
	}
	how := []embedded.Lack{embedded.Missing, embedded.Denied, embedded.Closing}[r.IntN(3)]
	s.fault(node(i), fmt.Sprintf("lacks %s: %v", command, how), func() { s.nodes[i].Lacks(how, command) })
	time.Sleep(between(r, 0, 500*time.Millisecond))
	s.failsFor(spent, i)
	s.nodes[i].Lacks(embedded.Has, command)
	s.ends(node(i), "lacks "+command)
}

// mortal returns a process of its own for a term. It dies once the client has unlocked: see end. Its nodes know its
// commands already, so its releases look at the queue.
func (c *simClient) mortal() *process {
	p := c.simulation.process(c.process, 0)
	p.mortal = true
	c.mu.Lock()
	c.simulation.former = append(c.simulation.former, p)
	c.mu.Unlock()
	ctx, cancel := p.call(time.Second)
	defer cancel()
	m := p.NewMutex(fmt.Sprintf("meet %s %d", c.name, c.term), c.lasting(c.longest)...)
	if m.LockContext(ctx) == nil {
		_, _ = m.UnlockContext(c.Context())
	}
	return p
}

// few reports whether few clients meet, each in a process of its own. A client that wins without waiting releases without
// a script. The next client comes late, so that a waiter gets the lock only if it is told.
func (p *simPlan) few() bool { return p.class[native] && p.class[unpolled] }

func (s *simulation) clientCount() int {
	if s.class[native] {
		return simProcesses + 1
	}
	return simProcesses * simClients
}

// idles returns how long a client rests at most between two terms.
func (s *simulation) idles() time.Duration {
	if s.few() {
		return 1500 * time.Millisecond
	}
	return 60 * time.Millisecond
}

// natives counts the commands that nodes have got in place of scripts.
func (s *simulation) natives() (n int) {
	for _, node := range s.nodes {
		for _, command := range []string{"delex", "delifeq", "msetex"} {
			n += node.Commands(command)
		}
	}
	return n
}
