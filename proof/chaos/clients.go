package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	rival "github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file implements a process of clients: the orders that it obeys, and its clients.

// A lockName is the name of a lock, with the settings that all its clients must share. A lock on several names
// is slow, fair or fenced if at least one of its names is.
type lockName struct {
	name   string
	more   []string // the other names of a lock on several names
	slow   bool     // some clients hold it for long
	read   bool     // readers prefer it, and so do some writers, so that they meet
	fair   bool
	fenced bool   // with fencing tokens
	reads  bool   // the client is a reader; not a setting of the name
	owner  string // the client's label (WithOwner); not a setting of the name

	permits int // how many permits the name has; 0: it is a lock
	weight  int // how many of them the client wants; not a setting of the name
}

var lockNames = []lockName{
	{name: "quick"},
	{name: "quick-2"},
	{name: "quick-fenced", fenced: true},
	{name: "quick-fair", fair: true},
	{name: "read", read: true},
	{name: "read-fenced", read: true, fenced: true},
	{name: "slow", slow: true},
	{name: "slow-2", slow: true, read: true},
	{name: "slow-fenced", slow: true, fenced: true},
	{name: "slow-fair-fenced", slow: true, read: true, fair: true, fenced: true},
}

// semaphores are names with permits. A client wants one to heaviest permits of a fair semaphore at once, and one permit
// of any other.
var semaphores = []lockName{
	{name: "permits", permits: 3},
	{name: "permits-fair", permits: 4, fair: true},
	{name: "permits-slow", permits: 5, slow: true},
	{name: "permits-slow-fair", permits: 4, slow: true, fair: true},
}

const heaviest = 3

// allNames returns the names of locks and of semaphores.
func allNames() []lockName { return slices.Concat(lockNames, offices, schedules, semaphores) }

// options returns the options that all clients of the lock must set, and those that the client chooses: WithShared if
// it is a reader, its weight, and its label.
func (l lockName) options() (options []redsync.Option) {
	if l.reads {
		options = append(options, redsync.WithShared())
	}
	if l.fair {
		options = append(options, redsync.WithFair())
	}
	if l.fenced {
		options = append(options, redsync.WithFencing())
	}
	if l.permits != 0 {
		options = append(options, redsync.WithPermits(l.permits))
	}
	if l.weight > 1 {
		options = append(options, redsync.WithWeight(l.weight))
	}
	if l.owner != "" {
		options = append(options, redsync.WithOwner(l.owner))
	}
	return options
}

// together returns the lock on all names of parts, which are single names.
func together(parts []lockName) lockName {
	all := parts[0]
	for _, l := range parts[1:] {
		all.more = append(all.more, l.name)
		all.slow, all.fair, all.fenced = all.slow || l.slow, all.fair || l.fair, all.fenced || l.fenced
	}
	return all
}

// names returns all names of the lock.
func (l lockName) names() []string { return append([]string{l.name}, l.more...) }

// mutex returns a Mutex of rs.
func (l lockName) mutex(rs *redsync.Redsync, options ...redsync.Option) *redsync.Mutex {
	if l.more == nil {
		return rs.NewMutex(l.name, options...)
	}
	return rs.NewMultiMutex(l.names(), options...)
}

// A crowd is the clients of a process.
type crowd struct {
	job
	scene   scene
	mixes   bool // locks on several names may have fair names and others; set before clients start
	rs      *redsync.Redsync
	redis   []*redis.Client // the clients of rs, one per node
	rival   *rival.Redsync  // on the same clients
	log     *history.Log
	beat    *heartbeat
	gauges  gauges
	ctx     context.Context //nolint:containedctx // of the traffic; the order sayStop cancels it
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu   sync.Mutex
	kept []*turn // those whose locks may still be held at the end of the traffic; guarded by mu
}

// serve runs a process of clients, and obeys the orders that arrive on in. text is the job as JSON.
func serve(text string, in io.Reader, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	f, err := os.OpenFile(j.Events, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	debug.SetMaxStack(badreply.MaxStack)
	if err := os.MkdirAll(j.gifts(), 0o700); err != nil {
		return err
	}
	c := &crowd{job: j, log: history.NewLog(f), beat: startHeartbeat()}
	c.scene, _ = findScene(j.Scene) // a scene of a test alone judges no waits
	c.ctx, c.stop = context.WithCancel(context.Background())
	defer c.stop()
	c.connect()
	if c.gauges, err = newGauges(); err != nil {
		return err
	}
	c.rs, c.rival = c.open().With(redsync.WithHooks(c.gauges.hooks)), c.openV4()
	if err := c.meetNodes(); err != nil {
		return err
	}
	stop := c.watchNodes()
	defer stop()
	if err := c.obey(in, out); err != nil {
		return err
	}
	stop()
	return errors.Join(c.close(), c.gauges.atZero(), c.gauges.inHaste(), c.log.Err(), f.Close())
}

// obey executes one order per line, until the order sayGoodbye.
func (c *crowd) obey(in io.Reader, out io.Writer) error {
	_, _ = fmt.Fprintln(out, sayReady)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		word := lines.Text()
		switch word {
		case sayGo:
			c.start()
		case sayStop:
			c.stop()
			c.clients.Wait()
		case sayProbe:
			c.probe()
		case sayGoodbye:
			_, _ = fmt.Fprintln(out, word)
			return nil
		default:
			return fmt.Errorf("told %q", word)
		}
		_, _ = fmt.Fprintln(out, word)
	}
	return errors.New("the input has ended")
}

// connect creates a go-redis client for each node.
func (c *crowd) connect() {
	for _, address := range c.Nodes {
		c.redis = append(c.redis, redis.NewClient(optionsFor(address)))
	}
}

// optionsFor returns the options of a go-redis client of a node.
func optionsFor(address string) *redis.Options {
	return &redis.Options{
		Addr: address, Dialer: dial, DialTimeout: time.Second,
		Username: lockUser, Password: lockPassword, DB: lockDatabase,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// open makes a Redsync on the go-redis clients of the process.
func (c *crowd) open() *redsync.Redsync {
	rs := redsync.New(c.pools(c.Before)...)
	if c.After != nil {
		rs = redsync.NewJoint(c.pools(c.Before), c.pools(c.After))
	}
	if c.Factor != 0 {
		rs = rs.With(redsync.WithTimeoutFactor(c.Factor))
	}
	if c.scene.tells {
		rs = rs.With(redsync.WithHooks(teller{c}.hooks()))
	}
	return rs
}

// pools returns the pools of a set of nodes, for open.
func (c *crowd) pools(set []int) (pools []pool.Pool) {
	for _, i := range set {
		options := []pool.Option{pool.WithNoLocksBefore(c.Fresh)}
		if c.Guard != 0 {
			options = append(options, pool.WithRestartGuard(c.Guard))
		}
		if c.Anonymous {
			options = append(options, pool.WithoutIdentity())
		}
		pools = append(pools, pool.New(c.redis[i], options...))
	}
	return pools
}

// close closes the Redsync, which unlocks what is still held.
func (c *crowd) close() error {
	for _, t := range c.kept {
		t.note(history.Event{Kind: history.Unlock})
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTime/3)
	defer cancel()
	_ = c.rs.Close(ctx) // keys may remain on a node that the guard still excludes
	return nil
}

// meetNodes tries to lock until all servers that are up grant the same attempt. It is about as patient as an expiry of the
// scene allows: on a busy machine a third of a short expiry is too little for servers that are far away.
func (c *crowd) meetNodes() error {
	granted := 0 // nodes that granted the last attempt
	counter := &observe.Hooks{Attempt: func(_ context.Context, a observe.Attempt) { granted = a.Granted }}
	for end := time.Now().Add(replyTime * 3 / 4); time.Now().Before(end); {
		m := c.rs.NewMutex(fmt.Sprintf("warm-up-%d", c.Process), redsync.WithFailFast(false),
			redsync.WithNodeTimeout(c.Expiry*3/5), redsync.WithExpiry(longestExpiry(c.Expiry)), redsync.WithHooks(counter))
		if err := m.TryLock(); err == nil {
			_, _ = m.Unlock() // if this fails, the lock expires
		}
		if granted == c.Servers {
			return nil
		}
		pause(c.ctx, 10*ms)
	}
	return fmt.Errorf("%d of %d servers answer", granted, c.Servers)
}

// start starts the clients.
func (c *crowd) start() {
	number := 0
	for _, h := range c.habits() {
		c.mixes = c.mixes || h.several && !h.alike
	}
	for _, h := range c.habits() {
		if h.v4 && !c.V4 {
			continue
		}
		for range h.clients {
			number++
			one := newClient(c, h, number)
			c.clients.Go(one.live)
		}
	}
	for range c.Fake {
		number++
		one := newClient(c, habit{name: "fake"}, number)
		c.clients.Go(one.believe)
	}
	for range c.Partial {
		number++
		one := newClient(c, habit{name: "partial", several: true}, number)
		c.clients.Go(one.haveThePart)
	}
	for range c.FakeReaders {
		number++
		one := newClient(c, habit{name: "fake-reader", reads: true, meets: true}, number)
		c.clients.Go(one.believe)
	}
	for range c.Stubborn {
		number++
		one := newClient(c, habit{name: "stubborn"}, number)
		c.clients.Go(one.insist)
	}
	for range c.Blunt {
		number++
		one := newClient(c, habit{name: "blunt", blunt: true, pace: 100 * ms, do: (*client).force}, number)
		c.clients.Go(one.live)
	}
	for range c.Counting {
		number++
		one := newClient(c, habit{name: "counting"}, number)
		c.clients.Go(one.countPermits)
	}
}

// probeTime is how long acquiring a free lock may take after all faults have been healed.
const probeTime = 10 * time.Second

// probe acquires every lock once as a writer and once as a reader, and one lock on all names. It acquires one permit of
// each semaphore, and all permits of a fair one. It notes a broken promise for each lock that it cannot acquire. The
// other processes probe at the same time.
func (c *crowd) probe() {
	var probes sync.WaitGroup
	locks := append(slices.Clone(lockNames), together(lockNames))
	for _, l := range lockNames {
		l.reads = true
		locks = append(locks, l)
	}
	locks = slices.Concat(locks, offices, schedules)
	for _, l := range semaphores {
		locks = append(locks, l)
		if l.fair {
			l.weight = l.permits
			locks = append(locks, l)
		}
	}
	for i, l := range locks {
		one := newClient(c, habit{name: "probe"}, 1000+i)
		probes.Go(func() { one.probe(l) })
	}
	probes.Wait()
}

func (c *client) probe(l lockName) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	t := c.begin(l, append(l.options(), redsync.WithExpiry(c.Expiry), redsync.WithTries(0))...)
	if t.lock(ctx) {
		t.unlock()
	} else {
		t.broken("the lock is free, but could not be acquired within %v: %v", probeTime, t.err)
	}
}

// now returns the time since Origin, as events state it.
func (c *crowd) now() time.Duration { return since(c.Origin) }

// since returns the time since origin. It uses the wall clock, because another process may have taken
// origin.
func since(origin time.Time) time.Duration { return time.Now().Round(0).Sub(origin.Round(0)) }

// A heartbeat records when the process did not run.
type heartbeat struct {
	mu   sync.Mutex
	last time.Time
	gaps []time.Time // ends of pauses
}

const (
	beatEvery = 20 * ms
	// aPause is the shortest interruption that counts as a pause. On a busy machine shorter ones
	// are normal.
	aPause = 300 * ms
)

func startHeartbeat() *heartbeat {
	h := &heartbeat{last: time.Now()}
	go func() { // for the life of the process
		for {
			time.Sleep(beatEvery)
			h.tick()
		}
	}()
	return h
}

func (h *heartbeat) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Sub(h.last) > aPause {
		h.gaps = append(h.gaps, now)
	}
	h.last = now
}

// pausedSince reports whether a pause of the process has ended after t. This includes a pause that tick
// has not noticed yet.
func (h *heartbeat) pausedSince(t time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.last) > aPause || slices.ContainsFunc(h.gaps, t.Before)
}

// A habit is what clients of one kind do repeatedly.
type habit struct {
	name    string
	clients int  // in each process
	slow    bool // uses only slow locks
	several bool // uses locks on several names
	alike   bool // none of the several names is fair
	reads   bool // is a reader
	meets   bool // prefers the names that readers prefer
	permits bool // takes permits
	v4      bool // uses redsync v4

	blunt bool // it deletes keys without comparing their values; for tests
	pace  time.Duration
	do    func(*client)
}

// A client is one client of a process.
type client struct {
	*crowd
	habit
	rs   *redsync.Redsync // the crowd's, or the one that request has opened
	who  string
	nth  int // its number in the process, from 1
	rand *rand.Rand
	term int
}

func newClient(c *crowd, h habit, number int) *client {
	seed := c.Seed<<16 + uint64(c.Process)<<10 + uint64(number)
	return &client{
		crowd: c, habit: h, rs: c.rs, nth: number, who: fmt.Sprintf("%d/%s/%d", c.Process, h.name, number),
		rand: rand.New(rand.NewPCG(seed, 3)),
	}
}

// live repeats the habit until the traffic ends.
func (c *client) live() {
	for c.ctx.Err() == nil {
		c.do(c)
		pause(c.ctx, c.between(0, c.pace*time.Duration(1+c.Idle)))
	}
}

func (c *client) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.rand.Int64N(int64(most-least)+1))
}

// chance is true in one case out of n.
func (c *client) chance(n int) bool { return c.rand.IntN(n) == 0 }

// pick returns a random lock, with a label.
func (c *client) pick() lockName {
	l := c.pickName()
	l.owner = c.label()
	l.fenced = l.fenced || c.scene.forces && l.permits == 0
	return l
}

// pickName returns a random lock. Clients with a slow habit always pick a slow lock. Other clients do so in
// one case out of eight, so that few of them wait for slow locks. Readers, and the clients that must meet them, mostly
// pick one of the names that readers prefer. Clients of redsync v4 pick no name with fencing, because redsync v4 has no
// tokens.
func (c *client) pickName() lockName {
	switch {
	case c.several:
		return c.pickSeveral()
	case c.permits:
		return c.pickPermits()
	}
	slow := c.slow || c.chance(8)
	read := c.meets && !c.chance(4)
	for {
		l := lockNames[c.rand.IntN(len(lockNames))]
		if l.slow == slow && (l.read || !read) && !(l.fenced && c.v4) {
			l.reads = c.reads
			return l
		}
	}
}

// pickSeveral returns a lock on two to four random names, in random order. Clients with a slow habit take at most one
// slow name, because they would rarely get more. Other clients take no slow name, except in one case out of 16.
func (c *client) pickSeveral() lockName {
	slow := 0 // how many names may be slow
	switch {
	case c.slow:
		slow = 1
	case c.chance(16):
		slow = 4
	}
	var parts []lockName
	for _, i := range c.rand.Perm(len(lockNames)) {
		l := lockNames[i]
		if l.fair && c.alike {
			continue
		}
		if l.slow {
			slow--
		}
		if !l.slow || slow >= 0 {
			parts = append(parts, l)
		}
	}
	return together(parts[:2+c.rand.IntN(3)])
}

// believe claims locks without asking any node, as a broken library would.
func (c *client) believe() {
	for c.ctx.Err() == nil {
		c.pretend()
		pause(c.ctx, c.between(0, 200*ms))
	}
}

// haveThePart locks only the first of several names, but claims to hold all of them. A library would do so if it
// counted votes for one name as votes for all. The client has a high priority, because otherwise it would rarely get
// its turn in a short run.
func (c *client) haveThePart() {
	for c.ctx.Err() == nil {
		t := c.beginAny()
		t.m = c.rs.NewMutex(t.on.name, append(t.on.options(), redsync.WithExpiry(t.expiry), redsync.WithPriority(10))...)
		ctx, cancel := context.WithTimeout(c.ctx, lockTime)
		if t.lock(ctx) {
			t.hold(50 * ms)
			t.unlock()
		}
		cancel()
		pause(c.ctx, c.between(0, 50*ms))
	}
}

// insist downgrades its exclusive locks to shared ones, but still believes that they are exclusive. In one case out of
// two it is a reader of the same name instead. Only such clients use this name.
func (c *client) insist() {
	for c.ctx.Err() == nil {
		l := lockName{name: "stubborn", reads: c.chance(2)}
		t := c.begin(l, l.options()...)
		t.stubborn = true
		ctx, cancel := context.WithTimeout(c.ctx, lockTime)
		switch {
		case !l.reads:
			t.writeThenRead(0, 100*ms)
		case t.lock(ctx):
			t.hold(50 * ms)
			t.unlock()
		}
		cancel()
		pause(c.ctx, c.between(0, 50*ms))
	}
}

// pretend notes that the client held a lock, although it has asked no node.
func (c *client) pretend() {
	c.term++
	l := c.pick()
	e := history.Event{At: c.now(), Kind: history.Call, Client: c.who, Term: c.term, Name: l.name}
	c.log.Note(e)
	e.At, e.Kind = c.now(), history.Held
	e.Until = e.At + c.Expiry
	if e.Reads = l.reads; l.fenced && !l.reads {
		e.Token = uint64(c.term)
	}
	c.log.Note(e)
	pause(c.ctx, 100*ms)
	c.log.Note(history.Event{At: c.now(), Kind: history.Unlock, Client: c.who, Term: c.term, Name: l.name})
}
