package redsync_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file is about nodes that are far away and connections that must be opened first. docs/nodes.md has its figures.

// A place says how far away a node is: how long a dial takes, and an answer.
type place struct{ dial, answer time.Duration }

// client returns a client of a node at that place.
func (p place) client(node *embedded.Node) *redis.Client {
	via := node.DialVia(func(bool) time.Duration { return p.answer / 2 })
	return node.Client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case <-time.After(p.dial):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			return via(ctx, network, addr)
		}
	})
}

// from returns a process that is at these distances from the first nodes.
func (f field) from(places ...place) *redsync.Redsync {
	var pools []pool.Pool
	for i, p := range places {
		pools = append(pools, pool.New(p.client(f.nodes[i])))
	}
	rs := redsync.New(pools...)
	f.closes(rs)
	return rs
}

// plainly and withTLS are dials that take one round trip, and two.
func plainly(trip time.Duration) place { return place{trip, trip} }
func withTLS(trip time.Duration) place { return place{2 * trip, trip} }

// rested is how long connections are not used before a call, so that they are closed.
const rested = 40 * sec

// farCalls are calls that begin with closed connections. m is free; held is a lock with an expiry of a minute or more.
var farCalls = map[string]func(f field, m, held *redsync.Mutex) error{
	"TryLock": func(_ field, m, _ *redsync.Mutex) error { return m.TryLock() },
	"Lock":    func(_ field, m, _ *redsync.Mutex) error { return m.Lock() },
	"Do":      func(f field, m, _ *redsync.Mutex) error { return m.Do(f.Context(), nothing) },
	"Extend":  func(_ field, _, held *redsync.Mutex) error { return second(held.Extend()) },
	"Valid":   func(_ field, _, held *redsync.Mutex) error { return second(held.Valid()) },
	"Unlock":  func(_ field, _, held *redsync.Mutex) error { return second(held.Unlock()) },
	"Inspect": func(f field, m, _ *redsync.Mutex) error {
		s, err := m.Inspect(f.Context())
		for i := range s.Nodes {
			assert.NoError(f, s.Nodes[i].Err)
		}
		return err
	},
}

// The rows are those of the table in docs/nodes.md. Each call works after a rest and at once, for each kind of lock.
func TestCallsToFarNodes(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	at, every := 0, testlength.InGate(15, 9, 5, 1) // no divisors of the number of calls and kinds
	for _, c := range []struct {
		name   string
		at     place
		expiry time.Duration
	}{
		{"500 ms", plainly(500 * ms), 8 * sec},
		{"400 ms with TLS", withTLS(400 * ms), 8 * sec},
		{"250 ms", plainly(250 * ms), 8 * sec},
		{"250 ms, expiry 2 s", plainly(250 * ms), 2 * sec},
		{"200 ms, TLS, expiry 2 s", withTLS(200 * ms), 2 * sec},
		{"a dial of 3 s", place{3 * sec, 50 * ms}, 8 * sec},
	} {
		for call, do := range sorted(farCalls) {
			for _, kind := range lockKinds {
				if at++; at%every != 0 {
					continue
				}
				playAs(t, fmt.Sprint(c.name, "/", call, "/", kind.column), func(f field) {
					rs := f.from(c.at, c.at, c.at)
					held := locked(f, kind.lock(rs.With(redsync.WithPrefix("held:")), withExpiry(3*minute)))
					f.confirms(held.Valid()) // at once
					sleep(rested)
					synctest.Wait()
					require.Zero(f, f.connections())
					require.NoError(f, do(f, kind.lock(rs, withExpiry(c.expiry)), held))
				})
			}
		}
	}
}

// A greeting takes two round trips: HELLO, and everything else in one write. The validity counts from before the dial.
func TestFirstTryLockTakesFourRoundTrips(t *testing.T) {
	play(t, func(f field) {
		at := plainly(100 * ms)
		rs := f.from(at, at, at)
		for _, trips := range []time.Duration{4, 1} {
			start := time.Now()
			m := obtained(f, rs.NewMutex(trips.String()))
			took(f, start, trips*at.answer) //nolint:durationcheck // a number
			f.isValidFrom(m, start)
		}
	})
}

// A far node decides between a node that grants and one that has a key of a holder that has crashed.
func TestTryLockWaitsForAFarNodeThatDecides(t *testing.T) {
	play(t, func(f field) {
		require.NoError(f, f.nodes[0].Set("lock", "another"))
		obtained(f, f.from(place{}, place{}, plainly(200*ms)).NewMutex("lock"))
	})
}

// What a call waits for is what its error says, and how long it waits.
func TestErrorNamesWhatWasWaitedFor(t *testing.T) {
	dead := place{dial: hour}
	for want, c := range map[string]struct {
		at            place
		expiry, limit time.Duration // limit is that of the context
		took          time.Duration
	}{
		"no answer to the dial within 4s":     {dead, guard, hour, 4 * sec},
		"no answer to the dial within 1s":     {place{hour, 1}, guard, hour, sec}, // the client's own timeout
		"no answer to the greeting within 1s": {place{}, guard, hour, sec},
		"no answer to the dial yet":           {dead, guard, sec, sec},
	} {
		playAs(t, want, func(f field) {
			client := c.at.client(f.nodes[0])
			if c.at.answer == 1 {
				client.Options().DialTimeout = sec
			}
			rs := on([]*redis.Client{client}).With(withExpiry(c.expiry))
			f.closes(rs)
			if c.at == (place{}) {
				f.freeze(0)
			}
			start := time.Now()
			err := rs.NewMutex("lock").TryLockContext(limited(f, c.limit))
			took(f, start, c.took)
			require.ErrorContains(f, err, named(0)+want)
			cut := c.limit == sec
			if cut {
				errorIs(f, err, context.DeadlineExceeded)
				says(f, rs.NewMutex("lock", withFair).LockContext(limited(f, c.limit)), named(0)+want)
			}
			assert.Equal(f, !cut, errors.Is(err, redsync.ErrNoQuorum))
		})
	}
}

// Nobody waits for a node whose connection is being opened once the others decide, and the first caller waits for its
// identity as ever.
func TestNodeThatIsBeingConnectedDelaysNobody(t *testing.T) {
	for _, far := range []place{withTLS(250 * ms), {dial: hour}} {
		play(t, func(f field) {
			near := place{}
			rs := f.from(near, near, far, near, far)
			_ = rs.NewMutex("first").TryLock()
			start := time.Now()
			obtained(f, rs.NewMutex("lock"))
			took(f, start, 0)
		})
	}
}

// All connections end with the first command of a call, as after the process was frozen. The call asks again on new
// connections, and succeeds. Whatever the lost commands have done, or do later, nothing stays behind.
func TestFirstCallAfterTheConnectionsWereClosed(t *testing.T) {
	testlength.FromGate(t)
	parallelComputing(t)
	options := map[string]redsync.Option{
		"plainly": withTries(1), "fenced": withFencing, "fair": withFair,
		"user's values": withGenValueFunc(freshValue), "set again": withSetNXOnExtend, "all nodes": hearsAll,
		"with an owner": withOwner("me"), "a minimal hold": withMinHold(sec),
	}
	faults := map[string]embedded.Fault{"not executed": {LoseCommand: true}, "executed": {LoseReply: true}}
	at, every := 0, testlength.InGate(29, 9, 5, 1)
	for _, kind := range lockKinds {
		for how, option := range sorted(options) {
			if kind.permit && how == "fenced" || kind.shared && how == "a minimal hold" {
				continue // they exclude each other
			}
			for _, call := range []string{"Extend", "Inspect", "TryLock", "Valid"} {
				tries, first := call == "TryLock", "evalsha"
				if tries && kind.column == "plain lock" && how != "fenced" && how != "fair" {
					first = "set"
				}
				for fault, what := range sorted(faults) {
					if tries && fault == "executed" && (how == "fair" && !kind.shared && !kind.permit || how == "user's values") {
						continue // the node cannot tell whose value it has
					}
					if at++; at%every != 0 {
						continue
					}
					playMetAs(t, fmt.Sprint(kind.column, how, call, fault), func(f field) {
						m := kind.lock(f.Redsync, option)
						if !tries {
							locked(f, m)
							sleep(sec)
						}
						for _, n := range f.nodes {
							if first == "set" && what.LoseCommand {
								what.Then = func(args []string) { time.AfterFunc(1500*ms, func() { late(n, args) }) }
							}
							n.On(first, 1, what)
						}
						start := time.Now()
						var err error
						if call == "Inspect" { // some nodes have not answered
							_, err = m.Inspect(f.Context())
						} else {
							err = farCalls[call](f, m, m)
						}
						require.NoError(f, err)
						assert.Less(f, time.Since(start), patience)
						sleep(sec)
						f.unlock(m)
						sleep(4 * sec)
						f.have(0, kind.keys...)
					})
				}
			}
		}
	}
}

// late executes a SET NX PX that was on its way.
func late(n *embedded.Node, args []string) {
	if name := args[0]; !n.Exists(name) {
		_ = n.Set(name, args[1])
		n.SetTTL(name, guard)
	}
}

// What follows shows that the first Lock of a process waits for every node, and no later one does.

func TestFirstLockWaitsForEveryNodeOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(k kit)
		want  time.Duration
	}{
		"all answer":                       {func(kit) {}, 0},
		"one is frozen: the node deadline": {func(k kit) { k.freeze(4) }, 400 * ms},
		"one is slow":                      {func(k kit) { k.nodes.Node(2).Delay(70 * ms) }, 70 * ms},
		"two are dead":                     {func(k kit) { k.down(0, 1) }, 0},
	} {
		kitAs(t, name, func(k kit) {
			c.fault(k)
			start := time.Now()
			m := obtained(k, k.NewMutex("lock"))
			took(k, start, c.want)
			k.isValidFrom(m, start)
			start = time.Now()
			obtained(k, k.NewMutex("other"))
			obtained(k, k.With(withExpiry(minute)).NewMutex("third")) // a copy from With knows the nodes, too
			took(k, start, 0)
		})
	}
}

// The caller keeps half of the time that its context has left, and waits for the node deadline at most.
func TestFirstLockLeavesTimeToItsContext(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{100 * ms: 50 * ms, 500 * ms: 250 * ms, sec: patience} {
		onKit(t, func(k kit) {
			k.freeze(4)
			ctx, start := limited(k, timeout), time.Now()
			require.NoError(k, k.NewMutex("lock").LockContext(ctx))
			alive(k, ctx)
			took(k, start, want)
		})
	}
}

func TestFirstLockThatIsInterruptedHasWaitedForAll(t *testing.T) {
	onKit(t, func(k kit) {
		k.freeze(4)
		ctx, cancel := context.WithCancel(k.Context())
		time.AfterFunc(30*ms, cancel)
		start := time.Now()
		_ = k.NewMutex("lock").LockContext(ctx)
		locked(k, k.NewMutex("other"))
		took(k, start, 30*ms)
	})
}

// A lock whose expiry is shorter than the opening of a connection waits for the connection, within its context. The validity
// counts from then.
func TestShortExpiriesWaitForConnections(t *testing.T) {
	for name, options := range map[string][]pool.Option{"stream": nil, "via client": {pool.ViaClient()}} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				var pools []pool.Pool
				for _, n := range f.nodes[:3] {
					pools = append(pools, pool.New(place{dial: 150 * ms}.client(n), options...))
				}
				rs := redsync.New(pools...)
				f.closes(rs)
				m := rs.NewMutex("lock", withExpiry(5*ms))
				for range 2 { // after a rest, too
					ctx, cancel := context.WithTimeout(f.Context(), 100*ms)
					start := time.Now()
					errorIs(f, m.TryLockContext(ctx), context.DeadlineExceeded)
					cancel()
					took(f, start, 100*ms)
					noError(f, m.TryLock())
					assert.LessOrEqual(f, time.Since(start), sec)
					assert.Greater(f, time.Until(m.Until()), ms)
					f.unlock(m)
					if options != nil {
						return // a client keeps its connections
					}
					time.Sleep(rested)
				}
				for _, n := range f.nodes[:3] {
					n.TurnOff()
				}
				err := m.TryLock()
				errorIs(f, err, redsync.ErrNoQuorum)
				require.ErrorContains(f, err, "no answer to the dial within 4s")
			})
		})
	}
}
