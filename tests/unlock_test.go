package redsync_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests what Unlock returns, which commands nodes are sent to delete a key, and that a release is repeated until
// each node has settled it. internal/lease tests the same from inside.

func TestMutexUnlockAfterUntilIsNoSuccessAlthoughAQuorumDeleted(t *testing.T) {
	play(t, func(f field) {
		m := f.held(oneSecond)
		time.Sleep(m.Remaining() - 5*ms)
		onEach(f.nodes, "evalsha", 1, embedded.Fault{Delay: 10 * ms})
		failsWith(t, m.Unlock, redsync.ErrLockAlreadyExpired)

		m = f.held()
		time.Sleep(9 * sec)
		require.ErrorContains(f, second(m.Unlock()), "it ended 1.1s before Unlock (expiry 8s, locked for 9s)")
	})
}

// Programs for redsync v4 call Unlock until it returns true. A call during another one returns the outcome of that.
func TestUnlockAgainReturnsTheOutcomeOfTheRelease(t *testing.T) {
	play(t, func(f field) {
		again := func(m *redsync.Mutex, down, up func(nodes ...int)) {
			down(2, 3, 4)
			var wg sync.WaitGroup
			for range 3 { // at once
				wg.Go(func() { failsWith(f, m.Unlock, redsync.ErrNoQuorum) })
			}
			wg.Wait()
			failsWith(f, m.Unlock, redsync.ErrNoQuorum)
			if up != nil {
				up(2, 3, 4)
				f.unlocks(m)
			}
		}
		m := f.held()
		again(m, f.freeze, f.thaw)
		failsWith(f, m.Unlock, redsync.ErrNotHeld)
		adopted := f.NewMutex("lock", withValue(f.held().Value()))
		again(adopted, f.freeze, f.thaw)
		again(f.held(), f.kill, f.restart) // the first Unlock ends once the nodes refuse

		m = f.held(withExpiry(5 * sec))
		again(m, f.freeze, nil)
		sleep(5 * sec)
		f.thaw(2, 3, 4)
		failsWith(f, m.Unlock, redsync.ErrNoQuorum) // it was not confirmed in time
		require.NoError(f, m.Lock())
		f.unlocks(m)
		failsWith(f, m.Unlock, redsync.ErrNotHeld)

		over, cancel := context.WithCancel(f.Context())
		cancel()
		m = f.held()
		ok, err := m.UnlockContext(over)
		assert.False(f, ok)
		require.ErrorIs(f, err, context.Canceled)
		f.unlocks(m)
	})
}

// A connection that breaks during a release leaves open whether the node has executed it. Unlock returns what the
// repeated release finds.
func TestMutexUnlockWhoseConnectionBreaksAnswersByTheRepetition(t *testing.T) {
	before, after := embedded.Fault{LoseCommand: true}, embedded.Fault{LoseReply: true} // the node has executed it
	for name, c := range map[string]struct {
		fault embedded.Fault
		then  func(f field) // while the repetition is on its way
		want  time.Duration
		err   string // "": Unlock returns true
	}{
		"before":                     {before, func(field) {}, 50 * ms, ""},
		"after: nobody can tell":     {after, func(field) {}, 50 * ms, "the key is gone now"},
		"after, and somebody has it": {after, hit(field.splits, majority...), 50 * ms, "the reply to the release was lost, and another value is there now"},
		"after, and somebody's data": {after, func(f field) {
			for _, n := range f.nodes[:3] {
				noError(f, data["list"](n.Client(), "lock"))
			}
		}, 50 * ms, "the reply to the release was lost, and a key of another type is there now"},
		"and nobody listens any more": {before, hit(field.kill, majority...), 50 * ms, "connection refused"},
		"and the node says no more":   {before, hit(field.freeze, majority...), 450 * ms, "connection lost"},
	} {
		playAs(t, name, func(f field) {
			m := f.held()
			onEach(f.nodes[:3], "evalsha", 1, c.fault)
			time.AfterFunc(ms, func() { c.then(f) })
			start := time.Now()
			ok, err := m.Unlock()
			took(f, start, c.want)
			assert.Equal(f, c.err == "", ok)
			if c.err == "" {
				noError(f, err)
				return
			}
			says(f, err, c.err)
			require.NotErrorIs(f, err, redsync.ErrLockAlreadyExpired) // the lost reply does not prove that the lock has expired
			require.ErrorAs(f, err, new(*redsync.RedisError))
		})
	}
}

// Two nodes are busy when Unlock asks them, and release the lock when they are asked again. Their first answers were
// their votes, so Unlock still fails.
func TestUnlockCountsTheFirstAnswerOfANode(t *testing.T) {
	play(t, func(f field) {
		m := f.held()
		onEach(f.nodes[:2], "evalsha", 1, embedded.Fault{Err: "BUSY Redis is busy running a script."})
		f.freeze(3, 4)
		start := time.Now()
		err := second(m.Unlock())
		took(t, start, patience)
		says(t, err, named(0)+"BUSY", named(1)+"BUSY", named(3)+"no answer within")
		assert.Equal(t, 2, f.nodes.Keys("lock")) // only the frozen nodes have the key
		f.thaw(3, 4)
		time.Sleep(sec)
		f.keysOn(0)
	})
}

// Every node owes as many replies as its pool allows, so the pools refuse another TryLock. A release
// is sent at once all the same: room is reserved for it.
func TestUnlockIsSentToNodesAtTheLimitOfOutstandingReplies(t *testing.T) {
	onKit(t, func(k kit) {
		rs := k.process(pool.WithOutstanding(1))
		k.Redsync = rs
		k.meet()
		synctest.Wait() // nothing is owed
		m := k.held()
		k.freeze(allNodes...)
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, rs.NewMutex("other").TryLock()) })
		synctest.Wait()
		var full *pool.OutstandingError
		require.ErrorAs(t, rs.NewMutex("more").TryLock(), &full)
		wg.Go(func() { k.unlock(m) })
		synctest.Wait()
		k.thaw(allNodes...)
		wg.Wait()
	})
}

// An answer that none of our scripts gives does not prove that the key is gone, and a pool may refuse a release although
// room is reserved for it. The release is repeated until the node answers as it should.
func TestReleaseWithAnOddAnswerIsRepeated(t *testing.T) {
	odd := func(value any) func() (*wire.Reply, error) {
		return func() (*wire.Reply, error) { return &wire.Reply{Value: value, Fate: wire.Answered, Conn: 1}, nil }
	}
	for name, answer := range map[string]func() (*wire.Reply, error){
		"nothing": odd(nil),
		"refused": func() (*wire.Reply, error) { return nil, &pool.OutstandingError{Limit: 1} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sane atomic.Bool // the node answers as it should
				p := &scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
					if req.Args[0] == "set" || sane.Load() {
						return scripted.Yes(req)
					}
					return answer()
				}}
				rs := redsync.New(p)
				m := locked(t, rs.NewMutex("lock"))
				ok, err := m.Unlock()
				assert.False(t, ok)
				if name == "refused" {
					require.ErrorAs(t, err, new(*pool.OutstandingError))
				} else {
					says(t, err, "odd answer")
				}
				time.Sleep(100 * ms)
				assert.Equal(t, 2, p.Count("evalsha")) // the release was sent after 0 and 50 ms
				sane.Store(true)
				time.Sleep(20 * sec)
				assert.Equal(t, 3, p.Count("evalsha")) // the release was sent again after 150 ms, and is then settled
				shut(t, rs)
			})
		})
	}
}

// The node executes the release before the acquire, finds no key, and answers the acquire first.
// On a pool that keeps no order of replies, a release that found no key is therefore not settled,
// even if the acquire has been answered by then: it is repeated.
func TestReleaseOnAPoolWithoutOrderIsRepeatedWhereTheAcquireIsAnsweredFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Bool // the node has the key
		after := func(d time.Duration, req wire.Request, do func() any) {
			time.AfterFunc(d, func() { req.To.Receive(req.Tag, wire.Reply{Value: do(), Fate: wire.Answered}) })
		}
		p := &scripted.Node{}
		p.Answer = func(req wire.Request) (*wire.Reply, error) {
			if req.Args[0] == "set" { // overtaken by the release
				after(sec, req, func() any {
					held.Store(true)
					return "OK"
				})
				return nil, nil
			}
			found := script.Missing
			if held.Swap(false) {
				found = script.Mine
			}
			after(2*sec, req, func() any { return found })
			return nil, nil
		}
		rs := redsync.New(p)
		erred(t, rs.NewMutex("lock").TryLock())
		time.Sleep(10 * sec)
		synctest.Wait()
		assert.False(t, held.Load())
		assert.Equal(t, 2, p.Count("evalsha"))
		shut(t, rs)
	})
}

func TestReleaseRepeatsUntilALateKeyHasRunOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var last time.Duration
		p := &scripted.Node{}
		p.Answer = func(req wire.Request) (*wire.Reply, error) {
			if req.Args[0] == "set" { // executed after 3 s: the key lives for 11 s
				time.AfterFunc(3*sec, func() {
					req.To.Receive(req.Tag, wire.Reply{Value: "OK", Fate: wire.Answered, Conn: 1})
				})
				return nil, nil
			}
			last = time.Since(start)
			return &wire.Reply{Err: errBroken, Conn: 1}, nil // the node is cut off by then
		}
		rs := redsync.New(p)
		erred(t, rs.NewMutex("lock").TryLock())
		time.Sleep(20 * sec)
		synctest.Wait()
		assert.Greater(t, last, 10*sec)
		assert.Less(t, last, 12*sec)
		assert.LessOrEqual(t, p.Count("evalsha"), 20) // with growing delays
		shut(t, rs)
	})
}

// While nodes are away, releases are repeated there with growing delays. Once they are back, nobody waits for the end of
// these delays: the keys that are left there keep everybody from the nodes.
func TestReleasesAreRepeatedAtOnceWhenNodesAreBack(t *testing.T) {
	play(t, func(f field) {
		m := f.held(lasting)
		f.kill(1, 2)
		f.unlock(m)
		time.Sleep(2600 * ms) // until 50 ms after a repetition, and 950 ms before the next
		f.restart(1, 2)
		wake(f.Redsync) // opens connections
		f.keysOn(2)
		locked(f, f.NewMutex("other")) // whose Unlock has no part in it
		sleep(ms)
		f.keysOn(0)
	})
}

func TestReleaseIsNotRepeatedWhereNothingWasSent(t *testing.T) {
	for _, answer := range []func(wire.Request) (*wire.Reply, error){
		func(wire.Request) (*wire.Reply, error) { return nil, &pool.OutstandingError{Limit: 1} },
		func(wire.Request) (*wire.Reply, error) {
			return &wire.Reply{Err: errBroken, Fate: wire.NotSent, Conn: 1}, nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &scripted.Node{Answer: answer}
			erred(t, redsync.New(p).NewMutex("lock").TryLock())
			time.Sleep(20 * sec)
			assert.Equal(t, 1, p.Count("evalsha"))
		})
	}
}
