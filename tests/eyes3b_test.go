package redsync_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func TestEyesManyHolds(t *testing.T) {
	play(t, func(f field) {
		rs := f.another(redsync.WithOwner("w"))
		f.closes(rs)
		round := func() {
			var wg sync.WaitGroup
			for i := range 1000 {
				wg.Go(func() {
					m := rs.NewMutex(fmt.Sprint("lock", i))
					if m.Lock() == nil {
						time.Sleep(1500 * time.Millisecond)
						_, _ = m.Unlock()
					}
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
		}
		round()
		before, g := heap(), runtime.NumGoroutine()
		for range 4 {
			round()
			t.Log(int64(heap())-int64(before), runtime.NumGoroutine()-g)
		}
		time.Sleep(2 * time.Minute)
		t.Log(int64(heap())-int64(before), runtime.NumGoroutine()-g, f.connections())
	})
}

func TestEyesRedsyncPerRequest(t *testing.T) {
	play(t, func(f field) {
		base := f.connections()
		for range 30 {
			rs := f.another(redsync.WithOwner("w"))
			m := rs.NewMutex("lock")
			require.NoError(f, m.Lock())
			time.Sleep(1200 * time.Millisecond)
			f.unlock(m)
		}
		runtime.GC()
		runtime.GC()
		t.Log(base, f.connections())
		time.Sleep(3 * time.Minute)
		t.Log(base, f.connections())
	})
}

// A Redsync is dropped while its lock is held.
func TestEyesCollected(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		runtime.GC()
		runtime.GC()
		time.Sleep(90 * time.Second)
		runtime.GC()
		runtime.GC()
		operator := f.NewMutex("lock")
		require.NoError(f, operator.ForceUnlock(f.Context(), f.holderOf(operator)))
		synctest.Wait()
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
		runtime.KeepAlive(m)
	})
}

func TestEyesCloseWhileDoubting(t *testing.T) {
	for _, at := range []time.Duration{0, 1, 5, 10, 15, 20, 25, 30, 40, 60, 100} {
		play(t, func(f field) {
			rs := f.far()
			m := rs.NewMutex("lock", redsync.WithOwner("w"), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
			require.NoError(f, m.Lock())
			time.Sleep(1500 * time.Millisecond)
			h := f.holderOf(f.NewMutex("lock"))
			f.freeze(0, 1, 2)
			client := f.nodes[3].Client()
			channel := fmt.Sprintf("redsync:%016d", h.Process)
			for range 10 {
				require.NoError(f, client.Publish(f.Context(), channel, "forced "+h.ID).Err())
			}
			_ = client.Close()
			time.Sleep(at * time.Millisecond)
			start := time.Now()
			f.thaw(0, 1, 2)
			err := rs.Close(f.Context())
			require.NoError(f, err)
			assert.Less(f, time.Since(start), time.Second)
			synctest.Wait()
			assert.Zero(f, f.nodes.Keys("lock"))
		})
	}
}

// Two operators at once, and contexts that end at each moment.
func TestEyesOperators(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		a, b := f.newcomer(0, everywhere(3*time.Millisecond)), f.newcomer(1, func(_, n int) time.Duration { return time.Duration(n+1) * time.Millisecond })
		f.closes(a, b)
		f.as(a).meet()
		f.as(b).meet()
		ma, mb := a.NewMutex("lock"), b.NewMutex("lock")
		h := f.holderOf(ma)
		var wg sync.WaitGroup
		wg.Go(func() { t.Log("a", ma.ForceUnlock(f.Context(), h)) })
		wg.Go(func() { t.Log("b", mb.ForceUnlock(f.Context(), h)) })
		wg.Go(func() { t.Log("own", m.ForceUnlock(f.Context(), h)) })
		wg.Wait()
		synctest.Wait()
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
	})
	for at := time.Duration(0); at < 30; at++ {
		play(t, func(f field) {
			m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog())
			require.NoError(f, m.Lock())
			time.Sleep(1500 * time.Millisecond)
			h := f.holderOf(f.NewMutex("lock"))
			a := f.newcomer(0, everywhere(10*time.Millisecond))
			f.closes(a)
			ctx, cancel := context.WithTimeout(f.Context(), at*time.Millisecond)
			defer cancel()
			start := time.Now()
			err := a.NewMutex("lock").ForceUnlock(ctx, h)
			took := time.Since(start)
			time.Sleep(time.Second)
			t.Log(at, took, err, "|", m.Err())
			if at > 0 {
				require.ErrorIs(f, m.Err(), redsync.ErrForced)
				assert.Zero(f, f.nodes.Keys("lock"))
			}
			assert.LessOrEqual(f, took, at*time.Millisecond+time.Millisecond)
		})
	}
}

// The holder of two names, forced through a Mutex that knows only one.
func TestEyesSubset(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMultiMutex([]string{"a", "b"}, redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		operator := f.NewMutex("a")
		h := f.holderOf(operator)
		t.Log(h.Names)
		require.NoError(f, operator.ForceUnlock(f.Context(), h))
		synctest.Wait()
		t.Log(m.Err())
		time.Sleep(time.Second)
		t.Log("keys", f.nodes[0].Keys())
	})
}

// SUBSCRIBE is denied on all nodes, PUBLISH to the operator.
func TestEyesPermitsWeight(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("p", redsync.WithPermits(3), redsync.WithWeight(2), redsync.WithFair(), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		for range 1 {
			n := f.nodes
			_ = n
		}
		operator := f.NewMutex("p", redsync.WithPermits(3), redsync.WithFair())
		h := f.holderOf(operator)
		t.Log(h)
		require.NoError(f, operator.ForceUnlock(f.Context(), h))
		time.Sleep(100 * time.Millisecond)
		require.ErrorIs(f, m.Err(), redsync.ErrForced)
		assert.Empty(f, f.nodes[0].Keys())
	})
}

func TestEyesPermitsRebootHeal(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("p", redsync.WithPermits(3), redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		require.NoError(f, m.Lock())
		time.Sleep(1500 * time.Millisecond)
		f.reboot(true, 0, 1, 2, 3)
		time.Sleep(20 * time.Second)
		require.NoError(f, m.Err())
	})
}

// A holder from one node, without a quorum; another holds the lock.
func TestEyesHolderOfOneNode(t *testing.T) {
	play(t, func(f field) {
		m := f.another(redsync.WithOwner("w")).NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, f.nodes[0].Set("lock", "Tq2NfQ6zYQ1dUt4QkPJqkA=="))
		f.nodes[0].SetTTL("lock", time.Minute)
		require.NoError(f, m.Lock())
		operator := f.NewMutex("lock")
		s := f.inspected(operator)
		h := s.Nodes[0].Holders[0]
		t.Log(h, s.Holders)
		err := operator.ForceUnlock(f.Context(), h)
		t.Log(err)
		time.Sleep(10 * time.Second)
		v, _ := f.nodes[0].Get("lock")
		assert.NotEqual(f, "Tq2NfQ6zYQ1dUt4QkPJqkA==", v)
		require.NoError(f, m.Err())
	})
}
