package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays clients that take permits, and draws how many permits there are.

// mostPermits is the largest number of permits that a name has.
const mostPermits = 5

// drawPermits draws how many permits each name has. Processes may disagree about that, unless nobody polls: a waiter behind
// one that uses a smaller number finds the permits beyond that number by polls only. A control has numbers with which the
// checks are likely to see its mistake.
func (p *simPlan) drawPermits(r *rand.Rand, in mistake) {
	n, disagree := 1+r.IntN(mostPermits), oneIn(r, 3)
	p.heavy = oneIn(r, 2)
	p.permits = nil
	for range simProcesses {
		if disagree {
			if other := 1 + r.IntN(mostPermits); !p.class[unpolled] {
				n = other
			}
		}
		p.permits = append(p.permits, n)
	}
	if in == counted {
		p.heavy, p.permits, p.names = false, []int{3, 3, 3}, p.names[:1]
	}
}

// heaviest returns how many of n permits a client wants at most.
func heaviest(n int) int { return min(3, n) }

// wantPermits makes t a term of a client that wants permits. It gets the options of t so far, and returns those that
// t uses.
func (t *simTerm) wantPermits(options []redsync.Option) []redsync.Option {
	c := t.client
	n, weight := c.permits[c.process], 1
	if c.heavy {
		weight = 1 + c.random.IntN(heaviest(n))
	}
	t.drawn.permits, t.drawn.weight, t.drawn.fences = n, weight, false
	return append(options, c.permitOptions(n, weight)...)
}

// wakes returns options for a client that waits for permits after all faults have ended. If wake-ups from all nodes can
// arrive, its retry delay is longer than its patience: then only a wake-up helps it, and polling does not.
func (s *simulation) wakes() []redsync.Option {
	if s.class[silence] || s.off >= 0 {
		return nil
	}
	return []redsync.Option{redsync.WithRetryDelay(2 * patient)}
}

// polls returns options for all clients that wait. In the class unpolled their retry delay is longer than anybody waits.
func (s *simulation) polls() []redsync.Option {
	if !s.class[unpolled] {
		return nil
	}
	return []redsync.Option{redsync.WithRetryDelay(2 * patient)}
}

// permitOptions returns the options of a client that wants weight of n permits.
func (s *simulation) permitOptions(n, weight int) []redsync.Option {
	options := []redsync.Option{redsync.WithPermits(n)}
	if s.heavy {
		options = append(options, redsync.WithFair(), redsync.WithWeight(weight))
	}
	return options
}

// wantsPermits returns the drawn options of every client of the process that uses permitsOf.
func (p *process) wantsPermits() drawnOptions {
	drawn := drawnOptions{watched: true, permits: p.simulation.permits[p.slot], weight: 1, defaults: true}
	if p.simulation.heavy {
		drawn.weight = 1 + p.slot%heaviest(drawn.permits)
	}
	return drawn
}

// permitsOf returns a Mutex that the clients of the process share. Several of them may call its Do at the same time, to
// take permits of a name.
func (p *process) permitsOf(name string) *redsync.Mutex {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.works[name] == nil {
		s, drawn := p.simulation, p.wantsPermits()
		p.works[name] = p.NewMutex(name, s.inTurn(s.expiry, s.permitOptions(drawn.permits, drawn.weight)...)...)
	}
	return p.works[name]
}

// allPermits lets clients of all processes hold all permits of a name at once. That succeeds only if nobody else holds
// a permit, and no permit was lost.
func (s *simulation) allPermits(name string) {
	n := slices.Max(s.permits)
	var all, served sync.WaitGroup
	served.Add(n)
	for i := range n {
		r := s.random(uint64(400 + i))
		all.Go(func() {
			time.Sleep(between(r, 0, 10*time.Millisecond))
			w := wish{names: []string{name}, permits: n, weight: 1}
			m := newMutex(s.current(i%simProcesses).Redsync, w.names, append(s.optionsOf(w), redsync.WithWatchdog()))
			ctx, cancel := context.WithTimeout(s.Context(), patient)
			defer cancel()
			err := m.LockContext(ctx)
			s.promised(err, i%simProcesses, w.names)
			served.Done()
			served.Wait()
			if err != nil {
				return
			}
			s.promised(m.Err(), i%simProcesses, w.names)
			_, err = m.Unlock()
			s.promised(err, i%simProcesses, w.names)
		})
	}
	all.Wait()
}

// crowd lets clients of all processes take permits of a name again and again, so that several permits are rarely free
// at once. A client that wants several permits at once must still be served.
func (s *simulation) crowd(name string) {
	n := slices.Max(s.permits)
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	for i := range n + simProcesses {
		r, one := s.random(uint64(500+i)), wish{names: []string{name}, permits: n, weight: 1}
		all.Go(func() {
			time.Sleep(between(r, 0, 10*time.Millisecond))
			for ctx.Err() == nil {
				hold := between(r, 20*time.Millisecond, 60*time.Millisecond)
				if i < n && s.heavy {
					s.tryOnce(i%simProcesses, hold, one)
				} else {
					s.isServed(i%simProcesses, hold, one)
				}
			}
		})
	}
	time.Sleep(60 * time.Millisecond)
	w := wish{names: []string{name}, permits: n, weight: 1}
	if s.heavy {
		w.weight = n
	}
	s.isServed(0, 0, w)
	cancel()
	all.Wait()
}

// tryOnce lets a client of process i make one attempt. If that succeeds, the client holds for the duration hold.
func (s *simulation) tryOnce(i int, hold time.Duration, w wish) {
	m := newMutex(s.current(i).Redsync, w.names, s.optionsOf(w))
	if m.TryLock() != nil {
		time.Sleep(hold / 20)
		return
	}
	time.Sleep(hold)
	_, err := m.Unlock()
	s.promised(err, i, w.names)
}

// takeAny and giveAll are the scripts of a semaphore that takes any free permits of a node. KEYS are the permits. ARGV
// has the value, the TTL and how many permits are wanted.
var (
	takeAny = redis.NewScript(`
		local free = {}
		for _, key in ipairs(KEYS) do
			if redis.call('EXISTS', key) == 0 then free[#free + 1] = key end
		end
		local wanted = tonumber(ARGV[3])
		if #free < wanted then return 0 end
		for i = 1, wanted do redis.call('SET', free[i], ARGV[1], 'PX', ARGV[2]) end
		return 1`)
	giveAll = redis.NewScript(`
		for _, key in ipairs(KEYS) do
			if redis.call('GET', key) == ARGV[1] then redis.call('DEL', key) end
		end
		return 1`)
)

// onAll runs a script on all nodes, with the keys of all permits of t's name. It returns how many nodes answered 1.
func (t *simTerm) onAll(ctx context.Context, script *redis.Script) int {
	ctx, cancel := context.WithTimeout(ctx, simNodeTimeout)
	defer cancel()
	var keys []string
	for i := range t.drawn.permits {
		keys = append(keys, fmt.Sprintf("{%s}:slot:%d", t.Name(), i))
	}
	value := fmt.Sprintf("%s #%d", t.client.name, t.number)
	var votes atomic.Int64
	var asking sync.WaitGroup
	for i := range simNodes {
		asking.Go(func() {
			vote, _ := script.Run(ctx, t.process.directTo(i), keys, value, t.expiry.Milliseconds(), t.drawn.weight).Int() // 0 if it fails
			votes.Add(int64(vote))
		})
	}
	asking.Wait()
	return int(votes.Load())
}

// takesAny plays a term of a client that counts the nodes that have granted it permits, even if they granted different
// ones. It does nothing and reports false if the scene does not ask for that mistake.
func (t *simTerm) takesAny(ctx context.Context) bool {
	c := t.client
	if t.drawn.permits == 0 || c.asked.mistake != counted {
		return false
	}
	end := time.Duration(0)
	for end <= 0 {
		start := c.now()
		if votes := t.onAll(ctx, takeAny); votes > simNodes/2 {
			end = start + t.expiry*8/10 - c.now() // 20 % less than the expiry: no clock of a node is that far off
			break
		}
		t.onAll(c.Context(), giveAll)
		if ctx.Err() != nil {
			t.note(history.Refused, errors.New("no quorum"))
			return true
		}
		c.pause(5*time.Millisecond, 15*time.Millisecond)
	}
	e := t.event(history.Held)
	e.Permits, e.Weight, e.Until = t.drawn.permits, t.drawn.weight, e.At+end
	c.log.Note(e)
	c.pause(0, t.expiry/2)
	t.note(history.Unlock, nil)
	t.onAll(c.Context(), giveAll)
	t.note(history.Unlocked, nil)
	return true
}

// directTo returns the client of a node that takesAny and the elders of the process use, without the library.
func (p *process) directTo(j int) *redis.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.direct[j] == nil {
		p.direct[j] = p.client(j)
	}
	return p.direct[j]
}

// slotOf returns the name to which the permit of a key belongs. It reports false if the key is not that of a permit.
func slotOf(key string) (name string, ok bool) {
	name, number, ok := strings.Cut(strings.TrimPrefix(key, "{"), "}:slot:")
	return name, ok && number != "queue"
}
