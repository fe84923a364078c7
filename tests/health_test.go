package redsync_test

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
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
	play(t, func(plain field) {
		r := &redsynctest.Recorder{}
		plain.Redsync = plain.With(recordsTo(r))
		plain.meet()
		f(plain, r)
	})
}

// uses locks and unlocks, and waits until all replies on their way have come.
func (u user) uses() {
	m := u.NewMutex("used")
	if err := m.Lock(); err == nil {
		_, _ = m.Unlock()
	}
	synctest.Wait()
}

// A node that refuses to write still executes the releases, which find nothing there. It is down until it takes the key
// of a lock again.
func TestNodeDownAndUpAreToldOnce(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	const lost, given, oom, noperm = "connection", "no reply for 5s", "OOM command not allowed when used memory > 'maxmemory'.",
		"NOPERM User locker has no permissions to run the 'set' command"
	for _, cause := range []string{
		lost,  // or refused: it was killed
		given, // up, because it is frozen
		oom, noperm, "READONLY You can't write against a read only replica.", "NOREPLICAS Not enough good replicas to write.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"LOADING Redis is loading the dataset in memory",
	} {
		t.Run(cause, func(t *testing.T) {
			watching(t, func(f field, r *redsynctest.Recorder) {
				held := locked(f, f.NewMutex("held", withExpiry(hour)))
				synctest.Wait()
				f.uses()
				switch cause {
				case lost:
					f.kill(2)
				case given:
					f.freeze(2)
				default:
					f.nodes[2].On("set", 1<<20, embedded.Fault{Err: cause})
				}
				sent := f.traffic()
				sleep(2 * sec)
				f.hasSent(sent, "nothing is sent to find out")
				f.uses()
				if cause == given {
					sleep(5 * sec)
				}
				for range 20 {
					f.uses()
					if cause == oom || cause == noperm { // the node still prolongs keys
						f.confirms(held.Extend())
					}
					f.confirms(held.Valid())
					sleep(100 * ms)
				}
				down, up := toldOfNodes(r)
				require.Len(f, down, 1, "%v", down)
				require.ErrorContains(f, down[0].Err, cause)
				require.False(f, errors.As(down[0].Err, new(*redsync.RedisError)), "the event names the node")
				assert.Equal(f, observe.NodeDown{Node: 2, Address: "127.0.0.1:7003", Err: down[0].Err}, down[0])
				require.Empty(f, up)
				f.thaw(2)
				f.nodes[2].Heal()
				if cause == lost {
					f.restart(2)
				}
				sleep(sec)
				for range 20 {
					f.uses()
					sleep(100 * ms)
				}
				down, up = toldOfNodes(r)
				require.Empty(f, down)
				require.Len(f, up, 1)
				assert.GreaterOrEqual(f, up[0].Down, 2*sec)
				assert.Equal(f, observe.NodeUp{Node: 2, Address: "127.0.0.1:7003", Down: up[0].Down}, up[0])
			})
		})
	}
}

func TestFlappingNodeIsToldOncePerSecond(t *testing.T) {
	watching(t, func(f field, r *redsynctest.Recorder) {
		for range 100 { // ten seconds
			f.nodes[2].On("set", 1, embedded.Fault{Err: "LOADING Redis is loading the dataset in memory"})
			f.uses()
			sleep(50 * ms)
			f.uses()
			sleep(50 * ms)
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
		f.kill(2)
		for range 15 {
			f.uses()
			sleep(100 * ms)
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
			pools = append(pools, &renamed{pool.New(c, pool.WithName(fmt.Sprint("zone ", i))), ""})
		}
		rs := redsync.New(pools...).With(recordsTo(r), redsync.WithLogger(slog.New(log)))
		f.as(rs).meet()
		f.kill(0, 1, 2)
		err := rs.NewMutex("lock").TryLock()
		var node *redsync.RedisError
		require.ErrorAs(f, err, &node)
		assert.Equal(f, "zone 0", node.Address)
		require.ErrorContains(f, err, "node #2 (zone 2): ")
		down, _ := toldOfNodes(r)
		require.Len(f, down, 3)
		for _, d := range down {
			assert.Equal(f, fmt.Sprint("zone ", d.Node), d.Address)
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
		first, second := f.as(on(clients).With(recordsTo(a))), f.as(on(clients).With(recordsTo(b)))
		f.closes(second.Redsync)
		first.uses()
		f.kill(4)
		sleep(ms)
		first.uses()
		shut(f, first.Redsync)
		down, _ := toldOfNodes(a)
		require.Len(f, down, 1)
		f.restart(4)
		for range 3 {
			sleep(sec)
			second.uses()
		}
		_, up := toldOfNodes(a)
		assert.Empty(f, up)
		down, up = toldOfNodes(b)
		assert.Empty(f, down)
		assert.Len(f, up, 1)
	})
}
