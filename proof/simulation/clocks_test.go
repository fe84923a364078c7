package simulation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays a scene of its own: while clients hold a lock and others wait for it, clocks step by a minute.
// Nothing else goes wrong, except that clients crash or never unlock. There are three judges. Package history finds two
// holders, and losses that are told too late for the next holder. toldInTime finds holders that are not told that the
// step has ended their hold. servedInTime finds waiters that wait for longer than the TTL and the step.

const stepBy = time.Minute

// A clockStep is which clocks step, and by how much.
type clockStep struct {
	name  string
	wall  time.Duration // the clients' wall clock
	nodes time.Duration // the clocks of nodes
	all   bool          // of all nodes; otherwise of a minority of each set
}

// Five steps. The clients share one wall clock. That a client's clock differs from those of others shows only in the
// tickets: a ticket from before the step is a minute off those from after the step.
var clockSteps = []clockStep{
	{name: "clients forward", wall: stepBy},
	{name: "clients back", wall: -stepBy},
	{name: "a minority forward", nodes: stepBy},
	{name: "a minority back", nodes: -stepBy},
	{name: "all nodes back", nodes: -stepBy, all: true},
}

// steppedModes are the modes of this scene.
var steppedModes = append(slices.Clone(badModes), badMode{name: "ticks", wish: oneName})

// A clockWorld is one play of the scene: one round after the other, each with a mode and a step. Two successive seeds
// play every mode with every step.
type clockWorld struct {
	*badMinority
	modes  []string     // nil: all
	ahead  atomic.Int64 // by so much the wall clock is ahead
	rounds []*clockRound
}

// A clockRound is a round. A few clients lock a name, once each, and clocks step once.
type clockRound struct {
	*clockWorld
	mode     badMode
	step     clockStep
	name     string
	random   *rand.Rand
	expiry   time.Duration
	least    time.Duration   // WithMinHold
	rivals   bool            // some clients come at once, so that the winner may have to be filled up
	others   bool            // after the step more clients come, until all who came before have been served
	crashing *badProcess     // it crashes just before or after the step; nil: none
	gone     context.Context //nolint:containedctx // of the process that crashes
	crashed  context.CancelFunc
	stepped  chan struct{} // closed once the clocks have stepped
	served   atomic.Bool   // all clients that came before the step have been served

	mu      sync.Mutex     // guards what follows
	keys    map[string]int // the values of those who hold before the step, and on how many keys of a node each must be
	at      time.Duration  // of the step; 0 before
	crashAt time.Duration
	clients []*steppedClient
}

// A steppedClient is a client of a round, and what became of it.
type steppedClient struct {
	*clockRound
	process *badProcess
	name    string
	random  *rand.Rand
	w       wish
	within  bool // it holds within a function, with a watchdog

	// Guarded by clockRound.mu. Times are since the start, 0 if something has not happened.
	called, held time.Duration
	renewed      time.Duration // it last got a lock or an extension
	until        time.Duration // the last end of the hold that it was promised
	before       time.Duration // the same before the step
	lost         time.Duration // it was told of a loss
	ended        time.Duration // it began to unlock
	dead         bool          // its process has crashed
}

// playClocks plays the scene, and returns what happened.
func playClocks(t *testing.T, seed uint64, modes []string) (*clockWorld, []history.Event) {
	t.Helper()
	w := &clockWorld{badMinority: &badMinority{simulation: &simulation{T: t, seed: seed}}, modes: modes}
	w.inBubble(t, w.run)
	return w, w.log.Events()
}

// clocks returns what the library reads.
func (w *clockWorld) clocks(i clock.Instant) clock.Instant {
	i.Wall = i.Wall.Add(time.Duration(w.ahead.Load()))
	return i
}

func (w *clockWorld) run() {
	defer clock.Step(w.clocks)()
	w.nodes = embedded.Start(badNodes)
	defer func() {
		w.nodes.Close()
		time.Sleep(time.Minute)
	}()
	for _, i := range w.random(1).Perm(len(steppedModes) * len(clockSteps)) {
		mode, step := steppedModes[i/len(clockSteps)], clockSteps[i%len(clockSteps)]
		if asks(w.modes, mode.name) && (w.modes != nil || (uint64(i/len(clockSteps)+i%len(clockSteps))+w.seed)%2 == 0) {
			w.play(mode, step)
		}
	}
}

// play plays a round, with new processes.
func (w *clockWorld) play(mode badMode, step clockStep) {
	const short, longer = 8 * time.Second, 20 * time.Second // the third expiry is longer than the step
	n := len(w.rounds)
	r := w.random(uint64(1000 + n))
	c := &clockRound{
		clockWorld: w, mode: mode, step: step, name: mode.nameOf(int64(n)), random: r,
		expiry: []time.Duration{short, short, short, longer, stepBy * 5 / 4}[r.IntN(5)],
		rivals: oneIn(r, 2), others: oneIn(r, 2), keys: map[string]int{}, stepped: make(chan struct{}),
	}
	if mode.name == "ticks" {
		c.expiry, c.least = short, between(r, 4*time.Second, 16*time.Second)
	}
	w.expiry, w.deadline = c.expiry, 400*time.Millisecond
	c.gone, c.crashed = context.WithCancel(w.Context())
	defer c.crashed()
	w.rounds = append(w.rounds, c)
	w.open()
	if oneIn(r, 2) {
		c.crashing = w.processes[r.IntN(badProcesses)]
	}
	c.run()
	for _, p := range w.processes {
		p.close()
	}
}

// run lets the clients of a round lock while clocks step.
func (c *clockRound) run() {
	const early = 5 // clients that come before the step, most of them
	var all, others sync.WaitGroup
	for i := range early {
		after := between(c.random, 0, 3*time.Second)
		if c.rivals && i < early/2 {
			after = between(c.random, 0, time.Millisecond)
		}
		s := c.client(i)
		all.Go(func() {
			time.Sleep(after)
			s.lock()
		})
	}
	c.stepClocks()
	for k := range 2 {
		if !c.others {
			break
		}
		after := between(c.random, 0, 20*time.Millisecond)
		others.Go(func() {
			time.Sleep(after)
			for i := early + k; !c.served.Load() && i < 1000; i += 2 {
				c.client(i).lock()
			}
		})
	}
	all.Wait()
	c.served.Store(true)
	others.Wait()
}

func (c *clockRound) client(i int) *steppedClient {
	s := &steppedClient{
		clockRound: c, process: c.processes[i%badProcesses], name: fmt.Sprintf("%s client %d", c.name, i),
		random: c.badMinority.random(uint64(len(c.rounds)*10000 + i)),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.dead = c.gone.Err() != nil && s.process == c.crashing
	c.clients = append(c.clients, s)
	return s
}

// stepClocks lets clocks step while somebody holds. A process may crash just before or after that.
func (c *clockRound) stepClocks() {
	time.Sleep(between(c.random, 200*time.Millisecond, 4*time.Second))
	c.awaitFull()
	first := oneIn(c.random, 2)
	if first {
		c.crash()
		time.Sleep(between(c.random, 0, 200*time.Millisecond))
		c.awaitFull()
	}
	c.mu.Lock()
	c.at = c.now()
	for _, s := range c.clients {
		s.before = s.until
	}
	c.mu.Unlock()
	fault := func(where string) {
		c.log.Note(history.Event{At: c.at, Kind: history.Fault, Where: where, What: c.step.name})
	}
	fault(c.name)
	c.ahead.Add(int64(c.step.wall))
	if c.step.nodes != 0 {
		for _, j := range c.stepping() {
			fault(node(j))
			c.nodes[j].SetClock(c.step.nodes, 1)
		}
	}
	close(c.stepped)
	if !first {
		time.Sleep(between(c.random, 0, 500*time.Millisecond))
		c.crash()
	}
}

// awaitFull waits until somebody holds, and until all nodes have the keys of those who hold and no others. Otherwise a
// node that forgets its keys might break a bare quorum.
func (c *clockRound) awaitFull() {
	for tries := 0; !c.full(); tries++ {
		if !assert.Less(c, tries, 10000, "%s: not all nodes have the keys", c.name) {
			return
		}
		time.Sleep(between(c.random, time.Millisecond, 20*time.Millisecond))
	}
}

// crash lets the process crash that is to crash.
func (c *clockRound) crash() {
	if c.crashing == nil {
		return
	}
	c.mu.Lock()
	c.crashAt = c.now()
	for _, s := range c.clients {
		s.dead = s.dead || s.process == c.crashing
	}
	c.mu.Unlock()
	where := fmt.Sprintf("process %d", c.crashing.slot)
	c.log.Note(history.Event{At: c.crashAt, Kind: history.Fault, Where: where, What: "crash"})
	c.crashing.crash()
	c.crashed()
}

// stepping draws the nodes whose clocks step.
func (c *clockRound) stepping() (nodes []int) {
	if c.step.all {
		return slices.Concat(badSets[0], badSets[1][2:])
	}
	minority := 1 + c.random.IntN(len(badSets[0])/2)
	for _, j := range c.random.Perm(badNodes) {
		fits := func(set []int) bool {
			in := slices.DeleteFunc(slices.Clone(nodes), func(other int) bool { return !slices.Contains(set, other) })
			return !slices.Contains(set, j) || len(in) < minority
		}
		if fits(badSets[0]) && fits(badSets[1]) {
			nodes = append(nodes, j)
		}
	}
	return nodes
}

// full reports whether somebody holds, and every node has all keys of those who hold, and no others.
func (c *clockRound) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := badSets[0]
	if c.mode.joint {
		nodes = slices.Concat(badSets...)
	}
	lacks := func(j int) bool { return !maps.Equal(c.values(j), c.keys) }
	return len(c.keys) > 0 && !slices.ContainsFunc(nodes, lacks)
}

// values returns the values that node j has for the name of the round, and on how many keys each is.
func (c *clockRound) values(j int) map[string]int {
	values := map[string]int{}
	c.nodes[j].Between(func(m *miniredis.Miniredis) {
		for _, key := range m.Keys() {
			name, isSlot := slotOf(key)
			if !isSlot {
				name = key
			}
			if !strings.HasPrefix(name, c.name) {
				continue // also queues and fencing registers
			}
			text, _ := m.Get(key)
			readers, shared := strings.CutPrefix(text, "readers\n")
			if !shared {
				values[text]++
				continue
			}
			for record := range strings.Lines(readers) {
				value, _, _ := strings.Cut(record, " ")
				values[value]++
			}
		}
	})
	return values
}

// note notes what happens to the client, unless its process has crashed.
func (s *steppedClient) note(kind history.Kind, m *redsync.Mutex, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	e := s.w.event(s.simulation, kind, s.name, 0)
	e.Leads, e.Within = s.mode.leads, s.within
	switch kind {
	case history.Call:
		s.called = e.At
	case history.Held, history.Extended:
		s.until, s.renewed = e.At+m.Remaining(), e.At
		if s.at == 0 {
			s.before = s.until
		}
		if e.Until = s.until; kind == history.Held {
			s.held, e.Keeps, e.Token = e.At, s.least, m.Fence()
		}
	case history.Lost:
		s.lost = e.At
	case history.Unlock:
		s.ended = e.At
	}
	e.Err = errorOf(err)
	s.log.Note(e)
}

// lock locks once, in the mode of the round.
func (s *steppedClient) lock() {
	r := s.random
	s.w = s.mode.wish(s.clockRound.name, r)
	options := append(s.options(), s.optionsFor(s.mode, s.w, r)...)
	if s.least > 0 {
		options = append(options, redsync.WithMinHold(s.least))
	}
	if !s.mode.leads && s.w.permits == 0 && oneIn(r, 3) {
		options = append(options, redsync.WithFencing())
	}
	s.within = s.mode.leads || oneIn(r, 2)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	if s.process == s.crashing {
		defer context.AfterFunc(s.gone, cancel)()
	}
	m, held := newMutex(s.process.of(s.mode), s.w.names, options), false
	hold := func(ctx context.Context) error {
		held = true
		s.hold(ctx, redsync.FromContext(ctx))
		cancel() // otherwise a leader that has lost its term campaigns again
		return nil
	}
	s.note(history.Call, nil, nil)
	var err error
	switch {
	case s.mode.leads:
		err = s.process.single.Lead(ctx, s.clockRound.name, hold, options...)
	case s.within:
		err = m.Do(ctx, hold)
	default:
		if err = m.LockContext(ctx); err == nil {
			held = true
			if s.hold(ctx, m) {
				_, err = m.UnlockContext(s.Context())
			}
		}
	}
	switch {
	case !held:
		s.note(history.Refused, nil, err)
	case s.ended > 0:
		s.note(history.Unlocked, nil, err)
	}
}

// hold plays what the client does while it holds. A client that holds before the step mostly goes on until after the
// step. hold reports whether the client unlocks.
func (s *steppedClient) hold(ctx context.Context, m *redsync.Mutex) (unlocks bool) {
	value, let, followed := fortests.Value(m), make(chan struct{}), make(chan struct{})
	s.note(history.Held, m, nil)
	s.mu.Lock()
	first := s.at == 0
	if first {
		s.keys[value] = max(len(s.w.names), s.w.weight)
	}
	s.mu.Unlock()
	go func() {
		defer close(followed)
		s.follow(ctx, m, let)
	}()
	unlocks = true
	switch {
	case !first:
		time.Sleep(between(s.random, 20*time.Millisecond, 300*time.Millisecond))
	case oneIn(s.random, 3): // it stays, and unlocks only if it holds within a function
		select {
		case <-ctx.Done():
		case <-time.After(s.expiry * 5 / 4):
		}
		unlocks = s.within
	case s.least == 0 || oneIn(s.random, 2):
		<-s.stepped
		fallthrough
	default:
		time.Sleep(between(s.random, 0, 2*time.Second))
	}
	close(let)
	<-followed
	if !unlocks {
		return false
	}
	s.mu.Lock()
	if s.least == 0 && !s.dead { // otherwise the keys stay
		delete(s.keys, value)
	}
	s.mu.Unlock()
	s.note(history.Unlock, nil, nil)
	return true
}

// follow notes the extensions of a hold, and its loss, until let is closed.
func (s *steppedClient) follow(ctx context.Context, m *redsync.Mutex, let <-chan struct{}) {
	lost, promised := m.Lost(), s.until
	for {
		look := promised - 1 - s.now()
		if look <= 0 { // after Until, the loss is all that can come
			look = stepBy
		}
		timer := time.NewTimer(look)
		select {
		case <-let:
		case <-lost:
		case <-timer.C:
		}
		timer.Stop()
		switch {
		case isClosed(lost):
			s.note(history.Lost, nil, nil)
			if time.Sleep(time.Nanosecond); s.within {
				assert.Error(s, ctx.Err(), "the hold of %s is over, and its context is not", s.name)
			}
			return
		case isClosed(let):
			return
		}
		if until := s.now() + m.Remaining(); until > promised {
			promised = until
			s.note(history.Extended, m, nil)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// notice is how long after a step of the wall clock a holder is told at the latest.
func (c *clockRound) notice() time.Duration { return min(c.expiry/10, time.Second) }

// endsEarly reports whether the step shortens the hold of the client, and returns when the hold ends then. The step
// ends it even if that time is before the step.
func (s *steppedClient) endsEarly() (ends time.Duration, early bool) {
	early = s.step.wall > 0 && s.held > 0 && s.held <= s.at && s.before > s.at && s.until == s.before
	return s.before - s.step.wall, early
}

// toldInTime judges whether the holders of a round are told when their holds end, and not earlier. If the step ends a
// hold early, the holder must be told within a tenth of the expiry, and within 1 s. Otherwise it must be told at Until.
// told is how many holds the step has ended.
func (c *clockRound) toldInTime() (wrong []string, told int) {
	for _, s := range c.clients {
		if s.held == 0 || s.dead {
			continue
		}
		from, to := s.until, s.until
		ends, early := s.endsEarly()
		if early {
			from, to = ends, max(ends, s.at+c.notice())
		}
		at := s.lost
		if at == 0 {
			at = s.ended
		}
		if at == 0 || at > to+time.Nanosecond {
			wrong = append(wrong, fmt.Sprintf("%s was told at %v, and its hold had ended at %v", s.name, at, to))
		}
		// If the winner had rivals, it may have a bare quorum of nodes that count for an extension.
		if s.lost > 0 && s.lost < from-time.Nanosecond && !(c.rivals && s.within) {
			wrong = append(wrong, fmt.Sprintf("%s was told at %v, and its hold lasted until %v", s.name, s.lost, from))
		}
		if early && ends <= s.at && s.lost > 0 {
			told++
		}
	}
	return wrong, told
}

// keysLast is how long keys may last from the last renewal on: their TTL, by clocks that are slow by the drift.
func (c *clockRound) keysLast() time.Duration {
	return max(c.expiry, c.least)*101/100 + 2*time.Millisecond
}

// mayAdd is by how much the step may delay a waiter. All nodes that are set back keep the keys for the step longer. A
// minority delays nobody. Tickets show the time at which their clients came, by the clock of the client. So, where
// waiters have an order, a client that has come after the step may be a minute ahead of one that came before.
func (c *clockRound) mayAdd() time.Duration {
	if c.step.all || c.step.wall < 0 && c.others {
		return stepBy
	}
	return 0
}

// turns is the slack of waits: from one holder to the next.
const turns = 2 * time.Second

// servedInTime judges how long waiters wait for a hold from before the step. It counts from the step, or from the last
// time after it that those who held before the step renewed or ended their holds, or from the call of the waiter. It
// does not count the time in which others held who had come before the waiter. It returns the longest wait, without the
// TTL of the keys.
func (c *clockRound) servedInTime() (wrong []string, longest time.Duration) {
	longest = -c.keysLast()
	start := max(c.at, c.crashAt)
	for _, s := range c.clients {
		if s.held > 0 && s.held <= c.at {
			start = max(start, s.renewed, s.ended, min(s.lost, s.until))
		}
	}
	for _, s := range c.clients {
		if s.dead || s.held > 0 && s.held <= c.at {
			continue
		}
		if s.held == 0 {
			wrong = append(wrong, fmt.Sprintf("%s was never served", s.name))
			continue
		}
		from := max(start, s.called)
		waited := s.held - from - c.heldBefore(s, from)
		longest = max(longest, waited-c.keysLast())
		if most := c.keysLast() + c.mayAdd() + turns; waited > most {
			wrong = append(wrong, fmt.Sprintf("%s waited for %v from %v on, more than %v", s.name, waited, from, most))
		}
	}
	return wrong, longest
}

// heldBefore returns for how long, between from and the hold of s, clients held who had come before s and did not hold
// yet when the clocks stepped. A minimal hold counts whenever its client has come: for so long it keeps out everybody.
func (c *clockRound) heldBefore(s *steppedClient, from time.Duration) (sum time.Duration) {
	at := from
	others := slices.DeleteFunc(slices.Clone(c.clients), func(other *steppedClient) bool {
		outOfOrder := other.called > s.called && c.least == 0
		return other.held <= c.at || other.held >= s.held || outOfOrder
	})
	slices.SortFunc(others, func(a, b *steppedClient) int { return cmp.Compare(a.held, b.held) })
	for _, other := range others {
		to := min(max(other.ended, other.held+c.least*101/100+2*time.Millisecond), s.held)
		sum += max(to-max(at, other.held), 0)
		at = max(at, to)
	}
	return sum
}

// While clocks of clients or nodes step by a minute, nobody holds what somebody else holds, each holder is told in
// time, and no waiter waits for longer than the TTL and the step.
func TestSimulationWhileClocksStep(t *testing.T) {
	testlength.NotShort(t)
	if underRaceDetector() {
		t.Skip("the runtime draws which goroutine runs next")
	}
	oneByOne(t)
	told, longest := map[string]int{}, map[string]time.Duration{}
	seeds := seedsOf(t, "REDSYNC_SIM_CLOCKS", 4, 201)
	for i, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			var modes []string
			if len(seeds) < 4 { // the modes that show the rules for which RULES.md names the seeds
				modes = [][]string{{"plain", "leaders"}, {"ticks"}}[i%2]
			}
			w, events := playClocks(t, uint64(seed), modes)
			w.check(t, events)
			for _, c := range w.rounds {
				_, n := c.toldInTime()
				_, wait := c.servedInTime()
				name := c.step.name
				told[name], longest[name] = told[name]+n, max(longest[name], wait)
			}
		})
	}
	assert.True(t, len(seeds) < 4 || told["clients forward"] > 0, "no hold was ended early")
	assert.True(t, len(seeds) < 4 || longest["all nodes back"] > stepBy/2, "no waiter has waited for the step")
}

// check fails t for what the judges find.
func (w *clockWorld) check(t *testing.T, events []history.Event) {
	t.Helper()
	for _, found := range history.Check(events, history.Rules{LostSlop: 1}) {
		t.Error(found)
	}
	for _, c := range w.rounds {
		told, _ := c.toldInTime()
		served, _ := c.servedInTime()
		for _, wrong := range slices.Concat(told, served) {
			t.Error(wrong)
		}
	}
	if t.Failed() {
		for _, c := range w.rounds {
			t.Logf("%s: %s at %v, expiry %v, minimal hold %v, rivals %v, others %v",
				c.name, c.step.name, c.at, c.expiry, c.least, c.rivals, c.others)
		}
		t.Log(tell(events))
		const again = "again: REDSYNC_SIM_FROM=%d REDSYNC_SIM_CLOCKS=1 go test -run 'TestSimulationWhileClocksStep$' -v ."
		t.Logf(again, w.seed)
	}
}
