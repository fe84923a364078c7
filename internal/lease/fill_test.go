package lease

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/clocktest"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows when a lease that nodes have refused is filled up. tests/fill_test.go shows what the nodes have
// then.

// A refuser refuses plain acquires until it gives way. Then it answers fills as the test says.
type refuser struct {
	sets  atomic.Int32
	reply atomic.Pointer[wire.Reply] // to the next set; nil: it does not answer
}

func newRefuser() *refuser {
	r := &refuser{}
	r.answers(said(nil))
	return r
}

func (r *refuser) answers(reply wire.Reply) { r.reply.Store(&reply) }

func (r *refuser) answer(req wire.Request) (*wire.Reply, error) {
	if req.Args[0] != "set" {
		return answered(int64(0)), nil
	}
	r.sets.Add(1)
	return r.reply.Load(), nil
}

func grants(req wire.Request) (*wire.Reply, error) {
	if req.Args[0] == "set" {
		return answered("OK"), nil
	}
	return answered(int64(1)), nil
}

// refusedLease returns a lease on three nodes, of which the last one refuses.
func refusedLease(t *testing.T) (*Lease, *refuser) {
	t.Helper()
	r := newRefuser()
	terms := newTerms(t, on(grants), on(grants), on(r.answer))
	return begun(t, terms), r
}

func TestLeaseIsFilledUntilTheNodeConfirms(t *testing.T) {
	for name, c := range map[string]struct {
		reply wire.Reply
		want  int32 // how many fills follow
	}{
		"granted":         {said("OK"), 1},
		"refused":         {said(nil), maxFills},
		"an odd answer":   {said("QUEUED"), maxFills},
		"a broken wire":   {lost, maxFills},
		"nothing is sent": {wire.Reply{Err: errBroken, Fate: wire.NotSent}, maxFills},
	} {
		synctest.Test(t, func(t *testing.T) {
			t.Log(name)
			l, r := refusedLease(t)
			r.answers(c.reply)
			time.Sleep(5 * sec)
			assert.Equal(t, 1+c.want, r.sets.Load())
			_, alarms := l.terms.Keeper.CountAlarms()
			assert.Equal(t, 1, alarms)
			l.End(nil)
			_, alarms = l.terms.Keeper.CountAlarms()
			assert.Zero(t, alarms)
			time.Sleep(time.Minute)
		})
	}
}

// The fill must not run out before the other keys, so it goes by the clock on which less time has passed. That holds for
// the keys of a minimal hold, too, which may last longer than the validity.
func TestFillIgnoresAClockThatWasSetForward(t *testing.T) {
	for minHold, ttl := range map[time.Duration]time.Duration{0: 8 * sec, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			wall := clocktest.StepWall(t)
			l, _ := refusedLease(t)
			l.terms.Timing.MinHold = minHold
			time.Sleep(10 * ms)
			for step, want := range map[time.Duration]time.Duration{sec: ttl - 10*ms, -time.Hour: ttl} { // never longer than the TTL
				wall.Step(step)
				l.mu.Lock()
				assert.Equal(t, want, l.keysLeftLocked(clock.Now()))
				l.mu.Unlock()
				wall.Step(-step)
			}
			l.End(nil)
		})
	}
}

func TestFillIsNotSentOnceTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := refusedLease(t)
		time.Sleep(10 * ms)
		l.End(nil)
		l.Fire(false) // an alarm that was about to fire
		l.fillUp()    // an alarm that has looked at the lease just before
		time.Sleep(sec)
		assert.EqualValues(t, 1, r.sets.Load())
		require.ErrorIs(t, l.NotHeld(clock.Now()), errNotHeld)
	})
}

// An extension follows the fill at once. The key that it finds on that node proves nothing, even if the node has confirmed
// the fill by then. It counts for the next extension, here because the lease heals.
func TestExtensionRightBehindAFillDoesNotCountItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets := 0
		terms := newTerms(t, on(grants), on(func(req wire.Request) (*wire.Reply, error) {
			if req.Args[0] == "set" {
				return grants(req)
			}
			return broken(req)
		}), on(func(req wire.Request) (*wire.Reply, error) {
			if req.Args[0] != "set" {
				return grants(req)
			}
			if sets++; sets == 1 {
				return answered(nil), nil // it refuses
			}
			tells(req, said("OK"))
			return nil, nil
		}))
		terms.Heals = true
		l := begun(t, terms)
		synctest.Wait()
		for _, counts := range []bool{false, true} {
			res, err := l.Extend(t.Context())
			require.NoError(t, err)
			assert.Equal(t, counts, res.Won)
			assert.Equal(t, 2, sets)
		}
		l.End(nil)
	})
}

// grantsFills makes a deaf node grant each fill. It returns the acquire, which the test answers, and how many fills there were.
func grantsFills(late *deaf) (acquire *wire.Request, fills *int) {
	acquire, fills = &wire.Request{}, new(int)
	answer := late.Answer
	late.Answer = func(req wire.Request) (*wire.Reply, error) {
		switch {
		case req.Args[0] != "set":
			return answer(req)
		case acquire.To == nil:
			*acquire = req
			return nil, nil
		}
		*fills++
		return grants(req)
	}
	return acquire, fills
}

// A node refuses the acquire so late that the watchdog has sent its extension, and is filled then. What the node answers when
// the extension is sent again proves nothing.
func TestExtensionThatIsSentAgainDoesNotCountAKeyThatWasFilledMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := newDeaf()
		acquire, fills := grantsFills(late)
		l, told := late.watched(t, on(grants), newDeaf())
		until := l.Until()
		time.Sleep(3 * sec)
		first := late.unanswered()
		require.Len(t, first, 1)
		tells(*acquire, said(nil))
		tells(first[0], lost)
		time.Sleep(sec)
		synctest.Wait()
		require.Equal(t, 1, *fills)
		again := late.unanswered()
		require.Len(t, again, 2)
		late.grants(again[1])
		synctest.Wait()
		assert.Equal(t, until, l.Until())
		for _, res := range told.extensions() {
			assert.False(t, res.Won)
		}
		unlock(l)
	})
}

// A node may also refuse, and be filled, before it says that it lacks the script of an extension, which is then sent in full.
func TestExtensionInFullDoesNotCountAKeyThatWasFilledMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := newDeaf()
		acquire, _ := grantsFills(late)
		terms := newTermsOf(t, timingOf(9*sec), on(grants), newDeaf(), late)
		l := begun(t, terms)
		result := make(chan bool)
		go func() {
			res, _ := l.Extend(t.Context())
			result <- res.Won
		}()
		synctest.Wait()
		first := late.unanswered()
		require.Len(t, first, 1)
		tells(*acquire, said(nil))
		time.Sleep(50 * ms)
		require.NotZero(t, l.writes.marked(setLater), "the fill has been confirmed")
		tells(first[0], lacks)
		again := late.unanswered()
		require.Len(t, again, 2)
		late.grants(again[1])
		assert.False(t, <-result)
		unlock(l)
	})
}

// Only grants of such a node do not count: its refusal is one node of those that prove a loss.
func TestRefusalOfANodeThatLacksTheKeyProvesALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := func(req wire.Request) (*wire.Reply, error) {
			if req.Args[0] == "set" {
				return grants(req)
			}
			return answered(script.Missing), nil
		}
		terms := newTerms(t, on(grants), on(lost), on(newRefuser().answer))
		l := begun(t, terms)
		synctest.Wait()
		res, err := l.Extend(t.Context())
		require.NoError(t, err, "it is for the caller to act on it")
		assert.True(t, l.Disproved(res))
		l.End(nil)
	})
}

// A pool refuses to send a fill. So nothing is under way to the node, and the next fill is sent.
func TestFillThatThePoolRefusesIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRefuser()
		var full atomic.Bool
		terms := newTerms(t, on(grants), on(grants), on(func(req wire.Request) (*wire.Reply, error) {
			if full.Load() {
				return nil, &wire.OutstandingError{Limit: 1}
			}
			return r.answer(req)
		}))
		l := begun(t, terms)
		full.Store(true)
		time.Sleep(fillDelay + ms)
		full.Store(false)
		r.answers(said("OK"))
		time.Sleep(5 * sec)
		assert.EqualValues(t, 2, r.sets.Load())
		l.End(nil)
	})
}
