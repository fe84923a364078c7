package quorum

import (
	"context"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows that the deadline of a round is its own, although timers are used again.

// A round timer is used again, for one round at a time. The deadline of a round may be later or earlier than
// that of the round before.
func TestDeadlineGivesUpItsOwnRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := setOf(nil, nil, nil)
		open := func() *Round {
			r := &Round{}
			r.Prepare(t.Context(), s, Ping{}, false, true)
			return r
		}
		for range 100 {
			for _, before := range []time.Duration{sec, time.Hour} {
				former := open()
				former.timer.Decided()
				former.Wait(context.Background(), Limits{Decide: before})
				next := open()
				start := time.Now()
				next.Wait(context.Background(), Limits{Decide: 3 * sec})
				assert.Equal(t, 3*sec, time.Since(start))
				assert.False(t, former.expired)
				assert.True(t, next.expired)
			}
		}
	})
}

// Two rounds in turn use the same timer. It fires at the deadline of the first while the second is
// still being sent. That must not end the second, whose own deadline is later.
func TestRoundIsNotGivenUpAtTheDeadlineOfThePreviousRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := false
		s := setOf(&scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
			if slow {
				time.Sleep(2 * ms)
			}
			return scripted.Yes(req)
		}})
		shared := &roundTimer{decided: make(chan struct{}, 1)}
		s.timers.unused.New = func() any { return shared }
		res := s.Start(t.Context(), Ping{}, false).Wait(t.Context(), Limits{Decide: 400 * ms})
		require.True(t, res.Won)
		time.Sleep(399 * ms)
		slow = true
		r := s.Start(t.Context(), Ping{}, false)
		require.Same(t, shared, r.timer)
		res = r.Wait(t.Context(), Limits{Decide: 400 * ms})
		assert.True(t, res.Won)
		assert.False(t, r.expired)
	})
}

// A process is stopped beyond the deadline of a round, for a second. Answers that have come meanwhile count.
func TestStoppedProcessReadsWhatHasCome(t *testing.T) {
	before := origin
	defer func() { origin = before }()
	for answers, want := range map[string]time.Duration{"0+ 1+": 450 * ms, "0+": 500 * ms} {
		inScene(t, 3, func(s *scene) {
			r := s.start(Ping{})
			time.AfterFunc(300*ms, func() {
				r.timer.mu.Lock()
				defer r.timer.mu.Unlock()
				origin = origin.Add(-sec) // as if that time had passed, and the timer were late
			})
			time.AfterFunc(450*ms, func() { s.plays(answers) })
			res, took := within(s.T, r, Limits{Decide: 400 * ms})
			assert.Equal(s, want, took)
			assert.Equal(s, want == 450*ms, res.Won)
		})
	}
}

// The longest times do not overflow: neither the deadline of a round of a lock that nearly never expires, nor that of a
// round whose missing nodes have been silent for ever. In a bubble the clock is before origin.
func TestLongestTimesOfARound(t *testing.T) {
	var timers roundTimers
	show := func(t *testing.T) {
		t.Helper()
		timer := timers.get()
		timer.start(nil, Limits{Decide: math.MaxInt64})
		defer timer.stop()
		soon, sooner := timer.hasten(0, &lateNodes{})
		assert.Positive(t, soon)
		assert.True(t, sooner)
		soon, _ = timer.hasten(math.MaxInt64, &lateNodes{})
		assert.Zero(t, soon)
	}
	show(t)
	synctest.Test(t, show)
}

// A mute pool never answers, and keeps no request.
type mute struct{ wire.Pool }

func (mute) Send(wire.Request) error { return nil }
func (mute) String() string          { return "mute" }

// A round whose caller has given it up is not kept in memory until its deadline. For an extension of a lock
// with a long expiry that is hours away. The nodes never answer here.
func TestRoundThatIsGivenUpIsNotKeptUntilItsDeadline(t *testing.T) {
	given := map[string]func(t *testing.T) (context.Context, <-chan struct{}){
		"by the context": func(t *testing.T) (context.Context, <-chan struct{}) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, nil
		},
		"by the end of the hold": func(t *testing.T) (context.Context, <-chan struct{}) {
			over := make(chan struct{})
			close(over)
			return t.Context(), over
		},
	}
	for name, how := range given {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := setOf(mute{})
				ctx, over := how(t)
				kept := func() weak.Pointer[Round] {
					r := s.Start(t.Context(), Ping{}, false)
					res := r.Wait(ctx, Limits{Decide: time.Hour, Over: over})
					assert.False(t, res.Won)
					return weak.Make(r)
				}()
				for range 10 {
					runtime.GC()
				}
				require.Nil(t, kept.Value())
				runtime.KeepAlive(s)
			})
		})
	}
}
