package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// settings are the parameters of a run.
type settings struct {
	Scene     scene
	Seed      uint64
	Length    time.Duration // of the traffic
	FakeTime  string        // the path of libfaketime, "" for none
	Keep      bool          // keep the files
	Programs  []string      // of the nodes, in turn; none for the redis-server on PATH
	processes int           // number of client processes at a time
	idle      int           // pauses of clients are 1+idle times as long; for tests that run beside others
	fakes     int           // clients of the first process that claim locks without asking; for tests
	partials  int           // clients of the first process that lock one of several names and claim all; for tests
	readers   int           // clients of the first process that claim shared locks without asking; for tests
	stubborn  int           // clients of the first process that believe in an exclusive lock after Downgrade; for tests
	counting  int           // clients of the first process that use a semaphore whose permits each node counts; for tests
	blunt     int           // clients of the first process that delete the keys of others; for tests
	anonymous bool          // clients do not know which server a node is; for tests
	impatient bool          // clients do not let Close wait, and take it for complete; for tests
	say       func(format string, args ...any)
}

// A result is the result of a run.
type result struct {
	settings
	Plan       []fault
	LeftOut    int           // number of faults left out, because libfaketime is missing
	From, To   time.Duration // when the traffic began and ended
	Processes  []*process    // all that have run
	Events     []history.Event
	Terms      []history.Term
	Violations []history.Violation
	Rests      []history.Rest // the waits that were judged
	Deleters   int            // nodes that have DELEX or DELIFEQ
	Deletions  int            // how often they were sent that since their last start
	Dir        string         // "" unless kept
}

// run plays a scene.
func run(ctx context.Context, s settings) (*result, error) {
	dir, err := os.MkdirTemp("", "chaos")
	if err != nil {
		return nil, err
	}
	r := &result{settings: s, Plan: s.Scene.plan(s.Seed, s.Length)}
	if s.FakeTime == "" {
		r.Plan, r.LeftOut = withoutFakeTime(r.Plan)
	}
	if s.Keep {
		r.Dir = dir
		s.say("files: %s", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	w := &world{dir: dir, origin: time.Now(), left: map[int]time.Duration{}}
	defer w.end()
	if err := w.start(ctx, s, offFromTheStart(r.Plan)); err != nil {
		return nil, err
	}
	if err := w.play(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// start starts the nodes and then the processes of clients. off is the node whose host is off from the
// beginning, or -1.
func (w *world) start(ctx context.Context, s settings, off int) error {
	for i := range s.Scene.nodeCount() {
		n, err := startNode(i, w.dir, s.FakeTime, s.Programs)
		if errors.Is(err, realredis.ErrMissing) {
			return err
		}
		if err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		w.nodes = append(w.nodes, n)
	}
	// A server that tells its uptime in whole seconds, through a slow link, has certainly started before.
	w.fresh = time.Now().Add(3 * time.Second).Round(0)
	for i := range s.processes {
		p, err := w.startProcess(ctx, s, i+1, 0, off)
		if err != nil {
			return fmt.Errorf("process %d: %w", i+1, err)
		}
		w.places = append(w.places, p)
	}
	err := w.each(func(p *process) error { return p.await(ctx, sayReady) })
	pause(ctx, time.Until(w.fresh))
	return err
}

// startProcess starts a process of clients with the nodes of a deployment. The process is not ready yet. off
// is a node whose host is off, or -1.
func (w *world) startProcess(ctx context.Context, s settings, number, version, off int) (*process, error) {
	d := s.Scene.versions()[version]
	j := job{Process: number, Origin: w.origin, Seed: s.Seed, Expiry: s.Scene.expiry, Fresh: w.fresh, Idle: s.idle, Factor: s.Scene.timeoutFactor, V4: s.Scene.v4}
	j.Scene, j.Anonymous, j.Impatient = s.Scene.name, s.anonymous, s.impatient
	if s.Scene.guard {
		j.Guard = longestTTL(s.Scene.expiry)
	}
	if number == 1 {
		j.Fake, j.Partial, j.FakeReaders, j.Stubborn, j.Counting = s.fakes, s.partials, s.readers, s.stubborn, s.counting
		j.Blunt = s.blunt
	}
	servers := map[int]bool{}
	for i, address := range d.addresses() {
		n := w.nodes[address%len(w.nodes)]
		l, err := newLink(n.server.Addr())
		if err != nil {
			return nil, err
		}
		l.process, l.node = number, n.index
		w.mu.Lock()
		w.links = append(w.links, l)
		w.mu.Unlock()
		if n.index == off {
			l.turnOff() // the fault hostOff of the plan turns the link on again
		}
		if slices.Contains(d.far, address) {
			l.slow(toNode, farAway)
		}
		if (number+n.index)%2 != 0 {
			l.slow(toNode, s.Scene.apart)
			l.slow(toClient, s.Scene.apart)
		}
		if !n.dead.Load() && n.index != off {
			servers[n.index] = true
		}
		j.Nodes = append(j.Nodes, l.addr())
		if slices.Contains(d.before, address) {
			j.Before = append(j.Before, i)
		}
		if slices.Contains(d.after, address) {
			j.After = append(j.After, i)
		}
	}
	j.Servers = len(servers)
	p, err := startProcess(ctx, w.dir, j)
	if err == nil {
		p.version = version
	}
	return p, err
}

// end ends everything that runs.
func (w *world) end() {
	for _, p := range w.places {
		p.kill()
	}
	for _, l := range w.links {
		l.close()
	}
	for _, n := range w.nodes {
		n.stop()
	}
}

// each calls f for all running processes at the same time.
func (w *world) each(f func(*process) error) error {
	errs := make([]error, len(w.places))
	var wg sync.WaitGroup
	for i, p := range w.places {
		wg.Go(func() { errs[i] = f(p) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// tell gives all processes an order, and waits until all have executed it.
func (w *world) tell(ctx context.Context, word string) error {
	return w.each(func(p *process) error { return p.tell(ctx, word) })
}

// margin is how long a key may outlive its TTL.
const margin = time.Second

// gone returns how long the nodes may keep keys of locks, and tickets, after the clients have sent their last command.
func gone(expiry time.Duration) time.Duration { return max(longestTTL(expiry), queueTTL) + margin }

// play runs the clients under the faults of the plan, and checks what they noted.
func (w *world) play(ctx context.Context, r *result) error {
	sampling, stop := context.WithCancel(ctx)
	var samplers sync.WaitGroup
	defer samplers.Wait()
	defer stop()
	for _, n := range w.nodes {
		samplers.Go(func() { w.sample(sampling, n) })
	}
	if err := w.tell(ctx, sayGo); err != nil {
		return err
	}
	r.From = w.now()
	var changing error
	var change sync.WaitGroup
	change.Go(func() { changing = w.deployAll(ctx, r) })
	err := w.inflictAll(ctx, r)
	change.Wait()
	if err := errors.Join(err, changing); err != nil {
		return err
	}
	if err := w.tell(ctx, sayStop); err != nil {
		return err
	}
	r.To = w.now()

	setBack := map[int]time.Duration{}
	var most time.Duration
	for _, n := range w.nodes {
		setBack[n.index] = n.clock.wasSetBack()
		most = max(most, setBack[n.index])
	}
	settled := r.To + gone(r.Scene.expiry) + most
	pause(ctx, settled-r.To+3*sampleEvery)
	stop()
	samplers.Wait() // judge probes the locks, and a sample would count the keys of its probes as left behind
	return w.judge(ctx, r, r.Scene.rules(settled, w.left, setBack))
}

// inflictAll starts each fault at its time. It returns when the time of the traffic is over and all faults
// are healed.
func (w *world) inflictAll(ctx context.Context, r *result) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	var faults sync.WaitGroup
	for _, f := range r.Plan {
		pause(ctx, time.Until(start.Add(f.At)))
		if ctx.Err() != nil {
			break
		}
		r.say("%7.2f s  %v", f.At.Seconds(), f)
		faults.Go(func() {
			if err := w.inflict(ctx, f); err != nil {
				cancel(err)
			}
		})
	}
	pause(ctx, time.Until(start.Add(r.Length)))
	faults.Wait()
	return context.Cause(ctx)
}

// judge probes all locks, ends the processes, and checks the history.
func (w *world) judge(ctx context.Context, r *result, rules history.Rules) error {
	if err := w.tell(ctx, sayProbe); err != nil {
		return err
	}
	for _, n := range w.nodes {
		if n.dead.Load() {
			continue
		}
		times, has, err := n.deleted(ctx)
		if err != nil {
			return err
		}
		if r.Deletions += times; has {
			r.Deleters++
		}
	}
	if err := w.tell(ctx, sayGoodbye); err != nil {
		return err
	}
	logs := [][]history.Event{w.log.Events()}
	for _, p := range w.places {
		if err := p.finish(ctx); err != nil {
			return err
		}
	}
	r.Processes = append(w.retired, w.places...)
	for _, p := range r.Processes {
		events, err := p.read()
		if err != nil {
			return err
		}
		logs = append(logs, events)
	}
	r.Events = history.Merge(logs...)
	if r.Dir != "" {
		if err := keepEvents(filepath.Join(r.Dir, "events.jsonl"), r.Events); err != nil {
			return err
		}
	}
	r.Terms = slices.DeleteFunc(history.Terms(r.Events), func(t history.Term) bool { return t.Again }) // count each Lock once
	r.Violations = append(history.Check(r.Events, rules), farTokens(r.Events, w.origin)...)
	if r.Scene.tells {
		r.Violations = append(r.Violations, toldAgain(r.Events, refusals...)...)
	}
	if r.Scene.waits {
		r.Rests = history.Rests(r.Events, rules.Idle)
	}
	return nil
}

// keepEvents writes the history to a file.
func keepEvents(name string, events []history.Event) error {
	return writeFile(name, func(w io.Writer) error {
		buffer := bufio.NewWriter(w)
		log := history.NewLog(buffer)
		for _, e := range events {
			log.Note(e)
		}
		return errors.Join(log.Err(), buffer.Flush())
	})
}
