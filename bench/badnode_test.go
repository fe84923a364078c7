package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A rested library is a lock that stays free for a time after each Unlock.
type rested struct {
	semaphore
	rest time.Duration
}

func (r rested) Lock(ctx context.Context, name string) (held, error) {
	if _, err := r.semaphore.Lock(ctx, name); err != nil {
		return nil, err
	}
	select {
	case <-time.After(r.rest):
		return r, nil
	case <-ctx.Done():
		_, err := r.UnlockContext(context.WithoutCancel(ctx))
		return nil, errors.Join(ctx.Err(), err)
	}
}

func TestShareOneMeasuresHowLongNobodyHasTheLock(t *testing.T) {
	const d = time.Second
	for rest, want := range map[time.Duration]struct {
		free  time.Duration
		locks int
	}{
		0:                      {0, 1000},
		99 * time.Millisecond:  {99 * time.Millisecond, 10},
		600 * time.Millisecond: {600 * time.Millisecond, 1},
		2 * time.Second:        {d, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			lock := rested{newSemaphore(1), rest}
			over := make(chan time.Time, 1)
			start := time.Now()
			w, free, err := shareOne(t.Context(), []library{lock, lock}, d, func() { over <- time.Now() })
			require.NoError(t, err)
			require.Equal(t, want.free, free, rest)
			require.InDelta(t, want.locks, len(w.Times), 1, rest)
			require.Len(t, w.Counts, 2)
			require.Equal(t, d, (<-over).Sub(start))
		})
	}
}

func TestAVacancyEndsWithTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		v := vacancy{since: start}
		require.Equal(t, time.Second, v.end(start.Add(time.Second)))
		time.Sleep(time.Minute) // somebody has the lock until after the end of the measurement
		v.begin()
		require.Equal(t, time.Second, v.end(start.Add(30*time.Second)))
	})
}

func TestABadNodeIsComparedWithOneThatRefuses(t *testing.T) {
	for _, sc := range []scene{nodeSilentScene, nodeSlowScene} {
		results := sampled(plan{}, sc)
		table := rows(sc, index(results))
		require.Len(t, table, 1+2*2*5)
		for _, fields := range table[1:] {
			ratio := fields[4]
			switch {
			case strings.HasSuffix(fields[0], refuses):
				require.Equal(t, "1.00", ratio)
			case strings.HasPrefix(fields[2], ours):
				require.NotContains(t, []string{"-", "1.00"}, ratio)
			default:
				require.Equal(t, "-", ratio, "another library has no row with a node that refuses")
			}
		}
		quick := sc.cells(plan{quick: true})
		require.Len(t, quick, 2)
		require.Equal(t, quick[1].id, toRefusing(quick[0].id))
	}
}

func TestClientsShareALockBesideABadNode(t *testing.T) {
	l, c := shortLab(t, nodeSilentScene, ours)
	l.plan.badNode, c.Goroutines = 100*time.Millisecond, 4
	measure := func(bad badNode, zones bool) figures {
		c.measure = measureBadNode(bad, zones, patientExpiry)
		f, err := sampleOnce(t.Context(), l, c)
		require.NoError(t, err, bad.name)
		return f
	}
	isShared := func(bad badNode, zones bool) { // on a slow machine nobody may get the lock in so short a time
		for range 8 {
			if measure(bad, zones)["rate"] > 0 {
				return
			}
			l.plan.badNode *= 2
		}
		t.Errorf("beside the node %q nobody gets the lock within %v", bad.name, l.plan.badNode/2)
	}
	slow := slowNode
	slow.delay = 20 * time.Millisecond
	isShared(slow, true)
	isShared(refusingNode, false)
	// Without a quorum nobody gets the lock. So the fault sets in before the load begins, and ends after it.
	f := measure(badNode{
		name: "three silent", set: func(s *servers) { s.freeze(3) }, repair: func(s *servers) { s.thaw(3) },
	}, false)
	require.Zero(t, f["rate"])
	require.InDelta(t, micros(l.plan.badNode), f["free_max"], 0)
	isShared(healthyNode, false)
}
