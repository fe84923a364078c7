package redsync_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows that the votes of restarted nodes do not count for an extension.

// patient returns a process that waits for replies longer than others.
func (f field) patient(options ...pool.Option) *redsync.Redsync {
	clients := clientsOf(f.nodes)
	for i, c := range clients {
		opt := *c.Options()
		opt.ReadTimeout = 5 * sec
		clients[i] = redis.NewClient(&opt)
	}
	return on(clients, options...)
}

// This is the shortest sequence in which a second holder is admitted if an extension counts on a restarted node. A
// holds the lock on nodes 0, 1 and 2. Nodes 3 and 4 grant B's acquire at once, which reaches node 0 late. Meanwhile
// node 3 restarts, A's extension sets its key there, and A extends on 1, 2 and 3. That must not move A's Until, because
// A's key on node 0 expires at the old Until. Then node 0 grants the lock to B, too.
func TestRestartGuardOfExtendsKeepsASecondQuorumFromForming(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, options := range map[string]opts{
		"extended by hand":  {withSetNXOnExtend},
		"by its watchdog":   {withSetNXOnExtend, withWatchdog},
		"waiting for nodes": {withSetNXOnExtend, hearsAll},
	} {
		t.Run(name, func(t *testing.T) {
			withAndWithout(t, func(f field, guarded bool) {
				time.Sleep(minute) // all nodes count
				a, b := f.process(guards[guarded]...), f.patient(guards[guarded]...)
				onEach(f.nodes[3:], "set", 1, embedded.Fault{LoseCommand: true})
				m := a.NewMutex("lock", append(options, withExpiry(4*sec))...)
				start := time.Now()
				obtained(t, m)
				until := m.Until()
				time.Sleep(500 * ms)
				f.nodes[0].On("set", 1, embedded.Fault{Delay: 3600 * ms})
				f.nodes[0].On("evalsha", 1000, embedded.Fault{LoseCommand: true})
				// if they refused B, its votes would be split, and it would not wait for node 0
				onEach(f.nodes[1:3], "set", 1, embedded.Fault{LoseCommand: true})
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() {
					other := b.NewMutex("lock", withNodeTimeout(3900*ms))
					if assert.NoError(t, other.TryLock()) {
						took(t, start, 4100*ms)
						assert.Equal(t, !guarded, m.Remaining() > 0) // whether A still counts on the lock that B has acquired
					}
				})
				time.Sleep(300 * ms)
				f.reboot(true, 3)
				for range 30 {
					time.Sleep(100 * ms)
					if name != "by its watchdog" {
						_, _ = m.Extend() // the first sets missing keys, and later ones may count
					}
				}
				assert.Equal(t, !guarded, m.Until().After(until))
			})
		})
	}
}
