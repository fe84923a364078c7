package redsync_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

func TestNewStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := embedded.Start(5)
		defer nodes.Close()
		for range 100 {
			process(nodes).NewMutex("lock")
		}
		synctest.Wait()
		for _, n := range nodes {
			assert.Zero(t, n.CurrentConnectionCount())
		}
		// The bubble fails if a goroutine is left, and nothing was closed.
	})
}

func TestWithCopiesShareNodesAndNotSettings(t *testing.T) {
	onKit(t, func(k kit) {
		long := k.With(withExpiry(hour), redsync.WithDriftFactor(0))
		a, b := long.NewMutex("a"), k.NewMutex("b")
		locked(t, a)
		locked(t, b)
		assert.Equal(t, hour-2*ms, a.Remaining())
		assert.Equal(t, validity, b.Remaining())
	})
}

// fakes returns a Redsync on n nodes, of which the first ones grant and the others refuse.
func fakes(n, granting int) *redsync.Redsync {
	var pools []pool.Pool
	for i := range n {
		p := &scripted.Node{Answer: scripted.Yes}
		if i >= granting {
			p.Answer = func(req wire.Request) (*wire.Reply, error) {
				if req.Args[0] == "set" {
					return &wire.Reply{Fate: wire.Answered, Conn: 1}, nil
				}
				return &wire.Reply{Value: script.Other, Fate: wire.Answered, Conn: 1}, nil
			}
		}
		pools = append(pools, p)
	}
	return redsync.New(pools...)
}

func TestNewTakesUpTo64Nodes(t *testing.T) {
	for n, needed := range map[int]int{1: 1, 5: 3, 62: 32, 64: 33} {
		synctest.Test(t, func(t *testing.T) {
			u := user{t, fakes(n, needed)}
			m := obtained(t, u.NewMutex("lock"))
			u.extends(m)
			u.confirms(m.Valid())
			u.unlock(m)
			u.closesAtOnce()

			rs := fakes(n, needed-1) // one too few
			taken := isTaken(t, rs.NewMutex("lock").TryLock())
			assert.Len(t, taken.Nodes, n-needed+1)
			assert.Equal(t, n-1, taken.Nodes[len(taken.Nodes)-1])
			shut(t, rs)
			rs = fakes(n+64, n)
			refuses(t, rs.NewMutex("lock"), fmt.Sprintf("%d pools are too many: at most 64", n+64))
			shut(t, rs)
		})
	}
}
