package redsync_test

import (
	"testing"
	"testing/synctest"
	"time"
	"context"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(5)
		defer nodes.Close()
		var pools []pool.Pool
		for _, n := range nodes {
			pools = append(pools, pool.New(n.Client()))
		}
		rs := redsync.New(pools...)
		defer func() { require.NoError(t, rs.Close(context.Background())) }()
		m := rs.NewMutex("a")
		start := time.Now()
		require.NoError(t, m.Lock())
		t.Log(time.Since(start), m.Until().Sub(start), m.Remaining())
		time.Sleep(time.Second)
		t.Log(nodes.Keys("a"))
		ok, err := m.Extend()
		t.Log(ok, err, m.Until().Sub(start))
		ok, err = m.Valid()
		t.Log(ok, err)
		t.Log(rs.NewMutex("a").TryLock())
		ok, err = m.Unlock()
		t.Log(ok, err)
		time.Sleep(time.Second)
		t.Log(nodes.Keys("a"))
		nodes[0].Freeze()
		nodes[1].Freeze()
		start = time.Now()
		require.NoError(t, m.Lock())
		t.Log(time.Since(start))
		ok, err = m.Unlock()
		t.Log(ok, err, time.Since(start))
		time.Sleep(20*time.Second)
		t.Log(nodes.Keys("a"))
		nodes[0].Thaw()
		nodes[1].Thaw()
		synctest.Wait()
		t.Log(nodes.Keys("a"))
	})
}
