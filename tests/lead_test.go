package redsync_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file tests how one leader follows another: what ends a term, and what happens then.

// errResigned is what the function of a candidate returns when it resigns.
var errResigned = errors.New("resigned")

// A term records one term as its candidate has seen it: ended is when the context of the function ended, or when it
// resigned, and zero while it leads. cause is why the context ended.
type term struct {
	of           *candidate
	fence        uint64
	began, ended time.Time
	cause        error
}

// An election records the terms of some candidates. Its lock is called "lock".
type election struct {
	kit
	mu    sync.Mutex
	terms []*term
}

// A candidate is a call of Lead.
type candidate struct {
	rs     *redsync.Redsync
	cancel context.CancelCauseFunc
	resign chan struct{} // buffers one value, which ends the current or next term
	done   chan struct{} // closed when Lead has returned
	err    error
}

// newProcess returns another process, which has met the nodes.
func (e *election) newProcess() *redsync.Redsync {
	rs := e.nodes.Process()
	user{e.T, rs}.meet()
	return rs
}

// runs starts a candidate. Its function leads until its context ends, or until it resigns.
func (e *election) runs(rs *redsync.Redsync, options ...redsync.Option) *candidate {
	ctx, cancel := context.WithCancelCause(e.Context())
	c := &candidate{rs: rs, cancel: cancel, resign: make(chan struct{}, 1), done: make(chan struct{})}
	e.Cleanup(func() { cancel(nil) })
	go func() {
		defer close(c.done)
		c.err = rs.Lead(ctx, "lock", func(ctx context.Context) error { return e.serves(ctx, c) }, options...)
	}()
	synctest.Wait()
	return c
}

// serves is the function of a candidate.
func (e *election) serves(ctx context.Context, c *candidate) error {
	m := redsync.FromContext(ctx)
	t := &term{of: c, fence: m.Fence(), began: time.Now()}
	assert.Positive(e, m.Remaining())
	e.mu.Lock()
	e.terms = append(e.terms, t)
	e.mu.Unlock()
	err := error(nil)
	select {
	case <-ctx.Done():
		assert.Equal(e, t.fence, m.Fence())
	case <-c.resign:
		err = errResigned
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	t.ended, t.cause = time.Now(), context.Cause(ctx)
	return err
}

// term returns term number n, from 1, after checking that all terms came one after the other, with rising tokens.
func (e *election) term(n int) term {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	require.GreaterOrEqual(e, len(e.terms), n)
	for i, t := range e.terms[1:] {
		before := e.terms[i]
		require.False(e, before.ended.IsZero() || before.ended.After(t.began), "two leaders at once")
		require.Greater(e, t.fence, before.fence)
	}
	return *e.terms[n-1]
}

// leads checks that c is the leader, and that its term is number n.
func (e *election) leads(c *candidate, n int) {
	t := e.term(n)
	require.Same(e, c, t.of)
	require.Zero(e, t.ended)
}

// returned waits until the Lead of c has returned, and returns its error.
func (e *election) returned(c *candidate) error {
	<-c.done
	return c.err
}

// onElection runs f in a bubble.
func onElection(t *testing.T, f func(e *election)) { onKit(t, func(k kit) { f(&election{kit: k}) }) }

func TestLeadReturnsWhatTheFunctionDid(t *testing.T) {
	for _, want := range []error{nil, errWork} {
		onKit(t, func(k kit) {
			err := k.Lead(k.Context(), "lock", func(ctx context.Context) error {
				sleep(minute) // many expiries
				alive(k, ctx)
				assert.Equal(k, 5, k.keys("lock"))
				m := redsync.FromContext(ctx)
				assert.Equal(k, "lock", m.Name())
				assert.Positive(k, m.Fence())
				assert.Greater(k, m.Remaining(), validity/2)
				return want
			})
			errorIs(k, err, want)
			assert.Equal(k, want == nil, err == nil)
			sleep(ms)
			k.nothingLeft()
		})
	}
}

func TestLeadThatCannotBegin(t *testing.T) {
	onKit(t, func(k kit) {
		start := time.Now()
		lead := func(name string, options ...redsync.Option) error {
			return k.Lead(k.Context(), name, never, options...)
		}
		require.EqualError(k, k.Lead(k.Context(), "lock", nil), `redsync: lead "lock": the function is nil`)
		require.ErrorContains(k, lead(""), "must not be empty")
		require.ErrorContains(k, lead("lock", withTries(-1)), "WithTries(-1) is out of range")
		require.ErrorContains(k, lead("lock", nil), "option #0 is nil")
		none := withGenValueFunc(func() (string, error) { return "", errWork })
		errorIs(k, lead("lock", none), errWork)
		err := k.Lead(parentOf(errWork), "lock", never)
		require.NotErrorIs(k, err, redsync.ErrFailed)
		errorIs(k, err, context.Canceled, errWork)
		closed := k.process()
		shut(k, closed)
		for rs, want := range map[*redsync.Redsync]error{nil: redsync.ErrNoPools, closed: redsync.ErrClosed} {
			errorIs(k, rs.Lead(k.Context(), "lock", never), want)
		}
		took(k, start, 0, "Lead returns at once")
		k.nothingLeft()
	})
}

func TestLeadExcludesWhatOthersHoldTogether(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		for name, option := range map[string]redsync.Option{
			"WithShared": withShared, "WithPermits": withPermits(1), "WithValue": withValue("x"),
			"WithSequencer": withSequencer(m.Sequencer()),
		} {
			for _, err := range []error{
				k.Lead(k.Context(), "lock", nothing, option), k.With(option).Lead(k.Context(), "lock", nothing),
			} {
				require.ErrorContains(k, err, "Lead excludes "+name)
				require.NotErrorIs(k, err, redsync.ErrFailed)
			}
		}
		k.unlock(m)
	})
}

// A leader resigns by its function, or because its context ends.
func TestLeaderThatResignsIsFollowedAtOnce(t *testing.T) {
	testlength.FromGate(t)
	inEachMode(t, onElection, func(e *election, mode opts) {
		first := e.runs(e.newProcess(), patient(mode...)...)
		second := e.runs(e.newProcess(), patient(mode...)...)
		sleep(ms)
		third := e.runs(e.newProcess(), patient(mode...)...)
		e.leads(first, 1)
		sleep(minute)
		e.leads(first, 1)
		start := time.Now()
		first.resign <- struct{}{}
		errorIs(e, e.returned(first), errResigned)
		require.NotErrorIs(e, first.err, redsync.ErrFailed)
		e.leads(second, 2)
		second.cancel(errWork)
		require.NoError(e, e.returned(second))
		errorIs(e, e.term(2).cause, errWork)
		e.leads(third, 3)
		took(e, start, 0, "the next leader begins at once")
	})
}

// A function that has failed because of the loss does not end Lead. Each term has a Mutex of its own, which has no token
// once the term is over.
func TestLeadCampaignsAgainWhateverTheFunctionReturned(t *testing.T) {
	onKit(t, func(k kit) {
		var terms []*redsync.Mutex
		fence := uint64(0)
		require.NoError(k, k.Lead(k.Context(), "lock", func(ctx context.Context) error {
			m := redsync.FromContext(ctx)
			for _, over := range terms {
				assert.NotSame(k, over, m)
				assert.Zero(k, over.Fence())
				assert.Zero(k, over.Remaining())
			}
			terms = append(terms, m)
			assert.Greater(k, m.Fence(), fence)
			fence = m.Fence()
			if len(terms) == 3 {
				return nil
			}
			k.nodes.Steal("lock")
			k.nodes.Expire("lock")
			<-ctx.Done()
			errorIs(k, context.Cause(ctx), redsync.ErrLockLost)
			assert.Equal(k, fence, m.Fence())
			return errWork
		}))
		require.Len(k, terms, 3)
	})
}

// A function that ignores the end of its context keeps its own process from leading again, but no other process.
func TestLeadWaitsForAFunctionThatIgnoresItsContext(t *testing.T) {
	testlength.NotShort(t)
	onElection(t, func(e *election) {
		stubborn, runs := e.newProcess(), 0
		done := make(chan error, 1)
		go func() {
			done <- stubborn.Lead(e.Context(), "lock", func(ctx context.Context) error {
				if runs++; runs == 2 {
					return errWork
				}
				m := redsync.FromContext(ctx)
				fence := m.Fence()
				sleep(minute)
				assert.ErrorIs(e, context.Cause(ctx), redsync.ErrLockLost)
				assert.Equal(e, fence, m.Fence(), "the Mutex in the context still has the token of its own term")
				return nil
			})
		}()
		synctest.Wait()
		e.nodes.CutOff(stubborn)
		second := e.runs(e.newProcess())
		sleep(30 * sec)
		e.leads(second, 1)
		e.nodes.Reconnect(stubborn)
		sleep(minute)
		assert.Equal(e, 1, runs)
		second.resign <- struct{}{}
		errorIs(e, <-done, errWork)
	})
}

func TestLeadReleasesWhateverTheFunctionDoes(t *testing.T) {
	onKit(t, func(k kit) {
		lead := func(fn work) error { return k.Lead(k.Context(), "lock", fn) }
		panicked(k, func() { _ = lead(func(context.Context) error { panic("the user's") }) })
		sleep(ms)
		k.nothingLeft()

		errorIs(k, lead(func(ctx context.Context) error {
			m := redsync.FromContext(ctx)
			ok, err := m.Unlock()
			require.False(k, ok)
			require.ErrorContains(k, err, "Lead releases it when its function returns")
			require.Positive(k, m.Remaining(), "nobody else leads while the context goes on")
			alive(k, ctx)
			return errWork
		}), errWork)
		sleep(ms)
		k.nothingLeft()

		err := lead(func(context.Context) error {
			k.freeze(majority...)
			return errWork
		})
		errorIs(k, err, errWork)
		require.ErrorAs(k, err, new(*redsync.RedisError), "the error names the node whose release failed")
		k.thaw(majority...)
		sleep(guard)
	})
}

// A candidate is held up until the lock that it has won has expired. It campaigns again.
func TestLeadCampaignsAgainIfItsTermIsOverBeforeItBegins(t *testing.T) {
	onKit(t, func(k kit) {
		attempts := 0
		noError(k, k.Lead(k.Context(), "lock", nothing, atAttempts(func(observe.Attempt) {
			if attempts++; attempts == 1 {
				time.Sleep(guard)
			}
		})))
		assert.Equal(k, 2, attempts)
	})
}

// If each term is lost at once, Lead pauses before the next one.
func TestQuickLossesDoNotSpin(t *testing.T) {
	play(t, func(f field) {
		rs, terms, sent := f.another(), 0, f.traffic()
		err := rs.Lead(limited(f, 10*sec), "lock", func(ctx context.Context) error {
			terms++
			<-ctx.Done()
			return nil
		}, withMaxHold(time.Microsecond), withRetryDelay(0), redsync.WithDriftFactor(0))
		errorIs(f, err, context.DeadlineExceeded)
		assert.Greater(f, terms, 30)
		assert.Less(f, terms, 200)
		assert.Less(f, f.traffic()-sent, 3*5*200)
	})
}

func TestRetryDelaysOfCandidates(t *testing.T) {
	testlength.NotShort(t)
	onElection(t, func(e *election) {
		e.runs(e.newProcess())
		var asked atomic.Int64
		slow := e.runs(e.newProcess(), withTries(1), redsync.WithRetryDelayFunc(func(int) time.Duration {
			asked.Add(1)
			return 10 * sec
		}))
		sleep(minute)
		assert.True(e, open(slow.done), "WithTries has no effect")
		assert.InDelta(e, 7, asked.Load(), 1)
		negative := e.runs(e.newProcess(), redsync.WithRetryDelayFunc(func(int) time.Duration { return -1 }))
		require.ErrorContains(e, e.returned(negative), "WithRetryDelayFunc(-1ns) is out of range")
	})
}

// What follows tests how soon another leader follows, and what the waiting candidates cost the nodes.

// takeOver is how long after the expiry of a dead leader another leads; headDied is added if the first of the queue
// has died, too.
const (
	takeOver = 100 * ms
	headDied = sec
)

// TestTakeOver shows the bounds of docs/leaders.md. A process that is cut off plays one that has died. The leader dies, or
// also the first of the queue, or the first two.
func TestTakeOver(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for _, c := range []struct {
		die   int // how many candidates die, in the order of the queue; the leader is the first
		delay time.Duration
	}{{1, 0}, {2, 0}, {1, 3 * sec}, {2, 3 * sec}, {3, 0}} {
		if testing.Short() && c.die != 1 {
			continue
		}
		inEachMode(t, onElection, func(e *election, mode opts) {
			options := append(opts{withLockDelay(c.delay)}, mode...)
			all := []*candidate{e.runs(e.newProcess(), options...)}
			for range c.die + 1 {
				sleep(sec) // they stand in the queue in this order
				all = append(all, e.runs(e.newProcess(), options...))
			}
			sleep(rand.N(guard)) // somewhere between two extensions
			e.leads(all[0], 1)
			died, bound := time.Now(), guard+c.delay+takeOver+time.Duration(c.die-1)*headDied
			for _, dead := range all[:c.die] {
				e.nodes.CutOff(dead.rs)
			}
			sleep(bound)
			next := e.term(2) // which checks that the context of the first leader has ended before
			assert.Contains(e, all[c.die:], next.of)
			assert.LessOrEqual(e, next.began.Sub(died), bound)
			assert.LessOrEqual(e, e.term(1).ended.Sub(died), validity)
		})
	}
}
