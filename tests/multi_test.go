package redsync_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows what a lock on several names does that a lock on one name does not.

// both has the two names that most locks in this file have.
var both = []string{"a", "b"}

// locked returns a lock on several names that is held.
func (f field) locked(names []string, options ...redsync.Option) *redsync.Mutex {
	f.Helper()
	m := f.NewMultiMutex(names, options...)
	require.NoError(f, m.Lock())
	time.Sleep(time.Millisecond)
	return m
}

// have checks, for each name, that exactly count nodes have its key.
func (f field) have(count int, names ...string) {
	f.Helper()
	for _, name := range names {
		assert.Equal(f, count, f.nodes.Keys(name), name)
	}
}

func TestMultiHasAllNamesInOneRoundTrip(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		for _, n := range f.nodes {
			n.On("evalsha", 2, embedded.Fault{Delay: 20 * time.Millisecond})
		}
		start := time.Now()
		m := f.NewMultiMutex([]string{"c", "a", "b", "a"})
		require.NoError(f, m.Lock())
		assert.Less(f, time.Since(start), 40*time.Millisecond)
		assert.Equal(f, []string{"a", "b", "c"}, m.Names())
		assert.Equal(f, "a, b, c", m.Name())
		time.Sleep(time.Second)
		f.have(5, "a", "b", "c")
		ok, err := m.Valid()
		require.True(f, ok, "%v", err)
		ok, err = m.Extend()
		require.True(f, ok, "%v", err)
		f.unlock(m)
		time.Sleep(time.Second)
		f.have(0, "a", "b", "c")
	})
}

// If one name is taken, a lock on several names leaves all others free.
func TestMultiThatFailsLeavesNothing(t *testing.T) {
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		single := f.NewMutex("b")
		require.NoError(f, single.Lock())
		m := f.another(mode...).NewMultiMutex([]string{"a", "b", "c"})
		require.Error(f, m.TryLock())
		time.Sleep(time.Second)
		f.have(0, "a", "c")
		f.have(5, "b")
		f.unlock(single)
		time.Sleep(time.Second)
		f.nobodyWaits()
	})
}

func TestNamesOfAMultiThatCannotBeHad(t *testing.T) {
	play(t, func(f field) {
		many := make([]string, 65)
		for i := range many {
			many[i] = fmt.Sprintf("name-%d", i)
		}
		for want, names := range map[string][]string{
			"0 names are out of range: 1 to 64":  {},
			"65 names are out of range: 1 to 64": many,
			"must not be empty":                  {"a", ""},
			`the name "{x}:queue" is reserved`:   {"a", "{x}:queue"},
			`the name "{x}:fence" is reserved`:   {"{x}:fence", "a"},
		} {
			m := f.NewMultiMutex(names)
			refuses(t, m, want)
			given := slices.Sorted(slices.Values(names))
			assert.Equal(t, given, slices.Sorted(slices.Values(m.Names())))
			assert.True(t, slices.IsSorted(m.Names()))
			assert.Equal(t, strings.Join(given, ", "), m.Name())
		}
		assert.NotContains(t, f.NewMultiMutex(many).Lock().Error(), many[0], "an error does not list thousands of names")
		m := f.NewMultiMutex(many[:64])
		require.NoError(f, m.Lock())
		f.unlock(m)
		refuses(t, f.NewMultiMutex(both, redsync.WithValue("x")), "WithValue excludes NewMultiMutex")
		assert.Zero(f, f.commands("set"))

		one := f.NewMultiMutex([]string{"a", "a"})
		require.NoError(f, one.Lock())
		assert.Equal(f, []string{"a"}, one.Names())
		assert.Positive(f, f.commands("set"), "a lock on one name is a plain lock, and sends SET")
		f.unlock(one)
	})
	var none *redsync.Redsync
	require.ErrorIs(t, none.NewMultiMutex(both).Lock(), redsync.ErrNoPools)
	require.ErrorIs(t, none.NewMultiMutex(nil).Lock(), redsync.ErrNoPools)
	assert.Empty(t, none.NewMultiMutex(nil).Name())
}

// On a Cluster and a Ring, all names must lie in one slot. Lock checks that before it sends anything.
func TestNamesOfAMultiThatLieApart(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer func() { _, _ = cluster.Close(), ring.Close() }()
	for _, client := range []redis.UniversalClient{cluster, ring} {
		rs := redsync.New(pool.New(client))
		err := rs.NewMultiMutex([]string{"{a}1", "{a}2", "b"}).Lock()
		require.ErrorContains(t, err, `the names "b" and "{a}1" do not lie in one slot`)
		require.ErrorContains(t, err, "pool #0")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err = rs.NewMultiMutex([]string{"{a}1", "a", "x{a}"}, redsync.WithTries(1)).LockContext(ctx)
		cancel()
		require.NotContains(t, err.Error(), "slot")
		_ = rs.Close(t.Context()) // no node answers
	}
}

// A release of one name wakes a waiter for several names, and the other way round. The retry delays are too long to
// help.
func TestMultiAndSinglesWakeEachOther(t *testing.T) {
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		other := f.another()
		f.closes(other)
		f.meet()
		for _, rs := range []*redsync.Redsync{f.Redsync, other} {
			a, b := f.NewMutex("a", mode...), f.NewMutex("b", mode...)
			require.NoError(f, a.Lock())
			require.NoError(f, b.Lock())
			multi := f.callsSeveral(rs, both, patient(mode...)...)
			time.Sleep(100 * time.Millisecond)
			f.unlock(a)
			time.Sleep(100 * time.Millisecond)
			require.True(f, open(multi.done))
			f.unlock(b)
			start := time.Now()
			<-multi.done
			require.NoError(f, multi.err)
			assert.Less(f, time.Since(start), 50*time.Millisecond)

			first, second := f.callsOn(rs, "a", patient(mode...)...), f.callsOn(other, "b", patient(mode...)...)
			time.Sleep(100 * time.Millisecond)
			start = time.Now()
			f.unlock(multi.Mutex)
			<-first.done
			<-second.done
			assert.Less(f, time.Since(start), 50*time.Millisecond)
			require.NoError(f, first.err)
			require.NoError(f, second.err)
			f.unlock(first.Mutex)
			f.unlock(second.Mutex)
			time.Sleep(time.Second)
			f.nobodyWaits()
		}
	})
}

// Without fair mode, a lock on several names that waits for one of them leaves the other names free. In fair mode, it
// keeps others from them.
func TestMultiThatWaitsForOneNameLeavesTheOthersFree(t *testing.T) {
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		other := f.another()
		f.closes(other)
		f.meet()
		for _, rs := range []*redsync.Redsync{f.Redsync, other} {
			b := f.NewMutex("b", redsync.WithExpiry(time.Minute))
			require.NoError(f, b.Lock())
			multi := f.callsSeveral(rs, both, patient(mode...)...)
			time.Sleep(100 * time.Millisecond)
			single := f.callsOn(other, "a", patient(mode...)...)
			time.Sleep(100 * time.Millisecond)
			if len(mode) == 0 {
				assert.False(f, open(single.done), "the waiter for several names leaves a free")
				require.NoError(f, single.err)
				f.unlock(single.Mutex)
			} else {
				assert.True(f, open(single.done), "the waiter for a stands behind the waiter for several names")
			}
			f.unlock(b)
			<-multi.done
			require.NoError(f, multi.err)
			f.unlock(multi.Mutex)
			<-single.done
			if len(mode) > 0 {
				f.unlock(single.Mutex)
			}
			time.Sleep(time.Second)
			f.nobodyWaits()
		}
	})
}

// The token of a lock on several names is greater than all earlier tokens of each name.
func TestMultiHasOneTokenForAllNames(t *testing.T) {
	play(t, func(f field) {
		fencing := redsync.WithFencing()
		var last uint64
		for range 3 {
			for _, m := range []*redsync.Mutex{
				f.NewMutex("a", fencing), f.another().NewMultiMutex(both, fencing), f.NewMutex("b", fencing),
				f.NewMultiMutex([]string{"b", "c"}, fencing), f.another().NewMutex("c", fencing), f.NewMultiMutex([]string{"c", "a"}, fencing),
			} {
				require.NoError(f, m.Lock())
				assert.Greater(f, m.Fence(), last, m.Name())
				last = m.Fence()
				f.unlock(m)
			}
		}
		time.Sleep(time.Second)
	})
}

// After a loss, the keys of the other names block the next Lock if the user has read the value of the hold, because
// another process may have adopted the hold. Unlock deletes these keys.
func TestMultiThatIsLostAndLockedAgain(t *testing.T) {
	for name, show := range map[string]func(m *redsync.Mutex){
		"not shown": func(*redsync.Mutex) {},
		"Value":     func(m *redsync.Mutex) { _ = m.Value() },
		"Sequencer": func(m *redsync.Mutex) { _ = m.Sequencer() },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.lostKeys(both, "b")
				show(m)
				_, err := m.Valid()
				require.ErrorIs(f, err, redsync.ErrLockLost)
				_, err = m.Unlock()
				require.ErrorIs(f, err, redsync.ErrLockAlreadyExpired)
				require.NoError(f, m.TryLock())
				f.unlock(m)

				m = f.lostKeys(both, "b", redsync.WithTries(0))
				show(m)
				_, err = m.Valid()
				require.ErrorIs(f, err, redsync.ErrLockLost)
				start := time.Now()
				if name == "not shown" {
					require.NoError(f, m.Lock())
					assert.Less(f, time.Since(start), time.Second)
				} else {
					var taken *redsync.ErrTaken
					require.ErrorAs(f, m.TryLock(), &taken)
					assert.Equal(f, "a", taken.Name)
					_, err = m.Unlock()
					require.ErrorIs(f, err, redsync.ErrNotHeld, "the Lock has ended the lost hold, so Unlock has no keys to delete")
					require.NoError(f, m.Lock())
					assert.Greater(f, time.Since(start), 7*time.Second, "Lock waits until the keys of the former hold expire after 8 s")
				}
				f.unlock(m)
			})
		})
	}
}

// If the key of one name is gone on a quorum, the whole hold is lost.
func TestMultiIsLostWithOneOfItsKeys(t *testing.T) {
	play(t, func(f field) {
		m := f.locked(both)
		for _, n := range f.nodes[:3] {
			n.Del("b")
		}
		_, err := m.Valid()
		require.ErrorIs(f, err, redsync.ErrLockLost)
		require.ErrorIs(f, m.Err(), redsync.ErrLockLost)
		_, err = m.Unlock()
		require.ErrorIs(f, err, redsync.ErrLockAlreadyExpired)
		time.Sleep(time.Second)
		f.have(0, both...)

		m = f.locked(both, redsync.WithSetNXOnExtend())
		for _, n := range f.nodes[:3] {
			n.Del("b")
		}
		ok, err := m.Extend()
		require.False(f, ok, "Extend fails, because keys that it sets again do not count")
		require.ErrorIs(f, err, redsync.ErrExtendFailed)
		time.Sleep(time.Millisecond)
		f.have(5, both...)
		ok, err = m.Extend()
		require.True(f, ok, "%v", err)
		f.unlock(m)
	})
}

// A lock on several names whose caller gives up leaves no ticket in any queue, whichever name it waited for.
func TestMultiThatGivesUpLeavesAllQueues(t *testing.T) {
	inEachMode(t, play, func(f field, mode []redsync.Option) {
		other := f.another()
		f.closes(other)
		names := []string{"a", "b", "c"}
		for _, held := range names {
			for _, rs := range []*redsync.Redsync{f.Redsync, other} {
				single := f.NewMutex(held, redsync.WithExpiry(time.Minute))
				require.NoError(f, single.Lock())
				w := f.callsSeveral(rs, names, patient(mode...)...)
				time.Sleep(300 * time.Millisecond)
				queues := 0
				for _, key := range f.nodes[0].Keys() {
					if strings.HasSuffix(key, ":queue") {
						queues++
					}
				}
				if len(mode) == 0 {
					assert.Equal(f, 1, queues, "the waiter for both names has a ticket only in the queue of %s", held)
					assert.True(f, slices.Contains(f.nodes[0].Keys(), "{"+held+"}:queue"))
				} else {
					assert.Equal(f, 3, queues)
				}
				w.cancel()
				<-w.done
				require.ErrorIs(f, w.err, context.Canceled)
				time.Sleep(time.Second)
				f.nobodyWaits()
				f.unlock(single)
			}
		}
	})
}

// callsSeveral begins a Lock of several names.
func (f field) callsSeveral(rs *redsync.Redsync, names []string, options ...redsync.Option) *call {
	return f.begins(rs.NewMultiMutex(names, options...))
}

// callsOn begins a Lock of one name.
func (f field) callsOn(rs *redsync.Redsync, name string, options ...redsync.Option) *call {
	return f.begins(rs.NewMutex(name, options...))
}

// A lock on several names passes to another process by Detach and WithSequencer, with its token.
func TestMultiIsGivenAway(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		f.closes(other)
		m := f.locked(both, redsync.WithFencing(), redsync.WithWatchdog())
		token := m.Fence()
		s, err := m.Detach(f.Context())
		require.NoError(f, err)
		assert.Equal(f, both, s.Names())
		assert.Equal(f, "a, b", s.Name)
		require.NoError(f, other.Current(f.Context(), s))
		parsed, err := redsync.ParseSequencer(s.String())
		require.NoError(f, err)
		assert.Equal(f, s, parsed)

		for name, wrong := range map[string]*redsync.Mutex{
			`is of the lock "a, b", not of "a"`:    other.NewMutex("a", redsync.WithSequencer(s)),
			`is of the lock "a, b", not of "a, c"`: other.NewMultiMutex([]string{"a", "c"}, redsync.WithSequencer(s)),
			`is of one name, "a, b", not of`: other.NewMultiMutex(both, redsync.WithSequencer(redsync.Sequencer{
				Name: s.Name, Value: s.Value,
			})),
		} {
			_, err = wrong.Extend()
			require.ErrorContains(f, err, name)
		}

		for _, receiver := range []*redsync.Mutex{
			other.NewMultiMutex([]string{"b", "a"}, redsync.WithSequencer(s)), other.NewMutex("a, b", redsync.WithSequencer(parsed)),
		} {
			ok, err := receiver.Valid()
			require.True(f, ok, "%v", err)
			assert.Equal(f, both, receiver.Names())
			ok, err = receiver.Extend()
			require.True(f, ok, "%v", err)
			assert.Equal(f, token, receiver.Fence())
		}
		receiver := other.NewMultiMutex(both, redsync.WithSequencer(s))
		require.NoError(f, receiver.Do(f.Context(), func(ctx context.Context) error {
			assert.Equal(f, both, redsync.FromContext(ctx).Names())
			time.Sleep(20 * time.Second) // it is extended
			return ctx.Err()
		}))
		time.Sleep(time.Second)
		f.have(0, both...)
		require.ErrorIs(f, other.Current(f.Context(), s), redsync.ErrLockAlreadyExpired)
	})
}

// Two locks on several names wait for one name that is taken. If each tried whenever any of its names becomes free,
// they would wake each other again and again. So each tries only when the taken name becomes free.
func TestFairMultisDoNotWakeEachOtherWhileTheirNameIsTaken(t *testing.T) {
	play(t, func(f field) {
		f.meet()
		other := f.another()
		fair := append(patient(), redsync.WithFair())
		before := f.locked([]string{"c"}, fair...)
		holder := f.callsOn(other, "c", append(fair, redsync.WithSetNXOnExtend())...)
		time.Sleep(10 * time.Millisecond)
		f.unlock(before)
		<-holder.done
		require.NoError(f, holder.err)
		time.Sleep(time.Millisecond)
		f.confirms(holder.Extend()) // on all nodes: some may have refused, because they had not released yet
		time.Sleep(time.Millisecond)
		f.nodes[1].Del("c") // the holder's ticket stays at the head of the queue there
		for _, n := range f.nodes {
			n.On("evalsha", 10000, embedded.Fault{Delay: time.Millisecond})
		}
		one := f.callsSeveral(f.Redsync, []string{"c", "d"}, fair...)
		time.Sleep(20 * time.Millisecond)
		another := f.callsSeveral(other, []string{"a", "c", "d"}, fair...)
		time.Sleep(50 * time.Millisecond)
		scripts := f.nodes[0].Commands("evalsha")
		time.Sleep(300 * time.Millisecond)
		assert.Less(f, f.nodes[0].Commands("evalsha")-scripts, 10)
		f.unlock(holder.Mutex)
		<-one.done
		require.NoError(f, one.err)
		f.unlock(one.Mutex)
		<-another.done
		require.NoError(f, another.err)
		f.unlock(another.Mutex)
	})
}

// Three processes lock several names and single names, while a minority of nodes fails. No two holders share a name.
func TestNoTwoHoldersShareAName(t *testing.T) {
	rushes(t, testlength.Of(1, 1, 100), 11, []bool{false, true}, []string{"a", "b", "c", "d"}, func(r *rush) {
		r.run(testlength.Of(40, 40, 60), func(rs *redsync.Redsync, options []redsync.Option) visit {
			return r.alone(rs.NewMultiMutex(r.some(), options...), r.work())
		})
	})
}
