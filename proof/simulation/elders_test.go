package simulation

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// This file plays clients of redsync v4 beside those of this library. They send what v4.18.1 sends, wait for nobody's
// wake-ups, and know nothing of queues, readers, permits or joint sets. Where there are permits, some of them lock the key
// of a permit.

const (
	elders     = "elders" // clients of redsync v4 lock the same names; never drawn
	elderTries = 6
)

// The mistakes of clients of redsync v4.
const (
	// fewElders: two nodes of five suffice for them.
	fewElders mistake = "two nodes suffice for redsync v4"
	// onBothSets: some clients of redsync v4 have the old set all the time, and others the new one.
	onBothSets mistake = "redsync v4 on old and new nodes at once"
)

// An elder locks on a goroutine of its own, one term after the other.
type elder struct{ player }

// elderWorld is what the elders of a simulation share.
type elderWorld struct {
	moving atomic.Bool  // they begin no term, because the set is about to change
	busy   atomic.Int64 // terms under way
	set    atomic.Int64 // the set that they use, an index into sets
}

// Elders move from one set to the next while all processes of this library have both: they stop, wait until their keys
// have run out, and go on with the new set.
func (s *simulation) moveElders() {
	if !s.class[elders] {
		return
	}
	s.elders.moving.Store(true)
	for s.elders.busy.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	runOut(s.longest)
	s.fault("all", "redsync v4 moves to the next nodes", func() { s.elders.set.Add(1) })
	s.elders.moving.Store(false)
}

func (e *elder) run() {
	for !e.over() {
		e.pause(0, 60*time.Millisecond)
		if e.elders.busy.Add(1); !e.elders.moving.Load() {
			e.lock()
		}
		e.elders.busy.Add(-1)
	}
}

// An elderTerm is a term of an elder.
type elderTerm struct {
	*elder
	event  history.Event // with what all events of the term have in common
	key    string
	value  string
	expiry time.Duration
	nodes  []*redis.Client
}

func (e *elder) lock() {
	e.term++
	name := e.names[e.random.IntN(len(e.names))]
	t := &elderTerm{elder: e, key: name, value: fmt.Sprintf("%s #%d", e.name, e.term), expiry: e.expiry, nodes: e.own()}
	t.event = history.Event{Client: e.name, Term: e.term, Name: name}
	if e.class[permits] && e.oneIn(2) {
		n := e.permits[e.process]
		t.event.Permits, t.event.Weight = n, 1
		t.key = fmt.Sprintf("{%s}:slot:%d", name, e.random.IntN(n))
	}
	t.note(history.Call, 0, nil)
	until := t.acquire()
	if until == 0 {
		t.note(history.Refused, 0, errors.New("no quorum"))
		return
	}
	t.note(history.Held, until, nil)
	for range e.random.IntN(3) {
		e.pause(0, t.expiry/2)
		if until, ok := t.ask(extendElder, t.expiry.Milliseconds()); ok && e.now() < until {
			t.note(history.Extended, until, nil)
		}
	}
	e.pause(0, t.expiry/2)
	if e.oneIn(8) { // it goes without unlocking
		return
	}
	t.note(history.Unlock, 0, nil)
	t.ask(releaseElder)
	t.note(history.Unlocked, 0, nil)
}

// own returns clients of the nodes that the elder has now.
func (e *elder) own() (nodes []*redis.Client) {
	set := e.elders.set.Load()
	if e.asked.mistake == onBothSets {
		set = int64(e.process % len(e.sets))
	}
	p := e.current(e.process)
	for _, j := range e.sets[set] {
		nodes = append(nodes, p.directTo(j))
	}
	return nodes
}

func (t *elderTerm) note(kind history.Kind, until time.Duration, err error) {
	e := t.event
	e.At, e.Kind, e.Until, e.Err = t.now(), kind, until, errorOf(err)
	t.log.Note(e)
}

// acquire returns until when the elder holds the lock, 0 if it has not got it.
func (t *elderTerm) acquire() time.Duration {
	for try := range elderTries {
		if try > 0 {
			t.pause(50*time.Millisecond, 250*time.Millisecond)
		}
		if until, ok := t.ask(acquireElder, t.expiry.Milliseconds()); ok && t.now() < until {
			return until
		}
		t.ask(releaseElder)
	}
	return 0
}

// The scripts do what redsync v4 does. Its Lock sends SET, which acquireElder wraps.
var (
	acquireElder = redis.NewScript(`
		if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
		return 0`)
	extendElder = redis.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
		return 0`)
	releaseElder = redis.NewScript(`
		if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
		return 0`)
)

// ask sends a command to all nodes, and waits for the answers for a twentieth of the expiry, but no less than a quarter of
// simNodeTimeout. It reports whether a quorum has answered 1, and returns until when the elder may rely on that. (In redsync
// v4 only Lock stops waiting by itself.)
func (t *elderTerm) ask(script *redis.Script, args ...any) (until time.Duration, ok bool) {
	start, quorum := t.now(), len(t.nodes)/2+1
	if t.asked.mistake == fewElders {
		quorum = len(t.nodes) / 2
	}
	votes, patience := make(chan int, len(t.nodes)), time.NewTimer(max(t.expiry/20, simNodeTimeout/4))
	defer patience.Stop()
	for _, n := range t.nodes {
		t.adopters.Go(func() { // a command goes on after the elder has given it up
			vote, _ := script.Eval(t.Context(), n, []string{t.key}, slices.Concat([]any{t.value}, args)...).Int() // 0 if it fails
			votes <- vote
		})
	}
	granted := 0
	for late, left := false, len(t.nodes); left > 0 && !late; left-- {
		select {
		case vote := <-votes:
			granted += vote
		case <-patience.C:
			late = true
		}
	}
	drift := time.Duration(float64(t.expiry) * t.drift)
	return start + t.expiry - drift, granted >= quorum
}
