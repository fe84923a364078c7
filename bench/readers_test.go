package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func testVisits(readers int) visitOrder {
	o := visitOrder{Hold: 5 * time.Millisecond, Time: time.Second}
	for range readers {
		o.Keys = append(o.Keys, "test")
	}
	return o
}

func TestVisitAllCountsVisitsAndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, order := newTestLedger(t, 1), testVisits(4)
		w, err := visitAll(t.Context(), &locker{held: make(map[string]bool)}, l, order)
		require.NoError(t, err)
		require.NoError(t, l.counts(0))           // readers must not write to the ledger
		require.LessOrEqual(t, len(w.Times), 201) // visits must come one at a time and take 5 ms each
		require.Greater(t, len(w.Times), 100)
		require.Len(t, w.Counts, 4)

		order = testVisits(1)
		order.Writer, order.Pause = 1, 20*time.Millisecond
		w, err = visitAll(t.Context(), &locker{held: make(map[string]bool)}, l, order)
		require.NoError(t, err)
		require.InDelta(t, 40, len(w.Times), 1) // each visit must take 5 ms, and the pause after it 20 ms
		require.NoError(t, l.counts(len(w.Times)))
		require.ErrorContains(t, l.counts(len(w.Times)+1), "the account is")
	})
}

// TestVisitAllEndsAtAWriterBesideAnother shows that visitAll notices locks that fail to exclude a writer. The locks of
// fake exclude nobody.
func TestVisitAllEndsAtAWriterBesideAnother(t *testing.T) {
	for _, writer := range []int64{0, 2} { // what the other goroutines do: 0 means that they read
		synctest.Test(t, func(t *testing.T) {
			l, start := newTestLedger(t, 1), time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			one, other := testVisits(1), testVisits(3)
			one.Writer, other.Writer = 1, writer
			var wg sync.WaitGroup
			wg.Go(func() { visitAll(ctx, fake{}, l, one) })
			_, err := visitAll(ctx, fake{}, l, other)
			cancel()
			wg.Wait()
			require.ErrorIs(t, err, errTwoHolders)
			require.Less(t, time.Since(start), time.Second/2)
		})
	}
}
