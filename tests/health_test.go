package redsync_test

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// toldOfNodes returns the events of nodes that r was told since the last call.
func toldOfNodes(r *redsynctest.Recorder) (down []observe.NodeDown, up []observe.NodeUp) {
	synctest.Wait()
	defer r.Reset()
	return redsynctest.Events[observe.NodeDown](r), redsynctest.Events[observe.NodeUp](r)
}

// watching is play with a recorder of the field's events. It records from before the Redsync meets the nodes.
func watching(t *testing.T, f func(f field, r *redsynctest.Recorder)) {
	t.Helper()
	play(t, func(plain field) {
		r := &redsynctest.Recorder{}
		plain.Redsync = plain.With(redsync.WithObserver(r))
		plain.meet()
		f(plain, r)
	})
}

// uses locks and unlocks, and waits until all replies on their way have come.
func (u user) uses() {
	u.Helper()
	m := u.NewMutex("used")
	if err := m.Lock(); err == nil {
		_, _ = m.Unlock()
	}
	synctest.Wait()
}

func TestNodeDownAndUpAreToldOnce(t *testing.T) {
	for name, c := range map[string]struct {
		down  func(f field)
		after time.Duration // until the fault shows
		cause string
		up    func(f field)
	}{
		"killed": {
			down: func(f field) { f.nodes[2].Kill() }, cause: "connection", /* lost, or refused */
			up: func(f field) { f.nodes[2].Restart(false) },
		},
		"frozen, until its connection is given up": {
			down: func(f field) { f.freeze(2) }, after: 5 * time.Second, cause: "no reply for 5s",
			up: func(f field) { f.thaw(2) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			watching(t, func(f field, r *redsynctest.Recorder) {
				c.down(f)
				time.Sleep(ms) // connections that were cut are known to be
				f.uses()
				time.Sleep(c.after)
				for range 20 {
					f.uses()
					time.Sleep(100 * ms)
				}
				down, up := toldOfNodes(r)
				require.Len(f, down, 1, "%v", down)
				require.ErrorContains(f, down[0].Err, c.cause)
				var named *redsync.RedisError
				require.False(f, errors.As(down[0].Err, &named), "the event names the node")
				assert.Equal(f, observe.NodeDown{Node: 2, Address: "127.0.0.1:7003", Err: down[0].Err}, down[0])
				require.Empty(f, up)
				c.up(f)
				time.Sleep(time.Second)
				for range 20 {
					f.uses()
					time.Sleep(100 * ms)
				}
				down, up = toldOfNodes(r)
				require.Empty(f, down)
				require.Len(f, up, 1)
				assert.Equal(f, "127.0.0.1:7003", up[0].Address)
				assert.Equal(f, 2, up[0].Node)
				assert.GreaterOrEqual(f, up[0].Down, 2*time.Second)
			})
		})
	}
}

// A node that refuses to write still executes the releases, which find nothing there. It is down until it takes the key
// of a lock again.
func TestNodeThatRefusesToWriteIsDownUntilItWrites(t *testing.T) {
	for _, refusal := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.",
		"READONLY You can't write against a read only replica.",
		"NOREPLICAS Not enough good replicas to write.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"LOADING Redis is loading the dataset in memory",
		"NOPERM User locker has no permissions to run the 'set' command",
	} {
		code, _, _ := strings.Cut(refusal, " ")
		t.Run(code, func(t *testing.T) {
			watching(t, func(f field, r *redsynctest.Recorder) {
				held := locked(f, f.NewMutex("held", redsync.WithExpiry(time.Hour)))
				synctest.Wait()
				f.uses()
				f.nodes[2].On("set", 1<<20, embedded.Fault{Err: refusal})
				sent := f.traffic()
				time.Sleep(2 * time.Second)
				f.hasSent(sent, "nothing is sent to find out")
				for range 20 {
					f.uses()
					if code == "OOM" || code == "NOPERM" { // the node still prolongs keys
						f.confirms(held.Extend())
					}
					f.confirms(held.Valid())
					time.Sleep(100 * ms)
				}
				down, up := toldOfNodes(r)
				require.Len(f, down, 1, "%v", down)
				require.Empty(f, up)
				f.nodes[2].Heal()
				time.Sleep(time.Second)
				f.uses()
				f.uses()
				down, up = toldOfNodes(r)
				require.Empty(f, down)
				require.Len(f, up, 1)
				assert.GreaterOrEqual(f, up[0].Down, 2*time.Second)
			})
		})
	}
}

func TestFlappingNodeIsToldOncePerSecond(t *testing.T) {
	watching(t, func(f field, r *redsynctest.Recorder) {
		for range 100 { // ten seconds
			f.nodes[2].On("set", 1, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
			f.uses()
			time.Sleep(50 * ms)
			f.uses()
			time.Sleep(50 * ms)
		}
		down, up := toldOfNodes(r)
		assert.InDelta(f, 10, len(down), 1)
		assert.Len(f, up, len(down))
		all := len(down)
		for _, d := range down {
			all += d.Omitted
		}
		assert.InDelta(f, 100, all, 10)

		// Observers are told of the last change, even if late.
		f.nodes[2].Kill()
		for range 15 {
			f.uses()
			time.Sleep(100 * ms)
		}
		down, _ = toldOfNodes(r)
		require.Len(f, down, 1)
		assert.ErrorContains(f, down[0].Err, "connection" /* lost, or refused */)
	})
}

// Errors, events and the log call a node as its pool does now. A client without an address may have reached another node
// since.
func TestNamesOfNodes(t *testing.T) {
	play(t, func(f field) {
		r, log := &redsynctest.Recorder{}, newLogbook()
		var pools []pool.Pool
		for i, c := range clientsOf(f.nodes) {
			pools = append(pools, &renamed{pool.New(c, pool.WithName(fmt.Sprintf("zone %d", i))), ""})
		}
		rs := redsync.New(pools...).With(redsync.WithObserver(r), redsync.WithLogger(slog.New(log)))
		f.as(rs).meet()
		for _, n := range f.nodes[:3] {
			n.Kill()
		}
		err := rs.NewMutex("lock").TryLock()
		var node *redsync.RedisError
		require.ErrorAs(f, err, &node)
		assert.Equal(f, "zone 0", node.Address)
		require.ErrorContains(f, err, "node #2 (zone 2): ")
		synctest.Wait()
		down, _ := toldOfNodes(r)
		require.Len(f, down, 3)
		for _, d := range down {
			assert.Equal(f, fmt.Sprintf("zone %d", d.Node), d.Address)
		}
		assert.Contains(f, log.text.String(), `address="zone 1"`)
		pools[1].(*renamed).name = "elsewhere"
		require.ErrorContains(f, rs.NewMutex("lock").TryLock(), "node #1 (elsewhere): ")
		shut(f, rs)
	})
}

// A renamed pool has a name that changes.
type renamed struct {
	pool.Pool
	name string
}

func (p *renamed) String() string { return cmp.Or(p.name, p.Pool.String()) }

// A Redsync that was told that a node is down, and is closed before the node is up, does not hear of that any more.
// Another one with the same clients tells it instead.
func TestNodeUpIsToldAlthoughTheRedsyncThatSaidNodeDownIsClosed(t *testing.T) {
	play(t, func(f field) {
		a, b, clients := &redsynctest.Recorder{}, &redsynctest.Recorder{}, clientsOf(f.nodes)
		first, second := on(clients).With(redsync.WithObserver(a)), on(clients).With(redsync.WithObserver(b))
		f.closes(second)
		user{f.T, first}.uses()
		f.nodes[4].Kill()
		time.Sleep(ms)
		user{f.T, first}.uses()
		shut(f, first)
		down, _ := toldOfNodes(a)
		require.Len(f, down, 1)
		f.nodes[4].Restart(false)
		for range 3 {
			time.Sleep(time.Second)
			user{f.T, second}.uses()
		}
		_, up := toldOfNodes(a)
		assert.Empty(f, up)
		down, up = toldOfNodes(b)
		assert.Empty(f, down)
		assert.Len(f, up, 1)
	})
}
