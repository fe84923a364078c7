package quorum

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows that a set knows which of its nodes are one server, and what a node knows of itself.

// Two nodes that are one server are an error only if the distinct servers are no quorum of all nodes.
func TestDuplicateNeedsTooFewServers(t *testing.T) {
	for servers, want := range map[string]bool{
		"aa": true, "aab": false, "aaa": true, "aabb": true, "aabc": false, "aabcd": false, "aabbc": false, "aabba": true,
		"?aa": false, "aa???": false, "aaaab": true,
	} {
		s := newScene(len(servers))
		for i, r := range servers {
			if r != '?' {
				s.NoteServer(i, run(string(r)))
			}
		}
		assert.Equal(t, want, s.Duplicate() != nil, servers)
	}
}

// Observers are told once of two nodes that are one server, and once that they are two again.
func TestSetTellsOfOneServerOnce(t *testing.T) {
	s, to := newScene(5), &tracer{}
	tells := func(want ...string) {
		t.Helper()
		s.TellServers(nil)
		s.TellServers(to)
		assert.Equal(t, want, to.hears())
	}
	for i := range 5 {
		s.NoteServer(i, run(string(rune('a'+i))))
	}
	tells()
	s.NoteServer(4, run("a"))
	tells("0 and 4 are a")
	s.NoteServer(4, run("a")) // on another connection
	tells()
	s.Forget()
	tells()
	s.NoteServer(0, run("a"))
	tells()
	s.NoteServer(4, run("a"))
	tells()
	s.NoteServer(4, run("e"))
	tells("0 and 4 are two")
	s.NoteServer(2, run("c"))
	s.NoteServer(3, run("c"))
	s.NoteServer(4, run("c"))
	tells("2 and 3 are c", "2 and 4 are c", "3 and 4 are c")
	s.NoteServer(1, run("a"))
	tells("0 and 1 are a")
}

// Every reply says which server has sent it. That costs nothing if it is the server of the reply before, also beside nodes
// that are one server.
func TestReplyOfTheSameServerCostsNothing(t *testing.T) {
	s, server := newScene(5), run("a")
	s.NoteServer(0, server)
	s.NoteServer(1, run("a"))
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.NoteServer(0, server) }))
}

// A server with an address in both sets and another one in the later set counts in the later one only, also if the round
// finds that out.
func TestJointServerOfThreePlacesCountsOnceInOneSet(t *testing.T) {
	for shared := range 2 { // the address of node 3 leads to this node of both sets
		for known, order := range [][]int{{shared, 3, 1 - shared}, {0, 1, 3}, {3, 1, 0}} {
			inScene(t, 4, func(s *scene) {
				s.Set = NewSet(s.pools(), NewKnown(4), jointOf{nodes(0, 1, 2), nodes(0, 1, 3)})
				by := []*wire.Server{{RunID: "0"}, {RunID: "1"}, {RunID: "2"}, {RunID: fmt.Sprint(shared)}}
				if known > 0 {
					s.NoteServer(shared, by[shared])
					s.NoteServer(3, by[3])
				}
				r := s.start(&act{})
				for _, i := range order {
					s.by(by[i], i, mine)
				}
				assert.Equal(s, nodes(1-shared, 3), r.SoFar(nil).Count.Granted)
				assert.False(s, r.SoFar(nil).Won)
				s.by(by[2], 2, mine)
				assert.True(s, r.SoFar(nil).Won)
			})
		}
	}
}

// Two nodes of joint sets that were one server may be one again, such as after a restart: the next call asks.
func TestJointNodesThatComeApartAreAskedAgain(t *testing.T) {
	s := newScene(4)
	s.Set = NewSet(s.pools(), NewKnown(4), jointOf{nodes(0, 1, 2), nodes(0, 1, 3)})
	s.NoteServer(2, run("a"))
	s.NoteServer(3, run("a"))
	s.identity.complete.Store(true)
	s.NoteServer(2, run("b"))
	assert.False(t, s.IsIdentified())
}

// A jointOf is the rule by which a quorum of each of two sets decides.
type jointOf struct{ before, after claim.Nodes }

func (j jointOf) All() claim.Nodes { return j.before | j.after }
func (j jointOf) Quorum(n claim.Nodes) bool {
	return 2*(n&j.before).Len() > j.before.Len() && 2*(n&j.after).Len() > j.after.Len()
}
func (j jointOf) Blocks(n claim.Nodes) bool        { return !j.Quorum(j.All() &^ n) }
func (jointOf) Counts(a claim.Answer) claim.Choice { return claimtest.Majority(0).Counts(a) }
func (j jointOf) Standing(c claim.Count) claim.Standing {
	return claim.Standing{
		Won: j.Quorum(c.Granted), Blocked: j.Blocks(c.Refused | c.Failed), Rejected: j.Blocks(c.Refused),
		Explained: j.Quorum(c.Answered()) || j.Blocks(c.Failed),
	}
}

func (j jointOf) Sets(i int) (in claim.Sets) {
	if j.before.Has(i) {
		in |= 1
	}
	if j.after.Has(i) {
		in |= 2
	}
	return in
}

func nodes(list ...int) (n claim.Nodes) {
	for _, i := range list {
		n = n.With(i)
	}
	return n
}

// A met pool says whether its client has met the node before.
type met struct {
	*scripted.Node
	before bool
	asked  int
}

func (m *met) MetBefore() bool {
	m.asked++
	return m.before
}

func TestOneAcquireIntroduces(t *testing.T) {
	for name, c := range map[string]struct {
		pools []wire.Pool
		want  bool
	}{
		"nobody has met them":   {[]wire.Pool{&met{}, &met{}}, true},
		"all are known":         {[]wire.Pool{&met{before: true}, &met{before: true}}, false},
		"one is not":            {[]wire.Pool{&met{}, &met{before: true}}, true},
		"one does not tell":     {[]wire.Pool{&met{before: true}, &scripted.Node{}}, true},
		"the last has been met": {[]wire.Pool{&scripted.Node{}, &met{before: true}}, true},
	} {
		s := setOf(c.pools...)
		assert.Equal(t, c.want, s.FirstToIdentify(), name)
		assert.False(t, s.FirstToIdentify(), "%s: the second", name)
		for i, p := range c.pools {
			if m, ok := p.(*met); ok {
				assert.Equal(t, 1, m.asked, "%s: node %d", name, i)
			}
		}
	}
}
