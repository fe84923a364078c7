package redsync_test

import (
	"context"
	"iter"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file shows what Watch yields and when, and what it costs.

// readEvery is how often Watch reads a lock at least.
const readEvery = sec

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

// looks watches a free lock. It has seen that.
func (f field) looks() *onlooker {
	f.Helper()
	w := f.watches(f.NewMutex("lock"), nil)
	w.sees(0)
	return w
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
	assert.NoError(w, w.err) // an error is the last that is yielded
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

// sees checks that one Status was yielded, of a lock that so many hold, and returns it.
func (w *onlooker) sees(holders int) sighting {
	w.Helper()
	state := redsync.StateHeld
	if holders == 0 {
		state = redsync.StateFree
	}
	return w.seesIn(state, holders)
}

// seesIn is sees with the state.
func (w *onlooker) seesIn(state string, holders int) sighting {
	w.Helper()
	seen := w.fresh()
	require.Len(w, seen, 1)
	require.Equal(w, state, seen[0].State)
	require.Len(w, seen[0].Holders, holders)
	return seen[0]
}

// next is sees when Watch has read again.
func (w *onlooker) next(holders int) sighting {
	w.Helper()
	time.Sleep(readEvery)
	return w.sees(holders)
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
	case <-time.After(minute): //nolint:forbidigo // in a bubble
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
	errorIs(w, w.ended(), errWork)
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
	assert.Zero(f, inStacks("internal/watch.(*reading)"))
	before := f.traffic()
	time.Sleep(5 * readEvery)
	f.hasSent(before)
}

// publishes publishes a message of leaders on some nodes.
func (f field) publishes(nodes ...int) {
	f.Helper()
	for _, i := range nodes {
		require.Positive(f, f.nodes[i].Publish(leaderChannel, "x"), "nobody listens on node %d", i)
	}
}

// Nodes of five.
var allNodes, majority = []int{0, 1, 2, 3, 4}, []int{0, 1, 2}

func TestWatchYieldsEachChangeOfEachKind(t *testing.T) {
	testlength.FromGate(t)
	for _, kind := range lockKinds {
		playAs(t, kind.column, func(f field) {
			m := kind.lock(f.another(), withWatchdog)
			start := time.Now()
			w := f.watches(kind.lock(f.Redsync), nil)
			first := w.sees(0)
			assert.Equal(f, start, first.at) // at once
			assert.Equal(f, m.Name(), first.Name)
			assert.Len(f, first.Nodes, 5)

			time.Sleep(readEvery / 2)
			locked(f, m)
			w.nothing()
			time.Sleep(readEvery / 2)
			s := w.sees(1)
			assert.Equal(f, start.Add(readEvery), s.at)
			h := s.Holders[0]
			assert.Equal(f, kind.shared, h.Shared)
			assert.Equal(f, kind.permit, h.Permits == 1)
			assert.Equal(f, m.Names(), h.Names)
			assert.InDelta(f, guard-readEvery/2, h.TTL, float64(100*ms))

			time.Sleep(minute)
			w.nothing() // although TTLs have changed
			f.unlock(m)
			locked(f, m)
			other := w.next(1) // another hold of the same Mutex
			assert.NotEqual(f, h.ID, other.Holders[0].ID)
			f.unlock(m)
			w.next(0)
			w.stops()
		})
	}
}

func TestWatchYieldsNothingForWaitersAndRegister(t *testing.T) {
	play(t, func(f field) {
		m := locked(f, f.another().NewMutex("lock", withWatchdog, withFencing))
		w := f.watches(f.NewMutex("lock"), nil)
		first := w.sees(1)
		c := f.foreign()
		for _, n := range f.nodes {
			noError(f, n.Set(fenceKey, "9999999999999999"))
		}
		f.lose(0) // the lock still stands on a quorum
		time.Sleep(10 * readEvery)
		w.nothing()
		f.unlock(m)
		f.within(c, sec)
		last := w.next(1)
		assert.Empty(f, first.Waiters)
		assert.Greater(f, last.Register, first.Register) // the Status that is yielded has the current ones
		f.unlock(c)
		w.stops()
	})
}

// Watch waits for no silent node. Without a quorum it yields that the state is unknown, and goes on.
func TestWatchWaitsForNoSilentNode(t *testing.T) {
	testlength.FromGate(t)
	for name, c := range map[string]struct{ fail, repair func(field, ...int) }{
		"frozen": {field.freeze, field.thaw},
		"dead":   {field.kill, field.restart},
	} {
		playAs(t, name, func(f field) {
			m, of := f.another().NewMutex("lock", withWatchdog), f.another()
			c.fail(f, 1, 3)
			start := time.Now()
			w := f.as(of).watches(of.NewMutex("lock"), nil)
			first := w.sees(0)
			assert.Equal(f, start, first.at)
			erred(f, first.Nodes[1].Err)
			noError(f, first.Nodes[0].Err)
			locked(f, m)
			time.Sleep(readEvery - time.Since(start))
			assert.Equal(f, start.Add(readEvery), w.sees(1).at)
			time.Sleep(minute)
			w.nothing()

			c.fail(f, 0)
			time.Sleep(readEvery + patience)
			erred(f, w.seesIn(redsync.StateUnknown, 0).Nodes[0].Err)
			early := time.Now()
			later := f.as(of).watches(of.NewMutex("other"), nil)
			time.Sleep(minute)
			assert.WithinRange(f, later.seesIn(redsync.StateUnknown, 0).at, early, early.Add(patience), "it begins with unknown")
			w.nothing()
			c.repair(f, 0, 1, 3)
			time.Sleep(2 * readEvery)
			w.sees(0)
			w.stops()
			later.stops()
		})
	}
}

// A lock of redsync v4 tells nobody. When its TTL has run out, Watch looks at once.
func TestWatchSeesALockOfRedsyncV4(t *testing.T) {
	play(t, func(f field) {
		start := time.Now()
		w := f.looks()
		time.Sleep(readEvery / 4)
		for _, n := range f.nodes {
			c := n.Client()
			noError(f, c.SetNX(f.Context(), "lock", "qb7qtVUdFHLVv0AoXSK4PA==", 1234*ms).Err())
			noError(f, c.Close())
		}
		s := w.next(1)
		assert.Equal(f, start.Add(readEvery), s.at)
		assert.Equal(f, "redsync v4", s.Holders[0].Library)
		assert.Equal(f, start.Add(readEvery/4+1235*ms), w.next(0).at)
		w.stops()
	})
}

// A far process is that far from each node.
const hop = 10 * ms

// far returns a process for whose messages each way takes hop. It has met the nodes.
func (f field) far() *redsync.Redsync {
	f.Helper()
	rs := f.newcomer(0, everywhere(hop))
	f.closes(rs)
	f.as(rs).meet()
	time.Sleep(readEvery)
	return rs
}

// The messages of a term: one for its begin, one for its end, on each node. They come after what they tell of.
func TestLeadTellsThatItLeadsAndThatItDoesNot(t *testing.T) {
	for name, end := range map[string]func(f field, ctx context.Context) error{
		"resigns":  func(field, context.Context) error { return nil },
		"loses it": func(f field, ctx context.Context) error { f.lose(allNodes...); <-ctx.Done(); panic(errWork) },
	} {
		playMetAs(t, name, func(f field) {
			noError(f, f.does("lock", nothing))
			synctest.Wait()
			assert.Zero(f, f.commands("publish")) // only leaders tell
			subscriber := f.nodes[0].NewSubscriber()
			defer subscriber.Close()
			subscriber.Subscribe(leaderChannel)
			func() {
				defer func() { recover() }() //nolint:errcheck // of the function
				_ = f.Lead(f.Context(), "lock", func(ctx context.Context) error {
					assert.Equal(f, "leads", (<-subscriber.Messages()).Message)
					synctest.Wait()
					assert.Equal(f, 5, f.commands("publish"))
					return end(f, ctx)
				}, oneSecond)
			}()
			assert.Equal(f, "leaves", (<-subscriber.Messages()).Message) // the node waits for this
			assert.LessOrEqual(f, f.nodes.Keys("lock"), 2)               // the message follows the release on a quorum
			synctest.Wait()
			assert.Equal(f, 10, f.commands("publish"))
		})
	}
}

// Messages are hints: they yield nothing by themselves, and very many cause few reads.
func TestWatchReadsAtMostTwentyTimesASecond(t *testing.T) {
	play(t, func(f field) {
		w := f.looks()
		time.Sleep(10 * readEvery)
		most := 0
		for range 10 {
			before := f.scripts()
			for range 200 {
				f.publishes(allNodes...)
				time.Sleep(5 * ms)
			}
			reads := (f.scripts() - before) / 5
			most = max(most, reads)
			assert.GreaterOrEqual(f, reads, 9)
		}
		assert.LessOrEqual(f, most, 20)
		assert.Greater(f, most, 10) // a burst at the begin
		w.nothing()
		before := f.scripts()
		time.Sleep(10 * readEvery)
		assert.InDelta(f, 50, f.scripts()-before, 10)
		w.stops()
	})
}

// Messages are lost while a subscription is broken. So Watch reads when it stands again.
func TestWatchReadsWhenItListensAgain(t *testing.T) {
	play(t, func(f field) {
		w := f.looks()
		require.Equal(f, 5, f.subscribed())
		f.occupy("lock", allNodes...)
		f.nodes[2].Disconnect()
		time.Sleep(100 * ms)
		w.sees(1)
		require.Equal(f, 5, f.subscribed())
		w.stops()
	})
}

func TestWatchWithoutSubscriptionsReadsEachSecond(t *testing.T) {
	for name, denied := range map[string][]int{"all deny": allNodes, "one does not": {0, 1, 2, 3}} {
		playAs(t, name, func(f field) {
			for _, i := range denied {
				f.nodes[i].On("subscribe", 1e6, embedded.Fault{Err: "NOPERM this user has no permissions to run the 'subscribe' command"})
			}
			start := time.Now()
			w := f.looks()
			assert.Equal(f, 5-len(denied), f.subscribed())
			time.Sleep(readEvery / 2)
			want := readEvery / 2
			if len(denied) == 5 {
				want = readEvery
			}
			noError(f, f.another().Lead(f.Context(), "lock", func(context.Context) error {
				assert.Equal(f, start.Add(want), w.next(1).at)
				return nil
			}))
			assert.LessOrEqual(f, f.commands("subscribe"), 6) // nobody asks again
			w.stops()
		})
	}
}

// A reader that takes long gets the latest state, and none that is older than one it has seen.
func TestWatchOfASlowReader(t *testing.T) {
	play(t, func(f field) {
		slow := make(chan struct{}, 1)
		w := f.watches(f.NewMutex("lock"), func(redsync.Status) { slow <- struct{}{} })
		w.sees(0) // the next body waits
		m := f.another().NewMutex("lock")
		for range 3 {
			locked(f, m)
			time.Sleep(2 * readEvery)
			f.unlock(m)
			time.Sleep(2 * readEvery)
		}
		locked(f, m)
		time.Sleep(2 * readEvery)
		last := f.holderOf(m).ID
		require.NotEqual(f, last, w.sees(1).Holders[0].ID) // the one whose body waits
		<-slow
		<-slow
		h := w.sees(1).Holders[0]
		assert.Equal(f, last, h.ID)
		assert.InDelta(f, guard-2*readEvery, h.TTL, float64(readEvery))
		f.unlock(m)
		w.stops()
	})
}

// However a loop ends, nothing is left.
func TestWatchLeavesNothing(t *testing.T) {
	parallelComputing(t)
	for name, end := range map[string]func(){
		"break":  nil,
		"panic":  func() { panic(errWork) },
		"Goexit": runtime.Goexit,
	} {
		playMetAs(t, name, func(f field) {
			all := f.NewMutex("lock").Watch(f.Context())
			loop := func() {
				defer func() { _ = recover() }()
				for range all {
					for range all { // a loop within another
						break
					}
					if end == nil {
						break
					}
					end()
				}
			}
			for _, loops := range []int{1, 1, 5} { // it may be used again, and by several goroutines at once
				var wg sync.WaitGroup
				for range loops {
					wg.Go(loop)
				}
				wg.Wait()
				next, stop := iter.Pull2(all)
				_, _, _ = next()
				stop()
				f.nobodyWatches(1)
			}
			f.closesAtOnce()
		})
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	playMet(t, func(f field) {
		ctx, cancel := context.WithCancelCause(f.Context())
		cancel(errWork)
		w := f.loops(f.NewMutex("lock").Watch(ctx), cancel, nil)
		w.nothing()
		errorIs(f, w.ended(), context.Canceled, errWork)

		within := func(d time.Duration) *onlooker {
			start := time.Now()
			w := f.loops(f.NewMutex("lock").Watch(limited(f, d)), nil, nil)
			err := w.ended()
			took(f, start, d)
			errorIs(f, err, context.DeadlineExceeded)
			says(f, err, `redsync: watch "lock": `)
			require.NotErrorIs(f, err, redsync.ErrNoQuorum)
			return w
		}
		within(3 * readEvery / 2).sees(0)
		f.nobodyWatches(1)
		f.freeze(majority...)
		within(patience / 2).nothing() // it ends although nodes are silent, and before a Status is known
		f.thaw(majority...)
	})
}

func TestWatchEndsWithClose(t *testing.T) {
	play(t, func(f field) {
		rs := f.another()
		block := make(chan struct{})
		waits, blocked := f.watches(rs.NewMutex("lock"), nil), f.watches(rs.NewMutex("lock"), func(redsync.Status) { <-block })
		waits.sees(0)
		blocked.sees(0)
		f.freeze(allNodes...) // Close does not wait for silent nodes because of a Watch
		time.Sleep(readEvery + patience/2)
		start := time.Now()
		shut(f, rs)
		errorIs(f, waits.ended(), redsync.ErrClosed)
		took(f, start, 0)
		f.thaw(allNodes...)
		f.nobodyWatches(0)
		close(block)
		require.EqualError(f, blocked.ended(), `redsync: watch "lock": this Redsync was closed`)
		errorIs(f, f.watches(rs.NewMutex("lock"), nil).ended(), redsync.ErrClosed)

		rs = f.another() // a body may close
		inside := f.watches(rs.NewMutex("lock"), func(redsync.Status) { assert.NoError(f, rs.Close(f.Context())) })
		errorIs(f, inside.ended(), redsync.ErrClosed)
		f.nobodyWatches(0)
	})
}

func TestWatchThatCannotBegin(t *testing.T) {
	play(t, func(f field) {
		for want, m := range map[string]*redsync.Mutex{
			"must not be empty":               f.NewMutex(""),
			"is reserved":                     f.NewMutex("{x}:queue"),
			"WithExpiry(-1ns) is out":         f.NewMutex("lock", withExpiry(-1)),
			"WithPermits excludes":            f.NewMutex("lock", twoPermits, withShared),
			"0 names are":                     f.NewMultiMutex(nil),
			`redsync: watch "lock": no pools`: redsync.New().NewMutex("lock"),
			"redsync: watch: no pools":        {},
		} {
			w := f.watches(m, nil)
			w.nothing()
			says(f, w.ended(), want)
		}
		f.hasSent(0)
		next, stop := iter.Pull2(f.NewMutex("lock").Watch(nil)) //nolint:staticcheck // nil stands for the background
		_, err, yields := next()
		noError(f, err)
		assert.True(f, yields)
		stop()
	})
}
