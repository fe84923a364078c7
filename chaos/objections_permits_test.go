package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// This file plays the objections about permits.

// A permitParty is a process that can hold permits of a name.
type permitParty interface {
	party
	// Permit waits until it has acquired weight of the n permits.
	Permit(ctx context.Context, name string, n, weight int) (grip, error)
}

func (p *thisParty) Permit(ctx context.Context, name string, n, weight int) (grip, error) {
	m := p.rs.NewMutex(name, redsync.WithPermits(n), redsync.WithWeight(weight), redsync.WithFair(), redsync.WithTries(0))
	return thisGrip{m}, m.LockContext(ctx)
}

// taker opens the library for a process that takes permits.
func (s *stage) taker(addrs []string, set setting) permitParty {
	s.t.Helper()
	return s.party(addrs, set).(permitParty)
}

// take acquires weight of the n permits of sceneLock, within limit.
func (s *stage) take(p permitParty, n, weight int, limit time.Duration) (grip, error) {
	ctx, cancel := bounded(s.t.Context(), limit)
	defer cancel()
	return p.Permit(ctx, sceneLock, n, weight)
}

func (s *stage) mustTake(p permitParty, n, weight int) grip {
	s.t.Helper()
	g, err := s.take(p, n, weight, scenePatience)
	if err != nil {
		s.t.Fatalf("the process did not get its permits: %v", err)
	}
	return g
}

// takeEach lets each party wait for one of n permits. It waits until at least must parties have a permit, or until
// scenePatience has passed, and then for a while longer. It returns the permits that are held in the end.
func (s *stage) takeEach(parties []permitParty, n, must int) (held []grip) {
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	grips := make([]grip, len(parties))
	var taking sync.WaitGroup
	var taken atomic.Int64
	for i, p := range parties {
		taking.Go(func() {
			if g, err := p.Permit(ctx, sceneLock, n, 1); err == nil {
				grips[i] = g
				taken.Add(1)
			}
		})
	}
	within(scenePatience, func() bool { return taken.Load() >= int64(must) })
	time.Sleep(persistence / 4)
	cancel()
	taking.Wait()
	for _, g := range grips {
		if g != nil && g.Held() {
			held = append(held, g)
		}
	}
	return held
}

// eachOnTwoNodes lets seven processes want one of five permits. Each process reaches two of three nodes, but not all
// processes reach the same two.
func eachOnTwoNodes(s *stage) finding {
	const n, processes = 5, 7
	var parties []permitParty
	for i := range processes {
		detours, addrs := s.detours()
		parties = append(parties, s.taker(addrs, setting{Expiry: long}))
		detours[i%s.accused.nodes].refuse()
	}
	held := s.takeEach(parties, n, n)
	switch {
	case len(held) > n:
		return found(broken, "%d of %d processes had one at once", len(held), processes)
	case len(held) < n:
		return found(broken, "%d permits were left unused", n-len(held))
	}
	return found(kept, "%d of %d processes had one", len(held), processes)
}

// permitHolderDies kills the holder of one of two permits. The other holder goes on.
func permitHolderDies(s *stage) finding {
	const n = 2
	a := s.startChild(orders{Addrs: s.addrs(), Set: setting{Expiry: short}, Permits: n})
	b, c := s.taker(s.addrs(), setting{Expiry: long}), s.taker(s.addrs(), setting{Expiry: long})
	other := s.mustTake(b, n, 1)
	start := time.Now()
	a.goOn()
	a.next(saidLocked)
	a.kill()
	g, err := s.take(c, n, 1, short+soon)
	took := time.Since(start)
	switch {
	case err != nil:
		return found(broken, "still taken after %s, the expiry is %s", seconds(short+soon), seconds(short))
	case took < short*9/10:
		return found(broken, "it was free after %s, the expiry is %s", seconds(took), seconds(short))
	case !other.Held() || !g.Held():
		return found(broken, "the others have lost theirs")
	}
	return found(kept, "free after %s, the expiry is %s", seconds(took), seconds(short))
}

// permitHolderPaused stops the holder of one of two permits until another has it. Then the holder writes.
func permitHolderPaused(s *stage) finding {
	const n, expiry = 2, paused * 2 / 3 // longer than pauseSeen, so that the child notices its pause
	data := realredis.Start(s.t, 1)[0]
	a := s.startChild(orders{Addrs: s.addrs(), Set: setting{Expiry: expiry}, Data: data.Addr(), Permits: n})
	b, c := s.taker(s.addrs(), setting{Expiry: long}), s.taker(s.addrs(), setting{Expiry: long})
	s.mustTake(b, n, 1)
	a.goOn()
	a.next(saidLocked)
	a.stop()
	s.mustTake(c, n, 1)
	a.cont()
	told := "told on its first look"
	if woke := a.next(saidWoke); woke.Held {
		told = "told that it holds, for " + woke.Longer.Round(100*time.Microsecond).String()
	}
	a.goOn()
	if wrote := a.next(saidWrote, saidFailed); wrote.What == saidFailed {
		return found(kept, "the late write failed: %s", wrote.Text)
	}
	return found(broken, "the late write went through. It was %s", told)
}

// heavyAmongLight lets one process want three of four permits, while others take one each so often that none is free.
func heavyAmongLight(s *stage) finding {
	const n, weight, light = 4, 3, 6
	set := setting{Expiry: long}
	heavy := s.taker(s.addrs(), set)
	ctx, cancel := context.WithCancel(s.t.Context())
	var streaming sync.WaitGroup
	defer streaming.Wait()
	defer cancel()
	for i := range light {
		p := s.taker(s.addrs(), set)
		streaming.Go(func() {
			pause(ctx, time.Duration(i)*20*time.Millisecond)
			for ctx.Err() == nil {
				if g, err := p.Permit(ctx, sceneLock, n, 1); err == nil {
					pause(ctx, 100*time.Millisecond)
					_ = g.Unlock(context.WithoutCancel(ctx)) // on a machine that stalls the permit may be lost
				}
			}
		})
	}
	time.Sleep(persistence / 2)
	start := time.Now()
	g, err := s.take(heavy, n, weight, 2*soon)
	if err != nil {
		return found(broken, "it had to wait for more than %s", seconds(2*soon))
	}
	took := time.Since(start)
	_ = g.Unlock(s.t.Context())
	return found(kept, "it had %d of %d after %s", weight, n, seconds(took))
}

// permitsOnABareQuorum lets two processes take both permits while one of three nodes is down. Then one of the other two
// restarts without its data.
func permitsOnABareQuorum(set setting) func(*stage) finding {
	return func(s *stage) finding {
		const n = 2
		a, b, c := s.taker(s.addrs(), set), s.taker(s.addrs(), set), s.taker(s.addrs(), set)
		s.servers[2].Kill()
		held := []grip{s.mustTake(a, n, 1), s.mustTake(b, n, 1)}
		s.restart(2)
		s.restart(1)
		limit := soon
		if set.Guard {
			limit = persistence
		}
		third, err := s.take(c, n, 1, limit)
		if err != nil {
			return found(kept, "two holders of two permits")
		}
		overlap, _ := toldWithin(held[0], 2*tolerance)
		if overlap <= tolerance || !third.Held() {
			return found(lost, "the first was told at once")
		}
		return found(broken, "three holders of two permits")
	}
}

// fewerPermits deploys processes that know of one permit while three processes hold one of three.
func fewerPermits(s *stage) finding {
	const before, after = 3, 1
	set := setting{Expiry: long}
	var old, young []permitParty
	for range before {
		old = append(old, s.taker(s.addrs(), set))
		young = append(young, s.taker(s.addrs(), set))
	}
	held := s.takeEach(old, before, before)
	if len(held) != before {
		return found(broken, "%d of %d permits could be had", len(held), before)
	}
	if more := s.takeEach(young, after, 0); len(more) > 0 {
		return found(broken, "%d held at once", len(held)+len(more))
	}
	unlock := func(g grip) {
		if err := g.Unlock(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
	unlock(held[0])
	beside := s.takeEach(young, after, 0)
	if len(beside)+before-1 > before || len(beside) > after {
		return found(broken, "%d held at once", len(beside)+before-1)
	}
	unlock(held[1])
	unlock(held[2])
	for _, g := range beside {
		unlock(g)
	}
	end := s.takeEach(young, after, after)
	if len(end) != after {
		return found(broken, "%d held of %d", len(end), after)
	}
	return found(kept, "never more than %d, and %d when the old ones had ended", before, after)
}
