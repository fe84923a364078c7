package redsync_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// A gate counts who has permits by what is promised: holders with time left.
type gate struct {
	testing.TB

	mu    sync.Mutex
	in    map[*redsync.Mutex]int // the weights of those between Lock and Unlock
	total int
}

// enters notes that m holds so many permits, and checks that there are no more than limit.
func (g *gate) enters(m *redsync.Mutex, weight, limit int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.in[m] = weight
	g.total++
	// Whoever has time left in both passes has held when all were looked at in the first one.
	held := 0
	valid := map[*redsync.Mutex]bool{}
	for other := range g.in {
		valid[other] = other.Remaining() > 0
	}
	for other, weight := range g.in {
		if valid[other] && other.Remaining() > 0 {
			held += weight
		}
	}
	assert.LessOrEqual(g, held, limit)
}

func (g *gate) leaves(m *redsync.Mutex) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.in, m)
}

// While one server after another freezes, there are never more holders than permits, and nothing is left.
func TestPermitsUnderRollingFreezes(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]func(i int) []redsync.Option{
		"permits": func(int) []redsync.Option { return permitsOf(3, 1) },
		"weights": func(i int) []redsync.Option { return permitsOf(3, 1+i%3, redsync.WithFair()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := realredis.Start(t, 5)
			g := &gate{TB: t, in: map[*redsync.Mutex]int{}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(testlength.Of(1, 3, 60))*time.Second)
			defer cancel()
			var all sync.WaitGroup
			var processes []*redsync.Redsync
			for p := range 3 {
				rs := realProcess(servers)
				processes = append(processes, rs)
				for i := range 3 {
					all.Go(func() {
						weight := 1
						if name == "weights" {
							weight = 1 + i%3
						}
						for ctx.Err() == nil {
							m := rs.NewMutex("printer", append(options(i), redsync.WithExpiry(time.Second), redsync.WithWatchdog(), redsync.WithTries(0))...)
							if m.LockContext(ctx) != nil {
								continue
							}
							g.enters(m, weight, 3)
							time.Sleep(time.Duration(1+(p+i)%4) * time.Millisecond) //nolint:forbidigo // it works
							g.leaves(m)
							_, _ = m.Unlock()
						}
					})
				}
			}
			for i := 0; ctx.Err() == nil; i++ {
				s := servers[i%len(servers)]
				s.Freeze()
				time.Sleep(time.Duration(50+i%3*150) * time.Millisecond) //nolint:forbidigo // a fault lasts
				s.Thaw()
				time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the next fault comes later
			}
			all.Wait()
			assert.Positive(t, g.total)
			for _, rs := range processes {
				closing, done := context.WithTimeout(context.Background(), 10*time.Second)
				assert.NoError(t, rs.Close(closing))
				done()
			}
			for i, s := range servers {
				assert.Eventually(t, func() bool {
					keys, err := s.Do("keys", "*")
					return err == nil && fmt.Sprint(keys) == "[]"
				}, 10*time.Second, 50*time.Millisecond, "server %d", i)
			}
		})
	}
}

// All keys of the permits of a name lie in one slot of a Redis Cluster.
func TestPermitsOnAClusterClient(t *testing.T) {
	t.Parallel()
	rs, _ := clusterProcess(t, realredis.StartCluster(t))
	for _, name := range []string{"printer", "{floor}:printer", "printer{3}"} {
		for _, weight := range []int{1, 2} {
			held := rs.NewMutex(name, permitsOf(2, weight)...)
			require.NoError(t, held.Lock())
			next := rs.NewMutex(name, permitsOf(2, 2, redsync.WithTries(0))...)
			waited := make(chan error, 1)
			go func() { waited <- next.Lock() }()
			ok, err := held.Extend()
			require.True(t, ok, "%v", err)
			ok, err = held.Valid()
			require.True(t, ok, "%v", err)
			ok, err = held.Unlock()
			require.True(t, ok, "%v", err)
			require.NoError(t, <-waited)
			ok, err = next.Unlock()
			require.True(t, ok, "%v", err)
		}
	}
}
