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
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file shows what a lock on several names does that a lock on one name does not.

// both has the two names that most locks in this file have.
var both = []string{"a", "b"}

// locked returns a lock on several names that is held.
func (f field) locked(names []string, options ...redsync.Option) *redsync.Mutex {
	f.Helper()
	m := locked(f, f.NewMultiMutex(names, options...))
	time.Sleep(ms)
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
	playMet(t, func(f field) {
		onEach(f.nodes, "evalsha", 2, embedded.Fault{Delay: 20 * ms})
		start := time.Now()
		m := f.locked([]string{"c", "a", "b", "a"})
		assert.Less(f, time.Since(start), 40*ms)
		assert.Equal(f, []string{"a", "b", "c"}, m.Names())
		assert.Equal(f, "a, b, c", m.Name())
		time.Sleep(sec)
		f.have(5, "a", "b", "c")
		f.confirms(m.Valid())
		f.extends(m)
		f.unlock(m)
		time.Sleep(sec)
		f.have(0, "a", "b", "c")
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
			`the name "{x}:fence" is reserved`:   {"{x}:fence", "a"},
		} {
			m := f.NewMultiMutex(names)
			refuses(t, m, want)
			slices.Sort(names)
			assert.ElementsMatch(t, names, m.Names())
			assert.Equal(t, strings.Join(names, ", "), m.Name())
		}
		assert.NotContains(t, f.NewMultiMutex(many).Lock().Error(), "name-0") // an error does not list thousands of names
		f.unlock(f.locked(many[:64]))
		refuses(t, f.NewMultiMutex(both, withValue("x")), "WithValue excludes NewMultiMutex")
		assert.Zero(f, f.commands("set"))

		one := f.locked([]string{"a", "a"})
		assert.Equal(f, []string{"a"}, one.Names())
		assert.Positive(f, f.commands("set")) // a lock on one name is a plain lock, and sends SET
		f.unlock(one)
	})
	var none *redsync.Redsync
	errorIs(t, none.NewMultiMutex(both).Lock(), redsync.ErrNoPools)
	assert.Empty(t, none.NewMultiMutex(nil).Name())
}

// On a Cluster and a Ring, all names must lie in one slot. Lock checks that before it sends anything.
func TestNamesOfAMultiThatLieApart(t *testing.T) {
	parallelComputing(t)
	for _, client := range []redis.UniversalClient{
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}),
		redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, HeartbeatFrequency: hour}),
	} {
		rs := redsync.New(pool.New(client))
		err := rs.NewMultiMutex([]string{"{a}1", "{a}2", "b"}).Lock()
		says(t, err, `the names "b" and "{a}1" do not lie in one slot`, "pool #0")
		err = rs.NewMultiMutex([]string{"{a}1", "a", "x{a}"}, once).LockContext(limited(t, 100*ms))
		require.NotContains(t, err.Error(), "slot")
		_ = rs.Close(t.Context()) // no node answers
		_ = client.Close()
	}
}

// A release of one name wakes a waiter for several names, and the other way round. The retry delays are too long to
// help.
func TestMultiAndSinglesWakeEachOther(t *testing.T) {
	const soon = 50 * ms
	inEachMode(t, play, func(f field, mode opts) {
		other := f.another()
		for _, rs := range []*redsync.Redsync{f.Redsync, other} {
			a, b := f.locked(both[:1], mode...), f.locked(both[1:], mode...)
			multi := f.waitsFor(rs, "a b", mode...)
			time.Sleep(100 * ms)
			f.unlock(a)
			time.Sleep(100 * ms)
			f.stillWait(multi)
			f.unlock(b)
			f.within(multi, soon)

			first, second := f.waitsFor(rs, "a", mode...), f.waitsFor(other, "b", mode...)
			time.Sleep(100 * ms)
			f.unlock(multi)
			f.within(first, soon)
			f.served(second, soon)
			f.unlock(first)
			time.Sleep(sec)
			f.nobodyWaits()
		}
	})
}

// Without fair mode, a lock on several names that waits for one of them leaves the other names free, and has a ticket only
// in the queue of that one. In fair mode, it keeps others from them. A waiter that gives up leaves no ticket.
func TestMultiThatWaitsForOneNameLeavesTheOthersFree(t *testing.T) {
	inEachMode(t, play, func(f field, mode opts) {
		other := f.another()
		for _, rs := range []*redsync.Redsync{f.Redsync, other} {
			b := f.locked([]string{"b"}, lasting)
			multi := f.waitsFor(rs, "a b", mode...)
			gaveUp := f.waitsFor(rs, "b c", mode...)
			time.Sleep(100 * ms)
			gaveUp.cancel()
			time.Sleep(10 * ms)
			assert.Equal(f, mode != nil, f.nodes[0].Exists("{a}:queue"))
			assert.True(f, f.nodes[0].Exists("{b}:queue"))
			assert.False(f, f.nodes[0].Exists("{c}:queue"))
			single := f.waitsFor(other, "a", mode...)
			time.Sleep(100 * ms)
			require.Equal(f, mode != nil, open(single.done))
			if mode == nil {
				f.unlock(single)
			}
			f.unlock(b)
			f.served(multi, sec)
			if mode != nil {
				f.served(single, sec)
			}
			time.Sleep(sec)
			f.nobodyWaits()
		}
	})
}

// The token of a lock on several names is greater than all earlier tokens of each name.
func TestMultiHasOneTokenForAllNames(t *testing.T) {
	play(t, func(f field) {
		var last uint64
		for range 3 {
			for _, names := range [][]string{{"a"}, {"a", "b"}, {"b"}, {"b", "c"}, {"c"}, {"c", "a"}} {
				m := locked(f, f.another().NewMultiMutex(names, withFencing))
				assert.Greater(f, m.Fence(), last, m.Name())
				last = m.Fence()
				f.unlock(m)
			}
		}
		time.Sleep(sec)
	})
}

// After a loss, the keys of the other names block the next Lock if the user has read the value of the hold, because
// another process may have adopted the hold. Unlock deletes these keys.
func TestMultiThatIsLostAndLockedAgain(t *testing.T) {
	for _, shown := range []bool{false, true} {
		play(t, func(f field) {
			for _, unlocks := range []bool{true, false} {
				m := f.lostKeys(both, "b", forever)
				if shown {
					_ = m.Value()
				}
				failsWith(f, m.Valid, redsync.ErrLockLost)
				if unlocks {
					failsWith(f, m.Unlock, redsync.ErrLockAlreadyExpired)
				}
				start := time.Now()
				if shown && !unlocks {
					assert.Equal(f, "a", isTaken(f, m.TryLock()).Name)
					failsWith(f, m.Unlock, redsync.ErrNotHeld) // the Lock has ended the lost hold, so Unlock has no keys to delete
				}
				locked(f, m)
				assert.Equal(f, shown && !unlocks, time.Since(start) > 7*sec) // Lock waits until the keys of the former hold expire after 8 s
				f.unlock(m)
			}
		})
	}
}

// If the key of one name is gone on a quorum, the whole hold is lost.
func TestMultiIsLostWithOneOfItsKeys(t *testing.T) {
	play(t, func(f field) {
		m := f.lostKeys(both, "b", withSetNXOnExtend)
		failsWith(f, m.Extend, redsync.ErrExtendFailed) // keys that it sets again do not count
		time.Sleep(ms)
		f.have(5, both...)
		f.extends(m)
		f.unlock(m)
	})
}

// waitsFor is waits for these names.
func (f field) waitsFor(rs *redsync.Redsync, names string, options ...redsync.Option) *call {
	options = patient(options...)
	if strings.Contains(names, " ") {
		return f.begins(rs.NewMultiMutex(strings.Fields(names), options...))
	}
	return f.begins(rs.NewMutex(names, options...))
}

// A lock on several names passes to another process by Detach and WithSequencer, with its token.
func TestMultiIsGivenAway(t *testing.T) {
	play(t, func(f field) {
		other := f.another()
		m := f.locked(both, withFencing, withWatchdog)
		token := m.Fence()
		s := f.detaches(m)
		assert.Equal(f, both, s.Names())
		noError(f, f.current(other, s))
		parsed := must(redsync.ParseSequencer(s.String()))
		assert.Equal(f, s, parsed)

		for text, wrong := range map[string]*redsync.Mutex{
			`is of the lock "a, b", not of "a"`:    other.NewMutex("a", withSequencer(s)),
			`is of the lock "a, b", not of "a, c"`: other.NewMultiMutex([]string{"a", "c"}, withSequencer(s)),
			`is of one name, "a, b", not of`:       other.NewMultiMutex(both, withSequencer(redsync.Sequencer{Name: s.Name, Value: s.Value})),
		} {
			says(f, second(wrong.Extend()), text)
		}

		for _, receiver := range []*redsync.Mutex{
			other.NewMultiMutex([]string{"b", "a"}, withSequencer(s)), other.NewMutex("a, b", withSequencer(parsed)),
		} {
			f.confirms(receiver.Valid())
			assert.Equal(f, both, receiver.Names())
			f.extends(receiver)
			assert.Equal(f, token, receiver.Fence())
		}
		noError(f, other.NewMultiMutex(both, withSequencer(s)).Do(f.Context(), func(ctx context.Context) error {
			assert.Equal(f, both, redsync.FromContext(ctx).Names())
			time.Sleep(20 * sec) // it is extended
			return ctx.Err()
		}))
		time.Sleep(sec)
		f.have(0, both...)
		errorIs(f, f.current(other, s), redsync.ErrLockAlreadyExpired)
	})
}
