package redsync_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file shows that three things can be told apart by errors: others have the lock (ErrFailed), too few nodes answered
// (ErrNoQuorum), and neither.

// A verdict is what an error says.
type verdict string

const (
	contention verdict = "contention" // ErrFailed
	noQuorum   verdict = "no quorum"  // ErrNoQuorum
	neither    verdict = "neither"
)

// judged checks that err has one verdict only, and returns it.
func judged(t *testing.T, err error) verdict {
	t.Helper()
	require.Error(t, err)
	failed, silent := errors.Is(err, redsync.ErrFailed), errors.Is(err, redsync.ErrNoQuorum)
	taken := errors.As(err, new(*redsync.ErrTaken))
	require.False(t, failed && silent, "%v", err)
	require.False(t, silent && (taken || errors.Is(err, redsync.ErrLockLost)), "%v", err)
	switch {
	case failed:
		return contention
	case silent:
		return noQuorum
	}
	return neither
}

// failedNodes returns the nodes that have a *RedisError in err.
func failedNodes(err error) (nodes []int) {
	for _, each := range joinedNodes(err) {
		if failed := (*redsync.RedisError)(nil); errors.As(each, &failed) {
			nodes = append(nodes, failed.Node)
		}
	}
	return nodes
}

// Contention is the only cause of ErrFailed, and too few answers are the only cause of ErrNoQuorum.
func TestVerdictOfALockThatFails(t *testing.T) {
	split := func(f field) { // each of two rivals has two nodes, and the fifth is free
		for i, n := range f.nodes[:4] {
			require.NoError(f, n.Set("lock", fmt.Sprint("rival ", i%2)))
		}
	}
	for name, c := range map[string]struct {
		given  func(f field)
		option redsync.Option
		want   verdict
	}{
		"taken, and two nodes are down":                       {func(f field) { f.anothers(); f.kill(0, 1) }, nil, contention},
		"a split vote":                                        {split, nil, contention},
		"taken on a bare quorum":                              {func(f field) { f.splits(majority...) }, nil, contention},
		"three nodes are down, and it is taken on the others": {func(f field) { f.anothers(); f.kill(majority...) }, nil, noQuorum},
		"no entropy":                                          {field.anothers, redsync.WithGenValueFunc(func() (string, error) { return "", errWork }), neither},
	} {
		for _, failFast := range []bool{true, false} {
			playMetAs(t, fmt.Sprintf("%s, failFast %v", name, failFast), func(f field) {
				c.given(f)
				fast := redsync.WithFailFast(failFast)
				err := f.NewMutex("lock", redsync.WithTries(1), fast, cmp.Or(c.option, fast)).Lock()
				assert.Equal(f, c.want, judged(f.T, err), "%v", err)
				var held *redsync.ErrTaken
				require.Equal(f, c.want == contention, errors.As(err, &held))
				if held != nil {
					assert.Equal(f, "lock", held.Name)
					assert.NotEmpty(f, held.Nodes)
				}
			})
		}
	}
}

// A call that only stands in line takes the verdict of the last attempt in that line.
func TestVerdictOfACallThatOnlyStoodInLine(t *testing.T) {
	for name, c := range map[string]struct {
		given func(f field)
		after time.Duration // the context ends
		want  verdict
	}{
		"the lock is taken":               {func(f field) { f.anothers() }, time.Second, contention},
		"three nodes are down":            {func(f field) { f.kill(majority...) }, time.Second, noQuorum},
		"no attempt has an end":           {func(f field) { f.freeze(majority...) }, 100 * ms, neither},
		"an attempt has ended in silence": {func(f field) { f.freeze(majority...) }, 500 * ms, noQuorum},
	} {
		playAs(t, name, func(f field) {
			b := f.another()
			c.given(f)
			f.calls(b, forever, withFair)
			ctx, cancel := context.WithTimeout(f.Context(), c.after)
			defer cancel()
			before := f.traffic()
			err := b.NewMutex("lock", forever, redsync.WithRetryDelay(time.Hour)).LockContext(ctx)
			assert.Equal(f, c.want, judged(f.T, err), "%v", err)
			require.ErrorIs(f, err, context.DeadlineExceeded)
			if c.want == neither {
				f.hasSent(before)
				assert.EqualError(f, err, `redsync: lock "lock": context deadline exceeded`)
			}
		})
	}
}

// An attempt that its context cuts proves nothing: the verdict of the attempt before stays, and the log has no warning.
func TestAttemptThatItsContextCutsProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		before func(f field) // what the attempt before meets
		want   verdict
	}{
		"no attempt before":         {func(f field) { f.freeze(allNodes...) }, neither},
		"the lock was taken before": {field.anothers, contention},
		"nodes were down before":    {func(f field) { f.refuse(majority...); f.lockRefused(0, 1, 2) }, noQuorum},
	} {
		playMetAs(t, name, func(f field) {
			book, r := newLogbook(), &redsynctest.Recorder{}
			m := f.NewMutex("lock", redsync.WithLogger(slog.New(book)), redsync.WithObserver(r), forever,
				redsync.WithRetryDelay(50*ms))
			ctx, cancel := context.WithTimeout(f.Context(), 200*ms)
			defer cancel()
			c.before(f)
			time.AfterFunc(10*ms, func() { f.freeze(allNodes...); forget(r); book.forget() })
			err := m.LockContext(ctx)
			f.thaw(allNodes...)
			assert.Equal(f, c.want, judged(f.T, err), "%v", err)
			require.ErrorIs(f, err, context.DeadlineExceeded)
			if c.want != noQuorum {
				assert.Empty(f, failedNodes(err), "no node is accused")
			}
			attempts, errs := of[observe.Attempt](r)
			require.NotEmpty(f, attempts)
			last := len(attempts) - 1
			assert.Equal(f, neither, judged(f.T, errs[last]))
			require.ErrorIs(f, errs[last], context.DeadlineExceeded)
			assert.Zero(f, attempts[last].Failed)
			assert.NotContains(f, book.above(), "WARN redsync: no quorum")
		})
	}
}

// lockRefused makes nodes answer SET with errors.
func (f field) lockRefused(nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].On("set", 1<<20, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
	}
}

// If a quorum has answered when the context ends, the answers are the verdict.
func TestAttemptThatItsContextCutsAfterAQuorumIsContention(t *testing.T) {
	playMet(t, func(f field) {
		require.NoError(t, f.nodes[0].Set("lock", "another"))
		f.nodes[3].On("set", 1, embedded.Fault{Delay: time.Hour})
		f.nodes[4].On("set", 1, embedded.Fault{Delay: time.Hour})
		ctx, cancel := context.WithTimeout(f.Context(), 10*ms)
		defer cancel()
		err := f.NewMutex("lock").TryLockContext(ctx)
		assert.Equal(t, contention, judged(t, err))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		taken := isTaken(t, err)
		assert.Equal(t, []int{0}, taken.Nodes)
		assert.Empty(t, failedNodes(err))
	})
}

// An Extend that waits for silent nodes, because they could prove the loss, names them.
func TestExtendNamesTheNodesThatItWaitedFor(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.held()
		k.lose(1, 2)
		k.down(0)
		k.freeze(3, 4)
		_, err := m.Extend()
		require.ErrorIs(t, err, redsync.ErrExtendFailed)
		assert.Equal(t, noQuorum, judged(t, err))
		assert.Equal(t, []int{0, 3, 4}, failedNodes(err), "%v", err)
		require.ErrorContains(t, err, "3 of 5 nodes failed, 3 needed: ")
		k.thaw(3, 4)
	})
}

// If so many nodes deny access that no quorum is left, the error says that waiting does not help.
func TestNoQuorumThatWillNotPassSaysSo(t *testing.T) {
	const loading = "LOADING Redis is loading the dataset in memory"
	for answer, lasts := range map[string]bool{
		"NOPERM this user has no permissions to run the 'set' command":  true,
		"WRONGPASS invalid username-password pair or user is disabled.": true,
		"NOPERM two of three nodes":                                     false,
		loading:                                                         false,
	} {
		playMetAs(t, answer, func(f field) {
			f.nodes[0].On("set", 1<<20, embedded.Fault{Err: answer})
			f.nodes[1].On("set", 1<<20, embedded.Fault{Err: answer})
			f.nodes[2].On("set", 1<<20, embedded.Fault{Err: map[bool]string{true: answer, false: loading}[lasts]})
			err := f.NewMutex("lock").TryLock()
			require.Equal(f, noQuorum, judged(f.T, err))
			require.ErrorContains(f, err, answer)
			assert.Equal(f, lasts, errors.Is(err, redsync.ErrNoQuorum) &&
				strings.Contains(err.Error(), ": 3 of 5 nodes failed, 3 needed; this will not pass by itself: "))
		})
	}
}

// No text counts nodes where there is only one.
func TestTextsOfTheOnlyNode(t *testing.T) {
	for name, fails := range map[string]func(f field){
		"silent": func(f field) { f.freeze(0) },
		"down":   func(f field) { f.kill(0) },
		"denying": func(f field) {
			for _, command := range []string{"set", "evalsha", "eval", "ping"} {
				f.nodes[0].On(command, 1<<20, embedded.Fault{Err: "NOPERM this user has no permissions to run the command"})
			}
		},
	} {
		for _, joint := range []bool{false, true} {
			playAs(t, fmt.Sprint(name, ", joint: ", joint), func(f field) {
				var log safeBuffer
				pools := poolsOf(clientsOf(f.nodes[:1]))
				rs := redsync.New(pools...)
				if joint {
					rs = redsync.NewJoint(pools, pools)
				}
				rs = rs.With(redsync.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				f.closes(rs)
				m, other := locked(t, rs.NewMutex("lock", redsync.WithExpiry(time.Hour))), rs.NewMutex("other", redsync.WithTries(2))
				current := m.Sequencer()
				status, err := m.Inspect(f.Context())
				require.NoError(f, err)
				fails(f)
				_, inspected := other.Inspect(f.Context())
				_, ran := rs.TryDo(f.Context(), "other", nothing)
				all := map[string]error{
					"Lock": other.Lock(), "TryLock": other.TryLock(), "TryDo": ran, "Inspect": inspected,
					"Do": rs.Do(f.Context(), "other", nothing, redsync.WithTries(1)), "Ping": rs.Ping(f.Context()),
					"Lead": rs.Lead(limited(f, 5*time.Second), "other", nothing), "Current": rs.Current(f.Context(), current),
					"ForceUnlock": rs.NewMutex("lock").ForceUnlock(f.Context(), status.Holders[0]),
				}
				for _, operation := range []string{"Valid", "Extend", "Unlock"} {
					_, all[operation] = operations(m)[operation]()
				}
				for operation, err := range all {
					require.ErrorContains(f, err, "node #0 (", operation)
				}
				text := fmt.Sprint(log.String(), all)
				f.Log(text)
				assert.Contains(f, text, "the only node failed: ")
				assert.NotRegexp(f, `\d of \d nodes|\d needed|nodes failed`, text)
			})
		}
	}
}

// ErrTaken names the lock. For a Lock of several names that is the first name that was not free.
func TestErrTakenHasAName(t *testing.T) {
	play(t, func(f field) {
		name := func(_ bool, err error) string {
			taken := isTaken(t, err)
			return taken.Name
		}
		b := locked(t, f.NewMutex("b"))
		for _, option := range []redsync.Option{redsync.WithFailFast(true), withFair, withFencing, withShared} {
			assert.Equal(t, "b", name(false, f.NewMutex("b", option).TryLock()))
		}
		locked(t, f.NewMutex("permits", onePermit))
		assert.Equal(t, "permits", name(false, f.NewMutex("permits", onePermit).TryLock()))
		err := f.NewMultiMutex([]string{"c", "b", "a"}).TryLock()
		assert.Equal(t, "b", name(false, err))
		require.ErrorContains(t, err, `failed to acquire lock "a, b, c": "b" is taken on nodes #`)

		for what := range operations(b) {
			for _, names := range [][]string{{"x"}, {"x", "y"}} {
				m := locked(t, f.NewMultiMutex(names))
				time.Sleep(ms)
				for _, n := range f.nodes {
					require.NoError(f, n.Set("x", "another's"))
				}
				assert.Equal(t, m.Name(), name(operations(m)[what]()), what)
				time.Sleep(time.Second)
				for _, n := range f.nodes {
					n.Del("x")
					n.Del("y")
				}
			}
		}
	})
}

// A waiter for several names takes the verdict of a line in which others wait for other names. Its ErrTaken has a name of
// its own.
func TestErrTakenOfALineHasANameOfTheCaller(t *testing.T) {
	playMet(t, func(f field) {
		b := locked(t, f.NewMutex("b"))
		f.begins(f.NewMultiMutex([]string{"b", "z"}, patient(withFair, redsync.WithObserver(&redsynctest.Recorder{}))...))
		time.Sleep(time.Second)
		for _, m := range []*redsync.Mutex{
			f.NewMutex("z", withFair), f.NewMultiMutex([]string{"a", "z"}, withFair),
		} {
			taken := isTaken(t, m.TryLock())
			assert.Equal(t, "z", taken.Name)
		}
		f.unlock(b)
	})
}
