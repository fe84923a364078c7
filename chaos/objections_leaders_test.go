package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// This file plays the objections about leaders, with Lead of this library and with what package leaderelection of
// client-go does. The latter is re-enacted from its source (k8s.io/client-go/tools/leaderelection/leaderelection.go):
//
//   - a record names the leader. A client replaces it only if nobody has changed it since the client has read it;
//   - a client that sees the record changed notes the time of its own clock. It takes over when it has seen no change
//     for the lease duration;
//   - the leader changes the record every retry period. If it could not change the record for the renew deadline, the
//     context of its work ends.
//
// The record is in a Redis server instead of the Kubernetes API, with a script that compares and sets. By default the
// lease duration is 15 s, the renew deadline 10 s and the retry period 2 s. Here they have the same ratios.

// A leadingParty is a process that can lead.
type leadingParty interface {
	party
	// Lead waits until the process leads. The leadership outlives ctx.
	Lead(ctx context.Context, name string) (grip, error)
}

// pausedLeaderWrites stops a leader until another one leads. Then the former leader goes on with its write.
func pausedLeaderWrites(s *stage) finding {
	data := realredis.Start(s.t, 1)[0]
	set := setting{Expiry: paused}
	a := s.startChild(orders{Addrs: s.addrs(), Set: set, Data: data.Addr(), Leads: true})
	b := s.party(s.addrs(), set).(leadingParty)
	a.goOn()
	a.next(saidLocked)
	leading := make(chan grip, 1)
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	go func() {
		g, _ := b.Lead(ctx, sceneLock)
		leading <- g
	}()
	a.stop()
	next := <-leading
	if next == nil {
		return found(broken, "nobody leads after %s", seconds(scenePatience))
	}
	if err := writeData(s.t.Context(), data.Client(), "the next one", next.Token()); err != nil {
		s.t.Fatal(err)
	}
	a.cont()
	told := "told on its first look"
	if woke := a.next(saidWoke); woke.Held {
		told = "told that it leads, for " + seconds(woke.Longer)
	}
	a.goOn()
	wrote := a.next(saidWrote, saidFailed)
	switch {
	case wrote.What == saidWrote:
		return found(broken, "the late write went through. It was %s", told)
	case !strings.Contains(wrote.Text, "is stale"):
		s.t.Fatalf("the write failed for another reason than a stale token: %s", wrote.Text)
	}
	return found(kept, "the late write was refused. It was %s", told)
}

// Lead implements leadingParty.
func (p *thisParty) Lead(ctx context.Context, name string) (grip, error) {
	campaign, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	g := &leadGrip{resign: make(chan struct{}), done: make(chan error, 1)}
	leads := make(chan struct{})
	go func() {
		defer cancel()
		g.done <- p.rs.Lead(campaign, name, func(term context.Context) error {
			if g.Mutex != nil {
				return nil // a second term: the scene is over
			}
			g.Mutex, g.lost = redsync.FromContext(term), term.Done()
			g.token = g.Fence() // read it now, because Fence returns 0 after the term
			close(leads)
			select {
			case <-term.Done():
			case <-g.resign:
			}
			return nil
		})
	}()
	select {
	case <-leads:
		stop()
		return g, nil
	case err := <-g.done:
		return nil, err
	}
}

// A leadGrip is one term of a leader, in a call of Lead.
type leadGrip struct {
	*redsync.Mutex
	lost   <-chan struct{}
	token  uint64
	resign chan struct{}
	done   chan error
}

func (g *leadGrip) Held() bool                   { return g.Remaining() > 0 }
func (g *leadGrip) Lost() <-chan struct{}        { return g.lost }
func (g *leadGrip) Token() uint64                { return g.token }
func (*leadGrip) Extend(context.Context) error   { return errors.ErrUnsupported }
func (g *leadGrip) Unlock(context.Context) error { close(g.resign); return <-g.done }

// An electorParty is a process with a LeaderElector of client-go.
type electorParty struct {
	api      *redis.Client // in place of the API server
	set      setting
	renewing sync.WaitGroup
	ctx      context.Context //nolint:containedctx // of the process
	end      context.CancelFunc
}

func openElector(addrs []string, set setting) (party, error) {
	p := &electorParty{api: redis.NewClient(&redis.Options{Addr: addrs[0]}), set: set}
	p.ctx, p.end = context.WithCancel(context.Background())
	return p, nil
}

func (p *electorParty) Close() {
	p.end()
	p.renewing.Wait()
	_ = p.api.Close()
}

func (p *electorParty) Lock(ctx context.Context, names ...string) (grip, error) {
	return p.Lead(ctx, names[0])
}

func (p *electorParty) TryLock(ctx context.Context, names ...string) (grip, error) {
	e := p.elector(names[0])
	if !e.tryAcquireOrRenew(ctx) {
		return nil, errNotLeader
	}
	return e.leads(), nil
}

var errNotLeader = errors.New("somebody else leads")

// Lead implements leadingParty.
func (p *electorParty) Lead(ctx context.Context, name string) (grip, error) {
	e := p.elector(name)
	for !e.tryAcquireOrRenew(ctx) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		pause(ctx, p.retryPeriod())
	}
	return e.leads(), nil
}

func (p *electorParty) retryPeriod() time.Duration   { return p.set.Expiry * 2 / 15 }
func (p *electorParty) renewDeadline() time.Duration { return p.set.Expiry * 10 / 15 }

func (p *electorParty) elector(name string) *elector {
	e := &elector{party: p, name: name, identity: rand.Text()}
	e.ctx, e.stop = context.WithCancel(p.ctx)
	return e
}

// An elector is a client's view of the record. Only one goroutine at a time uses it.
type elector struct {
	party      *electorParty
	name       string
	identity   string
	observed   string    // the record, as it was read or written last
	observedAt time.Time // when it was seen to change, by the clock of this client

	ctx  context.Context //nolint:containedctx // of the leader's work
	stop context.CancelFunc
}

// An electionRecord is the content of the record. Each change makes it a different text.
type electionRecord struct {
	Holder  string
	Renewed time.Time // for display: nobody compares it with a clock
}

var compareAndSet = redis.NewScript(`
	if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
	redis.call('SET', KEYS[1], ARGV[2])
	return 1`)

func (e *elector) tryAcquireOrRenew(ctx context.Context) bool {
	now := time.Now()
	text, _ := json.Marshal(electionRecord{e.identity, now})
	old, err := e.party.api.Get(ctx, e.name).Result()
	switch {
	case errors.Is(err, redis.Nil):
		created, err := e.party.api.SetNX(ctx, e.name, text, 0).Result()
		if err == nil && created {
			e.observed, e.observedAt = string(text), now
		}
		return err == nil && created
	case err != nil:
		return false
	case old != e.observed:
		e.observed, e.observedAt = old, now
	}
	var record electionRecord
	_ = json.Unmarshal([]byte(old), &record)
	if record.Holder != "" && record.Holder != e.identity && now.Before(e.observedAt.Add(e.party.set.Expiry)) {
		return false
	}
	if done, err := compareAndSet.Run(ctx, e.party.api, []string{e.name}, old, text).Int(); err != nil || done == 0 {
		return false
	}
	e.observed, e.observedAt = string(text), now
	return true
}

// leads starts the renewals, and returns the leadership.
func (e *elector) leads() grip {
	renewed := make(chan struct{})
	e.party.renewing.Go(func() {
		defer close(renewed)
		defer e.stop() // ends the context of the leader's work
		for e.renew() {
			pause(e.ctx, e.party.retryPeriod())
		}
	})
	return &electorGrip{e, renewed}
}

// renew tries to change the record until it succeeds, or until the renew deadline has passed.
func (e *elector) renew() bool {
	ctx, cancel := context.WithTimeout(e.ctx, e.party.renewDeadline())
	defer cancel()
	for ctx.Err() == nil {
		if e.tryAcquireOrRenew(ctx) {
			return true
		}
		pause(ctx, e.party.retryPeriod())
	}
	return false
}

type electorGrip struct {
	*elector
	renewed <-chan struct{}
}

func (g *electorGrip) Held() bool                 { return g.ctx.Err() == nil }
func (g *electorGrip) Lost() <-chan struct{}      { return g.ctx.Done() }
func (*electorGrip) Token() uint64                { return 0 }
func (*electorGrip) Extend(context.Context) error { return errors.ErrUnsupported }

// Unlock does what client-go does with ReleaseOnCancel.
func (g *electorGrip) Unlock(ctx context.Context) error {
	g.stop()
	<-g.renewed
	text, _ := json.Marshal(electionRecord{Renewed: time.Now()})
	return compareAndSet.Run(ctx, g.party.api, []string{g.name}, g.observed, text).Err()
}
