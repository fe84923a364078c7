package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays a scene of its own: processes in every mode, with two to seven nodes that are far from some of them. First
// they contend for a name. Then one process holds it, and some nodes lack its keys. At last nodes restart, and the processes
// have guards of different lengths. Package history judges the haste of those who wait.

const (
	hasteExpiry = 2 * time.Second
	hasteEach   = 5 // attempts for each lock, while processes contend
)

// farthest is how long the way to a node may be in a seed. In the first it takes no time at all.
var farthest = []time.Duration{0, time.Millisecond, 20 * time.Millisecond, 150 * time.Millisecond}

// A hasteScene is what a test asks for. The zero value is everything.
type hasteScene struct {
	mode string
	ways []time.Duration // those of farthest that may be drawn; nil: all
	rash queue.Rash      // the control: rules that are switched off
	from uint64          // the control: the seed at which the search begins
}

// A haste is one play of the scene.
type haste struct {
	*simulation
	asked     hasteScene
	mode      badMode
	farthest  time.Duration
	sets      [][]int
	tries     history.Tries
	processes []*hasteProcess
	stop      atomic.Bool
	held      atomic.Int64 // how often clients have got names
	judged    atomic.Bool  // a control has been found hasty
	each      float64      // attempts for each name that was locked, while processes contended
}

// A hasteProcess is one process.
type hasteProcess struct {
	*haste
	slot    int
	redsync *redsync.Redsync
	clients []*redis.Client
}

// hasteCall is the key of a call's name in its context.
type hasteCall struct{}

// attempted is observe.Hooks.Attempt.
func (p *hasteProcess) attempted(ctx context.Context, a observe.Attempt) {
	if who, ok := ctx.Value(hasteCall{}).(string); ok && p.tries.Note(p.now(), fmt.Sprint(p.slot), who, a.Name) {
		time.Sleep(time.Millisecond) // or the play never ends
	}
	if p.asked.rash == 0 {
		return
	}
	if p.tries.Len()%200 == 0 && len(p.tries.Judge(p.log.Events())) > 0 {
		p.judged.Store(true)
	}
	if p.judged.Load() { // the judge has seen enough
		time.Sleep(100 * time.Millisecond)
	}
}

func playHaste(t *testing.T, seed uint64, asked hasteScene) (*haste, []history.Event) {
	t.Helper()
	h := &haste{simulation: &simulation{T: t, seed: seed}, asked: asked, mode: badModes[seed%uint64(len(badModes))]}
	if asked.mode != "" {
		h.mode = badModes[slices.IndexFunc(badModes, func(m badMode) bool { return m.name == asked.mode })]
	}
	h.inBubble(t, h.run)
	return h, h.log.Events()
}

// last sleeps for d, or until the judge has seen enough.
func (h *haste) last(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && !h.judged.Load(); {
		time.Sleep(min(100*time.Millisecond, time.Until(end)))
	}
}

func (h *haste) run() {
	r := h.random(1)
	nodes := 2 + r.IntN(6)
	ways := h.asked.ways
	if ways == nil {
		ways = farthest
	}
	h.farthest = ways[r.IntN(len(ways))]
	if h.mode.joint {
		nodes = max(nodes, 3)
	}
	h.sets = [][]int{nil}
	for j := range nodes {
		h.sets[0] = append(h.sets[0], j)
	}
	if h.mode.joint {
		half := nodes/2 + 1
		h.sets = [][]int{h.sets[0][:half], h.sets[0][nodes-half:]}
	}
	h.nodes = embedded.Start(nodes)
	defer func() {
		h.nodes.Close()
		time.Sleep(time.Minute)
	}()
	time.Sleep(3 * time.Second) // uptimes are in whole seconds
	h.start = time.Now()
	for range 2 + r.IntN(3) {
		h.processes = append(h.processes, h.process(r))
	}
	h.contend(r, "contended", func() { h.last(time.Second + 70*h.farthest) })
	h.each = float64(h.tries.Len()) / float64(max(h.held.Load(), 1))
	h.hold(r)
	h.contend(r, "restarts", func() {
		for j := range h.nodes[:nodes/2+1] {
			time.Sleep(between(r, 0, 400*time.Millisecond))
			h.nodes[j].Restart(true)
		}
		h.last(9 * time.Second)
	})
	for _, p := range h.processes {
		p.close()
	}
}

// process starts a process. Each has another restart guard, and other ways to the nodes.
func (h *haste) process(r *rand.Rand) *hasteProcess {
	p := &hasteProcess{haste: h, slot: len(h.processes)}
	guard := pool.WithRestartGuard(hasteExpiry + between(r, 0, 4*time.Second))
	var pools []wire.Pool
	away := r.Perm(len(h.nodes))[:1+r.IntN(len(h.nodes))]
	for j, n := range h.nodes {
		far := min(h.farthest, between(r, 0, time.Millisecond))
		if h.farthest > 0 && slices.Contains(away, j) {
			far = between(r, h.farthest/2, h.farthest)
		}
		client := n.Client(func(opt *redis.Options) {
			opt.Dialer = n.DialVia(func(bool) time.Duration { return far })
		})
		p.clients, pools = append(p.clients, client), append(pools, pool.New(client, guard, pool.WithNoLocksBefore(h.start)))
	}
	if len(h.sets) > 1 {
		p.redsync = redsync.NewJoint(poolsOf(pools, h.sets[0]), poolsOf(pools, h.sets[1]))
	} else {
		p.redsync = redsync.New(pools...)
	}
	fortests.BeRash(p.redsync, h.asked.rash)
	p.redsync = p.redsync.With(redsync.WithHooks(&observe.Hooks{Attempt: p.attempted}), redsync.WithTries(0), redsync.WithExpiry(hasteExpiry), redsync.WithNodeTimeout(700*time.Millisecond), redsync.WithWatchdog())
	return p
}

func (p *hasteProcess) close() { closeAll(p.Context(), p.clients, p.redsync) }

// contend lets two clients of each process lock a name again and again during what.
func (h *haste) contend(r *rand.Rand, name string, what func()) {
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	h.stop.Store(false)
	var all sync.WaitGroup
	for _, p := range h.processes {
		for k := range 3 {
			c := &hasteClient{hasteProcess: p, name: fmt.Sprintf("%d %s %d", p.slot, name, k)}
			c.random = h.random(uint64(1000*r.IntN(1000) + 10*p.slot + k))
			all.Go(func() {
				for !h.stop.Load() && ctx.Err() == nil {
					time.Sleep(between(c.random, 0, 20*time.Millisecond))
					c.lock(ctx, name, func() { time.Sleep(between(c.random, 0, 20*time.Millisecond)) })
				}
			})
		}
	}
	what()
	h.stop.Store(true)
	cancel()
	all.Wait()
}

// hold lets one client hold a name, while others wait for it. A minority of the nodes has forgotten that.
func (h *haste) hold(r *rand.Rand) {
	var down []int
	for _, set := range h.sets {
		for _, j := range set[:(len(set)-1)/2] {
			if len(h.sets) == 1 || len(down) == 0 && len(set) > 2 {
				down = append(down, j)
			}
		}
	}
	ctx, cancel := context.WithTimeout(h.Context(), 7*time.Second)
	defer cancel()
	var all sync.WaitGroup
	holder := &hasteClient{hasteProcess: h.processes[0], name: "0 holder", random: r, alone: true}
	holder.lock(ctx, "held", func() {
		time.Sleep(h.farthest) // then all nodes have its keys
		for _, j := range down {
			h.nodes[j].FlushAll()
		}
		for _, p := range h.processes {
			for k := range 2 {
				c := &hasteClient{hasteProcess: p, name: fmt.Sprintf("%d waiter %d", p.slot, k), reads: true, random: h.random(uint64(10*p.slot + k))}
				all.Go(func() { c.lock(ctx, "held", func() {}) })
			}
		}
		time.Sleep(3 * time.Second)
	})
	all.Wait()
}

// A hasteClient locks in the mode of the scene.
type hasteClient struct {
	*hasteProcess
	name   string
	random *rand.Rand
	term   int
	alone  bool // it wants the lock alone, or all permits
	reads  bool // it reads where others do
}

// lock makes a call, and calls hold while it holds the lock.
func (c *hasteClient) lock(ctx context.Context, name string, hold func()) {
	c.term++
	who := fmt.Sprint(c.name, "#", c.term)
	ctx = context.WithValue(ctx, hasteCall{}, who)
	w := c.mode.wish(name, c.random)
	w.shared = w.shared || c.reads && c.mode.name == "readers"
	if c.alone {
		w.shared, w.weight = false, max(w.permits, w.weight)
		if w.permits != 0 && !c.mode.fair {
			w.weight = 1
		}
	}
	options := (&badMinority{}).optionsFor(c.mode, w, c.random)
	if w.permits == 0 && !c.mode.leads && oneIn(c.random, 2) {
		options = append(options, redsync.WithFencing()) // for which restart guards are longer
	}
	note := func(kind history.Kind) {
		e := w.event(c.simulation, kind, c.name, c.term)
		if kind == history.Held {
			c.held.Add(int64(len(w.names)))
			e.Until = e.At + time.Hour // the watchdog extends it
		}
		c.log.Note(e)
	}
	_, _ = c.mode.lock(ctx, c.redsync, w, options, func(*redsync.Mutex) {
		note(history.Held)
		hold()
		note(history.Unlock)
	})
}

// violations returns what is wrong with the haste of those who wait.
func (h *haste) violations(events []history.Event) []history.Violation {
	found := h.tries.Judge(events)
	if h.each > hasteEach {
		found = append(found, history.Violation{Rule: history.Hasty, What: fmt.Sprintf("%.1f attempts for each lock", h.each)})
	}
	return found
}

// Nobody who waits makes haste, in any mode, wherever the nodes are, and whatever they say.
func TestSimulationOfHaste(t *testing.T) {
	testlength.NotShort(t)
	oneByOne(t)
	first := fromEnv(t, "REDSYNC_SIM_FROM", 0)
	for seed := first; seed < first+fromEnv(t, "REDSYNC_SIM_HASTE", testlength.InGate(1, 1, 4, 300)); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			h, events := playHaste(t, uint64(seed), hasteScene{mode: ""})
			t.Logf("%s, %d nodes at most %v away, %d processes: %d locks, %.1f attempts for each", h.mode.name, len(h.nodes), h.farthest, len(h.processes), h.held.Load(), h.each)
			assert.Positive(t, h.held.Load())
			assert.Empty(t, h.violations(events))
		})
	}
}

// If rules against haste are switched off, the judge sees it within ten seeds of the first. Each of the pairs guards against
// the same haste.
func TestSimulationOfHasteDoneWrong(t *testing.T) {
	testlength.NotShort(t)
	oneByOne(t)
	scenes := []hasteScene{
		{mode: "readers", ways: farthest[:2], rash: queue.Hopes, from: 1},
		{mode: "plain", ways: farthest[3:], rash: queue.HearsLate | queue.Hopes, from: 5},
		{mode: "several", ways: farthest[:2], rash: queue.HearsAll | queue.NeverPauses, from: 1}, // the longest
	}
	for _, asked := range scenes[:testlength.InGate(2, 2, 3, 3)] {
		t.Run(fmt.Sprint(asked.mode, asked.rash), func(t *testing.T) {
			for seed := asked.from; seed < asked.from+uint64(10); seed++ {
				h, events := playHaste(t, seed, asked)
				if found := h.violations(events); len(found) > 0 {
					t.Logf("seed %d: %v", seed, found[0])
					return
				}
			}
			assert.Fail(t, "nobody has been hasty")
		})
	}
}
