package simulation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays a scene of its own: a minority of the nodes is bad, in one way after another, while processes in two
// zones lock in every mode. Package history judges the waits: a free lock must not rest while somebody waits for it.

const (
	badProcesses = 4
	badNodes     = 8                       // 0 to 4 are the set of most locks; joint locks have 3 to 7 as a second set
	badBound     = 1500 * time.Millisecond // a second, and half of one until a waiter that rests shows its ticket again
	badDial      = time.Second             // the time limit of a dial
	badRead      = 3 * time.Second         // for so long a process waits for an answer on a connection
)

// badSets are the sets of nodes of joint locks. Other locks have only the first.
var badSets = [][]int{{0, 1, 2, 3, 4}, {3, 4, 5, 6, 7}}

// A badMode is how clients lock a name in this scene.
type badMode struct {
	name    string
	wish    func(name string, r *rand.Rand) wish
	options func(r *rand.Rand) []redsync.Option
	fair    bool
	leads   bool
	joint   bool
}

func oneName(name string, _ *rand.Rand) wish { return wish{names: []string{name}} }

var badModes = []badMode{
	{name: "plain", wish: oneName},
	{name: "fair", wish: oneName, fair: true},
	{name: "priority", wish: oneName, options: func(r *rand.Rand) []redsync.Option {
		return []redsync.Option{redsync.WithPriority(r.IntN(3) - 1)}
	}},
	{name: "readers", wish: func(name string, r *rand.Rand) wish {
		return wish{names: []string{name}, shared: oneIn(r, 2)}
	}},
	{name: "permits", wish: func(name string, _ *rand.Rand) wish {
		return wish{names: []string{name}, permits: 2, weight: 1}
	}},
	{name: "weights", fair: true, wish: func(name string, r *rand.Rand) wish {
		return wish{names: []string{name}, permits: 3, weight: 1 + r.IntN(3)}
	}},
	{name: "several", wish: func(name string, r *rand.Rand) wish {
		var names []string
		for _, i := range r.Perm(3)[:1+r.IntN(3)] {
			names = append(names, name+"abc"[i:i+1])
		}
		return wish{names: names}
	}},
	{name: "leaders", wish: oneName, leads: true},
	{name: "joint", wish: oneName, joint: true},
}

// A badFault makes the bad nodes of a round bad, until the function that it returns is called.
type badFault struct {
	name   string
	begins func(b *badMinority, r *rand.Rand, bad []int) (ends func())
	leaves int // on so many other nodes a client that crashes leaves keys
}

// slowBeside is the fault in which no quorum is free without the slow node.
const slowBeside = "slow, beside keys"

var badFaults = []badFault{
	{name: "silent", begins: (*badMinority).silent},
	{name: "slow", begins: (*badMinority).slow},
	{name: "refusing", begins: (*badMinority).refusing},
	{name: "flapping", begins: (*badMinority).flapping},
	{name: "failing dials", begins: (*badMinority).failingDials},
	{name: "cut connections", begins: (*badMinority).cutting},
	{name: "silent, beside keys", begins: (*badMinority).silent, leaves: 1},
	{name: slowBeside, begins: (*badMinority).slowWithin, leaves: 2},
}

// A badScene is what a test asks for. The zero value is everything.
type badScene struct {
	modes, faults []string
	waitsOut      bool // the control: splits wait for the node deadline
}

// A badMinority is one play of the scene.
type badMinority struct {
	*simulation
	asked     badScene
	expiry    time.Duration
	deadline  time.Duration
	processes [badProcesses]*badProcess
	paths     [badProcesses + 1][badNodes]badPath // the last is that of the client that crashes
	round     atomic.Int64                        // 0 until the first one begins
	fault     atomic.Int64                        // an index of badFaults; -1 between rounds
	well      time.Duration                       // from then on all nodes count again
	stop      atomic.Bool
	begun     []badRound
}

// A badRound is a time in which one fault lasts.
type badRound struct {
	fault    string
	from, to time.Duration
}

// A badPath is the way between a process and a node.
type badPath struct {
	late  atomic.Int64 // answers come so much later at most, and half of that at least
	fails atomic.Bool  // dials fail
}

// A badProcess has a Redsync for joint locks, and one for all others.
type badProcess struct {
	*badMinority
	slot    int
	single  *redsync.Redsync
	joint   *redsync.Redsync
	clients []*redis.Client
	wires
}

// zone returns the zone of a node or a process.
func zone(i int) int { return i % 2 }

// process starts a process. If reaches is not nil, the process can reach only these nodes.
func (b *badMinority) process(slot int, reaches []int) *badProcess {
	p := &badProcess{badMinority: b, slot: slot}
	pools := make([]wire.Pool, badNodes)
	for j, n := range b.nodes {
		client := n.Client(func(opt *redis.Options) {
			opt.DialTimeout, opt.ReadTimeout = badDial, badRead
			opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if reaches != nil && !slices.Contains(reaches, j) {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return p.dial(ctx, j, n, network, addr)
			}
		})
		p.clients = append(p.clients, client)
		pools[j] = pool.New(client)
	}
	p.single, p.joint = redsync.New(poolsOf(pools, badSets[0])...), redsync.NewJoint(poolsOf(pools, badSets[0]), poolsOf(pools, badSets[1]))
	if b.asked.waitsOut {
		fortests.WaitOutSplits(p.single)
		fortests.WaitOutSplits(p.joint)
	}
	return p
}

// poolsOf returns the pools of some nodes.
func poolsOf(pools []wire.Pool, nodes []int) (some []wire.Pool) {
	for _, j := range nodes {
		some = append(some, pools[j])
	}
	return some
}

func (p *badProcess) dial(ctx context.Context, j int, n *embedded.Node, network, addr string) (net.Conn, error) {
	way := &p.paths[p.slot][j]
	if way.fails.Load() {
		if p.mix(21, uint64(p.slot), uint64(j), uint64(p.now()))%2 == 0 {
			return nil, syscall.ECONNREFUSED
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.keep(n.DialVia(p.delays(j))(ctx, network, addr))
}

// delays returns the delays between the process and node j. Messages between zones take about 3 ms.
func (p *badProcess) delays(j int) embedded.Delay {
	return func(toNode bool) time.Duration {
		direction := uint64(0)
		if toNode {
			direction = 1
		}
		n := p.mix(20, uint64(p.slot), uint64(j), direction, uint64(p.now()))
		d := time.Duration(100+n%200) * time.Microsecond
		if zone(p.slot) != zone(j) {
			d = time.Duration(2800+n%400) * time.Microsecond
		}
		if late := p.paths[p.slot][j].late.Load(); late != 0 {
			d += time.Duration(late/4) + time.Duration((n>>20)%uint64(late/4))
		}
		return d
	}
}

// crash ends the process, as if it had been killed.
func (p *badProcess) crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// close ends the process at the end of the scene.
func (p *badProcess) close() {
	closeAll(p.Context(), p.clients, p.single, p.joint)
}

// closeAll closes what a process has, at the end of a scene.
func closeAll(ctx context.Context, clients []*redis.Client, all ...*redsync.Redsync) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, rs := range all {
		_ = rs.Close(ctx)
	}
	for _, c := range clients {
		_ = c.Close()
	}
}

// playBad plays the scene, and returns what happened.
func playBad(t *testing.T, seed uint64, asked badScene) (*badMinority, []history.Event) {
	t.Helper()
	b := &badMinority{simulation: &simulation{T: t, seed: seed}, asked: asked}
	b.inBubble(t, b.run)
	return b, b.log.Events()
}

// options returns the options of all locks of the scene.
func (b *badMinority) options() []redsync.Option {
	return []redsync.Option{redsync.WithTries(0), redsync.WithExpiry(b.expiry), redsync.WithNodeTimeout(b.deadline)}
}

// draw sets the expiry, and the node deadline: the default, or a longer one. Two successive seeds have both expiries.
func (b *badMinority) draw() {
	b.expiry, b.deadline = 8*time.Second, 400*time.Millisecond
	if (b.seed+b.seed/2)%2 == 0 {
		b.expiry, b.deadline = time.Minute, 2*time.Second
		if b.seed/4%2 == 1 {
			b.deadline = 3 * time.Second
		}
	}
}

// plays reports whether clients lock in a mode in the present round. Together, two successive seeds play every mode
// with every fault.
func (b *badMinority) plays(m badMode) bool {
	if b.round.Load() == 0 || b.fault.Load() < 0 {
		return false
	}
	k := slices.IndexFunc(badModes, func(other badMode) bool { return other.name == m.name })
	return b.asked.modes != nil || (uint64(k)+uint64(b.fault.Load())+b.seed)%2 == 0
}

// open starts the processes, which get to know the nodes.
func (b *badMinority) open() {
	for i := range b.processes {
		p := b.process(i, nil)
		b.processes[i] = p
		for _, rs := range []*redsync.Redsync{p.single, p.joint} {
			m := rs.NewMutex("meet", b.options()...)
			assert.NoError(b, m.Lock())
			_, err := m.Unlock()
			assert.NoError(b, err)
		}
	}
}

func (b *badMinority) run() {
	b.draw()
	b.nodes = embedded.Start(badNodes)
	defer func() {
		b.nodes.Close()
		time.Sleep(time.Minute)
	}()
	b.open()
	var clients sync.WaitGroup
	for i, p := range b.processes {
		for k, mode := range badModes {
			if !asks(b.asked.modes, mode.name) {
				continue
			}
			c := &badClient{badProcess: p, mode: mode, name: fmt.Sprintf("%d %s", i, mode.name)}
			c.random = b.random(uint64(100 + i*len(badModes) + k))
			clients.Go(c.run)
		}
	}
	b.misfortune(b.random(1))
	b.stop.Store(true)
	clients.Wait()
	for _, p := range b.processes {
		p.close()
	}
}

func asks(some []string, name string) bool { return some == nil || slices.Contains(some, name) }

// misfortune causes one fault after another.
func (b *badMinority) misfortune(r *rand.Rand) {
	for _, i := range r.Perm(len(badFaults)) {
		f := badFaults[i]
		if !asks(b.asked.faults, f.name) {
			continue
		}
		time.Sleep(between(r, 300*time.Millisecond, 600*time.Millisecond))
		if f.leaves > 0 || b.seed%4 < 2 { // otherwise, nodes of the fault before may not count yet
			b.fault.Store(-1)
			time.Sleep(b.well - b.now())
		}
		nodes := r.Perm(len(badSets[0]))
		bad, others := nodes[:1], nodes[1:]
		if f.leaves == 0 && oneIn(r, 4) {
			bad, others = nodes[:2], nodes[2:]
		}
		from := b.now()
		ends := f.begins(b, r, bad)
		next := b.round.Load() + 1
		if f.leaves > 0 {
			b.leave(others[:f.leaves], next)
		}
		b.fault.Store(int64(i))
		b.round.Store(next)
		lasts := between(r, 1600*time.Millisecond, 2400*time.Millisecond)
		if f.name == slowBeside {
			lasts += badBound + b.deadline
		}
		time.Sleep(lasts)
		b.begun = append(b.begun, badRound{f.name, from, b.now()})
		ends()
	}
}

// An ill is that nodes do not serve a process, or all of them, in time.
type ill struct {
	what    string
	nodes   []int
	process string        // "": all
	late    time.Duration // see history.Ails
}

// ails notes that an ill begins.
func (b *badMinority) ails(i ill) { b.note(i, 0, false) }

// recover notes that an ill is over after a time. Until then the nodes may still serve the process late.
func (b *badMinority) recover(i ill, after time.Duration) {
	b.note(i, after, true)
	b.well = max(b.well, b.now()+after+idleRules.Recovers+idleRules.Attempt)
}

func (b *badMinority) note(i ill, after time.Duration, ends bool) {
	for _, j := range i.nodes {
		what := cmp.Or(i.process, "all") + ": " + i.what
		at := b.now()
		b.log.Note(history.Event{At: at, Kind: history.Fault, Where: node(j), What: what, Ends: ends})
		b.log.Note(history.Event{At: at + after, Kind: history.Ails, Node: j, Process: i.process, Late: i.late, Ends: ends})
	}
}

// during makes nodes ail: begin does it to each of them, and end undoes it. The ill is over some time after the end.
func (b *badMinority) during(i ill, after time.Duration, begin, end func(j int)) (ends func()) {
	b.ails(i)
	for _, j := range i.nodes {
		begin(j)
	}
	return func() {
		for _, j := range i.nodes {
			end(j)
		}
		b.recover(i, after)
	}
}

// repeatedly is during with something that happens again and again.
func (b *badMinority) repeatedly(i ill, after time.Duration, f func()) (ends func()) {
	b.ails(i)
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-over:
				return
			default:
				f()
			}
		}
	}()
	return func() {
		close(over)
		<-done
		b.recover(i, after)
	}
}

func (b *badMinority) silent(_ *rand.Rand, bad []int) func() {
	return b.during(ill{what: "silent", nodes: bad}, 0,
		func(j int) { b.nodes[j].Freeze() }, func(j int) { b.nodes[j].ThawInTurn() })
}

// anyOrAll returns one process or, more often, -1 for all.
func anyOrAll(r *rand.Rand) int {
	if oneIn(r, 3) {
		return r.IntN(badProcesses)
	}
	return -1
}

// nameOf returns the name of a process, or "" for all.
func nameOf(process int) string {
	if process < 0 {
		return ""
	}
	return fmt.Sprint(process)
}

// toward calls f for the paths between bad nodes and a process, or all processes if that is -1.
func (b *badMinority) toward(process int, bad []int, f func(*badPath)) {
	for i := range b.paths {
		for _, j := range bad {
			if process < 0 || i == process {
				f(&b.paths[i][j])
			}
		}
	}
}

// slow makes nodes answer late, all processes or one of them.
func (b *badMinority) slow(r *rand.Rand, bad []int) func() {
	return b.slowBy(anyOrAll(r), bad, between(r, 300*time.Millisecond, 2*time.Second))
}

// slowWithin makes nodes answer late, but within the node deadline.
func (b *badMinority) slowWithin(r *rand.Rand, bad []int) func() {
	return b.slowBy(-1, bad, between(r, b.deadline/4, b.deadline*7/10))
}

func (b *badMinority) slowBy(process int, bad []int, late time.Duration) func() {
	is := ill{what: fmt.Sprintf("late by %v", late), nodes: bad, late: late + 10*time.Millisecond, process: nameOf(process)}
	makes := func(late time.Duration) func(j int) {
		return func(j int) { b.toward(process, []int{j}, func(p *badPath) { p.late.Store(int64(late)) }) }
	}
	return b.during(is, late, makes(late), makes(0)) // it lasts until messages that were sent before have arrived
}

var badReplies = []string{
	"OOM command not allowed when used memory > 'maxmemory'.", "LOADING Redis is loading the dataset in memory",
	"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
	"READONLY You can't write against a read only replica.",
}

// refuse makes a node answer commands with an error, until Heal.
func (b *badMinority) refuse(j int, reply string) {
	for _, command := range []string{"set", "eval", "evalsha"} {
		b.nodes[j].On(command, 1<<30, embedded.Fault{Err: reply})
	}
}

func (b *badMinority) refusing(r *rand.Rand, bad []int) func() {
	reply := badReplies[r.IntN(len(badReplies))]
	return b.during(ill{what: "answers " + reply, nodes: bad}, 0,
		func(j int) { b.refuse(j, reply) }, func(j int) { b.nodes[j].Heal() })
}

// flapping makes nodes fall silent, refuse commands or restart, and recover, again and again.
func (b *badMinority) flapping(r *rand.Rand, bad []int) func() {
	return b.repeatedly(ill{what: "flapping", nodes: bad}, 0, func() {
		kind := r.IntN(3)
		for _, j := range bad {
			switch kind {
			case 0:
				b.nodes[j].Freeze()
			case 1:
				b.refuse(j, badReplies[r.IntN(len(badReplies))])
			default:
				b.nodes[j].Kill()
			}
		}
		time.Sleep(between(r, 20*time.Millisecond, 600*time.Millisecond))
		for _, j := range bad {
			if kind == 2 {
				b.nodes[j].Restart(false)
			}
			b.nodes[j].Heal()
		}
		time.Sleep(between(r, 20*time.Millisecond, 300*time.Millisecond))
	})
}

// failingDials cuts the connections of nodes, and lets dials of all processes or of one of them fail.
func (b *badMinority) failingDials(r *rand.Rand, bad []int) func() {
	process := anyOrAll(r)
	is, once := ill{what: "dials fail", nodes: bad, process: nameOf(process)}, ill{what: "disconnected", nodes: bad}
	b.ails(is)
	b.ails(once)
	b.toward(process, bad, func(p *badPath) { p.fails.Store(true) })
	for _, j := range bad {
		b.nodes[j].Disconnect()
	}
	b.recover(once, 0)
	return func() {
		b.toward(process, bad, func(p *badPath) { p.fails.Store(false) })
		b.recover(is, badDial) // until dials that hang have ended
	}
}

// cutting cuts the connections of nodes again and again. Some cuts are not noticed by either end.
func (b *badMinority) cutting(r *rand.Rand, bad []int) func() {
	const unnoticed = badRead // until connections have been given up that were cut unnoticed
	return b.repeatedly(ill{what: "connections cut", nodes: bad}, unnoticed, func() {
		for _, j := range bad {
			if oneIn(r, 3) {
				b.nodes[j].Forget()
			} else {
				b.nodes[j].Disconnect()
			}
		}
		time.Sleep(between(r, 5*time.Millisecond, 300*time.Millisecond))
	})
}

// leave lets a client crash in the middle of an attempt in each mode, so that its keys stay on some nodes, under the
// names of a round that has not begun.
func (b *badMinority) leave(on []int, round int64) {
	p, r := b.process(badProcesses, on), b.random(uint64(50+round))
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	try := func(mode badMode) {
		if !asks(b.asked.modes, mode.name) {
			return
		}
		w := mode.wish(mode.nameOf(round), r)
		options := append(append(b.options(), b.optionsFor(mode, w, r)...), redsync.WithTries(1))
		m := newMutex(p.of(mode), w.names, options)
		all.Go(func() { assert.Error(b, m.LockContext(ctx)) })
		for _, j := range on {
			e := history.Event{At: b.now(), Kind: history.Left, Node: j, Name: w.names[0], More: w.names[1:], Permits: w.permits}
			e.Until = e.At + b.expiry + time.Second
			b.log.Note(e)
		}
	}
	for _, joint := range []bool{true, false} {
		for _, mode := range badModes {
			if mode.joint == joint {
				try(mode)
			}
		}
		if joint {
			time.Sleep(420 * time.Millisecond) // a first joint attempt waits for 400 ms to learn which server each node is
		}
	}
	time.Sleep(40 * time.Millisecond)
	p.crash()
	cancel()
	all.Wait()
	for _, mode := range badModes {
		for _, j := range on {
			if mode.name == "plain" || mode.joint {
				left := !asks(b.asked.modes, mode.name) || b.nodes[j].Exists(mode.nameOf(round))
				assert.True(b, left, "the client that crashed has left no key on node %d (%s)", j, mode.name)
			}
		}
	}
	go p.close()
}

// nameOf returns the name that clients lock in a round.
func (m badMode) nameOf(round int64) string { return fmt.Sprintf("%s.%d", m.name, round) }

// of returns the Redsync of a mode.
func (p *badProcess) of(m badMode) *redsync.Redsync {
	if m.joint {
		return p.joint
	}
	return p.single
}

// optionsFor returns the options of a client that locks in a mode what w says.
func (b *badMinority) optionsFor(m badMode, w wish, r *rand.Rand) (options []redsync.Option) {
	if m.fair {
		options = append(options, redsync.WithFair())
	}
	if m.options != nil {
		options = append(options, m.options(r)...)
	}
	if w.shared {
		options = append(options, redsync.WithShared())
	}
	if w.permits != 0 {
		options = append(options, redsync.WithPermits(w.permits))
		if m.fair {
			options = append(options, redsync.WithWeight(w.weight))
		}
	}
	return options
}

// A badClient locks in one mode again and again.
type badClient struct {
	*badProcess
	mode   badMode
	name   string
	random *rand.Rand
	term   int
	token  uint64 // of the present term, if it leads
}

func (c *badClient) run() {
	for !c.stop.Load() {
		time.Sleep(between(c.random, 0, 60*time.Millisecond))
		if c.plays(c.mode) {
			c.lock()
		}
	}
}

// tells notes an event of the present term, in which the client wants w.
func (c *badClient) tells(kind history.Kind, w wish, err error) {
	e := w.event(c.simulation, kind, c.name, c.term)
	e.Leads, e.Within = c.mode.leads, c.mode.leads
	switch kind {
	case history.Waits:
		e.Wait = &history.Waiting{Process: fmt.Sprint(c.slot), Sets: badSets[:1], Deadline: c.deadline, Fair: c.mode.fair}
		if c.mode.joint {
			e.Wait.Sets = badSets
		}
	case history.Held:
		e.Until, e.Token = e.At+c.expiry*9/10, c.token
	}
	e.Err = errorOf(err)
	c.log.Note(e)
}

func (c *badClient) lock() {
	c.term++
	w := c.mode.wish(c.mode.nameOf(c.round.Load()), c.random)
	options := append(c.options(), c.optionsFor(c.mode, w, c.random)...)
	ctx, cancel := context.WithTimeout(c.Context(), between(c.random, 2*time.Second, 8*time.Second))
	defer cancel()
	c.tells(history.Call, w, nil)
	c.tells(history.Waits, w, nil)
	held, err := c.mode.lock(ctx, c.of(c.mode), w, options, func(m *redsync.Mutex) {
		if c.mode.leads {
			c.token = m.Fence()
		}
		c.tells(history.Held, w, nil)
		time.Sleep(between(c.random, 10*time.Millisecond, 150*time.Millisecond))
		c.tells(history.Unlock, w, nil)
	})
	if !held {
		c.tells(history.Refused, w, err)
		return
	}
	c.tells(history.Unlocked, w, err)
}

// lock locks what w says, or leads, and calls hold while it holds the lock.
func (m badMode) lock(ctx context.Context, rs *redsync.Redsync, w wish, options []redsync.Option, hold func(*redsync.Mutex)) (held bool, err error) {
	if m.leads {
		err = rs.Lead(ctx, w.names[0], func(ctx context.Context) error {
			held = true
			hold(redsync.FromContext(ctx))
			return errResigned
		}, options...)
		if held && err.Error() == errResigned.Error() { //nolint:errorlint // otherwise the release has failed, too
			err = nil
		}
		return held, err
	}
	mutex := newMutex(rs, w.names, options)
	if err := mutex.LockContext(ctx); err != nil {
		return false, err
	}
	hold(mutex)
	_, err = mutex.UnlockContext(context.WithoutCancel(ctx))
	return true, err
}

// idleRules are the bounds of waits in this scene. Beside keys that were left, one waiter after a second waits for the late
// node, for a node deadline at most. A rival that polls meanwhile may have that node just then, and the waiter has to wait
// for it once more. Of 9310 such waits in 60 seeds 37 took longer than a second and one node deadline, and none longer
// than a second and 2.7 node deadlines.
var idleRules = history.Idle{
	Most: badBound, Beside: 3, Recovers: 1500 * time.Millisecond, Attempt: 3 * time.Second, Place: 1100 * time.Millisecond,
	Outlast: 2 * time.Second,
}

// A pairing is a mode and a fault.
type pairing struct{ mode, fault string }

// count adds the waits that were judged to counts.
func (b *badMinority) count(events []history.Event, counts map[pairing]int) {
	for _, rest := range history.Rests(events, idleRules) {
		mode, _, _ := strings.Cut(rest.Name, ".")
		for _, round := range b.begun {
			if rest.From < round.to && rest.To > round.from && (rest.Beside || !strings.Contains(round.fault, "beside")) {
				counts[pairing{mode, round.fault}]++
			}
		}
	}
}

// While a minority of the nodes is bad, free locks do not rest.
func TestSimulationOfABadMinority(t *testing.T) {
	testlength.NotShort(t)
	if underRaceDetector() {
		t.Skip("the runtime draws which goroutine runs next, and the goroutines of a fault share their random numbers")
	}
	oneByOne(t)
	counts := map[pairing]int{}
	seeds, scene := seedsOf(t, "REDSYNC_SIM_MINORITY", 3, 300), badScene{}
	if len(seeds) < 2 {
		scene.faults = []string{"silent", slowBeside}[testlength.Of(1, 0, 0):]
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			b, events := playBad(t, uint64(seed), scene)
			b.check(t, events)
			b.count(events, counts)
		})
	}
	for _, m := range badModes {
		for _, f := range badFaults {
			pair := pairing{m.name, f.name}
			assert.True(t, counts[pair] > 0 || len(seeds) < 2, "%v: no wait was judged", pair)
		}
	}
}

// check fails t for each violation. Of several waits for one name it shows the first.
func (b *badMinority) check(t *testing.T, events []history.Event) {
	t.Helper()
	const most = 3000 // events
	shown := map[string]bool{}
	for _, v := range history.Check(events, history.Rules{Idle: idleRules}) {
		if v.Rule == history.Idled && shown[v.Name] {
			continue
		}
		shown[v.Name] = true
		near := slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
			return e.At < v.At-time.Second || e.At > v.At+4*time.Second || e.Kind != history.Fault && !e.Of(v.Name)
		})
		t.Errorf("%v\n%s", v, tell(near[:min(len(near), most)]))
	}
	if t.Failed() {
		t.Logf("expiry %v, node deadline %v, rounds %v", b.expiry, b.deadline, b.begun)
		t.Logf("again: REDSYNC_SIM_FROM=%d REDSYNC_SIM_MINORITY=1 go test -run 'TestSimulationOfABadMinority$' -v ./proof/simulation", b.seed)
	}
}

// Without the rule that a split ends early, the judge sees free locks rest.
func TestSimulationOfABadMinorityDoneWrong(t *testing.T) {
	testlength.NotShort(t)
	oneByOne(t)
	const most = 10
	seed, idled := testlength.Of(4, 4, 0), 0
	for ; seed < most && idled == 0; seed++ {
		scene := badScene{modes: []string{"plain", "fair"}, faults: []string{"silent", "slow"}, waitsOut: true}
		_, events := playBad(t, uint64(seed), scene)
		for _, v := range history.Check(events, history.Rules{Idle: idleRules}) {
			assert.Equal(t, history.Idled, v.Rule, "%v", v)
			idled++
		}
	}
	t.Logf("before seed %d: %d", seed, idled)
	assert.Positive(t, idled)
}
