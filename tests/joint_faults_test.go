package redsync_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows joint processes beside processes of one set, at random: each server has an address in each set,
// servers restart with their keys, freeze, and lose replies, and now and then deny INFO to a connection. No two
// processes may hold the lock at once, and its tokens must rise.

func TestJointExcludesWhileNodesFail(t *testing.T) {
	if testlength.Of(0, 0, 1) == 0 {
		t.Skip("runs with .ci/nightly all: internal/simulation plays changes at every length")
	}
	for seed := range 40 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { playChange(t, uint64(seed)) }) //nolint:gosec // it is not negative
	}
}

// playChange plays two phases. In the first, processes of before run beside joint ones; in the second, processes of
// after do. Between them is the wait of the runbook.
func playChange(t *testing.T, seed uint64) {
	changing(t, 7, func(s change) {
		r := rand.New(rand.NewPCG(seed, 1))
		was, is := []int{0, 1, 2, 3, 4}, []int{2, 3, 4, 5, 6}
		via := func(i int) *redis.Client {
			var mu sync.Mutex
			rr := rand.New(rand.NewPCG(r.Uint64(), 1))
			return s.nodes[i].Client(func(o *redis.Options) {
				o.Dialer = s.nodes[i].DialVia(func(bool) time.Duration {
					mu.Lock()
					defer mu.Unlock()
					return time.Duration(rr.IntN(20)) * time.Millisecond
				})
			})
		}
		// Processes 0, 1 and 2 are joint, 3 has the nodes before, and 4 has those after.
		type proc struct{ before, after []*redis.Client }
		var procs []proc
		for k := range 5 {
			var p proc
			if k != 4 {
				for _, i := range was {
					p.before = append(p.before, via(i))
				}
			}
			if k != 3 {
				for _, i := range is {
					p.after = append(p.after, via(i))
				}
			}
			procs = append(procs, p)
		}
		pools := func(cs []*redis.Client) (ps []pool.Pool) {
			for _, c := range cs {
				ps = append(ps, pool.New(c))
			}
			return ps
		}
		var mu sync.Mutex
		type hold struct {
			who  string
			open bool
			m    *redsync.Mutex
		}
		var holds []*hold
		token := map[string]uint64{}
		phaseB := time.Now().Add(60 * time.Second)
		end := time.Now().Add(150 * time.Second)
		var all sync.WaitGroup
		won := 0
		for w := range 10 {
			rr := rand.New(rand.NewPCG(r.Uint64(), 2))
			all.Go(func() {
				var rs *redsync.Redsync
				for time.Now().Before(end) {
					k := w % 4
					if k == 3 {
						if time.Now().After(phaseB.Add(-15 * time.Second)) {
							if time.Now().Before(phaseB) {
								time.Sleep(time.Second)
								continue
							}
							k = 4
						}
					}
					p := procs[k]
					var opts []redsync.Option
					for _, o := range []redsync.Option{redsync.WithWatchdog(), redsync.WithFair(), redsync.WithSetNXOnExtend(), redsync.WithFailFast(false)} {
						if rr.IntN(3) == 0 {
							opts = append(opts, o)
						}
					}
					opts = append(opts, redsync.WithFencing(), redsync.WithExpiry(4*time.Second))
					fresh := rs == nil || rr.IntN(3) == 0 || k == 4 && w%4 == 3
					if fresh {
						if rs != nil && rr.IntN(2) == 0 {
							ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
							_ = rs.Close(ctx)
							cancel()
						}
						switch {
						case k == 3:
							rs = redsync.New(pools(p.before)...)
						case k == 4:
							rs = redsync.New(pools(p.after)...)
						default:
							rs = redsync.NewJoint(pools(p.before), pools(p.after))
						}
					}
					m := rs.NewMutex("lock", opts...)
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rr.IntN(3000)+1)*time.Millisecond)
					before := func() uint64 { mu.Lock(); defer mu.Unlock(); return token["lock"] }()
					if err := m.LockContext(ctx); err != nil {
						cancel()
						time.Sleep(time.Duration(rr.IntN(200)) * time.Millisecond)
						continue
					}
					cancel()
					mu.Lock()
					won++
					me := &hold{who: fmt.Sprint("goroutine ", w, ", process ", k), open: true, m: m}
					for _, h := range holds {
						if h.open && h.m.Remaining() > 0 {
							assert.Fail(t, "two holders", "%s and %s at %v", h.who, me.who, time.Now())
						}
					}
					assert.Greater(t, m.Fence(), before, me.who)
					token["lock"] = max(token["lock"], m.Fence())
					holds = append(holds, me)
					mu.Unlock()
					for range rr.IntN(4) {
						time.Sleep(time.Duration(rr.IntN(1500)) * time.Millisecond)
						switch rr.IntN(3) {
						case 0:
							_, _ = m.Extend()
						case 1:
							_, _ = m.Valid()
						}
					}
					mu.Lock()
					me.open = false
					mu.Unlock()
					ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rr.IntN(3000)+1)*time.Millisecond)
					if rr.IntN(10) > 0 {
						_, _ = m.UnlockContext(ctx)
					} else if sq, err := m.Detach(ctx); err == nil {
						_, _ = rs.NewMutex("lock", redsync.WithValue(sq.Value)).UnlockContext(ctx)
					}
					cancel()
				}
				if rs != nil {
					ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
					_ = rs.Close(ctx)
					cancel()
				}
			})
		}
		for time.Now().Before(end) {
			i := r.IntN(7)
			switch r.IntN(5) {
			case 0:
				s.nodes[i].Kill()
				time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
				s.nodes[i].Restart(false)
			case 1:
				s.nodes[i].Freeze()
				time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
				s.nodes[i].Thaw()
			case 2:
				s.nodes[i].Disconnect()
			case 3:
				s.nodes[i].On([]string{"set", "evalsha", "info", "ping"}[r.IntN(4)], 3, embedded.Fault{LoseReply: true})
			case 4:
				s.nodes[i].On("info", 2, embedded.Fault{Err: "NOPERM no info"})
			}
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
		}
		all.Wait()
		for _, n := range s.nodes {
			n.Heal()
		}
		assert.Greater(s, won, 30, "locks")
	})
}
