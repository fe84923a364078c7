package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// This file plays the objections about locks on several names.

// otherLock is the second name of a lock on two names. The first is sceneLock, which the helpers of a stage use.
const otherLock = "objection, second name"

var twoLocks = []string{sceneLock, otherLock}

// standstill is how long a scene waits for progress. If there is none, the scene counts that as a deadlock.
const standstill = 3 * time.Second

// transfers starts one process for each list. The process locks all names of its list in that order, again and again.
func transfers(lists ...[]string) func(*stage) finding {
	return func(s *stage) finding {
		const times = 20
		ctx, cancel := context.WithCancel(s.t.Context())
		defer cancel()
		var done, two atomic.Int64
		holders := map[string]*atomic.Int64{}
		for _, names := range lists {
			for _, name := range names {
				holders[name] = &atomic.Int64{}
			}
		}
		var parties []party
		for range lists {
			parties = append(parties, s.party(s.addrs(), setting{Expiry: long}))
		}
		start := time.Now()
		var wg sync.WaitGroup
		for i, names := range lists {
			p := parties[i]
			wg.Go(func() {
				for range times {
					g, err := p.Lock(ctx, names...)
					if err != nil {
						return // the scene is over
					}
					for _, name := range names {
						if holders[name].Add(1) > 1 {
							two.Add(1)
						}
					}
					time.Sleep(2 * time.Millisecond)
					for _, name := range names {
						holders[name].Add(-1)
					}
					_ = g.Unlock(context.WithoutCancel(ctx))
					done.Add(1)
				}
			})
		}
		all, last, longest := int64(times*len(lists)), int64(0), time.Duration(0)
		for last < all {
			waited, ok := within(standstill, func() bool { return done.Load() > last })
			if !ok {
				break
			}
			longest, last = max(longest, waited), done.Load()
		}
		took := time.Since(start)
		cancel()
		wg.Wait()
		switch {
		case two.Load() > 0:
			return found(broken, "two holders, %d times", two.Load())
		case last < all:
			return found(broken, "%d of %d transfers, and then nobody got on for %s", last, all, seconds(standstill))
		}
		return found(kept, "%d transfers in %s; the longest pause took %s", all, seconds(took), seconds(longest))
	}
}

// circle returns a list of two names for each of n processes. Each process shares one name with each of its neighbors.
func circle(n int) (lists [][]string) {
	name := func(i int) string { return fmt.Sprintf("fork %d", i%n) }
	for i := range n {
		lists = append(lists, []string{name(i), name(i + 1)})
	}
	return lists
}

// holdAndWait has three parties. Party c holds one of two names for long. Party a waits for both names, and b wants
// only the name that is free.
func holdAndWait(s *stage) finding {
	const times = 5
	set := setting{Expiry: long}
	a, b, c := s.party(s.addrs(), set), s.party(s.addrs(), set), s.party(s.addrs(), set)
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	if _, err := c.Lock(ctx, otherLock); err != nil {
		s.t.Fatal(err)
	}
	waiting, stop := context.WithCancel(ctx)
	var waits sync.WaitGroup
	waits.Go(func() {
		if g, err := a.Lock(waiting, twoLocks...); err == nil {
			_ = g.Unlock(ctx)
		}
	})
	defer waits.Wait()
	defer stop()
	time.Sleep(persistence / 2) // a waits
	for i := range times {
		g, err := s.next(b, soon)
		if err != nil {
			return found(broken, "the free name was taken %d of %d times, for more than %s", times-i, times, seconds(soon))
		}
		if err := g.Unlock(ctx); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(persistence / 10)
	}
	return found(kept, "the free name was free, %d times", times)
}

// diesInRelease kills a holder whose release has reached two of five nodes.
func diesInRelease(s *stage) finding {
	detours, addrs := s.detours()
	a := s.startChild(orders{Addrs: addrs, Set: setting{Expiry: short}, Names: twoLocks, Unlocks: true})
	b := s.party(s.addrs(), setting{Expiry: long})
	a.goOn()
	a.next(saidLocked)
	start := time.Now()
	for _, d := range detours[:3] {
		d.holdRequests()
		d.future.up.shut()
	}
	a.goOn()
	s.until("the release is under way", func() bool { return s.holding() <= 3 || s.holdingOf(otherLock) <= 3 })
	a.kill()
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	if _, err := b.Lock(ctx, twoLocks...); err != nil {
		return found(broken, "still taken after %s", seconds(scenePatience))
	}
	if took := time.Since(start); took > short+soon {
		return found(broken, "free after %s, the expiry is %s", seconds(took), seconds(short))
	}
	return found(kept, "free within the expiry")
}

// lostReleases loses the replies to the release on three nodes. Meanwhile process b waits for one of the names.
func lostReleases(s *stage) finding {
	detours, addrs := s.detours()
	a, b := s.party(addrs, setting{Expiry: long}), s.party(s.addrs(), setting{Expiry: long})
	g := s.lockBoth(a)
	for _, d := range detours[:3] {
		d.loseReplies()
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	var unlocking sync.WaitGroup
	unlocking.Go(func() { _ = g.Unlock(ctx) }) // this scene does not judge what Unlock returns
	start := time.Now()
	second := s.mustNext(b)
	took := time.Since(start)
	unlocking.Wait()
	time.Sleep(persistence / 2) // leaves time for a release that is sent again
	f := s.unharmed(second)
	switch _, ok := within(soon, func() bool { return s.holdingOf(otherLock) == 0 }); {
	case f.verdict != kept:
		return f
	case !ok:
		return found(broken, "%s of the other name left", countKeys(s.holdingOf(otherLock)))
	case took > soon:
		return found(broken, "free after %s", seconds(took))
	}
	return found(kept, "free after %s, the next holder's keys stay", seconds(took))
}

// oneOfTheKeysGone deletes the keys of one name on some nodes. Then b tries to get that name.
func oneOfTheKeysGone(nodes int) func(*stage) finding {
	return func(s *stage) finding {
		for expiry := short; ; expiry *= 2 { // for the reason see allFlushed
			a, b := s.party(s.addrs(), setting{Expiry: expiry, Auto: true}), s.party(s.addrs(), setting{Expiry: long})
			start := time.Now()
			g := s.lockBoth(a)
			for i := range nodes {
				s.do(i, "del", sceneLock)
			}
			f := s.contest(g, b)
			if f.verdict != kept && nodes == s.quorum() {
				_ = g.Unlock(s.t.Context()) // it may say that the lock is lost
				if _, ok := within(soon, func() bool { return s.holdingOf(otherLock) == 0 }); !ok {
					return found(broken, "%s; %s of the other name left", f.saw, countKeys(s.holdingOf(otherLock)))
				}
			}
			if f.verdict == broken || nodes < s.quorum() || time.Since(start) < expiry/4 || expiry >= long {
				return f
			}
			for i := range s.servers {
				s.do(i, "flushall")
			}
		}
	}
}

// lockBoth acquires both names, and waits for a short time until all nodes have the keys. On a machine that has
// stalled, some keys may have expired already.
func (s *stage) lockBoth(p party) grip {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	g, err := p.Lock(ctx, twoLocks...)
	if err != nil {
		s.t.Fatalf("the process could not lock both names: %v", err)
	}
	within(short/4, func() bool {
		return s.holding() == s.accused.nodes && s.holdingOf(otherLock) == s.accused.nodes
	})
	return g
}
