package redsync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// TestTallyDecidesOnceAndForGood walks through all orders of all votes.
func TestTallyDecidesOnceAndForGood(t *testing.T) {
	for n := 1; n <= 6; n++ {
		walk(t, tally{n: n})
	}
}

func walk(t *testing.T, before tally) {
	t.Helper()
	if before.complete() {
		assert.True(t, before.decided(), "%+v", before)
		return
	}
	for _, v := range []choice{granted, refused, failed} {
		after := before
		after.add(v)
		assert.False(t, after.won() && after.blocked(), "%+v", after)
		assert.False(t, after.refuted() && !after.blocked(), "%+v", after)
		if before.won() {
			assert.True(t, after.won(), "%+v then %v", before, v)
		}
		if before.blocked() {
			assert.True(t, after.blocked(), "%+v then %v", before, v)
		}
		walk(t, after)
	}
}

func TestTallyDecidesAsSoonAsTheAnswerCannotChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "n")
		tl := tally{n: n}
		for range rapid.IntRange(0, n).Draw(t, "votes") {
			tl.add(rapid.SampledFrom([]choice{granted, refused, failed}).Draw(t, "vote"))
		}
		silent := n - tl.granted - tl.refused - tl.failed
		canWin := tl.granted+silent >= n/2+1
		mustWin := tl.granted >= n/2+1
		if got, want := tl.decided(), mustWin || !canWin; got != want {
			t.Fatalf("%+v: decided() is %v, want %v", tl, got, want)
		}
		if got, want := tl.refuted(), tl.granted+silent+tl.failed < n/2+1; got != want {
			t.Fatalf("%+v: refuted() is %v, want %v", tl, got, want)
		}
	})
}

func TestQuorumsShareANode(t *testing.T) {
	for n := 1; n <= 64; n++ {
		assert.Greater(t, 2*quorumOf(n), n)
		assert.LessOrEqual(t, quorumOf(n), n)
	}
}

// Sleepers are used again, each for one round at a time, whether its deadline is later or
// earlier than that of the one before.
func TestDeadlineGivesUpItsOwnRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCore(nil)
		c.nodes = []*node{newNode(0, nil), newNode(1, nil), newNode(2, nil)}
		open := func() *round {
			r := &round{}
			r.prepare(c, false, c.sleepers.get(r))
			return r
		}
		for range 100 {
			for _, before := range []time.Duration{time.Second, time.Hour} {
				former := open()
				former.then.notifyDecided()
				former.wait(context.Background(), bounds{decide: before})
				next := open()
				start := time.Now()
				next.wait(context.Background(), bounds{decide: 3 * time.Second})
				assert.Equal(t, 3*time.Second, time.Since(start))
				assert.False(t, former.expired)
				assert.True(t, next.expired)
			}
		}
	})
}
