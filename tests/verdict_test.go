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
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
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
func judged(tb testing.TB, err error) verdict {
	tb.Helper()
	erred(tb, err)
	failed, silent := errors.Is(err, redsync.ErrFailed), errors.Is(err, redsync.ErrNoQuorum)
	taken := errors.As(err, new(*redsync.ErrTaken))
	require.False(tb, failed && silent, "%v", err)
	require.False(tb, silent && (taken || errors.Is(err, redsync.ErrLockLost)), "%v", err)
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
	for name, c := range map[string]struct {
		given  func(f field)
		option redsync.Option
		want   verdict
	}{
		"taken, and two nodes are down": {func(f field) { f.anothers(); f.kill(0, 1) }, nil, contention},
		"a split vote": {func(f field) { // each of two rivals has two nodes, and the fifth is free
			for i, n := range f.nodes[:4] {
				noError(f, n.Set("lock", fmt.Sprint("rival ", i%2)))
			}
		}, nil, contention},
		"taken on a bare quorum":                              {hit(field.splits, majority...), nil, contention},
		"three nodes are down, and it is taken on the others": {func(f field) { f.anothers(); f.kill(majority...) }, nil, noQuorum},
		"no entropy": {field.anothers, withGenValueFunc(func() (string, error) { return "", errWork }), neither},
	} {
		for _, failFast := range []bool{true, false} {
			playMetAs(t, fmt.Sprintf("%s, failFast %v", name, failFast), func(f field) {
				c.given(f)
				fast := redsync.WithFailFast(failFast)
				err := f.lockError(once, fast, cmp.Or(c.option, fast))
				assert.Equal(f, c.want, judged(f, err), "%v", err)
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

// An attempt that its context cuts proves nothing: the verdict of the attempt before stays, and the log has no warning.
func TestAttemptThatItsContextCutsProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		before func(f field) // what the attempt before meets
		want   verdict
	}{
		"no attempt before":         {hit(field.freeze, allNodes...), neither},
		"the lock was taken before": {field.anothers, contention},
		"nodes were down before": {func(f field) {
			f.refuse(majority...)
			onEach(f.nodes[:3], "set", 1<<20, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
		}, noQuorum},
	} {
		playMetAs(t, name, func(f field) {
			book, r := newLogbook(), &redsynctest.Recorder{}
			m := f.NewMutex("lock", book.option(), recordsTo(r), forever,
				withRetryDelay(50*ms))
			c.before(f)
			time.AfterFunc(10*ms, func() { f.freeze(allNodes...); forget(r); book.forget() })
			err := m.LockContext(limited(f, 200*ms))
			f.thaw(allNodes...)
			assert.Equal(f, c.want, judged(f, err), "%v", err)
			errorIs(f, err, context.DeadlineExceeded)
			if c.want != noQuorum {
				assert.Empty(f, failedNodes(err)) // no node is accused
			}
			attempts, errs := of[observe.Attempt](r)
			require.NotEmpty(f, attempts)
			last := len(attempts) - 1
			assert.Equal(f, neither, judged(f, errs[last]))
			errorIs(f, errs[last], context.DeadlineExceeded)
			assert.Zero(f, attempts[last].Failed)
			assert.NotContains(f, book.above(), "WARN redsync: no quorum")
		})
	}
}

// If a quorum has answered when the context ends, the answers are the verdict.
func TestAttemptThatItsContextCutsAfterAQuorumIsContention(t *testing.T) {
	playMet(t, func(f field) {
		f.occupy("lock", 0)
		onEach(f.nodes[3:], "set", 1, embedded.Fault{Delay: hour})
		err := f.NewMutex("lock").TryLockContext(limited(f, 10*ms))
		assert.Equal(t, contention, judged(t, err))
		errorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, []int{0}, isTaken(t, err).Nodes)
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
		errorIs(t, err, redsync.ErrExtendFailed)
		assert.Equal(t, noQuorum, judged(t, err))
		assert.Equal(t, []int{0, 3, 4}, failedNodes(err), "%v", err)
		says(t, err, "3 of 5 nodes failed, 3 needed: ")
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
			onEach(f.nodes[:2], "set", 1<<20, embedded.Fault{Err: answer})
			f.nodes[2].On("set", 1<<20, embedded.Fault{Err: map[bool]string{true: answer, false: loading}[lasts]})
			err := f.tries()
			require.Equal(f, noQuorum, judged(f, err))
			says(f, err, answer)
			assert.Equal(f, lasts, strings.Contains(err.Error(), ": 3 of 5 nodes failed, 3 needed; this will not pass by itself: "))
		})
	}
}

// No text counts nodes where there is only one.
func TestTextsOfTheOnlyNode(t *testing.T) {
	testlength.FromGate(t)
	for name, fails := range map[string]func(f field){
		"silent": func(f field) { f.freeze(0) },
		"down":   func(f field) { f.kill(0) },
		"denying": func(f field) {
			for _, command := range []string{"set", "evalsha", "eval", "ping"} {
				f.nodes[0].On(command, 1<<20, embedded.Fault{Err: "NOPERM this user has no permissions to run the command"})
			}
		},
	} {
		playAs(t, name, func(f field) {
			var log safeBuffer
			rs := on(clientsOf(f.nodes[:1])).With(redsync.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			f.closes(rs)
			m, other := locked(t, rs.NewMutex("lock", withExpiry(hour))), rs.NewMutex("other", withTries(2))
			current, holders := m.Sequencer(), must(m.Inspect(f.Context())).Holders
			fails(f)
			all := []error{
				other.Lock(), other.TryLock(), rs.Do(f.Context(), "other", nothing, withTries(1)), rs.Lead(limited(f, 5*sec), "other", nothing),
				rs.Ping(f.Context()), rs.Current(f.Context(), current), rs.NewMutex("lock").ForceUnlock(f.Context(), holders[0]),
			}
			_, inspected := other.Inspect(f.Context())
			_, ran := rs.TryDo(f.Context(), "other", nothing)
			for _, err := range append(all, inspected, ran, second(m.Valid()), second(m.Extend()), second(m.Unlock())) {
				says(f, err, "the only node failed", "node #0 (")
				assert.NotRegexp(f, `\d of \d nodes|\d needed|nodes failed`, err.Error()+log.String())
			}
		})
	}
}

// A waiter for several names takes the verdict of a line in which others wait for other names. Its ErrTaken has a name of
// its own.
func TestErrTakenOfALineHasANameOfTheCaller(t *testing.T) {
	playMet(t, func(f field) {
		b := locked(t, f.NewMutex("b"))
		f.begins(f.NewMultiMutex([]string{"b", "z"}, patient(withFair, recordsTo(&redsynctest.Recorder{}))...))
		time.Sleep(sec)
		for _, m := range []*redsync.Mutex{
			f.NewMutex("z", withFair), f.NewMultiMutex([]string{"a", "z"}, withFair),
		} {
			assert.Equal(t, "z", isTaken(t, m.TryLock()).Name)
		}
		f.unlock(b)
	})
}
