package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file plays the objection about jobs that several processes start at each tick. For that it also does what
// ShedLock does. It follows the source of ShedLock (github.com/lukas-krecan/ShedLock, the lock provider for JDBC
// without usingDbTime), but the record is in Redis:
//
//   - a record has the time until which the name is locked, by the clock of the client that has locked it;
//   - a client gets the lock if that time is not later than its own time;
//   - unlock sets the time in the record to the client's time. But it sets at least the time at which the client has
//     locked plus lockAtLeastFor.
//
// The Redis clients and the timings are not those of ShedLock.

var (
	shedAcquire = redis.NewScript(`
		local untilTime = redis.call('HGET', KEYS[1], 'lock_until')
		if untilTime and tonumber(untilTime) > tonumber(ARGV[1]) then return 0 end
		redis.call('HSET', KEYS[1], 'lock_until', ARGV[2])
		return 1`)
	shedRelease = redis.NewScript(`redis.call('HSET', KEYS[1], 'lock_until', ARGV[1]) return 1`)
)

var errShedTaken = errors.New("lock_until is later than now")

// accusedOfTicks are the libraries that can keep a lock for a least time, even if it is unlocked before.
var accusedOfTicks = []accused{
	accusedOnes[0],
	{
		name: shedLock, nodes: 1, open: openShed,
		key:       func(name string) string { return name },
		saysTaken: func(err error) bool { return errors.Is(err, errShedTaken) },
	},
}

// shedParty is a process that uses ShedLock.
type shedParty struct {
	client *redis.Client
	set    setting
}

func openShed(addrs []string, set setting) (party, error) {
	return &shedParty{dialAll(addrs)[0], set}, nil
}

func (p *shedParty) Close() { _ = p.client.Close() }

// now returns the time by the clock of the process.
func (p *shedParty) now() time.Time { return time.Now().Add(p.set.Ahead) }

// Lock makes one attempt, because ShedLock never waits.
func (p *shedParty) Lock(ctx context.Context, names ...string) (grip, error) {
	return p.TryLock(ctx, names...)
}

func (p *shedParty) TryLock(ctx context.Context, names ...string) (grip, error) {
	now := p.now()
	got, err := shedAcquire.Run(ctx, p.client, names[:1], now.UnixMilli(), now.Add(p.set.Expiry).UnixMilli()).Bool()
	if err == nil && !got {
		err = errShedTaken
	}
	return &shedGrip{p, names[0], now}, err
}

type shedGrip struct {
	party  *shedParty
	name   string
	locked time.Time
}

func (g *shedGrip) Held() bool                 { return g.party.now().Before(g.locked.Add(g.party.set.Expiry)) }
func (*shedGrip) Lost() <-chan struct{}        { return nil }
func (*shedGrip) Token() uint64                { return 0 }
func (*shedGrip) Extend(context.Context) error { return errors.ErrUnsupported }

func (g *shedGrip) Unlock(ctx context.Context) error {
	until := g.party.now()
	if least := g.locked.Add(g.party.set.AtLeast); until.Before(least) {
		until = least
	}
	return shedRelease.Run(ctx, g.party.client, []string{g.name}, until.UnixMilli()).Err()
}

// tickWithAClockAhead lets a message start a job in two processes. In the second process it starts a little later, when
// the job of the first has ended. The clock of the second process is ahead by more than the least time.
func tickWithAClockAhead(s *stage) finding {
	set := setting{Expiry: long, AtLeast: short}
	a := s.party(s.addrs(), set)
	set.Ahead = 2 * short
	b := s.party(s.addrs(), set)
	start := time.Now()
	if g, err := a.TryLock(s.t.Context(), sceneTick); err != nil {
		s.t.Fatalf("the first process could not lock: %v", err)
	} else if err := g.Unlock(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	_, err := b.TryLock(s.t.Context(), sceneTick)
	switch took := time.Since(start); {
	case took >= short:
		s.t.Skipf("the machine was too slow: both processes together took %v", took)
	case err == nil:
		return found(broken, "the job ran twice within %s, the least time is %s", seconds(took), seconds(short))
	case !s.accused.saysTaken(err):
		s.t.Fatal(err)
	}
	if _, ok := within(short+soon, func() bool { _, err := b.TryLock(s.t.Context(), sceneTick); return err == nil }); !ok {
		return found(broken, "still taken after %s", seconds(short+soon))
	}
	return found(kept, "the second process found it taken until the least time of %s had passed", seconds(short))
}

const sceneTick = "tick"
