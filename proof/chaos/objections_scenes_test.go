package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
)

// Expiries. A scene uses short if it waits for the end of a lock, and long if the lock
// must not end during the scene.
const (
	short = 2 * time.Second
	long  = 30 * time.Second

	// paused is for locks whose holder is stopped. It leaves time for a machine that stalls before the stop.
	paused = 6 * time.Second
)

// lasts is a lock that outlasts its scene.
var lasts = setting{Expiry: long}

func pausedHolderAsks(s *stage) finding {
	a := s.startChild(orders{Addrs: s.addrs(), Set: setting{Expiry: paused, Auto: true}})
	b := s.party(s.addrs(), lasts)
	a.goOn()
	a.next(saidLocked)
	a.stop()
	second := s.mustNext(b)
	a.cont()
	woke := a.next(saidWoke)
	switch {
	case !second.Held():
		s.Fatal("the second holder has lost the lock")
	case woke.Held:
		return found(broken, "told that it holds, for %s", woke.Longer.Round(100*time.Microsecond))
	}
	return found(kept, "told on its first look")
}

func pausedHolderWrites(s *stage) finding {
	data := realredis.Start(s, 1)[0]
	set := setting{Expiry: paused, Fencing: true}
	a := s.startChild(orders{Addrs: s.addrs(), Set: set, Data: data.Addr()})
	b := s.party(s.addrs(), setting{Expiry: long, Fencing: true})
	a.goOn()
	a.next(saidLocked)
	a.stop()
	second := s.mustNext(b)
	require.NoError(s, writeData(s.Context(), data.Client(), "the next one", second.Token))
	a.cont()
	a.next(saidWoke)
	a.goOn()
	wrote := a.next(saidWrote, saidFailed)
	switch {
	case wrote.What == saidWrote:
		return found(broken, "the late write went through")
	case !strings.Contains(wrote.Text, "is stale"):
		s.Fatalf("the write failed for another reason than a stale token: %s", wrote.Text)
	}
	return found(kept, "the late write was refused")
}

// pausedDuringLock is Kleppmann's second example: the replies wait in the kernel
// while the client is stopped, until the keys have expired. The node deadline is long, so that
// the scene can stop the client before it gives up. On a machine too slow for that, the client
// gives up, and does not get the lock.
func pausedDuringLock(s *stage) finding {
	detours, addrs := s.detours()
	a := s.startChild(orders{Addrs: addrs, Set: setting{Expiry: paused, Deadline: 0.45}, Once: true})
	b := s.party(s.addrs(), lasts)
	each(detours, (*detour).holdReplies)
	a.goOn()
	s.until("a quorum has the key", func() bool { return s.holding() >= s.quorum() || len(a.lines) > 0 })
	a.stop()
	each(detours, (*detour).resume)
	s.mustNext(b)
	a.cont()
	if said := a.next(saidLocked, saidFailed); said.What == saidLocked {
		return found(broken, "two holders")
	}
	return found(kept, "Lock failed")
}

func clocksForward(s *stage) finding {
	a, b := s.parties(lasts)
	g := s.lock(a, s.accused.nodes)
	s.jump(0, s.some(2), time.Hour)
	s.until("the keys have expired", func() bool { return s.holding() == s.accused.nodes-s.some(2) })
	return s.contest(g, b)
}

// clocksBack kills a holder after the clocks of some nodes were set back by an hour. These nodes keep its keys for an
// hour longer.
func clocksBack(s *stage) finding {
	a := s.startChild(orders{Addrs: s.addrs(), Set: setting{Expiry: short}})
	b := s.party(s.addrs(), lasts)
	a.goOn()
	a.next(saidLocked)
	within(short/4, func() bool { return s.holding() == s.accused.nodes })
	s.jump(0, s.some(2), -time.Hour)
	a.kill()
	start, limit := time.Now(), short+2*soon
	if _, err := s.next(b, limit); err != nil {
		return found(broken, "still taken after %s", seconds(limit))
	}
	return found(kept, "free after %s", seconds(time.Since(start)))
}

func clocksDiffer(s *stage) finding {
	s.jump(0, s.accused.nodes, time.Minute)
	a, b := s.parties(lasts)
	g, err := s.next(a, scenePatience)
	if err != nil {
		return found(broken, "Lock failed")
	}
	f := s.contest(g, b)
	if f.verdict == lost {
		f.saw = "a lock is over as soon as it is acquired"
	}
	return f
}

// clockOfABareQuorum is Kleppmann's first example.
func clockOfABareQuorum(s *stage) finding {
	detours, addrs := s.detours()
	set := setting{Expiry: long, Fencing: true}
	a, b := s.party(addrs, set), s.party(s.addrs(), set)
	detours[3].refuse()
	detours[4].refuse()
	g := s.lock(a, 3)
	s.jump(2, 3, time.Hour)
	s.until("its key has expired", func() bool { return !s.has(2) })
	return s.contest(g, b)
}

func (s *stage) restart(server int) {
	s.servers[server].Kill()
	s.servers[server].Restart()
}

// onAMinority lets two nodes forget the lock, one after the other.
func onAMinority(forget func(s *stage, server int)) func(*stage) finding {
	return func(s *stage) finding {
		a, b := s.parties(lasts)
		g := s.lock(a, s.accused.nodes)
		for i := range s.some(2) {
			forget(s, i)
		}
		return s.contest(g, b)
	}
}

func bareQuorumRestarts(set setting) func(*stage) finding {
	return func(s *stage) finding {
		a, b := s.parties(set)
		s.servers[3].Kill()
		s.servers[4].Kill()
		g := s.lock(a, 3)
		for _, i := range []int{3, 4, 2} {
			s.restart(i)
		}
		return s.contest(g, b)
	}
}

// lateSet holds up what process a sends to a quorum of nodes on its open connections, until
// a has given up or unlocked.
func lateSet(s *stage) finding {
	detours, addrs := s.detours()
	a := s.party(addrs, lasts)
	each(detours[:s.some(3)], (*detour).holdRequests)
	ctx := s.patience()
	if g, err := a.TryLock(ctx, sceneLock); err == nil {
		g.Unlock(ctx)
	}
	each(detours, (*detour).resume)
	time.Sleep(persistence / 2) // the late SETs arrive
	return s.gone()
}

func lateRelease(s *stage) finding {
	detours, addrs := s.detours()
	a, b := s.party(addrs, setting{Expiry: short}), s.party(s.addrs(), lasts)
	g := s.lock(a, 0)
	for _, d := range detours {
		d.hold(true, true, up) // on a new connection rueidislock would extend the lock
	}
	ctx := s.patience()
	var unlocking sync.WaitGroup
	unlocking.Go(func() { g.Unlock(ctx) })
	second := s.mustNext(b)
	each(detours, (*detour).resume)
	unlocking.Wait()
	time.Sleep(persistence / 2) // the late release arrives
	return s.unharmed(second)
}

// unharmed finds out whether a quorum of nodes still has the key of g, and whether g still holds the lock.
func (s *stage) unharmed(g grip) finding {
	if n := s.holding(); n < s.quorum() || !g.Held() {
		return found(broken, "the next holder's keys are on %d of %d nodes", n, s.accused.nodes)
	}
	return found(kept, "the next holder's keys stay")
}

func frozenMinority(s *stage) finding {
	a := s.party(s.addrs(), setting{Expiry: long, Deadline: 0.2}) // the deadline of 6 s is longer than prompt
	for i := range s.some(2) {
		s.servers[i].Freeze()
		defer s.servers[i].Thaw()
	}
	ctx := s.patience()
	var g grip
	steps := []struct {
		name string
		do   func() error
	}{
		{"TryLock", func() (err error) { g, err = a.TryLock(ctx, sceneLock); return err }},
		{"Extend", func() error { return g.Extend(ctx) }},
		{"Unlock", func() error { return g.Unlock(ctx) }},
	}
	var slowest time.Duration
	for _, step := range steps {
		start := time.Now()
		err := step.do()
		took := time.Since(start)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
		case err != nil:
			return found(broken, "%s failed after %s", step.name, seconds(took))
		case took > prompt:
			return found(broken, "%s took %s", step.name, seconds(took))
		}
		slowest = max(slowest, took)
	}
	return found(kept, "the slowest call took %.1f ms", slowest.Seconds()*1000)
}

// lostReplies loses the replies to the acquire on a quorum of nodes. These nodes have set
// the key. A client may ask again, and then has the lock.
func lostReplies(s *stage) finding {
	detours, addrs := s.detours()
	a := s.party(addrs, lasts)
	each(detours[:s.some(3)], (*detour).loseReplies)
	ctx := s.patience()
	g, err := a.TryLock(ctx, sceneLock)
	if err == nil {
		g.Unlock(ctx)
	}
	f := s.gone()
	if err != nil && s.accused.saysTaken(err) {
		return found(broken, "called taken by somebody else; %s", f.saw)
	}
	return f
}

func cancelledLock(s *stage) finding {
	a := s.party(s.addrs(), lasts)
	for i := range s.some(3) {
		s.servers[i].Freeze()
		defer s.servers[i].Thaw()
	}
	ctx, cancel := context.WithTimeout(s.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := a.TryLock(ctx, sceneLock)
	took := time.Since(start)
	for i := range s.some(3) {
		s.servers[i].Thaw()
	}
	require.Error(s, err)
	f := s.gone()
	if f.verdict == kept && took > soon {
		return found(broken, "Lock ended after %s, 0.1 s were given", seconds(took))
	}
	return f
}

// splitVote lets five processes lock the same name again and again.
func splitVote(s *stage) finding {
	const processes, times = 5, 4
	ctx := s.patience()
	var holder atomic.Pointer[grip]
	var two, failures atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range processes {
		p := s.party(s.addrs(), setting{Expiry: 8 * time.Second})
		wg.Go(func() {
			for range times {
				g, err := p.Lock(ctx, sceneLock)
				if err != nil {
					failures.Add(1)
					return
				}
				if other := holder.Swap(&g); other != nil && (*other).Held() && g.Held() {
					two.Add(1)
				}
				time.Sleep(2 * time.Millisecond)
				holder.CompareAndSwap(&g, nil)
				g.Unlock(ctx)
			}
		})
	}
	wg.Wait()
	switch {
	case two.Load() > 0:
		return found(broken, "two holders, %d times", two.Load())
	case failures.Load() > 0:
		return found(broken, "%d of %d processes did not get it in %s", failures.Load(), processes, seconds(scenePatience))
	}
	return found(kept, "%d holds of %d processes in %s", processes*times, processes, seconds(time.Since(start)))
}

// failover replaces a node by its replica, which does not have the key of the lock.
func failover(s *stage) finding {
	replica := realredis.Start(s, 1)[0]
	host, port, _ := strings.Cut(s.servers[0].Addr(), ":")
	realredis.Must(s, replica, "replicaof", host, port)
	s.until("the replica is in step", func() bool {
		info, err := replica.Do("info", "replication")
		return err == nil && strings.Contains(fmt.Sprint(info), "master_link_status:up")
	})
	detours, addrs := s.detours()
	a, b := s.party(addrs, lasts), s.party(addrs, lasts)
	// Replication is asynchronous, so a replica may lack the last writes. Here it receives none from now on.
	realredis.Must(s, replica, "replicaof", "no", "one")
	g := s.lock(a, s.accused.nodes)
	s.servers[0].Kill()
	detours[0].lead(replica.Addr())
	return s.contest(g, b)
}

// allFlushed lets b lock while a still believes that it holds the lock. Process a learns of its loss
// when it extends the lock next, or when the lock ends. On a machine that stalls, b may come only after
// that. Then the scene is played again with a longer expiry.
func allFlushed(s *stage) finding {
	flush := func() {
		for i := range s.servers {
			s.do(i, "flushall")
		}
	}
	for expiry := short; ; expiry *= 2 {
		set := setting{Expiry: expiry, Auto: true}
		a, b := s.parties(set)
		start := time.Now()
		g := s.lockBriefly(a)
		flush()
		f := s.contest(g, b)
		if f.verdict == broken || time.Since(start) < expiry/4 || expiry >= long {
			return f
		}
		flush() // b's lock
	}
}

// fill sets a small maxmemory on server i, and adds keys until the server has evicted the key of the lock.
func (s *stage) fill(i int) {
	s.do(i, "config", "set", "maxmemory-policy", "allkeys-random")
	s.do(i, "config", "set", "maxmemory", 4<<20) // bytes; an empty server uses about 1 MB
	text := strings.Repeat("x", 10_000)
	for n := 0; s.has(i); n++ {
		require.Less(s, n, 20_000)
		s.do(i, "set", fmt.Sprint("filler ", n), text)
	}
	s.do(i, "config", "set", "maxmemory", 0)
}

func extendAfterLoss(s *stage) finding {
	a, b := s.parties(setting{Expiry: short / 2, Heal: true}, lasts)
	g := s.lock(a, 0)
	second := s.mustNext(b)
	second.Unlock(s.Context()) // an answer may be late, but the keys are deleted
	s.until("the keys are gone", func() bool { return s.holding() == 0 })
	err := g.Extend(s.Context())
	left := s.holding()
	switch {
	case err == nil:
		return found(broken, "Extend succeeded, and set %s", countKeys(left))
	case left > 0:
		return found(broken, "Extend failed, and set %s", countKeys(left))
	}
	return found(kept, "Extend failed, and set nothing")
}

// taken deletes the keys of the lock, as if the nodes had lost them, and lets b acquire the lock.
func (s *stage) taken(b party) grip {
	for i := range s.servers {
		s.do(i, "del", s.accused.key(sceneLock))
	}
	return s.mustNext(b)
}

func autoExtensionAfterLoss(s *stage) finding {
	a, b := s.parties(setting{Expiry: short, Auto: true}, lasts)
	g := s.lockBriefly(a)
	second := s.taken(b)
	waited, ok := toldWithin(g, disbelief)
	switch {
	case !ok:
		return found(broken, "not told in %s", seconds(disbelief))
	case waited > short+tolerance:
		return found(broken, "told after %s, the expiry is %s", seconds(waited), seconds(short))
	}
	time.Sleep(short / 2) // leaves time for an extension that should not happen
	f := s.unharmed(second)
	if f.verdict == kept {
		f.saw = "told after " + seconds(waited)
	}
	return f
}

func unlockOfAnothers(s *stage) finding {
	a, b := s.parties(lasts)
	g := s.lock(a, s.accused.nodes)
	second := s.taken(b)
	g.Unlock(s.Context()) // this scene does not judge what Unlock returns
	time.Sleep(persistence / 2)
	return s.unharmed(second)
}

// cutOff cuts a holder off from all nodes. Another process waits for the lock. If the machine stalls, the holder may see too
// late that it was told. Then the scene is played again.
func cutOff(s *stage) finding {
	for plays := 1; ; plays++ {
		f, next, spoilt := cutOffOnce(s)
		if !spoilt || plays == 5 {
			return f
		}
		next.Unlock(s.Context()) // else its expiry ends the lock
	}
}

// cutOffOnce also returns the next holder, and whether the first one was told late while the machine stalled.
func cutOffOnce(s *stage) (f finding, next grip, spoilt bool) {
	detours, addrs := s.detours()
	set := setting{Expiry: short, Auto: true}
	a, b := s.party(addrs, set), s.party(s.addrs(), set)
	g := s.lock(a, 0)
	if s.accused.name != redsyncV4 { // the lock extends itself; wait for a time at which no extension is due
		time.Sleep(short * 7 / 4)
	}
	each(detours, (*detour).stall)
	came := make(chan time.Time, 1)
	go func() {
		var err error
		if next, err = s.next(b, scenePatience); err == nil {
			came <- time.Now()
		}
		close(came)
	}()
	start := time.Now()
	waited, ok := toldWithin(g, scenePatience)
	at := time.Now()
	stalled := at.Sub(start)-waited > stall.LongestLook
	since, got := <-came
	late := at.Sub(since)
	switch {
	case !got:
		s.Fatal("the waiting process did not get the lock")
	case !ok:
		f = found(broken, "never told")
	case late > tolerance:
		f = found(broken, "told %s after the next holder had come", seconds(late))
	case late > 0:
		f = found(kept, "told %d ms after the next holder had come, which is within what a busy machine is granted", late.Milliseconds())
	default:
		f = found(kept, "told before the next holder came")
	}
	return f, next, ok && late > tolerance && stalled
}

// replaceLast starts a server that replaces the last one. It returns the addresses before and after the replacement.
// The addresses before it lead to the servers through detours.
func (s *stage) replaceLast() (detours []*detour, before, after []string) {
	detours, before = s.detours()
	n := len(before)
	s.servers = append(s.servers, realredis.Start(s, 1)...)
	after = s.addrs()
	return detours, before, append(after[:n-1:n-1], after[n])
}

// overtaken returns the detours on which the messages of a process are slow, so that those of another process overtake
// them. They lead to two nodes that both processes have.
func overtaken(detours []*detour) []*detour {
	last := len(detours) - 1
	return detours[min(2, last):last]
}

// nodesReplaced lets process a, which has the old nodes, and process b, which has the new ones, lock at the same time.
// Nothing fails, but some messages of b are faster than those of a.
func nodesReplaced(s *stage) finding {
	detours, before, after := s.replaceLast()
	a, b := s.party(before, lasts), s.party(after, lasts)
	held := overtaken(detours)
	each(held, (*detour).holdRequests)
	ctx := s.patience()
	var g grip
	var errOfA error
	var locking sync.WaitGroup
	locking.Go(func() { g, errOfA = a.TryLock(ctx, sceneLock) })
	s.until("a has its quorum", func() bool { return s.holding() >= s.accused.nodes-len(held) })
	second, err := b.TryLock(ctx, sceneLock)
	each(held, (*detour).resume)
	locking.Wait()
	switch {
	case errOfA != nil:
		s.Fatalf("process a could not lock: %v", errOfA)
	case err != nil:
		return found(kept, "one holder")
	}
	return s.both(g, second)
}

// nodesReplacedJointly adds to nodesReplaced a third process j, which has both sets of nodes. Process a never locks
// beside b. Process j locks beside a, and then beside b.
func nodesReplacedJointly(s *stage) finding {
	detoursOfA, before, after := s.replaceLast()
	detoursOfJ, both := s.detours()
	last := len(before) - 1
	joint := setting{Expiry: long, After: append(both[:last:last], both[last+1])}
	a, j, b := s.party(before, lasts), s.party(both[:last+1], joint), s.party(after, lasts)
	steps := []struct {
		holder, other party
		slow          []*detour
	}{
		{a, j, overtaken(detoursOfA)},
		{j, a, overtaken(detoursOfJ[:last+1])},
		{j, b, overtaken(detoursOfJ[:last+1])},
	}
	for _, step := range steps {
		each(step.slow, (*detour).holdRequests)
		g := s.lock(step.holder, 0)
		f := s.contest(g, step.other)
		each(step.slow, (*detour).resume)
		if f.verdict != kept {
			return f
		}
		require.NoError(s, g.Unlock(s.Context()))
		if f := s.gone(); f.verdict != kept {
			return f
		}
	}
	return found(kept, "one holder, no key left")
}
