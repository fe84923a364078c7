package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file runs a simulation from beginning to end, and looks at the keys on its nodes.

// simulate runs one simulation and returns its history.
func simulate(t *testing.T, seed uint64, in scene) (*simulation, []history.Event) {
	t.Helper()
	s := &simulation{T: t, seed: seed, asked: in}
	s.draw(s.random(1), in)
	// A fatal failure in the bubble also ends this function. Then the history is logged and checked here.
	returned := false
	defer func() {
		if s.T = t; !returned {
			t.Log(tell(s.log.Events()))
			s.check(t, s.log.Events())
		}
	}()
	s.inBubble(t, s.run)
	returned = true
	return s, s.log.Events()
}

// inBubble calls run in virtual time, with random numbers that depend on the seed alone.
func (s *simulation) inBubble(t *testing.T, run func()) {
	t.Helper()
	setRandom(t, s.seed) // for values, and for the names by which the nodes know processes
	formerSource := jitter.Source
	defer func() { jitter.Source = formerSource }()
	jitter.Source = s.jitter
	synctest.Test(t, func(t *testing.T) {
		s.T = t
		s.start = time.Now()
		run()
	})
	s.T = t
}

// run plays a simulation from beginning to end, in its bubble.
func (s *simulation) run() {
	fortests.ForgetValues() // of the simulation before
	s.nodes = embedded.Start(1 + slices.Max(slices.Concat(s.sets...)))
	if s.realm == guarded {
		time.Sleep(3 * time.Second) // uptimes are in whole seconds: see pool.WithNoLocksBefore
		s.start = time.Now()
	}
	defer s.stepClocks(s.clockSteps(s.random(2)))()
	for i, n := range s.nodes {
		s.welcome(i)
		n.Rewrite(s.rewrite)
		if s.class[greetings] {
			n.Select(simDatabase)
		}
	}
	if s.class[native] {
		s.beNewer(s.random(8))
	}
	s.turnOff()
	defer func() {
		s.nodes.Close()
		time.Sleep(time.Minute) // wait for goroutines that end by themselves
	}()
	s.open()
	defer func() {
		for _, p := range slices.Concat(s.former, s.processes[:]) {
			_ = p.Close(s.Context())
		}
	}()
	s.play()
	s.quiesce()
}

// open starts the processes, which get to know the nodes while nothing goes wrong.
func (s *simulation) open() {
	s.calm.Store(true)
	r := s.random(3)
	if s.rates {
		for _, n := range s.nodes {
			rate := 1 - 2*r.Float64()
			if s.class[fast] {
				rate = 1
			}
			n.SetClock(0, 1+0.95*s.drift*rate)
		}
	}
	for i := range s.processes {
		s.processes[i] = s.process(i, 0)
		m := s.processes[i].NewMutex("meet", s.lasting(s.longest, redsync.WithNodeTimeout(s.longest/3))...)
		assert.NoError(s, m.Lock())
		_, err := m.Unlock()
		assert.NoError(s, err)
		s.setAhead(r, s.processes[i])
	}
	s.calm.Store(false)
}

// setAhead makes some processes propose tokens as if their clocks were ahead. It does so only where the order of tokens
// does not depend on clocks.
func (s *simulation) setAhead(r *rand.Rand, p *process) {
	if !oneIn(r, 3) || s.realm == lawless || s.realm.changes() && !s.joined {
		return
	}
	ahead := between(r, 0, 6*time.Second)
	for _, name := range s.names {
		fortests.KnowsToken(p.Redsync, name, uint64(time.Now().Add(ahead).UnixMicro()))
	}
}

// over reports whether clients begin no more terms.
func (s *simulation) over() bool {
	return s.now() >= s.lasts && (s.deployed.Load() || !s.realm.changes())
}

// A player is what all kinds of clients have.
type player struct {
	*simulation
	process int
	name    string
	random  *rand.Rand
	term    int
}

// player makes the player with the number i of its kind. kind is the number of the kind's first random sequence.
func (s *simulation) player(i, kind int, name string) player {
	return player{simulation: s, process: i % simProcesses, name: name, random: s.random(uint64(kind + i))}
}

// within makes a player that acts in a term of another one.
func (p *player) within(process int, name string) player {
	return player{simulation: p.simulation, process: process, name: name, random: rand.New(rand.NewPCG(p.random.Uint64(), 1))}
}

func (p *player) pause(least, most time.Duration) { time.Sleep(between(p.random, least, most)) }

func (p *player) oneIn(n int) bool { return oneIn(p.random, n) }

// play runs the clients and causes faults until the time is over.
func (s *simulation) play() {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var clients, others sync.WaitGroup
	others.Go(func() { s.watch(ctx, s.random(4)) })
	if !s.class[unpolled] {
		others.Go(func() { s.disturb(s.random(5)) })
	}
	if s.realm.changes() {
		others.Go(func() { s.deploy(s.random(6)) })
	}
	if s.asked.mistake == forgets {
		others.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
				fortests.ForgetValues()
			}
		})
	}
	if s.class[closing] {
		others.Go(func() { s.closeAll(s.random(7)) })
	}
	for i := range s.clientCount() {
		clients.Go((&simClient{player: s.player(i, 100, fmt.Sprintf("%d.%d", i%simProcesses, i/simProcesses))}).run)
	}
	for i := range 2 * simProcesses {
		if s.class[elders] {
			clients.Go((&elder{s.player(i, 600, fmt.Sprintf("v4.%d", i))}).run)
		}
	}
	for i := range 2 * simProcesses {
		if s.class[lookers] {
			clients.Go((&simLooker{s.player(i, 700, fmt.Sprintf("looker %d", i))}).run)
		}
	}
	for i := range simProcesses {
		if s.class[forcers] {
			clients.Go((&simForcer{s.player(i, 800, fmt.Sprintf("forcer %d", i))}).run)
		}
	}
	clients.Wait()
	s.adopters.Wait()
	cancel()
	others.Wait()
}

// quiesce ends all faults and checks that nothing is left: every lock is free, no key of a lock
// exists, and nobody waits.
func (s *simulation) quiesce() {
	s.heal()
	s.retiring.Wait()
	if s.realm == guarded {
		time.Sleep(s.longest*3/2 + 1100*time.Millisecond)
	}
	for _, name := range s.names {
		s.isServed(0, 0, wish{names: []string{name}})
	}
	if s.class[several] {
		s.isServed(0, 0, wish{names: s.names})
	}
	if s.class[ticks] && !s.class[silence] && s.off < 0 {
		s.onTime(onTicks)
	}
	if s.class[readers] {
		s.overlap(s.names[0])
		s.outlast(s.names[0])
	}
	if s.class[permits] {
		for _, name := range s.names {
			s.allPermits(name)
		}
		s.crowd(s.names[0])
	}
	time.Sleep(2500 * time.Millisecond) // a release is repeated every second
	s.log.Note(history.Event{At: s.now() - 1, Kind: history.Fault, Where: "all", What: atRest})
	s.look()
	s.nobodyWaits()
	s.queueUp()
	time.Sleep(100 * time.Millisecond) // far less than the TTL of a queue: waiters must have left it by themselves
	s.nobodyWaits()
}

// patient is how long a client has to wait for its turn at most, after all faults have ended, also if a host stays off.
const patient = 3 * time.Second

// A wish is what a client wants to lock.
type wish struct {
	names           []string
	shared          bool
	permits, weight int // 0 and 0 for a lock
}

// event returns an event of a client that wants w.
func (w wish) event(s *simulation, kind history.Kind, client string, term int) history.Event {
	return history.Event{
		At: s.now(), Kind: kind, Client: client, Term: term, Name: w.names[0], More: w.names[1:],
		Reads: w.shared, Permits: w.permits, Weight: w.weight,
	}
}

// isServed lets a client of process i lock what w says, hold it for the duration hold, and unlock. It notes a broken
// promise if the client is not served.
func (s *simulation) isServed(i int, hold time.Duration, w wish) {
	ctx, cancel := context.WithTimeout(s.Context(), patient)
	defer cancel()
	s.promised(s.lockOnce(ctx, i, hold, w), i, w.names)
}

// overlap lets readers of all processes hold a name again and again, so that most of the time at least one of them
// holds. A writer of that name that comes meanwhile must still be served. In fair mode the writer may also want other
// names.
func (s *simulation) overlap(name string) {
	names := []string{name}
	if s.fair && s.class[several] {
		names = s.names
	}
	ctx, cancel := context.WithCancel(s.Context())
	var all sync.WaitGroup
	for i := range simProcesses * 2 {
		r := s.random(uint64(300 + i))
		all.Go(func() {
			time.Sleep(between(r, 0, 10*time.Millisecond))
			for ctx.Err() == nil {
				s.isServed(i%simProcesses, between(r, 20*time.Millisecond, 60*time.Millisecond), wish{names: []string{name}, shared: true})
			}
		})
	}
	time.Sleep(60 * time.Millisecond)
	s.isServed(0, 0, wish{names: names})
	cancel()
	all.Wait()
}

// promised notes a broken promise to a client of process i, unless err is nil.
func (s *simulation) promised(err error, i int, names []string) {
	if err != nil {
		s.log.Note(history.Event{
			At: s.now(), Kind: history.Broken, Client: strconv.Itoa(i), Name: names[0], Err: fmt.Sprintf("in the end, of %q: %v", names, err),
		})
	}
}

// outlast lets a reader hold a name for longer than a second reader, which comes later and never unlocks. The first
// reader must keep its hold after the record of the second has expired.
func (s *simulation) outlast(name string) {
	const expiry = 40 * time.Millisecond
	var all sync.WaitGroup
	all.Go(func() { s.isServed(0, 2*expiry, wish{names: []string{name}, shared: true}) })
	time.Sleep(expiry / 2)
	_ = s.current(1).NewMutex(name, redsync.WithShared(), redsync.WithExpiry(expiry)).TryLock()
	all.Wait()
}

// lasting returns the options that all locks have: an expiry, and the drift.
func (s *simulation) lasting(expiry time.Duration, more ...redsync.Option) []redsync.Option {
	return append([]redsync.Option{redsync.WithExpiry(expiry), redsync.WithDriftFactor(s.drift)}, more...)
}

// inTurn is lasting, and fair if all locks are.
func (s *simulation) inTurn(expiry time.Duration, more ...redsync.Option) []redsync.Option {
	if s.fair {
		more = append(more, redsync.WithFair())
	}
	return s.lasting(expiry, more...)
}

// errorOf returns the text of an error, for an event.
func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// optionsOf returns the options of a patient client that wants w.
func (s *simulation) optionsOf(w wish) []redsync.Option {
	options := s.inTurn(s.longest, redsync.WithTries(0))
	if w.shared {
		options = append(options, redsync.WithShared())
	}
	if w.permits != 0 {
		options = append(append(options, s.permitOptions(w.permits, w.weight)...), s.wakes()...)
	}
	return append(options, s.polls()...)
}

// lockOnce locks in process i what w says, holds it for the duration hold, and unlocks. It returns the error of the
// lock.
func (s *simulation) lockOnce(ctx context.Context, i int, hold time.Duration, w wish) error {
	m := newMutex(s.current(i).Redsync, w.names, s.optionsOf(w))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	time.Sleep(hold)
	_, err := m.UnlockContext(s.Context())
	s.promised(err, i, w.names)
	return nil
}

func newMutex(rs *redsync.Redsync, names []string, options []redsync.Option) *redsync.Mutex {
	if len(names) == 1 {
		return rs.NewMutex(names[0], options...)
	}
	return rs.NewMultiMutex(names, options...)
}

// someNames returns one name. If the plan has clients that lock several names, it often returns several, in any order.
func (s *simulation) someNames(r *rand.Rand) []string {
	if !s.class[several] || oneIn(r, 3) {
		return []string{s.names[r.IntN(len(s.names))]}
	}
	names := make([]string, 0, len(s.names))
	for _, i := range r.Perm(len(s.names))[:2+r.IntN(len(s.names)-1)] {
		names = append(names, s.names[i])
	}
	return names
}

// queueUp lets clients of all processes want a lock at once. Some of them give up soon.
func (s *simulation) queueUp() {
	var all sync.WaitGroup
	for i := range simProcesses * 2 {
		r, names := s.random(uint64(200+i)), s.names[:1]
		if s.class[several] {
			names = s.someNames(r)
		}
		patience, hold := between(r, 0, 30*time.Millisecond), between(r, 0, 40*time.Millisecond)
		w := wish{names: names, shared: s.class[readers] && len(names) == 1 && oneIn(r, 2)}
		if n := s.permits[i%simProcesses]; s.class[permits] && len(names) == 1 && !w.shared && oneIn(r, 2) {
			w.permits, w.weight = n, 1+r.IntN(heaviest(n))
		}
		all.Go(func() {
			time.Sleep(between(r, 0, 10*time.Millisecond))
			if i < simProcesses {
				s.isServed(i, hold, w)
				return
			}
			ctx, cancel := context.WithTimeout(s.Context(), patience)
			defer cancel()
			_ = s.lockOnce(ctx, i%simProcesses, hold, w) // it gives up soon
		})
	}
	all.Wait()
}

func (s *simulation) nobodyWaits() {
	for i, n := range s.nodes {
		n.Follow()
		for _, key := range n.Keys() {
			waits := slices.ContainsFunc(queues, func(end string) bool { return strings.HasSuffix(key, end) })
			assert.False(s, waits, "somebody waits still: %s on node %d", key, i)
		}
	}
}

// look notes the keys of all nodes.
func (s *simulation) look() {
	for i := range s.nodes {
		s.lookAt(i)
	}
}

func (s *simulation) lookAt(i int) {
	s.nodes[i].Between(func(m *miniredis.Miniredis) {
		for _, key := range m.Keys() {
			e := history.Event{At: s.now(), Kind: history.Key, Node: i, Key: key, TTL: m.TTL(key)}
			if e.TTL == 0 && m.Exists(key) {
				e.TTL = history.NoTTL
			}
			if name, ok := slotOf(key); ok {
				// No Value: nodes may differ in how many permits a value has, because strays are given back one by one.
				e.Name = name
			} else if !strings.HasPrefix(key, "{") {
				e.Name = key
				if v, _ := m.Get(key); !strings.HasPrefix(v, "readers\n") {
					e.Value = v
				}
			}
			s.log.Note(e)
		}
	})
	s.lookForStrays(i)
}

// lookForStrays notes keys in database 0 of a node. Only a client whose greeting was refused can have set them.
func (s *simulation) lookForStrays(i int) {
	if !s.class[greetings] {
		return
	}
	for _, key := range s.nodes[i].DB(0).Keys() {
		what := fmt.Sprintf("%s has %q in database 0", node(i), key)
		if _, noted := s.strays.LoadOrStore(what, true); !noted {
			s.log.Note(history.Event{At: s.now(), Kind: history.Broken, Err: what})
		}
	}
}

// watch looks at all nodes again and again, until ctx is done.
func (s *simulation) watch(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		s.look()
		time.Sleep(between(r, 0, 100*time.Millisecond))
	}
}

// atRest marks a Fault event: from its time on, no key of a lock may be left.
const atRest = "at rest"
