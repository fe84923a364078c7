package redsync_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// This file tests how one leader follows another: what ends a term, and what happens then.

// errResigned is what the function of a candidate returns when it resigns.
var errResigned = errors.New("resigned")

// A term records one term as its candidate has seen it.
type term struct {
	of    *candidate
	fence uint64
	began time.Time
	ended time.Time // when the context of the function ended, or when it resigned; zero while it leads
	cause error     // why the context ended
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
	e.Helper()
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
	e.Helper()
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
	e.Helper()
	t := e.term(n)
	require.Same(e, c, t.of)
	require.Zero(e, t.ended)
}

// returned waits until the Lead of c has returned, and returns its error.
func (e *election) returned(c *candidate) error {
	e.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Hour): //nolint:forbidigo // in a bubble
		require.Fail(e, "Lead has not returned within an hour")
	}
	return c.err
}

// onElection runs f in a bubble.
func onElection(t *testing.T, f func(e *election)) {
	t.Helper()
	onKit(t, func(k kit) { f(&election{kit: k}) })
}

func TestLeadReturnsWhatTheFunctionDid(t *testing.T) {
	for _, want := range []error{nil, errWork} {
		onKit(t, func(k kit) {
			err := k.Lead(k.Context(), "lock", func(ctx context.Context) error {
				time.Sleep(time.Minute) // many expiries
				alive(k, ctx)
				assert.Equal(k, 5, k.keys("lock"))
				m := redsync.FromContext(ctx)
				assert.Equal(k, "lock", m.Name())
				assert.Positive(k, m.Fence())
				assert.Greater(k, m.Remaining(), validity/2)
				return want
			})
			require.ErrorIs(k, err, want)
			assert.Equal(k, want == nil, err == nil)
			time.Sleep(ms)
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
		require.ErrorContains(k, lead("lock", redsync.WithTries(-1)), "WithTries(-1) is out of range")
		require.ErrorContains(k, lead("lock", nil), "option #0 is nil")
		none := redsync.WithGenValueFunc(func() (string, error) { return "", errWork })
		require.ErrorIs(k, lead("lock", none), errWork)
		var nobody *redsync.Redsync
		require.ErrorIs(k, nobody.Lead(k.Context(), "lock", never), redsync.ErrNoPools)
		err := k.Lead(parentOf(errWork), "lock", never)
		require.NotErrorIs(k, err, redsync.ErrFailed)
		errorIs(k, err, context.Canceled, errWork)
		rs := k.nodes.Process()
		shut(k, rs)
		require.ErrorIs(k, rs.Lead(k.Context(), "lock", never), redsync.ErrClosed)
		took(k, start, 0, "Lead returns at once")
		k.nothingLeft()
	})
}

func TestLeadExcludesWhatOthersHoldTogether(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		for name, option := range map[string]redsync.Option{
			"WithShared":    withShared,
			"WithPermits":   redsync.WithPermits(1),
			"WithValue":     redsync.WithValue("x"),
			"WithSequencer": redsync.WithSequencer(m.Sequencer()),
		} {
			for _, rs := range []*redsync.Redsync{k.Redsync, k.With(option)} {
				options := opts{option}
				if rs != k.Redsync {
					options = nil
				}
				err := rs.Lead(k.Context(), "lock", nothing, options...)
				require.ErrorContains(k, err, "Lead excludes "+name)
				require.NotErrorIs(k, err, redsync.ErrFailed)
			}
		}
		k.unlock(m)
	})
}

func TestLeaderThatResignsIsFollowedAtOnce(t *testing.T) {
	inEachMode(t, onElection, func(e *election, mode opts) {
		first := e.runs(e.newProcess(), patient(mode...)...)
		second := e.runs(e.newProcess(), patient(mode...)...)
		e.leads(first, 1)
		time.Sleep(time.Minute)
		e.leads(first, 1)
		start := time.Now()
		first.resign <- struct{}{}
		require.ErrorIs(e, e.returned(first), errResigned)
		require.NotErrorIs(e, first.err, redsync.ErrFailed)
		e.leads(second, 2)
		took(e, start, 0, "the next leader begins at once")
	})
}

// A function that has failed because of the loss does not end Lead. Each term has a Mutex of its own.
func TestLeadCampaignsAgainWhateverTheFunctionReturned(t *testing.T) {
	onKit(t, func(k kit) {
		var mutexes []*redsync.Mutex
		var fences []uint64
		err := k.Lead(k.Context(), "lock", func(ctx context.Context) error {
			m := redsync.FromContext(ctx)
			mutexes, fences = append(mutexes, m), append(fences, m.Fence())
			if len(mutexes) == 3 {
				assert.Zero(k, mutexes[0].Fence(), "the Mutex of a term that is over has no token")
				assert.Zero(k, mutexes[1].Remaining())
				return nil
			}
			k.nodes.Steal("lock")
			k.nodes.Expire("lock")
			<-ctx.Done()
			require.ErrorIs(k, context.Cause(ctx), redsync.ErrLockLost)
			assert.Equal(k, fences[len(fences)-1], m.Fence())
			return errWork
		})
		require.NoError(k, err)
		require.Len(k, mutexes, 3)
		assert.Less(k, fences[0], fences[1])
		assert.Less(k, fences[1], fences[2])
		assert.NotSame(k, mutexes[0], mutexes[1])
	})
}

// A function that ignores the end of its context keeps its own process from leading again, but no other process.
func TestLeadWaitsForAFunctionThatIgnoresItsContext(t *testing.T) {
	onElection(t, func(e *election) {
		stubborn, runs := e.newProcess(), 0
		done := make(chan error, 1)
		go func() {
			done <- stubborn.Lead(e.Context(), "lock", func(ctx context.Context) error {
				if runs++; runs == 2 {
					return errWork
				}
				fence := redsync.FromContext(ctx).Fence()
				time.Sleep(time.Minute)
				assert.ErrorIs(e, context.Cause(ctx), redsync.ErrLockLost)
				assert.Equal(e, fence, redsync.FromContext(ctx).Fence(), "the Mutex in the context still has the token of its own term")
				return nil
			})
		}()
		synctest.Wait()
		e.nodes.CutOff(stubborn)
		second := e.runs(e.newProcess())
		time.Sleep(30 * time.Second)
		e.leads(second, 1)
		e.nodes.Reconnect(stubborn)
		time.Sleep(time.Minute)
		assert.Equal(e, 1, runs)
		second.resign <- struct{}{}
		require.ErrorIs(e, <-done, errWork)
		assert.Equal(e, 2, runs)
	})
}

func TestLeaderWhoseContextEndsResigns(t *testing.T) {
	onElection(t, func(e *election) {
		first, second := e.runs(e.newProcess(), patient()...), e.runs(e.newProcess(), patient()...)
		e.leads(first, 1)
		start := time.Now()
		first.cancel(errWork)
		require.NoError(e, e.returned(first))
		require.ErrorIs(e, e.term(1).cause, errWork)
		e.leads(second, 2)
		took(e, start, 0)
	})
}

func TestLeadReleasesWhateverTheFunctionDoes(t *testing.T) {
	onKit(t, func(k kit) {
		require.PanicsWithValue(k, "no", func() {
			_ = k.Lead(k.Context(), "lock", func(context.Context) error { panic("no") })
		})
		time.Sleep(ms)
		k.nothingLeft()

		err := k.Lead(k.Context(), "lock", func(ctx context.Context) error {
			m := redsync.FromContext(ctx)
			ok, err := m.Unlock()
			require.False(k, ok)
			require.ErrorContains(k, err, "Lead releases it when its function returns")
			require.Positive(k, m.Remaining(), "nobody else leads while the context goes on")
			alive(k, ctx)
			return errWork
		})
		require.ErrorIs(k, err, errWork)
		time.Sleep(ms)
		k.nothingLeft()

		err = k.Lead(k.Context(), "lock", func(context.Context) error {
			k.freeze(majority...)
			return errWork
		})
		require.ErrorIs(k, err, errWork)
		var node *redsync.RedisError
		require.ErrorAs(k, err, &node, "the error names the node whose release failed")
		k.thaw(majority...)
		time.Sleep(guard)
	})
}

// If each term is lost at once, Lead pauses before the next one.
func TestQuickLossesDoNotSpin(t *testing.T) {
	play(t, func(f field) {
		ctx := limited(f, 10*time.Second)
		rs, terms, sent := f.another(), 0, f.traffic()
		err := rs.Lead(ctx, "lock", func(ctx context.Context) error {
			terms++
			<-ctx.Done()
			return nil
		}, redsync.WithMaxHold(time.Microsecond), redsync.WithRetryDelay(0), redsync.WithDriftFactor(0))
		require.ErrorIs(f, err, context.DeadlineExceeded)
		assert.Greater(f, terms, 30)
		assert.Less(f, terms, 200)
		assert.Less(f, f.traffic()-sent, 3*5*200)
	})
}

// Candidates go on even if all nodes are silent for a long time.
func TestCandidatesOutliveTheNodes(t *testing.T) {
	for name, c := range map[string]struct {
		fail, mend func(k kit, nodes ...int)
		within     time.Duration // a candidate must lead again by then
	}{
		"down": {kit.down, kit.up, 2 * time.Second},
		// Thawed nodes may execute an old attempt, whose keys stay for the expiry.
		"frozen": {kit.freeze, kit.thaw, guard + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inEachMode(t, onElection, func(e *election, mode opts) {
				first, second := e.runs(e.newProcess(), mode...), e.runs(e.newProcess(), mode...)
				e.leads(first, 1)
				c.fail(e.kit, allNodes...)
				late := e.runs(e.nodes.Process(), mode...) // it has met no node
				time.Sleep(time.Duration(testlength.InGate(10, 10, 60, 900)) * time.Second)
				require.ErrorIs(e, e.term(1).cause, redsync.ErrLockLost)
				for _, waiting := range []*candidate{first, second, late} {
					assert.True(e, open(waiting.done))
				}
				c.mend(e.kit, allNodes...)
				time.Sleep(c.within)
				require.Zero(e, e.term(2).ended)
			})
		})
	}
}

func TestRetryDelaysOfCandidates(t *testing.T) {
	onElection(t, func(e *election) {
		e.runs(e.newProcess())
		var mu sync.Mutex
		asked := 0
		slow := e.runs(e.newProcess(), redsync.WithTries(1), redsync.WithRetryDelayFunc(func(int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return 10 * time.Second
		}))
		time.Sleep(time.Minute)
		assert.True(e, open(slow.done), "WithTries has no effect")
		mu.Lock()
		assert.InDelta(e, 7, asked, 1)
		mu.Unlock()
		negative := e.runs(e.newProcess(), redsync.WithRetryDelayFunc(func(int) time.Duration { return -1 }))
		require.ErrorContains(e, e.returned(negative), "WithRetryDelayFunc(-1ns) is out of range")
	})
}
