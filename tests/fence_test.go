package redsync_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/internal/peek"
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file tests fencing tokens: their order, their registers, and which locks have none.

func TestFenceIsTheClock(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		time.Sleep(1234567 * time.Microsecond)
		locked(f, m)
		assert.EqualValues(f, time.Now().UnixMicro(), m.Fence())
		first := m.Fence()
		f.allAt(first)
		f.unlock(m)
		before := f.scripts()
		require.NoError(f, m.Lock(), "the second Lock is in the same microsecond as the first")
		assert.Equal(f, first+1, m.Fence())
		assert.Equal(f, before+5, f.scripts(), "the second Lock needs one round")
	})
}

// After Unlock at the latest, the nodes that did not vote for the hold have its token, too.
func TestFenceUnlockRaisesAllRegisters(t *testing.T) {
	for _, fault := range []string{"two were down", "two were another's", "two forgot"} {
		playAs(t, fault, func(f field) {
			m := f.fenced(hearsAll).NewMutex("lock")
			switch fault {
			case "two were down":
				f.nodes[0].On("evalsha", 1, embedded.Fault{Err: "ERR no"})
				f.nodes[4].On("evalsha", 1, embedded.Fault{Err: "ERR no"})
			case "two were another's":
				f.occupy("lock", 1, 2)
			}
			obtained(f, m)
			if fault == "two forgot" {
				f.nodes[0].FlushAll()
				f.nodes[3].FlushAll()
			}
			held := m.Fence()
			f.unlock(m)
			f.allAt(held)
		})
	}
}

// The Unlock of a hold that is over raises the registers, too, and takes nothing from the next holder.
func TestFenceUnlockTooLate(t *testing.T) {
	play(t, func(f field) {
		m := locked(f, f.fenced().NewMutex("lock"))
		first := m.Fence()
		time.Sleep(9 * sec)
		other := obtained(f, f.fenced().NewMutex("lock"))
		second := other.Fence()
		assert.Greater(f, second, first)
		assert.Equal(f, first, m.Fence(), "Fence returns the token even after the expiry")
		failsWith(f, m.Unlock, redsync.ErrLockAlreadyExpired)
		assert.Zero(f, m.Fence())
		f.allAt(second)
		f.confirms(other.Valid())
	})
}

func TestFenceLastsAsLongAsTheValue(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		assert.Zero(f, m.Fence(), "idle")
		locked(f, m)
		token := m.Fence()
		time.Sleep(5 * sec)
		f.confirms(m.Extend())
		assert.Equal(f, token, m.Fence(), "extended")
		time.Sleep(hour)
		assert.Equal(f, token, m.Fence(), "expired")
		f.occupy("lock")
		isTaken(f, m.TryLock())
		assert.Zero(f, m.Fence(), "after the next Lock has failed, there is no token")
		f.lose(majority...)
		obtained(f, m)
		assert.Greater(f, m.Fence(), token)
		f.unlock(m)
		assert.Zero(f, m.Fence(), "unlocked")
	})
}

// Locks without the option, and adopted locks, have no token and leave the registers as they are.
func TestFenceOfThoseWithout(t *testing.T) {
	play(t, func(f field) {
		fenced := locked(f, f.fenced().NewMutex("lock"))
		token := fenced.Fence()
		adopted := f.NewMutex("lock", withFencing, withValue(fenced.Value()))
		f.confirms(adopted.Extend())
		assert.Zero(f, adopted.Fence())
		f.unlock(adopted)
		f.allAt(token)

		time.Sleep(hour)
		for _, option := range []redsync.Option{forever, withFair} {
			plain := f.theirs("lock", option)
			assert.Zero(f, plain.Fence())
			synctest.Wait() // all nodes have it
			isTaken(f, fenced.TryLock())
			synctest.Wait() // all nodes have refused it
			f.unlock(plain)
			assert.Equal(f, fmt.Sprint(token), fenceOf(f, 1))
			assert.Equal(f, 23*hour, f.nodes[1].TTL(fenceKey), "locks without fencing do not touch the register")
		}
	})
}

func fenceOf(f field, i int) string {
	synctest.Wait()
	got, _ := f.nodes[i].Get(fenceKey)
	return got
}

// allAt checks the registers of all nodes.
func (f field) allAt(want any) {
	f.areAt(want, want, want, want, want)
}

func TestFenceKeysOfNames(t *testing.T) {
	for name, key := range map[string]string{
		"lock":    "{lock}:fence",
		"a{b}c":   "{b}:a{b}c:fence",
		"{b}":     "{b}:{b}:fence",
		"a}b":     "{}:a}b:fence",
		"a b:c\n": "{a b:c\n}:fence",
	} {
		playAs(t, name, func(f field) {
			m := locked(f, f.fenced().NewMutex(name))
			synctest.Wait()
			f.have(5, key)
			f.unlock(m)
			require.Error(f, f.NewMutex(key).TryLock(), "the name of a register is reserved")
		})
	}
}

func TestFenceUnderTheRestartGuardWaitsForTheSkewToo(t *testing.T) {
	for name, c := range map[string]struct {
		option redsync.Option // besides fencing
		want   time.Duration
	}{
		"plain":         {nil, quarantine},
		"fencing":       {forever, fencedQuarantine},
		"fair":          {withFair, fencedQuarantine},
		"node deadline": {withNodeTimeout(sec), quarantine + 13*sec},
		"short expiry":  {withExpiry(2 * sec), quarantine + 10*sec + 300*ms},
	} {
		kitAs(t, name, func(k kit) {
			m := k.process(guards[true]...).NewMutex("lock")
			if c.option != nil {
				m = k.process(guards[true]...).NewMutex("lock", withFencing, c.option)
			}
			require.ErrorContains(k, m.TryLock(), fmt.Sprintf("ignores it for another %v", c.want))
			time.Sleep(c.want - time.Nanosecond)
			require.ErrorIs(k, m.TryLock(), redsync.ErrNoQuorum)
			time.Sleep(time.Nanosecond)
			k.unlock(obtained(k, m))
		})
	}
}

// A majority restarts empty, while the clock of one process is ahead of the other's by the most that is allowed. Without
// the guard, the order of the tokens depends on the clocks.
func TestFenceOrderAcrossAnEmptyRestart(t *testing.T) {
	for guarded, options := range guards {
		for _, skew := range []time.Duration{0, 10 * sec} {
			playAs(t, fmt.Sprint(guarded, skew), func(f field) {
				a, b := f.veteran(options...), f.veteran(options...)
				if skew > 0 {
					peek.KnowsToken(a, "lock", uint64(time.Now().Add(skew).UnixMicro())) //nolint:gosec // after 1970
				}
				m := locked(f, a.NewMutex("lock", withFencing))
				token := m.Fence()
				synctest.Wait()
				f.reboot(true, majority...)
				wake(b)
				f.freeze(3, 4) // only nodes that have forgotten the token answer
				start := time.Now()
				other := locked(f, b.NewMutex("lock", withFencing, forever, withRetryDelay(50*ms)))
				assert.Equal(f, guarded, time.Since(start) > guard+10*sec)
				assert.Equal(f, guarded, time.Since(start) >= sec)
				assert.Equal(f, guarded || skew == 0, other.Fence() > token)
				f.thaw(3, 4)
			})
		}
	}
}

// A node answers a fencing acquire with a bare OK, as if it were a plain SET. That is no grant: the
// node has raised no register, so the lock would have a token that no register knows.
func TestFenceBareOKIsNoGrant(t *testing.T) {
	for _, option := range []redsync.Option{withTries(1), withFair} {
		synctest.Test(t, func(t *testing.T) {
			rs := redsync.New(&puppet.Puppet{Answer: func(req pool.Request) (*pool.Reply, error) {
				if len(req.Args) > 11 { // it has more arguments than a release
					return &pool.Reply{Value: "OK", Fate: pool.Answered, Conn: 1}, nil
				}
				return puppet.Yes(req)
			}})
			m := rs.NewMutex("lock", option, withFencing)
			require.ErrorContains(t, m.TryLock(), `odd answer to an acquire: "OK"`)
			assert.Zero(t, m.Fence())
			shut(t, rs)
		})
	}
}
