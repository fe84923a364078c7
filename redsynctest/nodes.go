package redsynctest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
)

const (
	// serversEnv is the environment variable that names a program to run as each node. Without it
	// the nodes run inside the process.
	serversEnv = "REDSYNCTEST_SERVERS"

	maxNodes = 64               // redsync.New allows no more
	patience = 10 * time.Second // longest wait for what the code under test does
	asking   = time.Minute      // longest wait for the answer of a node: only an overloaded machine needs more than a second
	settling = 500 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// Nodes is a set of independent Redis nodes. Many goroutines may use it at once.
//
// If a method cannot do what it should, it fails the test at once, as testing.TB.Fatalf does. So call the
// methods from the goroutine of the test that called Start, not from the goroutines of its subtests. A subtest
// may call Start itself. After New the methods panic with the same text.
type Nodes struct {
	t       reporter
	bubble  bool
	nodes   []*Node
	redsync *redsync.Redsync
	kept    kept // keys that last for the rest of a minimal hold

	mu        sync.Mutex
	processes []*participant
	pools     []pool.Pool
	clients   []*redis.Client
	apart     map[string]bool // names of locks that were lost or detached
	somebody  int             // how many clients HoldBySomebody and Steal have made up
	closed    bool            // Close has begun

	ended    chan struct{} // closed when Close is done
	closeErr error         // set before ended is closed
}

// A reporter is told of failures. A testing.TB is one.
type reporter interface {
	Helper()
	Name() string
	Fatalf(format string, args ...any)
}

// panics is the reporter of New.
type panics struct{}

func (panics) Helper()                           {}
func (panics) Name() string                      { return "" }
func (panics) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Start returns n running nodes without keys. n must be 1 to 64. When tb ends, the nodes and all connections to
// them end, too.
//
// When tb ends, all processes are closed, which unlocks what they still hold. After that the test fails if a key
// of a lock is left on a node that has had no fault, or if a connection is open. The keys of locks that a process
// has lost or detached do not count, because they stay until they expire. Nor do those that an Unlock has left for
// the rest of a minimal hold (redsync.WithMinHold). If a process was cut off, only
// connections are checked. A test that has failed before is not checked. None of this finds an Unlock that the
// code under test has forgotten: call RequireNothingLeft for that.
//
// In a fuzz test, call Start in the fuzz target, with the target's T: a testing.F panics there.
//
// In a testing/synctest bubble, call Start inside it, and use the nodes only there. If the environment variable
// REDSYNCTEST_SERVERS is set, Start fails there, because real servers need real time.
func Start(tb testing.TB, n int) *Nodes {
	tb.Helper()
	nodes, err := start(n, tb)
	if err != nil {
		tb.Fatalf("redsynctest: Start: %v", err)
		return nil
	}
	tb.Cleanup(func() {
		tb.Helper()
		if err := nodes.Close(); err != nil && !tb.Failed() {
			tb.Errorf("%s", formatted(tb.Name(), err.Error()))
		}
	})
	return nodes
}

// New is Start for Example functions and programs, which have no testing.TB. Close ends the nodes. New and the
// methods of its nodes panic instead of failing a test.
func New(n int) *Nodes {
	nodes, err := start(n, panics{})
	if err != nil {
		panic(fmt.Sprintf("redsynctest: New: %v", err))
	}
	return nodes
}

func start(n int, t reporter) (*Nodes, error) {
	if n < 1 || n > maxNodes {
		return nil, fmt.Errorf("the number of nodes must be 1 to %d, not %d", maxNodes, n)
	}
	ns := &Nodes{t: t, bubble: inBubble(), apart: make(map[string]bool), ended: make(chan struct{})}
	program := os.Getenv(serversEnv)
	if program != "" && ns.bubble {
		return nil, fmt.Errorf("%s=%s: real servers cannot run in a testing/synctest bubble; "+
			"unset the variable, or use real time", serversEnv, program)
	}
	servers, err := startServers(n, program)
	if err != nil {
		return nil, err
	}
	for i, s := range servers {
		ns.nodes = append(ns.nodes, &Node{set: ns, index: i, server: s, state: up, moved: make(chan struct{})})
	}
	ns.redsync = ns.Process()
	return ns, nil
}

// inBubble reports whether the caller is in a synctest bubble: Wait panics outside of one. Inside, it waits until
// all other goroutines of the bubble are blocked, which changes nothing for them. It also panics inside if another
// goroutine waits at the same time.
func inBubble() (in bool) {
	defer func() {
		failure := recover()
		in = failure == nil || failure == "wait already in progress"
	}()
	synctest.Wait()
	return true
}

// Node returns node i, from 0. Errors and events of the library name it by the same number.
func (ns *Nodes) Node(i int) *Node {
	ns.t.Helper()
	if i < 0 || i >= len(ns.nodes) {
		ns.t.Fatalf("redsynctest: Node(%d): the index must be 0 to %d", i, len(ns.nodes)-1)
		return nil
	}
	return ns.nodes[i]
}

// Redsync returns the Redsync for the code under test, the same each time. It has the library's defaults;
// its With sets others.
func (ns *Nodes) Redsync() *redsync.Redsync { return ns.redsync }

// Process returns a further Redsync with connections of its own: it plays another process. The options are
// the defaults of its locks.
func (ns *Nodes) Process(options ...redsync.Option) *redsync.Redsync {
	ns.t.Helper()
	p := &participant{network: &network{}}
	ns.try("Process", nil, func() error {
		p.base = redsync.New(ns.poolsOn(p.network)...).With(redsync.WithHooks(ns.partings()))
		p.shown = p.base.With(options...)
		ns.mu.Lock()
		defer ns.mu.Unlock()
		ns.processes = append(ns.processes, p)
		return nil
	})
	return p.shown
}

// Pools returns new pools, one for each node, for code that calls redsync.New itself. That code must close the
// Redsync. The end of the nodes closes the pools.
func (ns *Nodes) Pools(options ...pool.Option) (pools []pool.Pool) {
	ns.t.Helper()
	ns.try("Pools", nil, func() error {
		pools = ns.poolsOn(&network{}, options...)
		return nil
	})
	return pools
}

// Clients returns new go-redis clients, one for each node, for code that calls pool.New itself. Each connects
// only to the address of its node. The end of the nodes closes them.
func (ns *Nodes) Clients() (clients []*redis.Client) {
	ns.t.Helper()
	ns.try("Clients", nil, func() error {
		clients = ns.clientsOn(&network{})
		return nil
	})
	return clients
}

func (ns *Nodes) poolsOn(of *network, options ...pool.Option) (pools []pool.Pool) {
	for _, c := range ns.clientsOn(of) {
		pools = append(pools, pool.New(c, options...))
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.pools = append(ns.pools, pools...)
	return pools
}

func (ns *Nodes) clientsOn(of *network) (clients []*redis.Client) {
	for _, n := range ns.nodes {
		clients = append(clients, client(n.server.addr(), n.dialer(of)))
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.clients = append(ns.clients, clients...)
	return clients
}

// CutOff separates a process, which must come from Process or Redsync, from all nodes: its connections break, and
// it can open no new ones. That simulates a network partition of this process alone, until Reconnect. It also
// simulates a crash, because the process can neither extend nor release its locks, though its goroutines go on.
func (ns *Nodes) CutOff(rs *redsync.Redsync) {
	ns.t.Helper()
	ns.try("CutOff", nil, func() error { return ns.setCut(rs, true) })
}

// Reconnect ends CutOff. The process connects again by itself, within about a second.
func (ns *Nodes) Reconnect(rs *redsync.Redsync) {
	ns.t.Helper()
	ns.try("Reconnect", nil, func() error { return ns.setCut(rs, false) })
}

func (ns *Nodes) setCut(rs *redsync.Redsync, cut bool) error {
	ns.mu.Lock()
	i := slices.IndexFunc(ns.processes, func(p *participant) bool { return p.shown == rs })
	if i < 0 {
		ns.mu.Unlock()
		return errors.New("the Redsync must be one that Process or Redsync has returned, and not what its With returns")
	}
	of := ns.processes[i].network
	ns.mu.Unlock()
	of.setCut(cut)
	return nil
}

// HoldBySomebody makes another client hold the lock, on every node that is up, until Expire or Steal, or for 24
// hours. It waits up to 10 s for releases that are under way, such as those of an Unlock. It fails if a node
// has the lock (Steal is for that case), or if fewer nodes than a quorum are up.
func (ns *Nodes) HoldBySomebody(name string) {
	ns.t.Helper()
	ns.try("HoldBySomebody", &name, func() error {
		ns.settle(name)
		if err := ns.awaitFree(name); err != nil {
			return err
		}
		holder := ns.newcomer()
		var errs []error
		for _, n := range ns.nodes {
			_, err := n.ask("set", name, holder, "nx", "px", somebodyTTL.Milliseconds())
			errs = append(errs, err)
		}
		if values, _, seen := ns.look(name); values[holder] < ns.quorum() {
			errs = append(errs, fmt.Errorf("another process was faster\n%s", seen))
		}
		return errors.Join(errs...)
	})
}

// awaitFree returns nil once no node that is up has the lock. It waits only while a quorum is free, because then
// the other nodes may have the key just for a moment: Unlock returns when a quorum has confirmed the release.
func (ns *Nodes) awaitFree(name string) (err error) {
	_ = await(patience, func() error {
		values, free, seen := ns.look(name)
		err = nil
		if len(values) > 0 || free < ns.quorum() {
			err = fmt.Errorf("the lock must be free on every node that is up, and a quorum must be up\n%s", seen)
		}
		if free < ns.quorum() {
			return nil // the lock is held, or too few nodes are up
		}
		return err
	})
	return err
}

// settle waits for requests that are under way. Lock and Unlock return once a quorum has answered, and the other
// nodes may execute the request later. In a bubble all requests are executed once every goroutine is blocked. In
// real time settle waits until all nodes that are up agree, or for half a second.
func (ns *Nodes) settle(name string) {
	if ns.bubble {
		_ = inBubble() // it waits
		return
	}
	_ = await(settling, func() error {
		values, free, _ := ns.look(name)
		if len(values) > 1 || len(values) == 1 && free > 0 {
			return errors.New("the nodes do not agree")
		}
		return nil
	})
}

// Steal gives a held lock to another client, on every node that is up, as after a failure that the library
// cannot protect from (FLUSHALL, a failover to a stale replica). The holder is not told: it finds out when it
// asks the nodes (Valid, Extend, the watchdog), or at Until. Steal fails if no node has the lock.
func (ns *Nodes) Steal(name string) {
	ns.t.Helper()
	ns.overwrite("Steal", name, "set", name, ns.newcomer(), "px", somebodyTTL.Milliseconds())
}

// Expire makes the keys of a lock run out now, on every node that is up. As with Steal, the holder is not told,
// and its Until does not move. Waiters notice within half a second, as they do when a key runs out by itself.
// Expire fails if no node has the lock.
func (ns *Nodes) Expire(name string) {
	ns.t.Helper()
	ns.overwrite("Expire", name, "del", name)
}

// overwrite sends a command to every node that is up. It fails the test if none of them has the lock.
func (ns *Nodes) overwrite(method, name string, args ...any) {
	ns.t.Helper()
	ns.try(method, &name, func() error {
		ns.settle(name)
		if values, _, seen := ns.look(name); len(values) == 0 {
			return fmt.Errorf("no node has this lock\n%s", seen)
		}
		var errs []error
		for _, n := range ns.nodes {
			_, err := n.ask(args...)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// Advance moves the clocks of the nodes d ahead, 0 or more: their keys expire that much earlier. The clock of
// the test stays, so the holder's Until does not move. Advance simulates nodes whose clocks jump, or a holder
// that is stopped for d. It works only on nodes inside the process. In a synctest bubble Advance fails: use
// time.Sleep(d) there, which moves the nodes and the holder together and takes no real time.
func (ns *Nodes) Advance(d time.Duration) {
	ns.t.Helper()
	ns.try("Advance", nil, func() error {
		switch {
		case d < 0:
			return fmt.Errorf("the duration must be 0 or more, not %v", d)
		case ns.bubble:
			return fmt.Errorf("in a synctest bubble use time.Sleep(%v), which takes no real time; "+
				"Expire ends the keys of one lock alone", d)
		}
		for _, n := range ns.nodes {
			if err := n.server.advance(d); err != nil {
				return err
			}
		}
		return nil
	})
}

// Close ends the nodes of New, all processes and all connections, as the end of a test does (see Start). The
// error says what was left. Close waits up to 10 s for connections to end. In a synctest bubble it takes a
// minute or more of the bubble's time, so that the timers of everything that was closed have ended. A second
// Close returns what the first one returned.
func (ns *Nodes) Close() error {
	ns.mu.Lock()
	second := ns.closed
	ns.closed = true
	ns.mu.Unlock()
	if second {
		<-ns.ended // not a mutex: the first Close sleeps, and in a bubble waiting for a mutex would stop the clock
		return ns.closeErr
	}
	defer close(ns.ended)
	ns.closeErr = ns.shutDown()
	return ns.closeErr
}

func (ns *Nodes) shutDown() error {
	faulty, cutOff := false, false
	for _, n := range ns.nodes {
		faulty = n.calm() || faulty
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var errs []error
	ns.mu.Lock()
	processes, pools, clients := ns.processes, ns.pools, ns.clients
	ns.mu.Unlock()
	for _, p := range processes {
		cutOff = p.network.setCut(false) || cutOff
		if err := p.base.Close(ctx); err != nil && !faulty && !cutOff { // keys may be left to their expiry
			errs = append(errs, err)
		}
	}
	for _, p := range pools {
		_ = p.Close() // never fails
	}
	for _, c := range clients {
		_ = c.Close() // a second Close is an error
	}
	if !cutOff { // a process that was cut off may not reconnect in time to release its locks
		errs = append(errs, ns.leftAtEnd())
	}
	errs = append(errs, await(patience, ns.connected))
	for _, n := range ns.nodes {
		n.server.close()
	}
	if ns.bubble {
		time.Sleep(time.Minute) // gives goroutines that end by themselves the time to do so
	}
	return errors.Join(errs...)
}

// connected returns an error while a connection is open.
func (ns *Nodes) connected() error {
	var errs []error
	for _, n := range ns.nodes {
		if open := n.open.Load(); open > 0 {
			errs = append(errs, fmt.Errorf("%v: %d connections are left open", n, open))
		}
	}
	return errors.Join(errs...)
}

// await calls check until it returns nil, for at most limit. Then await returns what check returned last.
func await(limit time.Duration, check func() error) error {
	end := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		if err := check(); err == nil || !time.Now().Before(end) {
			return err
		}
		time.Sleep(min(pause, time.Until(end)))
	}
}

// try runs do, the body of the method of that name. It fails the test if do returns an error, if the nodes are
// closed, or if *name is not a valid name of a lock. name is nil for a method without a lock.
func (ns *Nodes) try(method string, name *string, do func() error) {
	ns.t.Helper()
	err := ns.usable()
	if name != nil {
		method = fmt.Sprintf("%s(%q)", method, *name)
		err = cmp.Or(checkName(*name), err)
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		ns.t.Fatalf("redsynctest: %s: %v", method, err)
	}
}

// usable returns an error after Close.
func (ns *Nodes) usable() error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.closed {
		return errors.New("the nodes are closed")
	}
	return nil
}

// checkName says what is wrong with the name of a lock.
func checkName(name string) error {
	if name == "" {
		return errors.New("the name of a lock must not be empty")
	}
	if side := script.Reserved(name); side != "" {
		return fmt.Errorf("the name is reserved: {x}%s belongs to the lock x", side)
	}
	return nil
}

// partings returns Hooks that note the names of locks that were lost or detached. Their keys stay although
// no process holds the locks.
func (ns *Nodes) partings() *observe.Hooks {
	return &observe.Hooks{
		Lost:     func(_ context.Context, e observe.Lost) { ns.setApart(e.Name) },
		Detached: func(_ context.Context, e observe.Detached) { ns.setApart(e.Name) },
	}
}

func (ns *Nodes) setApart(name string) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.apart[name] = true
}

// isApart reports whether key belongs to a lock or a permit that was lost or detached. The name of a lock on
// several names joins them with ", ".
func (ns *Nodes) isApart(key string) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	line := script.LineOf(key)
	for name := range ns.apart {
		if strings.Contains(", "+name+", ", ", "+key+", ") || line != key && line == script.SlotQueueKey(name) {
			return true
		}
	}
	return false
}

func (ns *Nodes) quorum() int { return len(ns.nodes)/2 + 1 }

// newcomer returns the value of a client that has held nothing yet.
func (ns *Nodes) newcomer() string {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.somebody++
	return fmt.Sprintf("%s%d", somebodyValue, ns.somebody)
}
