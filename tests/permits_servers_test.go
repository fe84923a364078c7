package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
)

// A gate counts the permits of the holders that have time left, because only these are promised their permits.
type gate struct {
	testing.TB

	mu    sync.Mutex
	in    map[*redsync.Mutex]int // the weights of those between Lock and Unlock
	total int
}

// enters notes that m holds weight permits, and checks that no more than limit permits are held.
func (g *gate) enters(m *redsync.Mutex, weight, limit int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.in[m] = weight
	g.total++
	// A holder that has time left in both passes held its permits when the first pass ended. So all these holders held
	// at the same time.
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

// acquired returns how often the gate was entered.
func (g *gate) acquired() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
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
			ctx, cancel := context.WithCancel(t.Context())
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
			end := time.Now().Add(time.Duration(testlength.Of(1, 3, 60)) * time.Second)
			latest := end.Add(20 * time.Second) // a slow machine needs longer for the first permit
			for i := 0; time.Now().Before(end) || time.Now().Before(latest) && g.acquired() == 0; i++ {
				s := servers[i%len(servers)]
				s.Freeze()
				time.Sleep(time.Duration(50+i%3*150) * time.Millisecond) //nolint:forbidigo // a fault lasts
				s.Thaw()
				time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the next fault comes later
			}
			cancel()
			all.Wait()
			assert.Positive(t, g.acquired())
			for _, rs := range processes {
				closing, done := context.WithTimeout(context.Background(), 10*time.Second)
				assert.NoError(t, rs.Close(closing))
				done()
			}
			for i, s := range servers {
				assert.Eventually(t, func() bool {
					keys, err := s.Do("keys", "*")
					return err == nil && fmt.Sprint(keys) == "[]"
				}, time.Minute, 50*time.Millisecond, "server %d", i)
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

// Callers give up at any moment, give their permits away, or crash. Processes close, and new ones come. Meanwhile up to
// two of four servers are frozen at once. There are never more holders than permits, and nothing is left.
func TestPermitsOfImpatientCallersUnderFreezes(t *testing.T) {
	t.Parallel()
	servers := realredis.Start(t, 4)
	g := &gate{TB: t, in: map[*redsync.Mutex]int{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(testlength.Of(1, 3, 60))*time.Second)
	defer cancel()
	const permits = 3
	serves := func(rs *redsync.Redsync, r *rand.Rand) {
		weight := 1 + r.IntN(permits)
		options := permitsOf(permits, weight, redsync.WithFair(), redsync.WithExpiry(time.Duration(300+r.IntN(700))*time.Millisecond), redsync.WithTries(r.IntN(4)))
		if r.IntN(2) == 0 {
			options = append(options, redsync.WithWatchdog(), redsync.WithSetNXOnExtend())
		}
		m := rs.NewMutex("printer", options...)
		short, done := context.WithTimeout(ctx, time.Duration(1+r.IntN(1+r.IntN(1000)))*time.Millisecond)
		defer done()
		if m.LockContext(short) != nil {
			return
		}
		g.enters(m, weight, permits)
		defer g.leaves(m)
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) //nolint:forbidigo // it works
		if r.IntN(3) > 0 {
			_, _ = m.Unlock()
			return
		}
		s, err := m.Detach(ctx)
		if err != nil {
			return
		}
		heir := rs.NewMutex("printer", redsync.WithSequencer(s), redsync.WithExpiry(time.Second))
		if ok, _ := heir.Extend(); ok {
			g.enters(heir, weight, permits)
			g.leaves(heir)
		}
		_, _ = heir.Unlock()
	}
	var all sync.WaitGroup
	for p := range uint64(3) {
		all.Go(func() {
			for life := uint64(0); ctx.Err() == nil; life++ { // each life ends with a Close in the middle of its calls
				rs := realProcess(servers)
				end := time.Now().Add(300 * time.Millisecond)
				var calls sync.WaitGroup
				for i := range uint64(3) {
					r := rand.New(rand.NewPCG(p, life<<8+i)) //nolint:gosec // no secret
					calls.Go(func() {
						for ctx.Err() == nil && time.Now().Before(end.Add(10*time.Millisecond)) {
							serves(rs, r)
						}
					})
				}
				time.Sleep(time.Until(end)) //nolint:forbidigo // real servers
				closing, done := context.WithTimeout(context.Background(), 20*time.Second)
				_ = rs.Close(closing) // frozen servers may miss its deadline
				done()
				calls.Wait()
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // no secret
	for ctx.Err() == nil {
		for _, i := range r.Perm(len(servers))[:1+r.IntN(2)] {
			servers[i].Freeze()
		}
		time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond) //nolint:forbidigo // a fault lasts
		for _, s := range servers {
			s.Thaw()
		}
		time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond) //nolint:forbidigo // the next fault comes later
	}
	all.Wait()
	for i, s := range servers {
		assert.Eventually(t, func() bool {
			keys, err := s.Do("keys", "*")
			return err == nil && fmt.Sprint(keys) == "[]"
		}, time.Minute, 50*time.Millisecond, "server %d", i)
	}
}
