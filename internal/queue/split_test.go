package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
)

// refusedBy is the outcome of an attempt that keys were in the way of, which end at these times from now, by node. 0
// means that the node has granted, and noEnd that it has refused without telling an end. The last node has not answered.
func refusedBy(split bool, ends ...time.Duration) lease.Outcome {
	res := quorum.Result{Split: split, Votes: make([]claim.Vote, len(ends)+1)}
	now := clock.Now().Mono
	for i, end := range ends {
		v := claim.Vote{Choice: claim.Refused, Answer: claim.Answer{Found: claim.Other}}
		switch end {
		case 0:
			v = claim.Vote{Choice: claim.Granted, Answer: claim.Answer{Found: claim.Mine}}
		case noEnd:
		default:
			v.Answer.Detail = &claim.Detail{At: now, Wait: end}
		}
		if v.Choice == claim.Refused {
			res.Taken = res.Taken.With(i)
		}
		res.Votes[i] = v
	}
	res.Votes[len(ends)] = claim.Failure(quorum.ErrNoAnswer)
	return lease.Outcome{Kind: lease.NotWon, Result: res}
}

const noEnd time.Duration = -1

// A waiter is patient once the same key has been in the way for a second, and its last attempt was split.
func TestWaiterIsPatientIfTheSameKeysStayInTheWay(t *testing.T) {
	const step, end = 100 * ms, time.Minute
	for name, c := range map[string]struct {
		split      string // by attempt: s, it was split
		key, other string // by attempt: k, a key that ends a minute after the first attempt; r, after this one; n, never; x, no answer
		patient    bool
	}{
		"the same key":                         {"sssssssssss", "kkkkkkkkkkk", "...........", true},
		"the same key, beside those of rivals": {"s.s.s.s.s.s", "kkkkkkkkkkk", ".r.r.r.r.r.", true},
		"the same key, not split at last":      {"ssssssssss.", "kkkkkkkkkkk", "...........", false},
		"the same key, not always answered":    {"sssssssssss", "kxkkxkkxkkx", "...........", true},
		"a key without a TTL":                  {"sssssssssss", "nnnnnnnnnnn", "...........", true},
		"keys without a TTL, not always split": {"sssss.sssss", "nnnnnnnnnnn", "...........", false},
		"rivals, one after the other":          {"sssssssssss", "rrrrrrrrrrr", "...........", false},
		"free in between":                      {"sssssssssss", "kkkkk.....k", "rrrrrrrrrrr", false},
		"never split":                          {"...........", "kkkkkkkkkkk", "kkkkkkkkkkk", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSplits(3)
				start := time.Now()
				ends := func(key byte) time.Duration {
					return map[byte]time.Duration{'k': end - time.Since(start), 'r': end, 'n': noEnd}[key]
				}
				for n := range c.split {
					assert.False(t, s.arePatient() && time.Since(start) < splitFor, "after %v", time.Since(start))
					o := refusedBy(c.split[n] == 's', ends(c.key[n]), ends(c.other[n]))
					if c.key[n] == 'x' {
						o.Result.Votes[0] = claim.Failure(quorum.ErrNoAnswer)
					}
					s.note(o, time.Now())
					time.Sleep(step)
				}
				assert.Equal(t, c.patient, s.arePatient())
			})
		})
	}
}

// The pauses grow with the first attempt, and double with each of the next three.
func TestPausesAfterSplits(t *testing.T) {
	for _, c := range []struct{ took, most time.Duration }{{0, minJitter}, {ms, minJitter}, {50 * ms, 100 * ms}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSplits(3)
			require.False(t, s.wasSplit())
			began := time.Now()
			time.Sleep(c.took)
			for n := range 6 {
				s.note(refusedBy(true, time.Minute, 0), began)
				require.True(t, s.wasSplit())
				most, longest := c.most<<min(n, 3), time.Duration(0)
				for range 1000 {
					longest = max(longest, s.pause())
				}
				assert.Less(t, longest, most)
				assert.Greater(t, longest, most/2)
				began = began.Add(-time.Hour) // later attempts do not count
			}
			s.note(refusedBy(false, time.Minute, time.Minute), began)
			assert.False(t, s.wasSplit())
		})
	}
}

// Once a key has been in the way for a quarter of a second, its waiter is quiet until it may be patient. The key that was
// seen first counts.
func TestWaiterIsQuietUntilItMayBePatient(t *testing.T) {
	withoutJitter(t)
	synctest.Test(t, func(t *testing.T) {
		s, start := newSplits(5), time.Now()
		notes := func(ends ...time.Duration) {
			for i := range ends {
				if ends[i] != 0 {
					ends[i] -= time.Since(start)
				}
			}
			o := refusedBy(true, ends...)
			o.Result.Rule = claimtest.Majority(5)
			s.note(o, time.Now())
			s.beQuiet(o, time.Hour)
		}
		notes(time.Minute, 0, 0, 0)
		assert.Equal(t, start, s.untilQuiet())
		time.Sleep(quietAfter - ms)
		notes(time.Minute, time.Hour, 0, 0)
		assert.Equal(t, time.Now(), s.untilQuiet())
		time.Sleep(ms)
		notes(time.Minute, time.Hour, 0, 0)
		assert.Equal(t, start.Add(splitFor+minJitter-time.Nanosecond), s.untilQuiet())
		time.Sleep(splitFor - quietAfter)
		notes(time.Minute, time.Hour, 0, 0)
		assert.Equal(t, time.Now().Add(time.Hour), s.untilQuiet())
	})
}

// stuck returns the splits of a waiter for which keys have been in the way for splitFor, on the first of five nodes. They
// end after these times. The last node has not answered.
func stuck(ends ...time.Duration) *splits {
	all := make([]time.Duration, 4)
	for i, end := range ends {
		if all[i] = end; end != noEnd {
			all[i] += splitFor
		}
	}
	o := refusedBy(true, all...)
	o.Result.Count = claim.Count{Granted: 0b01111}
	s := newSplits(5)
	s.note(o, time.Now())
	time.Sleep(splitFor)
	return s
}

// Keys are remembered if they leave no quorum without late nodes, until they run out.
func TestLeftoversAreKeysThatMakeALateNodeNecessary(t *testing.T) {
	const end = time.Minute
	for name, c := range map[string]struct {
		ends       []time.Duration
		remembered claim.Nodes
	}{
		"two keys":                {[]time.Duration{end, end}, 0b00011},
		"a quorum is without":     {[]time.Duration{end}, 0},
		"one of them has no end":  {[]time.Duration{end, noEnd}, 0b00001},
		"one of them ends sooner": {[]time.Duration{end, time.Nanosecond}, 0b00001},
		"none of them has an end": {[]time.Duration{noEnd, noEnd}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l leftovers
				l.note("lock", stuck(c.ends...), claimtest.Majority(5))
				time.Sleep(end / 2)
				if s := l.of("lock"); c.remembered == 0 {
					assert.Nil(t, s)
				} else {
					assert.Equal(t, c.remembered, s.old(splitFor))
					assert.False(t, s.arePatient(), "the keys must be seen again first")
				}
				assert.Nil(t, l.of("another lock"))
				time.Sleep(end / 2)
				assert.Nil(t, l.of("lock"))
				assert.Empty(t, l.byName)
			})
		})
	}
}

func TestLeftoversAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l leftovers
		s := stuck(time.Minute, time.Minute)
		for i := range 3 * maxLeftovers / 2 {
			l.note(fmt.Sprint(i), s, claimtest.Majority(5))
			require.NotNil(t, l.of(fmt.Sprint(i)))
			require.LessOrEqual(t, len(l.byName), maxLeftovers)
		}
	})
}
