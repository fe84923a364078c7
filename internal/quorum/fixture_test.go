package quorum

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file has what more than one file of tests uses.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// percent is the rule by which clocks differ by 1 % and 2 ms.
type percent struct{}

func (percent) Of(d time.Duration) time.Duration { return d/100 + 2*ms }

// setOf returns the set of the nodes behind pools. More than half of them decide.
func setOf(pools ...wire.Pool) *Set {
	return NewSet(pools, NewKnown(len(pools)), claimtest.Majority(len(pools)))
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

// A scene is n nodes that answer when the test says so.
type scene struct {
	*testing.T // nil outside of inScene
	*Set
	fakes  []*scripted.Node
	refuse []error  // by node: why its pool refuses to send
	silent []moment // by node: since when it has owed a reply; zero if it does not
}

// A moment may be set and read at once.
type moment struct{ atomic.Int64 }

func (m *moment) set(t time.Time) { m.Store(t.UnixNano()) }

// A listener is a fake node that tells for how long its node has been silent.
type listener struct {
	*scripted.Node
	silent *moment
}

func (l listener) Silent() time.Duration {
	since := l.silent.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}

func newScene(n int) *scene {
	s := &scene{refuse: make([]error, n), silent: make([]moment, n)}
	var pools []wire.Pool
	for i := range n {
		p := &scripted.Node{Answer: func(wire.Request) (*wire.Reply, error) { return nil, s.refuse[i] }}
		s.fakes, pools = append(s.fakes, p), append(pools, listener{p, &s.silent[i]})
	}
	s.Set = setOf(pools...)
	return s
}

// inScene plays a test in a bubble, with n nodes.
func inScene(t *testing.T, n int, play func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(n)
		s.T = t
		play(s)
	})
}

// start starts a round of a.
func (s *scene) start(a Operation) *Round { return s.Start(s.Context(), a, false) }

// sent returns a round of a that was sent, and that nobody waits for.
func (s *scene) sent(a Operation) *Round {
	r := &Round{}
	r.Prepare(s.Context(), s.Set, a, false, false)
	r.Send()
	return r
}

// within waits a second for a round. It returns the result, and how long the round took.
func (s *scene) within(r *Round) (Result, time.Duration) { return within(s.T, r, second) }

// pools returns the fakes as pools.
func (s *scene) pools() (pools []wire.Pool) {
	for _, p := range s.fakes {
		pools = append(pools, p)
	}
	return pools
}

// answer is node i's answer to what it was sent last.
func (s *scene) answer(i int, value any) {
	s.reply(i, wire.Reply{Value: value, Fate: wire.Answered, Conn: 1})
}

// by lets a server answer for node i.
func (s *scene) by(server *wire.Server, i int, value any) {
	s.reply(i, wire.Reply{Value: value, Fate: wire.Answered, Conn: 1, Server: server})
}

func run(id string) *wire.Server { return &wire.Server{RunID: id} }

// plays lets nodes answer, one after the other. Each step is the number of a node, and what it does: + it has the value,
// - it lacks the value, o it has another one, x its connection breaks, ~ it is silent until the deadline of a read.
func (s *scene) plays(steps string) {
	for step := range strings.FieldsSeq(steps) {
		i := int(step[0] - '0')
		switch step[1] {
		case '+':
			s.answer(i, mine)
		case '-':
			s.answer(i, missing)
		case 'o':
			s.answer(i, other)
		case 'x':
			s.reply(i, broken)
		case '~':
			s.reply(i, wire.Reply{Err: os.ErrDeadlineExceeded, Fate: wire.Unknown, Conn: 1})
		}
	}
}

// ends waits a second for a round. It checks how long the round took, and whether its votes were split.
func (s *scene) ends(r *Round, want time.Duration, split bool) Result {
	s.Helper()
	res, took := s.within(r)
	assert.Equal(s, want, took)
	assert.Equal(s, split, res.Split)
	return res
}

// areLate checks which nodes are late.
func (s *scene) areLate(want claim.Nodes) {
	s.Helper()
	assert.Equal(s, want, s.known.late.load())
}

func (s *scene) reply(i int, r wire.Reply) {
	sent := s.fakes[i].Sent()
	sent[len(sent)-1].To.Receive(i, r)
}

// count returns how many requests all nodes were sent.
func (s *scene) count() (n int) {
	for _, p := range s.fakes {
		n += len(p.Sent())
	}
	return n
}

// An act is an operation that looks for a value. It implements all the interfaces that only some operations
// do. It keeps what it is told, in order.
type act struct {
	brief  Brief
	tally  claim.Tally                          // nil: its votes are counted plainly
	judges func(i int, v claim.Vote) claim.Vote // nil: it counts a vote as it is
	over   bool                                 // its gate is closed

	mu   sync.Mutex // guards told
	told []string
}

func (a *act) note(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, what)
}

func (a *act) Brief() Brief {
	b := a.brief
	b.Tallies = a.tally != nil
	if b.Call.Read == nil {
		b.Call = claimtest.Exclusive("lock").With("value", &claim.Room{}).Check()
	}
	return b
}

func (a *act) Judge(i int, _ wire.Reply, v claim.Vote) claim.Vote {
	if a.judges != nil {
		return a.judges(i, v)
	}
	return v
}

func (a *act) Tally(claim.Rule) claim.Tally { return a.tally }

func (a *act) Sending(int) { a.note("sending") }
func (a *act) Unsent(int)  { a.note("unsent") }
func (a *act) Open() bool  { return !a.over }
func (a *act) OnWon()      { a.note("won") }
func (a *act) Decided()    { a.note("decided") }

var errBroken = errors.New("it broke")

// lacksScript is the reply of a node that does not have a script.
type lacksScript struct{}

func (lacksScript) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (lacksScript) RedisError()   {}

// within waits for a round. It returns the result, and how long the round took.
func within(t *testing.T, r *Round, l Limits) (res Result, took time.Duration) {
	t.Helper()
	start := time.Now()
	res = r.Wait(t.Context(), l)
	return res, time.Since(start)
}

// The answers of the nodes of a scene.
var (
	mine    any = script.Mine
	other   any = script.Other
	missing any = script.Missing
)
