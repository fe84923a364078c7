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

func TestReadersRelateToPlainLocks(t *testing.T) {
	results := sampled(plan{}, readersScene)
	table := rows(readersScene, index(results))
	require.Len(t, table, 1+2*3)
	for i, want := range []string{"1.00", "2.00", "1.00", "1.33", "1.00", "1.20"} {
		require.Equal(t, want, table[1+i][8], "x plain: %v", table[1+i])
	}
	require.ErrorContains(t, verdict(results), "readers, goroutines 1, "+oursShared+": 1 keys left behind")
}

func TestReadersOfOneNameRelateToLocksThatGoToTheNodes(t *testing.T) {
	table := rows(readersOneScene, index(sampled(plan{}, readersOneScene)))
	require.Len(t, table, 1+3*6)
	for i, want := range []string{"0.33", "0.67", "1.00"} {
		require.Equal(t, want, table[1+i][4], "x WithHandOver(false): %v", table[1+i])
	}
}

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

// TestVisitAllAllowsReadersAtATime has readers whose locks do not exclude each other. visitAll must not report them as
// two holders.
func TestVisitAllAllowsReadersAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := visitAll(t.Context(), fake{}, newTestLedger(t, 1), testVisits(4))
		require.NoError(t, err)
		require.InDelta(t, 4*1000/6, len(w.Times), 10, "4 readers visit at once: 1 ms in Lock and 5 ms in the visit")
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

func TestCellsOfReadersAndAWriterSayHowTheyLock(t *testing.T) {
	var names []string
	for _, c := range readersWriterScene.cells(plan{}) {
		names = append(names, c.Library)
		require.NotEmpty(t, named(c.contender.name), "a child process must find the contender")
	}
	require.Equal(t, []string{oursShared, ours + aNameEach, ours, defaults}, names)
	require.NotEmpty(t, named(oursMany), "a child process must find the contender of the writer")
}

func TestProcessesReadAndWriteOnAllNodes(t *testing.T) {
	for _, library := range []string{oursShared, ours + aNameEach, ours} {
		l, c := shortLab(t, readersWriterScene, library)
		l.plan.contend = time.Second
		f := measureLonger(t, l, c, "rate")
		require.Zero(t, f["failed"], library)
	}
}

// TestReadersShareOnTheNodes compares how many locks the readers of one name acquired with how many entries they needed
// on the nodes. Readers that share an entry acquire several locks with it.
func TestReadersShareOnTheNodes(t *testing.T) {
	for _, variant := range []string{inOne, inEight} {
		l, c := shortLab(t, readersOneScene, oursShared)
		c.Variant, c.Goroutines = variant, 2*manyReaders
		f := measureLonger(t, l, c, "entries")
		require.Greater(t, f["rate"], 2*f["entries"], variant)
		require.Zero(t, f["failed"], variant)
	}
}
