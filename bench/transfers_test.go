package main

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// locker is a library whose locks exclude only within this process. order lists the locked names in the order of Lock.
// fails[name] says how many more calls of Lock for the name fail.
type locker struct {
	mu    sync.Mutex
	held  map[string]bool
	order []string
	fails map[string]int
}

func (l *locker) Lock(ctx context.Context, name string) (held, error) {
	for ctx.Err() == nil {
		l.mu.Lock()
		if l.fails[name] > 0 {
			l.fails[name]--
			l.mu.Unlock()
			return nil, io.ErrUnexpectedEOF
		}
		if !l.held[name] {
			l.held[name] = true
			l.order = append(l.order, name)
			l.mu.Unlock()
			return lockerLock{l, name}, nil
		}
		l.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	return nil, ctx.Err()
}

func (l *locker) Close() error { return nil }

type lockerLock struct {
	*locker
	name string
}

func (l lockerLock) UnlockContext(context.Context) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.held[l.name]
	delete(l.held, l.name)
	return was, nil
}

func testOrder(accounts int) transferOrder {
	return transferOrder{
		Prefix: "test", Accounts: accounts, Goroutines: 8, First: 1,
		Work: time.Millisecond, Time: time.Second,
	}
}

// TestMoveMoneyEndsAtTheFirstAccountWithTwoHolders shows that moveMoney notices locks that do not work. The locks of
// fake exclude nobody.
func TestMoveMoneyEndsAtTheFirstAccountWithTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := moveMoney(t.Context(), fake{}, newTestLedger(t, 4), testOrder(4))
		require.ErrorIs(t, err, errTwoHolders)
		require.Less(t, time.Since(start), time.Second/2)
	})
}

func TestAwaitLocksInOrderAndUnlocksTheFirstIfTheSecondFails(t *testing.T) {
	lib := &locker{held: make(map[string]bool)}
	one := teller{transferOrder: testOrder(10), lib: lib}
	lib.fails = map[string]int{one.name(7): 2}
	lock := one.await(t.Context(), &transfer{from: 7, to: 3})
	require.NotNil(t, lock)
	require.Equal(t, []string{one.name(3), one.name(3), one.name(3), one.name(7)}, lib.order)
	require.Equal(t, 2, one.Failed)
	require.Len(t, one.Times, 1)
	require.NoError(t, unlock(t.Context(), lock))
	require.Empty(t, lib.held)
	require.ErrorContains(t, unlock(t.Context(), lock), "false and no error")
}
