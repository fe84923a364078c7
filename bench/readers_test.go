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
