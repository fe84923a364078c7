package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// This file plays the objections about readers and writers.

// A readingParty is a process that can hold a name together with others, to read.
type readingParty interface {
	party
	Read(ctx context.Context, name string) (grip, error)
	// WithRead calls read while it holds the name as a reader. The context of read tells the library so.
	WithRead(ctx context.Context, name string, read func(context.Context) error) error
}

func (p *thisParty) Read(ctx context.Context, name string) (grip, error) {
	m := p.rs.NewMutex(name, redsync.WithShared(), redsync.WithTries(0))
	return thisGrip{m}, m.LockContext(ctx)
}

func (p *thisParty) WithRead(ctx context.Context, name string, read func(context.Context) error) error {
	return p.rs.Do(ctx, name, read, redsync.WithShared(), redsync.WithTries(0))
}

// reader opens the library for readers.
func (s *stage) reader(addrs []string, set setting) readingParty {
	s.t.Helper()
	return s.party(addrs, set).(readingParty)
}

// read acquires the lock to read.
func (s *stage) read(p readingParty) grip {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	g, err := p.Read(ctx, sceneLock)
	if err != nil {
		s.t.Fatalf("Read: %v", err)
	}
	return g
}

// stream lets processes lock, hold for the time hold, unlock and pause for the time gap, again and again until stop is
// called.
func (s *stage) stream(processes int, set setting, lock func(context.Context, readingParty) (grip, error), hold, gap time.Duration) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	var streaming sync.WaitGroup
	for i := range processes {
		p := s.reader(s.addrs(), set)
		streaming.Go(func() {
			pause(ctx, hold*time.Duration(i)/time.Duration(processes)) // each one comes at another moment, while others hold
			for ctx.Err() == nil {
				if g, err := lock(ctx, p); err == nil {
					pause(ctx, hold)
					_ = g.Unlock(context.WithoutCancel(ctx)) // on a machine that stalls the lock may be lost
				}
				pause(ctx, gap)
			}
		})
	}
	return func() { cancel(); streaming.Wait() }
}

func toRead(ctx context.Context, p readingParty) (grip, error)  { return p.Read(ctx, sceneLock) }
func toWrite(ctx context.Context, p readingParty) (grip, error) { return p.Lock(ctx, sceneLock) }

// readersOverlap lets readers come so often that the name is never free. A writer waits.
func readersOverlap(s *stage) finding {
	set := setting{Expiry: long}
	writer := s.party(s.addrs(), set)
	stop := s.stream(3, set, toRead, 150*time.Millisecond, 0)
	defer stop()
	time.Sleep(persistence / 2)
	start := time.Now()
	g, err := s.next(writer, 2*soon)
	if err != nil {
		return found(broken, "the writer had to wait for more than %s", seconds(2*soon))
	}
	took := time.Since(start)
	_ = g.Unlock(s.t.Context())
	return found(kept, "the writer had it after %s", seconds(took))
}

// readersOverlapATry is readersOverlap with a writer that only tries. No writer waits, so the next reader need not wait
// for one. So each reader can hold the name until the next one has it.
func readersOverlapATry(s *stage) finding {
	set := setting{Expiry: long}
	writer := s.party(s.addrs(), set)
	parties := []readingParty{s.reader(s.addrs(), set), s.reader(s.addrs(), set)}
	ctx, cancel := context.WithCancel(s.t.Context())
	var streaming sync.WaitGroup
	defer streaming.Wait()
	defer cancel()
	holder := s.read(parties[0])
	streaming.Go(func() {
		for i := 1; ; i++ {
			pause(ctx, 50*time.Millisecond)
			next, err := parties[i%2].Read(ctx, sceneLock)
			_ = holder.Unlock(context.WithoutCancel(ctx)) // on a machine that stalls the lock may be lost
			if err != nil {
				return // the scene is over
			}
			holder = next
		}
	})
	_, ok := within(2*persistence, func() bool {
		g, err := writer.TryLock(s.t.Context(), sceneLock)
		if err == nil {
			_ = g.Unlock(s.t.Context())
		}
		return err == nil
	})
	if !ok {
		return found(broken, "the writer did not get it within %s", seconds(2*persistence))
	}
	return found(kept, "the writer got it")
}

// writersStream lets writers come so often that one always waits. Then readers come.
func writersStream(s *stage) finding {
	const readers = 4
	set := setting{Expiry: long}
	var parties []readingParty
	for range readers {
		parties = append(parties, s.reader(s.addrs(), set))
	}
	stop := s.stream(3, set, toWrite, 30*time.Millisecond, 0)
	defer stop()
	time.Sleep(persistence / 2)
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	var in atomic.Int64
	var reading sync.WaitGroup
	for _, p := range parties {
		reading.Go(func() {
			g, err := p.Read(ctx, sceneLock)
			if err != nil {
				return
			}
			in.Add(1)
			within(soon, func() bool { return in.Load() == readers }) // all read at once
			_ = g.Unlock(context.WithoutCancel(ctx))
		})
	}
	took, _ := within(scenePatience, func() bool { return in.Load() == readers })
	reading.Wait()
	switch {
	case in.Load() < readers:
		return found(broken, "%d of %d readers had it within %s", in.Load(), readers, seconds(scenePatience))
	case took > soon:
		return found(broken, "the last of %d readers had it after %s", readers, seconds(took))
	}
	return found(kept, "the last of %d readers had it after %s", readers, seconds(took))
}

// readerDies kills a reader, while others come and go, one at a time. Then a writer comes, which locks by calling get.
func readerDies(get func(s *stage, p party, limit time.Duration) error) func(*stage) finding {
	return func(s *stage) finding {
		a := s.startChild(orders{Addrs: s.addrs(), Set: setting{Expiry: short}, Reads: true})
		writer := s.party(s.addrs(), setting{Expiry: long})
		stop := s.stream(1, setting{Expiry: short}, toRead, 50*time.Millisecond, 50*time.Millisecond)
		defer stop()
		a.goOn()
		a.next(saidLocked)
		start, limit := time.Now(), short+soon
		a.kill()
		if err := get(s, writer, limit); err != nil {
			return found(broken, "still taken after %s, the expiry is %s", seconds(limit), seconds(short))
		}
		return found(kept, "the writer had it after %s, the expiry is %s", seconds(time.Since(start)), seconds(short))
	}
}

func byWaiting(s *stage, p party, limit time.Duration) error {
	g, err := s.next(p, limit)
	if err == nil {
		_ = g.Unlock(s.t.Context())
	}
	return err
}

func byTrying(s *stage, p party, limit time.Duration) error {
	err := errors.New("no attempt")
	within(limit, func() bool {
		var g grip
		if g, err = p.TryLock(s.t.Context(), sceneLock); err == nil {
			_ = g.Unlock(s.t.Context())
		}
		return err == nil
	})
	return err
}

// upgrades lets two readers read a number and then lock to add 1. If that is refused, they end the read, lock, and read
// the number again.
func upgrades(s *stage) finding {
	data := realredis.Start(s.t, 1)[0].Client()
	set := setting{Expiry: long}
	ctx, cancel := bounded(s.t.Context(), standstill)
	defer cancel()
	var haveRead, upgrading sync.WaitGroup
	var refused, done atomic.Int64
	haveRead.Add(2)
	add := func(ctx context.Context, p party, read func() int) error {
		g, err := p.Lock(ctx, sceneLock)
		if err != nil {
			return err
		}
		defer func() { _ = g.Unlock(context.WithoutCancel(ctx)) }()
		return data.Set(ctx, dataKey, read()+1, 0).Err()
	}
	number := func() int {
		n, err := data.Get(s.t.Context(), dataKey).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			s.t.Error(err)
		}
		return n
	}
	parties := []readingParty{s.reader(s.addrs(), set), s.reader(s.addrs(), set)}
	start := time.Now()
	for _, p := range parties {
		upgrading.Go(func() {
			err := p.WithRead(ctx, sceneLock, func(ctx context.Context) error {
				n := number()
				haveRead.Done()
				haveRead.Wait()
				return add(ctx, p, func() int { return n })
			})
			if errors.Is(err, redsync.ErrUpgrade) {
				refused.Add(1)
				err = add(ctx, p, number)
			}
			if err == nil {
				done.Add(1)
			}
		})
	}
	upgrading.Wait()
	switch n := number(); {
	case done.Load() < 2:
		return found(broken, "only %d of 2 upgrades ended within %s: each waited for the other", done.Load(), seconds(standstill))
	case n != 2:
		return found(broken, "an update was lost: the number is %d", n)
	}
	return found(kept, "%d upgrades were refused, and after %s both clients had written", refused.Load(), seconds(time.Since(start)))
}

// pausedReader stops a reader until a writer has written one half of the data. Then the reader reads.
func pausedReader(s *stage) finding {
	data := realredis.Start(s.t, 1)[0]
	set := setting{Expiry: paused, Fencing: true}
	a := s.startChild(orders{Addrs: s.addrs(), Set: set, Data: data.Addr(), Reads: true})
	b := s.party(s.addrs(), setting{Expiry: long, Fencing: true})
	a.goOn()
	a.next(saidLocked)
	a.stop()
	second := s.mustNext(b)
	if err := writeData(s.t.Context(), data.Client(), "half", second.Token()); err != nil {
		s.t.Fatal(err)
	}
	a.cont()
	a.next(saidWoke)
	a.goOn()
	read := a.next(saidRead, saidFailed)
	switch {
	case read.What == saidRead:
		return found(broken, "the late reader read data of which the writer had written only one %s", read.Text)
	case !strings.Contains(read.Text, "is stale"):
		s.t.Fatalf("the read failed: %s", read.Text)
	}
	return found(kept, "the late read was refused")
}

// cutOffReader is cutOff with a reader that is cut off, and a writer that comes next.
func cutOffReader(s *stage) finding {
	return cutOffHolder(s, func(p party) grip { return s.read(p.(readingParty)) })
}

// readData reads the data, with the token unless it is 0.
func readData(ctx context.Context, data *redis.Client, token uint64) (string, error) {
	if token != 0 {
		return fencing.NewRedis(data).Read(ctx, dataKey, token, 0)
	}
	return data.Get(ctx, dataKey).Result()
}

// downgradeLost holds up a downgrade on the way to two of five nodes. Then a reader comes, and another writer.
func downgradeLost(s *stage) finding {
	detours, addrs := s.detours()
	set := setting{Expiry: long}
	a, b, c := s.reader(addrs, set), s.reader(s.addrs(), set), s.party(s.addrs(), set)
	g := s.lock(a, s.accused.nodes)
	for _, d := range detours[:2] {
		d.stall()
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), scenePatience)
	defer cancel()
	if err := g.(thisGrip).m.Downgrade(ctx); err != nil {
		return found(broken, "the downgrade failed")
	}
	start := time.Now()
	second := s.read(b)
	if took := time.Since(start); took > soon {
		return found(broken, "a reader had to wait for %s", seconds(took))
	}
	refused := func() bool {
		_, got := within(persistence/2, func() bool {
			_, err := c.TryLock(ctx, sceneLock)
			return err == nil
		})
		return !got
	}
	if !refused() {
		return found(broken, "a writer beside two readers")
	}
	if err := second.Unlock(ctx); err != nil {
		s.t.Fatal(err)
	}
	if !refused() || !g.Held() {
		return found(broken, "a writer beside the reader that has been one")
	}
	for _, d := range detours {
		d.resume()
	}
	if err := g.Unlock(ctx); err != nil {
		s.t.Fatal(err)
	}
	third := s.mustNext(c)
	defer func() { _ = third.Unlock(ctx) }()
	if f := s.unharmed(third); f.verdict != kept {
		return f
	}
	return found(kept, "a reader beside it, and no writer until both had unlocked")
}
