package lease

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/alarm"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows releases from inside; tests/unlock_test.go shows what nodes are sent.

// A waiter that leaves releases its value a second time. That release is repeated for as long as the first
// was.
func TestReleaseOnceMoreIsRepeatedAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reached atomic.Bool
		p := on(func(req pool.Request) (*pool.Reply, error) {
			if !reached.Load() {
				return broken(req)
			}
			return puppet.Yes(req)
		})
		terms := newTerms(timingOf(time.Second), p)
		l := New(terms, "v", clock.Now())
		l.writes.sending(0)
		l.writes.answered(0, pool.Answered)
		for range 2 {
			before := p.Count("evalsha")
			l.Release(Releasing{})
			time.Sleep(5 * time.Second)
			assert.Equal(t, before+5, p.Count("evalsha"), "after 0, 50, 150, 350 and 750 ms")
		}
		reached.Store(true)
		require.NoError(t, closes(t.Context(), terms.Keeper))
	})
}

// A ticket enters the queue with the first sending alone. Its waiter may have left since, and a ticket that nobody takes
// out keeps others back until it counts as dead.
func TestReleaseThatIsRepeatedEntersNoTicketAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := on(broken)
		terms := newTerms(timingOf(time.Second), p)
		l := New(terms, "v", clock.Now())
		l.writes.sending(0)
		l.writes.answered(0, pool.Answered)
		ticket := script.NewTicket(0, 1, script.ProcessOf("2222222222222222"), 1)
		l.Release(Releasing{Enters: []Entering{{Ticket: ticket}}})
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, 2, p.Count("evalsha"), "after 0 and 50 ms")
		assert.Contains(t, p.Sent()[0].Args, any(ticket.String()))
		assert.NotContains(t, p.Sent()[1].Args, any(ticket.String()))
		time.Sleep(time.Minute)
		require.NoError(t, closes(t.Context(), terms.Keeper))
	})
}

// never is the Firer of an alarm that does not fire.
type never struct{}

func (never) Fire(bool) {}

func TestReleasesThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s alarm.Schedule
		defer s.Close()
		accepted := 0
		for range maxRepeats + 10 {
			if s.SetUnlessFull(&alarm.Alarm{What: never{}}, time.Now().Add(time.Hour), maxRepeats) {
				accepted++
			}
		}
		assert.Equal(t, maxRepeats, accepted)
	})
}

// A release that finds the bound reached is dropped, and the node counts as settled.
func TestReleaseBeyondTheBoundIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := on(broken)
		terms := newTerms(timingOf(8*time.Second), p)
		k := terms.Keeper
		for range maxRepeats {
			require.True(t, k.repeats.SetUnlessFull(&alarm.Alarm{What: never{}}, time.Now().Add(time.Hour), maxRepeats))
		}
		l := New(terms, "v", clock.Now())
		l.writes.sending(0)
		l.Release(Releasing{})
		synctest.Wait()
		assert.Zero(t, k.unsettled.count())
		time.Sleep(time.Minute)
		assert.Equal(t, 1, p.Count("evalsha"))
		require.NoError(t, closes(t.Context(), k))
	})
}

func TestReleaseClearedGoesByTheMonotonicClock(t *testing.T) {
	l := New(nowhere(0), "v", at(0, 0))
	assert.GreaterOrEqual(t, l.lasts(at(time.Second, time.Hour)), time.Duration(0))
	assert.GreaterOrEqual(t, l.lasts(at(8*time.Second+82*time.Millisecond, 0)), time.Duration(0))
	assert.Negative(t, l.lasts(at(8*time.Second+83*time.Millisecond, 0)))
}

func TestReleaseClearedAtTheLongestExpiry(t *testing.T) {
	assert.GreaterOrEqual(t, New(newTerms(timingOf(longest)), "v", at(0, 0)).lasts(at(time.Hour, 0)), time.Duration(0))
}

// After each reply there is at most one more thing to try: the script in full, or to touch no queue.
func TestReleaseNextForm(t *testing.T) {
	answered := func(err error) pool.Reply { return pool.Reply{Err: err, Fate: pool.Answered, Conn: 1} }
	for name, c := range map[string]struct {
		reply           pool.Reply
		inFull, quietly bool // what it calls for
	}{
		"fine":                        {reply: pool.Reply{Value: int64(1), Fate: pool.Answered, Conn: 1}},
		"NOSCRIPT":                    {reply: answered(noScript), inFull: true},
		"NOPERM":                      {reply: answered(answer("NOPERM this user has no permissions to access one of the keys")), quietly: true},
		"denied in the script":        {reply: answered(answer("ERR The user executing the script can't access at least one of the keys")), quietly: true},
		"CROSSSLOT":                   {reply: answered(answer("CROSSSLOT Keys in request don't hash to the same slot")), quietly: true},
		"TRYAGAIN":                    {reply: answered(answer("TRYAGAIN Multiple keys request during rehashing of slot")), quietly: true},
		"another error":               {reply: answered(answer("LOADING Redis is loading the dataset in memory"))},
		"an error that mentions them": {reply: answered(answer("ERR not NOSCRIPT, NOPERM nor CROSSSLOT"))},
		"a connection that broke":     {reply: pool.Reply{Err: errBroken, Fate: pool.Unknown, Conn: 1}},
		"no connection":               {reply: pool.Reply{Err: errBroken, Fate: pool.NotSent, Conn: 1}},
	} {
		for _, f := range []form{
			{},
			{again: true},
			{quietly: true},
			{quietly: true, again: true},
			{inFull: true},
			{inFull: true, again: true},
			{inFull: true, quietly: true},
			{inFull: true, quietly: true, again: true},
		} {
			t.Run(fmt.Sprintf("%s to %+v", name, f), func(t *testing.T) {
				want, wantAgain := f, false
				if c.inFull && !f.inFull {
					want.inFull, wantAgain = true, true
				}
				if c.quietly && !f.quietly {
					want.quietly, wantAgain = true, true
				}
				got, again := next(f, c.reply)
				assert.Equal(t, want, got)
				assert.Equal(t, wantAgain, again)
			})
		}
	}
}

// The caller of Unlock waits for the first repetition to a node whose connection broke. So that one comes well within the
// node deadline, however short that is. Nobody waits for the others.
func TestUnlockRepeatsTheReleaseWithinTheNodeDeadline(t *testing.T) {
	for name, c := range map[string]struct {
		awaited bool
		timeout time.Duration
		want    []time.Duration
	}{
		"a short deadline":       {true, 40 * time.Millisecond, []time.Duration{0, 10 * time.Millisecond, 110 * time.Millisecond}},
		"a long deadline":        {true, time.Second, []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond}},
		"a rollback, short, too": {false, 40 * time.Millisecond, []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []time.Duration
				start := time.Now()
				terms := newTerms(timingOf(8*time.Second), on(func(req pool.Request) (*pool.Reply, error) {
					if sent = append(sent, time.Since(start)); len(sent) < 3 {
						return broken(req)
					}
					return puppet.Yes(req)
				}))
				terms.Timing.NodeTimeout = c.timeout
				l := New(terms, "v", clock.Now())
				l.writes.sending(0)
				how := Releasing{}
				if c.awaited {
					how.Caller = t.Context()
				}
				rel := l.Release(how)
				if c.awaited {
					rel.Wait(t.Context())
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Equal(t, c.want, sent)
				require.NoError(t, closes(t.Context(), terms.Keeper))
			})
		})
	}
}
