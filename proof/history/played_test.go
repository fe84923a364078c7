package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/queue"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/proof/history"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// callKey is the key of what tells the calls of a process apart.
type callKey struct{}

// note returns Hooks that note the attempts of a process.
func note(in *history.Tries, began time.Time, process int) *observe.Hooks {
	return &observe.Hooks{Attempt: func(ctx context.Context, a observe.Attempt) {
		if in.Note(time.Since(began), fmt.Sprint(process), fmt.Sprint(ctx.Value(callKey{})), a.Name) {
			time.Sleep(time.Millisecond) // or virtual time stands still
		}
		if in.Len() > 2000 {
			time.Sleep(time.Second) // these attempts are enough for the judge
		}
	}}
}

// A test in virtual time ends, and waiters make no haste, where a node lacks the key of a holder, and where restart guards ignore
// a majority. With the rules against haste switched off they do.
func TestWaitersMakeNoHaste(t *testing.T) {
	testlength.NotShort(t)
	readers := func(t *testing.T, of processes, nodes *redsynctest.Nodes, _ uint64, options ...redsync.Option) []history.Event {
		nodes.Node(2).Down()
		nodes.HoldBySomebody("x")
		nodes.Node(2).Up()
		for p := range 6 {
			of(p)
		}
		waits(t, time.Duration(testlength.InGate(300, 300, 1200, 1200))*time.Millisecond, 6, func(ctx context.Context, p int) {
			assert.Error(t, of(p).NewMutex("x", append(options, redsync.WithShared())...).LockContext(ctx))
		})
		return []history.Event{{Kind: history.Held, Client: "somebody", Name: "x", Until: time.Hour}}
	}
	for name, c := range map[string]struct {
		play func(t *testing.T, of processes, nodes *redsynctest.Nodes, seed uint64, options ...redsync.Option) []history.Event
		with []redsync.Option
		rash queue.Rash
	}{
		"readers":               {readers, nil, queue.Hopes},
		"fair readers":          {readers, []redsync.Option{redsync.WithFair()}, 0},
		"readers that ask less": {readers, []redsync.Option{redsync.WithRetryDelay(5 * time.Second)}, 0},
		"guards":                {guards, nil, queue.HearsAll | queue.NeverPauses},
	} {
		t.Run(name, func(t *testing.T) {
			hasty := func(rash queue.Rash, seed uint64) (found []history.Violation) {
				synctest.Test(t, func(t *testing.T) {
					nodes, tries, began := redsynctest.Start(t, 5), &history.Tries{}, time.Now()
					made := map[int]*redsync.Redsync{}
					events := c.play(t, func(p int, options ...pool.Option) *redsync.Redsync {
						if made[p] == nil {
							rs := redsync.New(nodes.Pools(options...)...)
							t.Cleanup(func() { _ = rs.Close(context.Background()) })
							fortests.BeRash(rs, rash)
							made[p] = rs.With(redsync.WithTries(0), redsync.WithHooks(note(tries, began, p)))
						}
						return made[p]
					}, nodes, seed, c.with...)
					found = tries.Judge(events)
				})
				return found
			}
			assert.Empty(t, hasty(0, 0))
			for seed := range uint64(10) {
				if c.rash == 0 || testing.Short() || len(hasty(c.rash, seed)) > 0 { // the haste itself takes long
					return
				}
			}
			assert.Fail(t, "with rules switched off nobody has been hasty")
		})
	}
}

// processes returns the Redsync of process p, which it makes first with these options of its pools.
type processes = func(p int, pools ...pool.Option) *redsync.Redsync

// guards lets four processes contend for several names while one node after another restarts. Their guards have different lengths.
func guards(t *testing.T, of processes, nodes *redsynctest.Nodes, seed uint64, _ ...redsync.Option) []history.Event {
	time.Sleep(20 * time.Second)
	for p := range 4 {
		of(p, pool.WithRestartGuard(time.Duration(2+p)*time.Second), pool.WithNoLocksBefore(time.Now().Add(-10*time.Second)))
	}
	go func() {
		for i := range 3 {
			time.Sleep(100 * time.Millisecond)
			nodes.Node(i).Restart(true)
		}
	}()
	waits(t, time.Duration(testlength.InGate(500, 500, 1500, 1500))*time.Millisecond, 16, func(ctx context.Context, k int) {
		r := rand.New(rand.NewPCG(seed, uint64(k))) //nolint:gosec // to be repeated
		for n := 0; ctx.Err() == nil; n++ {
			names, options := []string{"a", "b", "c"}[r.IntN(2):2+r.IntN(2)], []redsync.Option{redsync.WithExpiry(time.Second), redsync.WithWatchdog()}
			if r.IntN(2) == 0 {
				options = append(options, redsync.WithFencing())
			}
			m := of(k%4).NewMultiMutex(names, options...)
			if m.LockContext(context.WithValue(ctx, callKey{}, fmt.Sprint(k, "#", n))) == nil {
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
				_, _ = m.UnlockContext(t.Context())
			}
		}
	})
	return nil
}

// waits runs n calls of do at once, for a time.
func waits(t *testing.T, lasts time.Duration, n int, do func(ctx context.Context, k int)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() { do(context.WithValue(ctx, callKey{}, k), k) })
	}
	all.Wait()
}
