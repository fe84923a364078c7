package main

import (
	"context"
	"sync"
	"sync/atomic"
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
		require.NoError(t, l.counts(0), "readers must not write to the ledger")
		require.LessOrEqual(t, len(w.Times), 201, "visits must come one at a time and take 5 ms each")
		require.Greater(t, len(w.Times), 100)
		require.Len(t, w.Counts, 4)

		order = testVisits(1)
		order.Writer, order.Pause = 1, 20*time.Millisecond
		w, err = visitAll(t.Context(), &locker{held: make(map[string]bool)}, l, order)
		require.NoError(t, err)
		require.InDelta(t, 40, len(w.Times), 1, "each visit must take 5 ms, and the pause after it 20 ms")
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
			wg.Go(func() { _, _ = visitAll(ctx, fake{}, l, one) })
			_, err := visitAll(ctx, fake{}, l, other)
			cancel()
			wg.Wait()
			require.ErrorIs(t, err, errTwoHolders)
			require.Less(t, time.Since(start), time.Second/2)
		})
	}
}

func TestVisitNoticesAWriteDuringIt(t *testing.T) {
	l := newTestLedger(t, 1)
	v := visitor{book: l, visitOrder: visitOrder{Hold: 50 * time.Millisecond}}
	require.NoError(t, v.visit())
	done := make(chan error, 1)
	go func() {
		var err error
		for start := time.Now(); err == nil && time.Since(start) < time.Minute; { // on a slow machine no write may come meanwhile
			err = v.visit()
		}
		done <- err
	}()
	var writes atomic.Int64
	for len(done) == 0 { // a write that begins and ends between the two reads of the visit
		require.NoError(t, l.write(0, account{Balance: opening + writes.Add(1)}))
		time.Sleep(time.Millisecond)
	}
	require.ErrorIs(t, <-done, errTwoHolders)
}

func TestFiguresOfVisitsLeaveOutAWriterThatNeverCame(t *testing.T) {
	readers := waits{Counts: []int{3}, Times: []time.Duration{1000, 2000, 3000}, Failed: 1}
	f := visitFigures(&readers, &waits{CutOff: []time.Duration{7000}, Failed: 2}, time.Second)
	require.Zero(t, f["writes"])
	require.NotContains(t, f, "writer_p50")
	require.InDelta(t, 7, f["writer_max"], 0)
	require.InDelta(t, 3, f["failed"], 0)
	require.InDelta(t, 3, f["rate"], 0)
	f = visitFigures(&readers, &waits{Times: []time.Duration{4000, 5000}}, time.Second)
	require.InDelta(t, 2, f["writes"], 0)
	require.InDelta(t, 4, f["writer_p50"], 0)
}
