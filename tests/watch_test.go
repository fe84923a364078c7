package redsync_test

import (
	"context"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
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

// This file shows what Watch yields and when, and what it costs.

// readEvery is how often Watch reads a lock at least.
const readEvery = time.Second

// leaderChannel is where leaders of "lock" tell that they lead.
const leaderChannel = "redsync:{lock}:leader"

// A sighting is a Status that Watch has yielded.
type sighting struct {
	redsync.Status
	at time.Time
}

// An onlooker is a loop over a Watch, in a goroutine.
type onlooker struct {
	user
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the loop has ended

	mu   sync.Mutex
	seen []sighting // since fresh was last called
	err  error      // what was yielded last
}

// watches loops over m.Watch. body, which may be nil, is called with each Status.
func (u user) watches(m *redsync.Mutex, body func(redsync.Status)) *onlooker {
	ctx, cancel := context.WithCancelCause(u.Context())
	u.Cleanup(func() { cancel(nil) })
	return u.loops(m.Watch(ctx), cancel, body)
}

// loops loops over a sequence of a Watch. cancel ends its context.
func (u user) loops(all iter.Seq2[redsync.Status, error], cancel context.CancelCauseFunc, body func(redsync.Status)) *onlooker {
	w := &onlooker{user: u, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for s, err := range all {
			w.note(s, err)
			if err == nil && body != nil {
				body(s)
			}
		}
	}()
	synctest.Wait()
	return w
}

func (w *onlooker) note(s redsync.Status, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.NoError(w, w.err, "an error is the last that is yielded")
	if w.err = err; err != nil {
		assert.Equal(w, redsync.Status{}, s)
		return
	}
	w.seen = append(w.seen, sighting{s, time.Now()})
}

// fresh returns what was yielded since its last call.
func (w *onlooker) fresh() []sighting {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

// sees checks that one Status was yielded, with that state and so many holders, and returns it.
func (w *onlooker) sees(state redsync.State, holders int) sighting {
	w.Helper()
	seen := w.fresh()
	require.Len(w, seen, 1)
	require.Equal(w, state, seen[0].State)
	require.Len(w, seen[0].Holders, holders)
	return seen[0]
}

// nothing checks that nothing was yielded.
func (w *onlooker) nothing() {
	w.Helper()
	require.Empty(w, w.fresh())
}

// ended waits until the loop has ended, and returns the error that was yielded.
func (w *onlooker) ended() error {
	w.Helper()
	select {
	case <-w.done:
	case <-time.After(time.Minute): //nolint:forbidigo // in a bubble
		require.Fail(w, "the loop has not ended within a minute")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// stops ends the context of the loop, and waits for the end of the loop.
func (w *onlooker) stops() {
	w.Helper()
	w.cancel(errWork)
	require.ErrorIs(w, w.ended(), errWork)
}

// subscribed counts the nodes on which somebody listens to leaders of "lock".
func (f field) subscribed() (count int) {
	synctest.Wait()
	for _, n := range f.nodes {
		count += n.PubSubNumSub(leaderChannel)[leaderChannel]
	}
	return count
}

// connections counts the connections to all nodes.
func (f field) connections() (count int) {
	synctest.Wait()
	for _, n := range f.nodes {
		count += n.CurrentConnectionCount()
	}
	return count
}

// nobodyWatches checks that nothing of a Watch is left: no subscription, no connection but those of so many processes, no
// goroutine, and no read.
func (f field) nobodyWatches(processes int) {
	f.Helper()
	assert.Zero(f, f.subscribed())
	assert.Equal(f, 5*processes, f.connections())
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	assert.NotContains(f, string(stacks), "internal/watch.(*reading)")
	before := f.traffic()
	time.Sleep(5 * readEvery)
	assert.Equal(f, before, f.traffic())
}

// publishes publishes a message of leaders on some nodes.
func (f field) publishes(nodes ...int) {
	f.Helper()
	for _, i := range nodes {
		require.Positive(f, f.nodes[i].Publish(leaderChannel, "x"), "nobody listens on node %d", i)
	}
}

var allNodes = []int{0, 1, 2, 3, 4}

func TestWatchYieldsEachChangeOfEachKind(t *testing.T) {
	for _, kind := range lockKinds {
		t.Run(kind.column, func(t *testing.T) {
			play(t, func(f field) {
				m := kind.lock(f.another(), redsync.WithWatchdog())
				start := time.Now()
				w := f.watches(kind.lock(f.Redsync), nil)
				first := w.sees(redsync.StateFree, 0)
				assert.Equal(f, start, first.at, "at once")
				assert.Equal(f, m.Name(), first.Name)
				assert.Len(f, first.Nodes, 5)

				time.Sleep(readEvery / 2)
				require.NoError(f, m.Lock())
				w.nothing()
				time.Sleep(readEvery / 2)
				s := w.sees(redsync.StateHeld, 1)
				assert.Equal(f, start.Add(readEvery), s.at)
				assert.Equal(f, kind.shared, s.Holders[0].Shared)
				assert.Equal(f, kind.permit, s.Holders[0].Permits == 1)
				assert.Equal(f, m.Names(), s.Holders[0].Names)
				assert.InDelta(f, guard-readEvery/2, s.Holders[0].TTL, float64(100*time.Millisecond))

				time.Sleep(time.Minute)
				w.nothing() // although TTLs have changed
				f.unlock(m)
				time.Sleep(readEvery)
				w.sees(redsync.StateFree, 0)

				require.NoError(f, m.Lock())
				time.Sleep(readEvery)
				other := w.sees(redsync.StateHeld, 1)
				assert.NotEqual(f, s.Holders[0].ID, other.Holders[0].ID)
				f.unlock(m)
				require.NoError(f, m.Lock())
				time.Sleep(readEvery)
				third := w.sees(redsync.StateHeld, 1) // another hold of the same Mutex
				assert.NotEqual(f, third.Holders[0].ID, other.Holders[0].ID)
				f.unlock(m)
				w.stops()
			})
		})
	}
}

func TestWatchYieldsNothingForWaitersAndRegister(t *testing.T) {
	play(t, func(f field) {
		m := f.another().NewMutex("lock", redsync.WithWatchdog(), redsync.WithFencing())
		require.NoError(f, m.Lock())
		w := f.watches(f.NewMutex("lock"), nil)
		first := w.sees(redsync.StateHeld, 1)
		c := f.calls(f.another(), patient()...)
		for _, n := range f.nodes {
			require.NoError(f, n.Set(fenceKey, "9999999999999999"))
		}
		time.Sleep(10 * readEvery)
		w.nothing()
		f.nodes[0].Del("lock") // the lock still stands on a quorum
		time.Sleep(readEvery)
		w.nothing()
		f.unlock(m)
		<-c.done
		require.NoError(f, c.err)
		time.Sleep(readEvery)
		last := w.sees(redsync.StateHeld, 1)
		assert.Empty(f, first.Waiters)
		assert.Greater(f, last.Register, first.Register, "the Status that is yielded has the current ones")
		f.unlock(c.Mutex)
		w.stops()
	})
}

func TestWatchSeesReadersComeAndGo(t *testing.T) {
	play(t, func(f field) {
		w := f.watches(f.NewMutex("lock"), nil)
		w.sees(redsync.StateFree, 0)
		var all []*redsync.Mutex
		for i := range 3 {
			all = append(all, f.another().NewMutex("lock", redsync.WithShared(), redsync.WithWatchdog()))
			require.NoError(f, all[i].Lock())
			time.Sleep(readEvery)
			w.sees(redsync.StateHeld, i+1)
		}
		for i, m := range all {
			f.unlock(m)
			time.Sleep(readEvery)
			require.Len(f, w.fresh()[0].Holders, len(all)-1-i)
		}

		m := f.another().NewMutex("lock", redsync.WithWatchdog())
		require.NoError(f, m.Lock())
		time.Sleep(readEvery)
		writer := w.sees(redsync.StateHeld, 1)
		require.NoError(f, m.Downgrade(f.Context()))
		time.Sleep(readEvery)
		reader := w.sees(redsync.StateHeld, 1)
		assert.Equal(f, writer.Holders[0].ID, reader.Holders[0].ID)
		assert.False(f, writer.Holders[0].Shared)
		assert.True(f, reader.Holders[0].Shared)
		f.unlock(m)
		w.stops()
	})
}

func TestWatchSeesPermits(t *testing.T) {
	play(t, func(f field) {
		four := redsync.WithPermits(4)
		w := f.watches(f.NewMutex("lock", four), nil)
		w.sees(redsync.StateFree, 0)
		assert.Zero(f, f.subscribed(), "nobody leads with a permit")
		all := map[int]*redsync.Mutex{}
		for i, weight := range []int{1, 2, 1} {
			all[i] = f.another().NewMutex("lock", four, redsync.WithWeight(weight), redsync.WithFair(), redsync.WithWatchdog())
			require.NoError(f, all[i].Lock())
			time.Sleep(readEvery)
			w.sees(redsync.StateHeld, i+1)
		}
		f.unlock(all[0])
		time.Sleep(readEvery)
		permits := 0
		for _, h := range w.sees(redsync.StateHeld, 2).Holders {
			permits += h.Permits
		}
		assert.Equal(f, 3, permits)
		f.unlock(all[1])
		f.unlock(all[2])
		time.Sleep(readEvery)
		w.sees(redsync.StateFree, 0)
		w.stops()
	})
}

func TestWatchSeesEachOfSeveralNames(t *testing.T) {
	play(t, func(f field) {
		w := f.watches(f.NewMultiMutex([]string{"a", "b", "c"}), nil)
		w.sees(redsync.StateFree, 0)
		one, two := f.another().NewMutex("b"), f.another().NewMultiMutex([]string{"a", "c"})
		require.NoError(f, one.Lock())
		time.Sleep(readEvery)
		s := w.sees(redsync.StateHeld, 1)
		assert.Equal(f, []string{"b"}, s.Holders[0].Names)
		assert.Equal(f, redsync.StateFree, s.Names[0].State)
		assert.Equal(f, redsync.StateHeld, s.Names[1].State)
		require.NoError(f, two.Lock())
		time.Sleep(readEvery)
		w.sees(redsync.StateHeld, 2)
		f.unlock(one)
		time.Sleep(readEvery)
		s = w.sees(redsync.StateHeld, 1)
		assert.Equal(f, []string{"a", "c"}, s.Holders[0].Names)
		// One name is not known any more. The others are as before.
		for i := range 2 {
			require.NoError(f, f.nodes[i].Set("b", "x"))
		}
		f.freeze(4)
		time.Sleep(readEvery + patience)
		s = w.sees(redsync.StateHeld, 1)
		assert.Equal(f, redsync.StateUnknown, s.Names[1].State)
		f.thaw(4)
		f.nodes[0].Del("b")
		f.nodes[1].Del("b")
		time.Sleep(2 * readEvery)
		s = w.sees(redsync.StateHeld, 1)
		assert.Equal(f, redsync.StateFree, s.Names[1].State)
		f.unlock(two)
		w.stops()
	})
}

func TestWatchWaitsForNoSilentNode(t *testing.T) {
	for name, fails := range map[string]func(field, ...int){"frozen": field.freeze, "dead": field.kill} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m, of := f.another().NewMutex("lock", redsync.WithWatchdog()), f.another()
				fails(f, 1, 3)
				start := time.Now()
				w := f.as(of).watches(of.NewMutex("lock"), nil)
				first := w.sees(redsync.StateFree, 0)
				assert.Equal(f, start, first.at)
				require.Error(f, first.Nodes[1].Err)
				require.NoError(f, first.Nodes[0].Err)
				require.NoError(f, m.Lock())
				time.Sleep(readEvery - time.Since(start))
				assert.Equal(f, start.Add(readEvery), w.sees(redsync.StateHeld, 1).at)
				time.Sleep(time.Minute)
				w.nothing()
				f.unlock(m)
				time.Sleep(readEvery)
				w.sees(redsync.StateFree, 0)
				w.stops()
				f.nodes[1].Heal()
				f.nodes[3].Heal()
			})
		})
	}
}

// A lock of redsync v4 tells nobody. When its TTL has run out, Watch looks at once.
func TestWatchSeesALockOfRedsyncV4(t *testing.T) {
	play(t, func(f field) {
		start := time.Now()
		w := f.watches(f.NewMutex("lock"), nil)
		w.sees(redsync.StateFree, 0)
		time.Sleep(readEvery / 4)
		for _, n := range f.nodes {
			c := n.Client()
			require.NoError(f, c.SetNX(f.Context(), "lock", "qb7qtVUdFHLVv0AoXSK4PA==", 1234*time.Millisecond).Err())
			require.NoError(f, c.Close())
		}
		time.Sleep(readEvery)
		s := w.sees(redsync.StateHeld, 1)
		assert.Equal(f, start.Add(readEvery), s.at)
		assert.Equal(f, "redsync v4", s.Holders[0].Library)
		time.Sleep(readEvery)
		assert.Equal(f, start.Add(readEvery/4+1235*time.Millisecond), w.sees(redsync.StateFree, 0).at)
		w.stops()
	})
}

func TestWatchCountsAQuorumOfEachJointSet(t *testing.T) {
	changing(t, 8, func(c change) {
		before, after := []int{0, 1, 2, 3, 4}, []int{3, 4, 5, 6, 7}
		rs := c.joint(c.at(before...), c.at(after...))
		w := user{c.T, rs}.watches(rs.NewMutex("lock"), nil)
		w.sees(redsync.StateFree, 0)
		m := c.alone(c.elsewhere(before...)).NewMutex("lock")
		require.NoError(c, m.Lock())
		time.Sleep(readEvery)
		w.sees(redsync.StateUnknown, 0) // the nodes after have no quorum of the value
		c.unlock(m)
		time.Sleep(readEvery)
		w.sees(redsync.StateFree, 0)
		m = c.joint(c.elsewhere(before...), c.elsewhere(after...)).NewMutex("lock", redsync.WithWatchdog())
		require.NoError(c, m.Lock())
		time.Sleep(2 * readEvery)
		s := w.sees(redsync.StateHeld, 1)
		assert.Len(c, s.Nodes, 8)
		for _, i := range []int{5, 6, 7} {
			c.nodes[i].Freeze()
		}
		time.Sleep(readEvery + patience)
		w.sees(redsync.StateUnknown, 0)
		for _, i := range []int{5, 6, 7} {
			c.nodes[i].Thaw()
		}
		time.Sleep(2 * readEvery)
		w.sees(redsync.StateHeld, 1)
		c.unlock(m)
		w.stops()
	})
}

// A far process is that far from each node.
const hop = 10 * time.Millisecond

// far returns a process for whose messages each way takes hop. It has met the nodes.
func (f field) far() *redsync.Redsync {
	f.Helper()
	rs := f.newcomer(0, everywhere(hop))
	f.closes(rs)
	f.as(rs).meet()
	time.Sleep(readEvery)
	return rs
}

// A message of the leader takes two hops, and so does the read that follows it.
func TestWatchSeesALeaderWithinTwoRoundTrips(t *testing.T) {
	play(t, func(f field) {
		e := &throne{field: f, began: make(chan time.Time, 1)}
		watcher := f.far()
		w := f.as(watcher).watches(watcher.NewMutex("lock"), nil)
		time.Sleep(readEvery / 3)
		w.sees(redsync.StateFree, 0)
		var ids []string
		one, two := f.far(), f.far()
		w.nothing()
		time.Sleep(readEvery / 7)

		e.leads(one)
		began := <-e.began
		time.Sleep(4 * hop)
		s := w.sees(redsync.StateHeld, 1)
		assert.Equal(f, 4*hop, s.at.Sub(began), "a new leader")
		ids = append(ids, s.Holders[0].ID)

		second := e.leads(two)
		time.Sleep(readEvery / 3)
		w.nothing()
		e.resign()
		began = <-e.began
		time.Sleep(4 * hop)
		seen := w.fresh()
		s = seen[len(seen)-1]
		assert.LessOrEqual(f, s.at.Sub(began), 4*hop, "another leader")
		require.Len(f, s.Holders, 1)
		assert.NotContains(f, ids, s.Holders[0].ID)

		time.Sleep(readEvery / 3)
		w.fresh()
		e.resign()
		<-second
		resigned := time.Now()
		time.Sleep(4 * hop)
		assert.Equal(f, 4*hop, w.sees(redsync.StateFree, 0).at.Sub(resigned), "nobody leads")
		w.stops()
	})
}

// A throne is where leaders of "lock" follow each other.
type throne struct {
	field
	began chan time.Time // when each term began
	end   chan struct{}  // ends the current term
}

// leads makes a process a candidate, and returns a channel that is closed when its Lead has returned.
func (s *throne) leads(rs *redsync.Redsync) (returned <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		assert.NoError(s, rs.Lead(s.Context(), "lock", func(ctx context.Context) error {
			s.end = make(chan struct{})
			s.began <- time.Now()
			select {
			case <-s.end:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
	}()
	return done
}

func (s *throne) resign() { close(s.end) }

// The messages of a term: one for its begin, one for its end, on each node. They come after what they tell of.
func TestLeadTellsThatItLeadsAndThatItDoesNot(t *testing.T) {
	for name, end := range map[string]func() error{
		"resigns": func() error { return nil },
		"fails":   func() error { return errWork },
		"panics":  func() error { panic(errWork) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				subscriber := f.nodes[0].NewSubscriber()
				defer subscriber.Close()
				subscriber.Subscribe(leaderChannel)
				func() {
					defer func() { recover() }() //nolint:errcheck // of the function
					_ = f.Lead(f.Context(), "lock", func(context.Context) error {
						assert.Equal(f, "leads", (<-subscriber.Messages()).Message)
						synctest.Wait()
						assert.Equal(f, 5, f.commands("publish"))
						return end()
					})
				}()
				assert.Equal(f, "leaves", (<-subscriber.Messages()).Message) // the node waits for this
				assert.LessOrEqual(f, f.nodes.Keys("lock"), 2, "the message follows the release on a quorum")
				synctest.Wait()
				assert.Equal(f, 10, f.commands("publish"))
			})
		})
	}
}

// Whatever becomes of its messages, a leader does not wait for them, and does not repeat them. Nobody is told.
func TestLeadDoesNotCareWhoIsTold(t *testing.T) {
	for name, fault := range map[string]embedded.Fault{
		"denied":   {Err: "NOPERM this user has no permissions to access one of the channels used as arguments"},
		"slow":     {Delay: time.Hour},
		"loses it": {LoseCommand: true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				for _, n := range f.nodes[:2] {
					n.On("publish", 1e6, fault)
				}
				r := &redsynctest.Recorder{}
				start := time.Now()
				require.NoError(f, f.Lead(f.Context(), "lock", func(context.Context) error { return nil }, redsync.WithObserver(r)))
				assert.Zero(f, time.Since(start))
				time.Sleep(time.Second)
				assert.LessOrEqual(f, f.commands("publish"), 10)
				assert.Empty(f, redsynctest.Events[observe.WakeUpDenied](r))
				if fault.Err != "" {
					assert.Empty(f, redsynctest.Events[observe.NodeDown](r))
				}
				f.nodes[0].Heal()
				f.nodes[1].Heal()
			})
		})
	}
}

// A leader of a name with a hash tag tells those who watch this name, and nobody else.
func TestLeadTellsThoseWhoWatchItsName(t *testing.T) {
	play(t, func(f field) {
		names := []string{"a", "{a}", "{a}b", "a}b", "b}:{b"}
		watches := map[string]*onlooker{}
		for _, name := range names {
			watches[name] = f.watches(f.NewMutex(name), nil)
			watches[name].sees(redsync.StateFree, 0)
		}
		time.Sleep(readEvery / 2)
		for _, name := range names {
			require.NoError(f, f.another().Lead(f.Context(), name, func(context.Context) error {
				for other, w := range watches {
					if other == name {
						w.sees(redsync.StateHeld, 1)
					} else {
						w.nothing()
					}
				}
				return nil
			}), name)
			watches[name].sees(redsync.StateFree, 0)
		}
		for _, w := range watches {
			w.stops()
		}
	})
}

// Messages are hints: they yield nothing by themselves, and very many cause few reads.
func TestWatchReadsAtMostTwentyTimesASecond(t *testing.T) {
	play(t, func(f field) {
		w := f.watches(f.NewMutex("lock"), nil)
		w.sees(redsync.StateFree, 0)
		time.Sleep(10 * readEvery)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond): //nolint:forbidigo // in a bubble
					f.publishes(allNodes...)
				}
			}
		}()
		most := 0
		for range 20 {
			before := f.scripts()
			time.Sleep(time.Second)
			reads := (f.scripts() - before) / 5
			most = max(most, reads)
			assert.GreaterOrEqual(f, reads, 9)
		}
		close(stop)
		<-done
		assert.LessOrEqual(f, most, 20)
		assert.Greater(f, most, 10, "a burst at the begin")
		w.nothing()
		before := f.scripts()
		time.Sleep(10 * readEvery)
		assert.InDelta(f, 50, f.scripts()-before, 10)
		w.stops()
	})
}

// Each single message makes it read, at once.
func TestWatchReadsOnEachMessage(t *testing.T) {
	play(t, func(f field) {
		w := f.watches(f.NewMutex("lock"), nil)
		w.sees(redsync.StateFree, 0)
		for i := range f.nodes {
			time.Sleep(readEvery / 3)
			for _, n := range f.nodes {
				require.NoError(f, n.Set("lock", string(rune('a'+i))))
			}
			f.publishes(i)
			assert.Equal(f, time.Now(), w.sees(redsync.StateHeld, 1).at)
		}
		w.stops()
	})
}

// Messages are lost while a subscription is broken. So Watch reads when it stands again.
func TestWatchReadsWhenItListensAgain(t *testing.T) {
	play(t, func(f field) {
		w := f.watches(f.NewMutex("lock"), nil)
		w.sees(redsync.StateFree, 0)
		require.Equal(f, 5, f.subscribed())
		for _, n := range f.nodes {
			require.NoError(f, n.Set("lock", "x"))
		}
		f.nodes[2].Disconnect()
		time.Sleep(100 * time.Millisecond)
		w.sees(redsync.StateHeld, 1)
		require.Equal(f, 5, f.subscribed())
		w.stops()
	})
}

func TestWatchWithoutSubscriptionsReadsEachSecond(t *testing.T) {
	for name, denied := range map[string][]int{"all deny": allNodes, "one does not": {0, 1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				for _, i := range denied {
					f.nodes[i].On("subscribe", 1e6, embedded.Fault{Err: "NOPERM this user has no permissions to run the 'subscribe' command"})
				}
				start := time.Now()
				r := &redsynctest.Recorder{}
				w := f.watches(f.NewMutex("lock", redsync.WithObserver(r)), nil)
				w.sees(redsync.StateFree, 0)
				assert.Equal(f, 5-len(denied), f.subscribed())
				time.Sleep(readEvery / 2)
				require.NoError(f, f.another().Lead(f.Context(), "lock", func(context.Context) error {
					time.Sleep(readEvery)
					want := start.Add(readEvery)
					if len(denied) < 5 {
						want = start.Add(readEvery / 2)
					}
					assert.Equal(f, want, w.sees(redsync.StateHeld, 1).at)
					return nil
				}))
				time.Sleep(readEvery)
				w.sees(redsync.StateFree, 0)
				assert.LessOrEqual(f, f.commands("subscribe"), 6, "nobody asks again")
				w.stops()
			})
		})
	}
}

// A reader that takes long gets the latest state, and none that is older than one it has seen.
func TestWatchOfASlowReader(t *testing.T) {
	play(t, func(f field) {
		slow := make(chan struct{}, 1)
		w := f.watches(f.NewMutex("lock"), func(redsync.Status) { slow <- struct{}{} })
		w.sees(redsync.StateFree, 0) // the next body waits
		m := f.another().NewMutex("lock")
		ids := map[string]bool{}
		for range 5 {
			require.NoError(f, m.Lock())
			time.Sleep(2 * readEvery)
			ids[idOf(f, m)] = true
			f.unlock(m)
			time.Sleep(2 * readEvery)
		}
		require.Len(f, ids, 5)
		seen := w.fresh()
		require.Len(f, seen, 1, "the one whose body waits")
		require.Equal(f, redsync.StateHeld, seen[0].State)
		require.NoError(f, m.Lock())
		time.Sleep(2 * readEvery)
		last := idOf(f, m)
		<-slow
		<-slow
		s := w.sees(redsync.StateHeld, 1)
		assert.Equal(f, last, s.Holders[0].ID)
		assert.InDelta(f, guard-2*readEvery, s.Holders[0].TTL, float64(readEvery))
		f.unlock(m)
		w.stops()
	})
}

// idOf returns the ID of the holder of m's lock.
func idOf(u interface {
	require.TestingT
	Context() context.Context
}, m *redsync.Mutex,
) string {
	s, err := m.Inspect(u.Context())
	require.NoError(u, err)
	require.Len(u, s.Holders, 1)
	return s.Holders[0].ID
}

// All Watches of a process share the reads and the connections.
func TestManyWatchesReadOnce(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		of := []*redsync.Redsync{f.Redsync, f.With(redsync.WithFair()), f.With(redsync.WithExpiry(time.Minute))}
		var all []*onlooker
		before, reads := f.connections(), f.traffic()
		for i := range 100 {
			m := of[i%3].NewMutex("lock")
			switch i % 4 {
			case 1:
				m = of[i%3].NewMutex("lock", redsync.WithShared())
			case 2:
				m = of[i%3].NewMultiMutex([]string{"lock", "lock"})
			}
			all = append(all, f.watches(m, nil))
		}
		time.Sleep(100 * time.Millisecond) // they share reads, so some wait for the next one
		for _, w := range all {
			w.sees(redsync.StateFree, 0)
		}
		assert.LessOrEqual(f, f.traffic()-reads, 5*12, "11 reads, and the script that the nodes did not know")
		assert.Equal(f, 5, f.connections()-before, "one to each node")
		time.Sleep(2 * readEvery)
		reads = f.traffic()
		time.Sleep(10 * readEvery)
		assert.Equal(f, 10*5, f.traffic()-reads, "one read a second, of five nodes")
		m := f.held()
		time.Sleep(2 * readEvery)
		for _, w := range all {
			s := w.sees(redsync.StateHeld, 1)
			s.Holders[0].Names[0], s.Nodes[0].Address, s.Holders = "changed", "changed", nil // each has a Status of its own
		}
		f.unlock(m)
		for _, w := range all[:99] {
			w.stops()
		}
		time.Sleep(readEvery)
		all[99].sees(redsync.StateFree, 0)
		assert.Equal(f, 5, f.subscribed())
		all[99].stops()
		f.nobodyWatches(1)
	})
}

// The first Status is not older than the loop, although another loop has read before.
func TestALaterWatchBeginsWithAReadOfItsOwn(t *testing.T) {
	play(t, func(f field) {
		w := f.watches(f.NewMutex("lock"), nil)
		w.sees(redsync.StateFree, 0)
		time.Sleep(readEvery / 2)
		m := f.held()
		later := f.watches(f.NewMutex("lock"), nil)
		later.sees(redsync.StateHeld, 1)
		w.sees(redsync.StateHeld, 1)
		f.unlock(m)
		w.stops()
		later.stops()
	})
}

// However a loop ends, nothing is left.
func TestWatchLeavesNothing(t *testing.T) {
	for name, loop := range map[string]func(all iter.Seq2[redsync.Status, error]){
		"break": func(all iter.Seq2[redsync.Status, error]) {
			for range all {
				break
			}
		},
		"return": func(all iter.Seq2[redsync.Status, error]) {
			for range all {
				return
			}
		},
		"panic": func(all iter.Seq2[redsync.Status, error]) {
			defer func() { _ = recover() }()
			for range all {
				panic(errWork)
			}
		},
		"Goexit": func(all iter.Seq2[redsync.Status, error]) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range all {
					runtime.Goexit()
				}
			}()
			<-done
		},
		"pull": func(all iter.Seq2[redsync.Status, error]) {
			next, stop := iter.Pull2(all)
			_, _, _ = next()
			stop()
		},
		"never": func(iter.Seq2[redsync.Status, error]) {},
		"within another": func(all iter.Seq2[redsync.Status, error]) {
			for range all {
				for range all {
					break
				}
				break
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				all := f.NewMutex("lock").Watch(f.Context())
				for range 3 { // it may be used again
					loop(all)
					f.nobodyWatches(1)
				}
				var wg sync.WaitGroup
				for range 5 { // and by several goroutines at once
					wg.Go(func() { loop(all) })
				}
				wg.Wait()
				f.nobodyWatches(1)
				f.closesAtOnce()
			})
		})
	}
}

// A lingering is a pool whose subscriptions take a second to end.
type lingering struct {
	pool.Pool
	ended *atomic.Int32 // how many subscriptions have ended
}

func (e lingering) Subscribe(channel string, to pool.Listener) (pool.Subscription, error) {
	s, err := e.Pool.(pool.Subscriber).Subscribe(channel, to)
	return lingeringSubscription{s, e.ended}, err
}

type lingeringSubscription struct {
	pool.Subscription
	ended *atomic.Int32
}

func (e lingeringSubscription) Close() {
	time.Sleep(time.Second)
	e.Subscription.Close()
	e.ended.Add(1)
}

// The loop and Close return when all has ended.
func TestWatchAwaitsTheEndOfItsSubscriptions(t *testing.T) {
	play(t, func(f field) {
		var ended atomic.Int32
		rs := f.wrapped(func(p pool.Pool) pool.Pool { return lingering{p, &ended} })
		for range rs.NewMutex("lock").Watch(f.Context()) {
			break
		}
		assert.Equal(f, int32(5), ended.Load(), "after break")
		w := f.as(rs).watches(rs.NewMutex("lock"), nil)
		require.NoError(f, rs.Close(f.Context()))
		assert.Equal(f, int32(10), ended.Load(), "after Close")
		require.ErrorIs(f, w.ended(), redsync.ErrClosed)
	})
}

// Loops that begin and end at the same moment leave nothing, and all get a Status.
func TestWatchesThatComeAndGo(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 20 {
					ctx, cancel := context.WithCancel(f.Context())
					n := 0
					for _, err := range f.NewMutex("lock").Watch(ctx) {
						if n++; n == 1 {
							assert.NoError(f, err)
						}
						time.Sleep(time.Duration((i*7+j*3)%11) * time.Millisecond)
						if (i+j)%2 == 0 {
							break
						}
						cancel()
					}
					assert.Equal(f, 1+(i+j)%2, n)
					cancel()
				}
			})
		}
		wg.Wait()
		f.nobodyWatches(1)
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		ctx, cancel := context.WithCancelCause(f.Context())
		cancel(errWork)
		w := f.loops(f.NewMutex("lock").Watch(ctx), cancel, nil)
		w.nothing()
		for _, want := range []error{context.Canceled, errWork} {
			require.ErrorIs(f, w.ended(), want)
		}
		f.nobodyWatches(1)

		late, end := context.WithTimeout(f.Context(), 3*readEvery/2)
		defer end()
		start := time.Now()
		w = f.loops(f.NewMutex("lock").Watch(late), cancel, nil)
		w.sees(redsync.StateFree, 0)
		err := w.ended()
		require.ErrorIs(f, err, context.DeadlineExceeded)
		require.ErrorContains(f, err, `redsync: watch "lock": `)
		require.NotErrorIs(f, err, redsync.ErrNoQuorum)
		assert.Equal(f, 3*readEvery/2, time.Since(start))
		f.nobodyWatches(1)

		// It ends although nodes are silent, and before a Status is known.
		f.freeze(0, 1, 2)
		late, end = context.WithTimeout(f.Context(), patience/2)
		defer end()
		start = time.Now()
		w = f.loops(f.NewMutex("lock").Watch(late), cancel, nil)
		require.ErrorIs(f, w.ended(), context.DeadlineExceeded)
		w.nothing()
		assert.Equal(f, patience/2, time.Since(start))
		f.thaw(0, 1, 2)
	})
}

// While a body blocks after the end of the context, nothing is read any more.
func TestWatchEndsWhileABodyBlocks(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		block := make(chan struct{})
		w := f.watches(f.NewMutex("lock"), func(redsync.Status) { <-block })
		w.sees(redsync.StateFree, 0)
		w.cancel(errWork)
		f.nobodyWatches(1)
		m := f.held()
		close(block)
		require.ErrorIs(f, w.ended(), errWork)
		w.nothing()
		f.unlock(m)
	})
}

func TestWatchEndsWithClose(t *testing.T) {
	play(t, func(f field) {
		rs := f.another()
		block := make(chan struct{})
		waits, blocked := f.watches(rs.NewMutex("lock"), nil), f.watches(rs.NewMutex("lock"), func(redsync.Status) { <-block })
		waits.sees(redsync.StateFree, 0)
		blocked.sees(redsync.StateFree, 0)
		start := time.Now()
		require.NoError(f, rs.Close(f.Context()))
		f.nobodyWatches(0)
		require.ErrorIs(f, waits.ended(), redsync.ErrClosed)
		assert.Equal(f, start.Add(5*readEvery), time.Now(), "all that time passed in nobodyWatches")
		close(block)
		err := blocked.ended()
		require.ErrorIs(f, err, redsync.ErrClosed)
		require.EqualError(f, err, `redsync: watch "lock": this Redsync was closed`)

		after := f.watches(rs.NewMutex("lock"), nil)
		after.nothing()
		require.ErrorIs(f, after.ended(), redsync.ErrClosed)

		// A body may close.
		rs = f.another()
		inside := f.watches(rs.NewMutex("lock"), func(redsync.Status) { assert.NoError(f, rs.Close(f.Context())) })
		require.ErrorIs(f, inside.ended(), redsync.ErrClosed)
		f.nobodyWatches(0)

		// And Close does not wait for silent nodes because of a Watch.
		rs = f.another()
		w := f.watches(rs.NewMutex("lock"), nil)
		f.freeze(allNodes...)
		time.Sleep(readEvery + patience/2)
		start = time.Now()
		require.NoError(f, rs.Close(f.Context()))
		assert.Zero(f, time.Since(start))
		require.ErrorIs(f, w.ended(), redsync.ErrClosed)
		f.thaw(allNodes...)
	})
}

func TestWatchThatCannotBegin(t *testing.T) {
	play(t, func(f field) {
		for want, m := range map[string]*redsync.Mutex{
			"must not be empty":               f.NewMutex(""),
			"is reserved":                     f.NewMutex("{x}:queue"),
			"WithExpiry(-1ns) is out":         f.NewMutex("lock", redsync.WithExpiry(-1)),
			"WithPermits excludes":            f.NewMutex("lock", redsync.WithPermits(2), redsync.WithShared()),
			"0 names are":                     f.NewMultiMutex(nil),
			`redsync: watch "lock": no pools`: redsync.New().NewMutex("lock"),
			"redsync: watch: no pools":        {},
		} {
			w := f.watches(m, nil)
			w.nothing()
			require.ErrorContains(f, w.ended(), want)
		}
		assert.Zero(f, f.traffic())
		n := 0
		for _, err := range f.NewMutex("lock").Watch(nil) { //nolint:staticcheck // nil stands for the background
			require.NoError(f, err)
			n++
			break
		}
		assert.Equal(f, 1, n)
	})
}
