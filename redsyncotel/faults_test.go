package redsyncotel_test

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
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsyncotel"
)

// ends says how many locks end how, and how many count as lost by which error.
type ends struct {
	released, unconfirmed, detached, lost int64
	why                                   string // the error.type of those that are lost
}

// faults are ways in which locks and waits end.
var faults = map[string]func(k kit) ends{
	"Unlock": func(k kit) ends {
		k.unlock(k.held())
		return ends{released: 1}
	},
	"it expires, then Unlock": func(k kit) ends {
		m := k.held()
		time.Sleep(2 * time.Second)
		_, err := m.Unlock()
		require.ErrorIs(k, err, redsync.ErrLockAlreadyExpired)
		return ends{lost: 1, why: "expired"}
	},
	"it is stolen, then Unlock": func(k kit) ends {
		m := k.held()
		k.nodes.Steal("order:17")
		_, err := m.Unlock()
		require.ErrorIs(k, err, redsync.ErrLockAlreadyExpired)
		return ends{lost: 1, why: "taken"}
	},
	"the nodes have forgotten it": func(k kit) ends {
		m := k.held()
		k.nodes.Expire("order:17")
		m.Extend()
		return ends{lost: 1, why: "expired"}
	},
	"WithMaxHold": func(k kit) ends {
		k.held(redsync.WithWatchdog(), redsync.WithMaxHold(5*time.Second))
		return ends{lost: 1, why: "max_hold"}
	},
	"Close while a call waits": func(k kit) ends {
		k.held(redsync.WithWatchdog())
		done := k.begins(k.mutex(redsync.WithTries(0)), context.Background())
		require.NoError(k, k.rs.Close(k.Context()))
		require.ErrorIs(k, <-done, redsync.ErrClosed)
		return ends{lost: 1, why: "closed"}
	},
	"a majority is frozen at Unlock": func(k kit) ends {
		m := k.held()
		k.frozen(func() { m.Unlock() })
		return ends{unconfirmed: 1}
	},
	"a majority is frozen while the watchdog extends": func(k kit) ends {
		k.held(redsync.WithWatchdog())
		k.frozen(func() { time.Sleep(5 * time.Second) })
		return ends{lost: 1, why: "expired"}
	},
	"a majority is down at Lock": func(k kit) ends {
		for i := range 3 {
			k.nodes.Node(i).Down()
		}
		require.ErrorIs(k, k.mutex(redsync.WithTries(2)).Lock(), redsync.ErrNoQuorum)
		return ends{}
	},
	"a hand-over": func(k kit) ends {
		m := k.held()
		next := k.mutex()
		done := k.begins(next, context.Background())
		k.unlock(m)
		require.NoError(k, <-done)
		k.unlock(next)
		return ends{released: 2}
	},
	"calls that give up": func(k kit) ends {
		m := k.held(redsync.WithWatchdog())
		ctx, cancel := context.WithCancel(context.Background())
		first, second := k.begins(k.mutex(), ctx), k.begins(k.mutex(), ctx)
		cancel()
		require.ErrorIs(k, errors.Join(<-first, <-second), context.Canceled)
		assert.ErrorIs(k, <-k.begins(k.mutex(redsync.WithTries(2)), context.Background()), redsync.ErrFailed)
		k.unlock(m)
		return ends{released: 1}
	},
	"a Do that WithWait ends": func(k kit) ends {
		m := k.held(redsync.WithWatchdog())
		ctx, cancel := context.WithTimeout(k.Context(), time.Hour)
		defer cancel()
		err := redsyncotel.Do(ctx, k.rs, "order:17", func(context.Context) error { return nil }, redsync.WithWait(time.Minute))
		require.ErrorIs(k, err, redsync.ErrFailed)
		assert.EqualValues(k, 1, total(collect(k.T, k.reader)["redsync.acquire.duration"], "redsync.outcome", "taken", "error.type", "taken"))
		k.unlock(m)
		return ends{released: 1}
	},
	"readers that share a lock": func(k kit) ends {
		var readers []*redsync.Mutex
		for range 3 {
			readers = append(readers, k.held(redsync.WithShared()))
		}
		writer := k.mutex()
		done := k.begins(writer, context.Background())
		k.unlock(readers[0])
		_, err := readers[1].Detach(k.Context())
		require.Error(k, err)      // others share it
		require.NoError(k, <-done) // once the others have run out
		k.unlock(writer)
		return ends{released: 2, lost: 2, why: "expired"}
	},
	"permits, and one that waits": func(k kit) ends {
		two := redsync.WithPermits(2)
		m, _ := k.held(two), k.held(two)
		third := k.mutex(two)
		done := k.begins(third, context.Background())
		k.unlock(m)
		require.NoError(k, <-done)
		k.unlock(third)
		return ends{released: 2, lost: 1, why: "expired"}
	},
	"Detach, adoption, Unlock": func(k kit) ends {
		q, err := k.held().Detach(k.Context())
		require.NoError(k, err)
		m := k.mutex(redsync.WithSequencer(q))
		_, err = m.Extend()
		require.NoError(k, err)
		k.unlock(m)
		return ends{detached: 1, released: 1}
	},
	"Detach, Unlock without an adoption": func(k kit) ends {
		q, err := k.held().Detach(k.Context())
		require.NoError(k, err)
		k.unlock(k.mutex(redsync.WithSequencer(q)))
		return ends{detached: 1}
	},
	"the function of Do panics": func(k kit) ends {
		assert.Panics(k, func() {
			redsyncotel.Do(k.Context(), k.rs, "order:17", func(context.Context) error { panic("the user's") })
		})
		return ends{released: 1}
	},
	"Do inside Do": func(k kit) ends {
		require.NoError(k, redsyncotel.Do(k.Context(), k.rs, "order:17", func(ctx context.Context) error {
			return redsyncotel.Do(ctx, k.rs, "order:17", func(context.Context) error { return nil })
		}))
		return ends{released: 1}
	},
	"another observer panics at the Acquired of a call that has waited": func(k kit) ends {
		m := k.held()
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			k.mutex(redsync.WithHooks(&observe.Hooks{Acquired: func(context.Context, observe.Acquired) { panic("the user's") }})).Lock()
		}()
		synctest.Wait()
		k.unlock(m)
		assert.NotNil(k, <-panicked)
		return ends{released: 1, lost: 1, why: "lost"}
	},
	"a user's function panics while the call waits": func(k kit) ends {
		m := k.held()
		delay := func(int) time.Duration { panic("the user's") }
		assert.Panics(k, func() { k.mutex(redsync.WithRetryDelayFunc(delay)).Lock() })
		k.unlock(m)
		return ends{released: 1}
	},
	"candidates that lead, and one that loses its term": func(k kit) ends {
		ctx, stop := context.WithCancel(k.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				redsyncotel.Lead(ctx, k.rs, "order:17", func(ctx context.Context) error {
					<-ctx.Done()
					return nil
				})
			})
		}
		time.Sleep(5 * time.Second)
		k.nodes.Expire("order:17")
		time.Sleep(5 * time.Second)
		stop()
		wg.Wait()
		return ends{released: 1, lost: 1, why: "taken"}
	},
}

func (k kit) unlock(m *redsync.Mutex) {
	_, err := m.Unlock()
	require.NoError(k, err)
}

// begins begins a Lock that waits, and returns what tells of its end.
func (k kit) begins(m *redsync.Mutex, ctx context.Context) <-chan error { //nolint:revive // the lock comes first
	done := make(chan error, 1)
	go func() { done <- m.LockContext(ctx) }()
	synctest.Wait()
	return done
}

// Whatever happens, no lock counts as held and no call as waiting when all has ended, and each lock counts once.
func TestHeldAndWaitingAreZeroAfterEveryFault(t *testing.T) {
	for name, play := range faults {
		t.Run(name, func(t *testing.T) {
			onKit(t, func(k kit) {
				want := play(k)
				settles()
				assertBalanced(t, k.reader)
				found := collect(t, k.reader)
				hold := found["redsync.hold.duration"]
				why := want.why
				want.why = ""
				assert.Equal(t, want, ends{
					released: total(hold, "redsync.outcome", "released"), unconfirmed: total(hold, "redsync.outcome", "unconfirmed"),
					detached: total(hold, "redsync.outcome", "detached"), lost: total(hold, "redsync.outcome", "lost"),
				})
				assert.Equal(t, want.lost, total(found["redsync.lost"], "error.type", why), found["redsync.lost"])
				assert.Equal(t, want.lost, total(found["redsync.lost"]))
				assert.Equal(t, total(found["redsync.acquire.duration"], "redsync.outcome", "acquired"),
					total(hold)) // each lock that was acquired ends once
			})
		})
	}
}

// A node that is down is failing until it has a lock again, and its series stays.
func TestANodeIsFailingWhileItIsDown(t *testing.T) {
	onKit(t, func(k kit) {
		uses := func() map[string][]series {
			k.unlock(k.held())
			settles()
			return collect(t, k.reader)
		}
		k.nodes.Node(4).Down()
		for range 2 {
			assert.EqualValues(t, 1, total(uses()["redsync.node.failing"], "redsync.node", "4"))
		}
		k.nodes.Node(4).Up()
		uses()
		found := uses()
		assert.Len(t, found["redsync.node.failing"], 1)
		assert.Zero(t, total(found["redsync.node.failing"]))
		assert.EqualValues(t, 1, total(found["redsync.node.down"]))
	})
}

// While it is held, a lock counts as held, in its mode, and a call that waits as waiting.
func TestHeldAndWaitingWhileTheyLast(t *testing.T) {
	onKit(t, func(k kit) {
		plain, permit := k.held(redsync.WithWatchdog()), k.held(redsync.WithPermits(2), redsync.WithWatchdog())
		ctx, cancel := context.WithCancel(k.Context())
		done := k.begins(k.mutex(redsync.WithTries(0)), ctx)
		found := collect(t, k.reader)
		assert.EqualValues(t, 1, total(found["redsync.held"], "redsync.mode", "plain"))
		assert.EqualValues(t, 1, total(found["redsync.held"], "redsync.mode", "permits"))
		assert.EqualValues(t, 2, total(found["redsync.held"]))
		assert.EqualValues(t, 1, total(found["redsync.waiting"]))
		cancel()
		<-done
		k.unlock(plain)
		k.unlock(permit)
		settles()
		assertBalanced(t, k.reader)
	})
}
