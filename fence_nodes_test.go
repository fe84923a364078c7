package redsync_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
	"github.com/seed14bd9ef4/redsync/pool"
)

// Fencing tokens, the nodes and their faults.

const fenceKey = "{lock}:fence"

// fenced returns a process that has met the nodes, by a lock without fencing.
func (f field) fenced(options ...redsync.Option) *redsync.Redsync {
	f.Helper()
	rs := f.another(append(options, redsync.WithFencing())...)
	synctest.Wait()
	return rs
}

// registers sets the registers of the nodes, "" for none.
func (f field) registers(of ...string) {
	f.Helper()
	for i, n := range of {
		if n != "" {
			require.NoError(f, f.nodes[i].Set(fenceKey, n))
			f.nodes[i].SetTTL(fenceKey, time.Hour)
		}
	}
}

// areAt looks at the registers, "" for none; each is kept for a day from now.
func (f field) areAt(want ...any) {
	f.Helper()
	synctest.Wait()
	for i, n := range f.nodes {
		got, _ := n.Get(fenceKey)
		assert.Equal(f, fmt.Sprint(want[i]), got, "node %d", i)
		if got != "" {
			assert.Equal(f, 24*time.Hour, n.TTL(fenceKey), "node %d", i)
		}
	}
}

// scripts counts what the nodes were sent, but for plain commands.
func (f field) scripts() int {
	synctest.Wait()
	return f.commands("evalsha")
}

// noKeys looks that no node has the lock's key, nor will.
func (f field) noKeys() {
	f.Helper()
	synctest.Wait()
	assert.Zero(f, f.nodes.Keys("lock"))
	time.Sleep(2 * time.Second)
	assert.Zero(f, f.nodes.Keys("lock"))
}

func TestFenceIsTheClock(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		time.Sleep(1234567 * time.Microsecond)
		require.NoError(t, m.Lock())
		assert.EqualValues(t, time.Now().UnixMicro(), m.Fence())
		first := m.Fence()
		f.areAt(first, first, first, first, first)
		f.unlock(m)
		before := f.scripts()
		require.NoError(t, m.Lock(), "in the same microsecond")
		assert.Equal(t, first+1, m.Fence())
		assert.Equal(t, before+5, f.scripts(), "at once")
	})
}

// What the registers are, and what comes of it. The processes' clock is at
// 946684800000000 and some.
func TestFenceCatchesUp(t *testing.T) {
	const ahead = "2000000000000000"
	for name, c := range map[string]struct {
		registers []string
		token     uint64 // 0: the clock
		rounds    int
	}{
		"no registers":                     {nil, 0, 1},
		"all behind":                       {[]string{"5", "6", "7", "8", "9"}, 0, 1},
		"two ahead":                        {[]string{ahead, ahead, "", "", ""}, 0, 1},
		"three ahead":                      {[]string{ahead, ahead, ahead, "", ""}, 2000000000000001, 2},
		"all ahead":                        {[]string{ahead, ahead, ahead, ahead, ahead}, 2000000000000001, 2},
		"three ahead, by unlike times":     {[]string{"2000000000000000", "3000000000000000", "4000000000000000", "", ""}, 4000000000000001, 2},
		"beyond 2^53":                      {[]string{"9007199254740993", "9007199254740993", "9007199254740993", "9007199254740992", "9007199254740992"}, 9007199254740994, 2},
		"the last but one":                 {[]string{"18446744073709551614", "18446744073709551614", "18446744073709551614", "", ""}, math.MaxUint64, 2},
		"one odd, shorter than the clock":  {[]string{"abc", "", "", "", ""}, 0, 1},
		"all odd, shorter than the clock":  {[]string{"abc", "abc", "abc", "abc", "abc"}, 0, 1},
		"two odd, longer than the clock":   {[]string{strings.Repeat("x", 30), strings.Repeat("x", 30), "", "", ""}, 0, 1},
		"two odd, and the last three slow": {[]string{"99999999999999999999999", "99999999999999999999999", ahead, ahead, ahead}, 2000000000000001, 2},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.fenced(redsync.WithFailFast(false)).NewMutex("lock")
				f.registers(c.registers...)
				before, start := f.scripts(), time.Now()
				require.NoError(t, m.TryLock())
				want := c.token
				if want == 0 {
					want = uint64(start.UnixMicro()) //nolint:gosec // after 1970
				}
				assert.Equal(t, want, m.Fence())
				assert.Equal(t, before+5*c.rounds, f.scripts())
				assert.Equal(t, start.Add(validity).UnixNano(), m.Until().UnixNano())
				f.unlock(m)
				f.noKeys()
			})
		})
	}
}

// slowly lets each of the next scripts of the nodes take so long.
func (f field) slowly(times int, d time.Duration, nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].On("evalsha", times, embedded.Fault{Delay: d})
	}
}

func TestFenceUntilCountsFromTheFirstRound(t *testing.T) {
	play(t, func(f field) {
		rs := f.fenced()
		f.registers("2000000000000000", "2000000000000000", "2000000000000000", "2000000000000000", "2000000000000000")
		f.slowly(2, 100*time.Millisecond, 0, 1, 2, 3, 4)
		m, start := rs.NewMutex("lock"), time.Now()
		require.NoError(t, m.TryLock())
		assert.Equal(t, 200*time.Millisecond, time.Since(start), "two rounds")
		assert.Equal(t, start.Add(validity).UnixNano(), m.Until().UnixNano())
		for _, n := range f.nodes {
			assert.Equal(t, 8*time.Second-100*time.Millisecond, n.TTL("lock"), "it is not prolonged")
		}
	})
}

// raising lets the registers of nodes be raised beyond every proposal, before each of the
// next scripts.
func (f field) raising(times int, nodes ...int) {
	for _, i := range nodes {
		next := uint64(5000000000000000)
		f.nodes[i].On("evalsha", times, embedded.Fault{Then: func([]string) {
			next += 10
			_ = f.nodes[i].Set(fenceKey, fmt.Sprint(next))
			f.nodes[i].SetTTL(fenceKey, time.Hour)
		}})
	}
}

func TestFenceCatchesUpTwiceAtMost(t *testing.T) {
	for name, c := range map[string]struct {
		raised, rounds int
		token          uint64 // 0: none
	}{
		"once":    {1, 2, 5000000000000011},
		"twice":   {2, 3, 5000000000000021},
		"thrice":  {3, 3, 0},
		"for all": {9, 3, 0},
	} {
		for _, waiting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, waiting %v", name, waiting), func(t *testing.T) {
				play(t, func(f field) {
					options := []redsync.Option{redsync.WithFailFast(false)}
					if waiting {
						options = append(options, redsync.WithFair())
					}
					m := f.fenced(options...).NewMutex("lock")
					f.raising(c.raised, 0, 1, 2, 3, 4)
					before := f.commands("evalsha")
					err := m.TryLock()
					if c.token != 0 {
						require.NoError(t, err)
						assert.Equal(t, c.token, m.Fence())
						assert.Equal(t, before+5*c.rounds, f.scripts())
						f.unlock(m)
					} else {
						require.ErrorIs(t, err, redsync.ErrFailed)
						require.ErrorContains(t, err, "fencing register is at 5000000000000030, not below the proposal")
						assert.Zero(t, m.Fence())
						assert.Equal(t, before+5*(c.rounds+1), f.scripts(), "and a release")
						for _, n := range f.nodes {
							got, _ := n.Get(fenceKey)
							assert.Contains(t, []string{"5000000000000030", "5000000000000040"}, got, "the release raises nothing")
						}
					}
					f.noKeys()
				})
			})
		}
	}
}

func TestFenceAtItsLastIsAnError(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		last := "18446744073709551615"
		f.registers(last, last, last, last, last)
		for range 3 {
			before := f.scripts()
			err := m.TryLock()
			require.ErrorIs(t, err, redsync.ErrFailed)
			require.ErrorContains(t, err, "fencing register is at "+last)
			assert.Equal(t, before+10, f.scripts(), "one round and its release")
			assert.Zero(t, m.Fence())
			f.noKeys()
		}
	})
}

// The registers of one name that are at their end are not the end of others.
func TestFenceAtItsLastIsOfOneName(t *testing.T) {
	for name, last := range map[string]string{"the last": "18446744073709551615", "the last but one": "18446744073709551614"} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				rs := f.fenced()
				f.registers(last, last, last, last, last)
				if m := rs.NewMutex("lock"); m.TryLock() == nil {
					f.unlock(m)
				}
				for range 3 {
					m := rs.NewMutex("other")
					require.NoError(t, m.TryLock())
					f.unlock(m)
					time.Sleep(time.Second)
				}
			})
		})
	}
}

func TestFenceOddRegisterIsAnErrorThatNamesIt(t *testing.T) {
	for name, odd := range map[string]string{
		"letters":        "abcdefghijklmnopqrstuvwxyz",
		"beyond 64 bits": "18446744073709551616",
		"negative":       "-9999999999999999999999999",
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.fenced().NewMutex("lock")
				f.registers(odd, odd, odd, "", "")
				err := m.TryLock()
				require.ErrorIs(t, err, redsync.ErrFailed)
				require.ErrorContains(t, err, odd)
				assert.Zero(t, m.Fence())
				f.noKeys()
				got, _ := f.nodes[0].Get(fenceKey)
				assert.Equal(t, odd, got)
			})
		})
	}
}

// A reply lost is no grant; what it has stored stands in nobody's way.
func TestFenceRepliesLost(t *testing.T) {
	for lost := 1; lost <= 5; lost++ {
		t.Run(fmt.Sprintf("%d nodes", lost), func(t *testing.T) {
			play(t, func(f field) {
				m := f.fenced().NewMutex("lock", redsync.WithRetryDelay(100*time.Millisecond))
				for _, n := range f.nodes[:lost] {
					n.On("evalsha", 1, embedded.Fault{LoseReply: true})
				}
				first := uint64(time.Now().UnixMicro()) //nolint:gosec // after 1970
				require.NoError(t, m.Lock())
				if lost <= 2 {
					assert.Equal(t, first, m.Fence())
				} else {
					assert.Greater(t, m.Fence(), first, "the registers that were raised are passed")
				}
				held := m.Fence()
				f.unlock(m)
				time.Sleep(2 * time.Second)
				for _, n := range f.nodes {
					got, _ := n.Get(fenceKey)
					assert.Equal(t, fmt.Sprint(held), got)
				}
				f.noKeys()
			})
		})
	}
}

// The catch-up is repeated with the same value: a node that has the lock from the first
// round, and whose reply was lost, grants.
func TestFenceRepliesLostInTheFirstRound(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced(redsync.WithFailFast(false)).NewMutex("lock")
		f.registers("2000000000000000", "2000000000000000", "2000000000000000", "", "")
		for _, n := range f.nodes[3:] {
			n.On("evalsha", 1, embedded.Fault{LoseReply: true})
		}
		require.NoError(t, m.TryLock())
		assert.EqualValues(t, uint64(2000000000000001), m.Fence())
		f.areAt(m.Fence(), m.Fence(), m.Fence(), m.Fence(), m.Fence())
	})
}

// A value that another process uses too is another's, however it looks.
func TestFenceValueOfAnother(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		t.Run(fmt.Sprintf("registers ahead %v", ahead), func(t *testing.T) {
			play(t, func(f field) {
				value := rand.Text()
				same := redsync.WithGenValueFunc(func() (string, error) { return value, nil })
				for _, n := range f.nodes {
					require.NoError(t, n.Set("lock", value))
					n.SetTTL("lock", time.Hour)
				}
				if ahead {
					f.registers("2000000000000000", "2000000000000000", "2000000000000000", "2000000000000000", "2000000000000000")
				}
				m := f.With(redsync.WithFencing()).NewMutex("lock", same)
				err := m.TryLock()
				var taken *redsync.ErrTaken
				require.ErrorAs(t, err, &taken)
				assert.Zero(t, m.Fence())
			})
		})
	}
}

// The registers stay raised after an attempt that failed, and its keys do not.
func TestFenceAttemptThatFailed(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced(redsync.WithFailFast(false)).NewMutex("lock")
		for _, n := range f.nodes[2:] {
			require.NoError(t, n.Set("lock", "another's"))
			n.SetTTL("lock", time.Hour)
		}
		at := time.Now().UnixMicro()
		require.ErrorIs(t, m.TryLock(), redsync.ErrFailed)
		assert.Zero(t, m.Fence())
		f.areAt(at, at, "", "", "")
		for _, n := range f.nodes[:2] {
			assert.False(t, n.Exists("lock"))
		}
		f.lose(2, 3, 4)
		require.NoError(t, m.TryLock())
		assert.Positive(t, m.Fence())
	})
}

// No more rounds where no quorum can have the lock, or too few nodes are there.
func TestFenceIsNotRepeatedWhereItCannotHelp(t *testing.T) {
	for name, c := range map[string]func(f field){
		"taken": func(f field) {
			for _, n := range f.nodes[:3] {
				_ = n.Set("lock", "another's")
				n.SetTTL("lock", time.Hour)
			}
		},
		"down": func(f field) {
			for _, n := range f.nodes[:3] {
				n.On("evalsha", 1, embedded.Fault{Err: "ERR no"})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.fenced(redsync.WithFailFast(false)).NewMutex("lock")
				f.registers("", "", "", "2000000000000000", "2000000000000000")
				c(f)
				before := f.scripts()
				require.Error(t, m.TryLock())
				assert.Equal(t, before+10, f.scripts(), "an acquire and a release")
			})
		})
	}
}

func TestFenceEndsWithItsContext(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		f.registers("2000000000000000", "2000000000000000", "2000000000000000", "2000000000000000", "2000000000000000")
		f.slowly(1, 100*time.Millisecond, 0, 1, 2, 3, 4)
		ctx, cancel := context.WithTimeout(f.Context(), 100*time.Millisecond-1)
		defer cancel()
		require.ErrorIs(t, m.LockContext(ctx), context.DeadlineExceeded)
		assert.Zero(t, m.Fence())
		f.noKeys()
	})
}

// The nodes that did not vote for the hold have its token as well, at the latest after
// Unlock.
func TestFenceUnlockRaisesAllRegisters(t *testing.T) {
	for name, fault := range map[string]func(f field){
		"two were down": func(f field) {
			f.nodes[0].On("evalsha", 1, embedded.Fault{Err: "ERR no"})
			f.nodes[4].On("evalsha", 1, embedded.Fault{Err: "ERR no"})
		},
		"two were another's": func(f field) {
			for _, i := range []int{1, 2} {
				_ = f.nodes[i].Set("lock", "another's")
				f.nodes[i].SetTTL("lock", time.Minute)
			}
		},
		"two forgot": func(f field) {},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.fenced(redsync.WithFailFast(false)).NewMutex("lock")
				fault(f)
				require.NoError(t, m.TryLock())
				if name == "two forgot" {
					f.nodes[0].FlushAll()
					f.nodes[3].FlushAll()
				}
				held := m.Fence()
				f.unlock(m)
				synctest.Wait()
				for i, n := range f.nodes {
					got, _ := n.Get(fenceKey)
					assert.Equal(t, fmt.Sprint(held), got, "node %d", i)
					assert.Equal(t, 24*time.Hour, n.TTL(fenceKey), "node %d", i)
				}
			})
		})
	}
}

// A hold that is over raises them too, and takes nothing from its follower.
func TestFenceUnlockTooLate(t *testing.T) {
	play(t, func(f field) {
		m, other := f.fenced().NewMutex("lock"), f.fenced().NewMutex("lock")
		require.NoError(t, m.Lock())
		first := m.Fence()
		time.Sleep(9 * time.Second)
		require.NoError(t, other.TryLock())
		second := other.Fence()
		assert.Greater(t, second, first)
		assert.Equal(t, first, m.Fence(), "kept after the expiry")
		_, err := m.Unlock()
		require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)
		assert.Zero(t, m.Fence())
		f.areAt(second, second, second, second, second)
		ok, err := other.Valid()
		require.NoError(t, err)
		assert.True(t, ok)
	})
}

func TestFenceLastsAsLongAsTheValue(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		assert.Zero(t, m.Fence(), "idle")
		require.NoError(t, m.Lock())
		token := m.Fence()
		time.Sleep(5 * time.Second)
		ok, err := m.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, token, m.Fence(), "extended")
		time.Sleep(time.Hour)
		assert.Equal(t, token, m.Fence(), "expired")
		require.NoError(t, f.nodes[0].Set("lock", "x"))
		require.NoError(t, f.nodes[1].Set("lock", "x"))
		require.NoError(t, f.nodes[2].Set("lock", "x"))
		require.Error(t, m.TryLock())
		assert.Zero(t, m.Fence(), "the next Lock, that failed")
		f.lose(0, 1, 2)
		require.NoError(t, m.TryLock())
		assert.Greater(t, m.Fence(), token)
		f.unlock(m)
		assert.Zero(t, m.Fence(), "unlocked")
	})
}

// Locks without the option, and adopted ones, have no token and leave the registers.
func TestFenceOfThoseWithout(t *testing.T) {
	play(t, func(f field) {
		fenced := f.fenced().NewMutex("lock")
		require.NoError(t, fenced.Lock())
		token := fenced.Fence()

		adopted := f.NewMutex("lock", redsync.WithFencing(), redsync.WithValue(fenced.Value()))
		assert.Zero(t, adopted.Fence())
		ok, err := adopted.Extend()
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Zero(t, adopted.Fence())
		f.unlock(adopted)
		_, _ = fenced.Unlock()
		f.areAt(token, token, token, token, token)

		time.Sleep(time.Hour)
		for _, options := range [][]redsync.Option{nil, {redsync.WithFair()}} {
			plain := f.another().NewMutex("lock", options...)
			require.NoError(t, plain.Lock())
			synctest.Wait() // all nodes have it
			assert.Zero(t, plain.Fence())
			err = fenced.TryLock()
			synctest.Wait() // and has refused it
			var taken *redsync.ErrTaken
			require.ErrorAs(t, err, &taken, "they exclude each other")
			f.unlock(plain)
			synctest.Wait()
			for _, n := range f.nodes {
				got, _ := n.Get(fenceKey)
				assert.Equal(t, fmt.Sprint(token), got)
				assert.Equal(t, 23*time.Hour, n.TTL(fenceKey), "no use of it")
			}
		}
	})
}

func TestFenceIsNotHandedOver(t *testing.T) {
	play(t, func(f field) {
		rs := f.fenced()
		m := rs.NewMutex("lock")
		require.NoError(t, m.Lock())
		last := m.Fence()
		for range 4 {
			c := f.calls(rs, patient()...)
			f.atOnce(m, c)
			assert.NotEqual(t, redsync.PeekValue(m), redsync.PeekValue(c.Mutex))
			assert.Greater(t, c.Fence(), last)
			assert.Equal(t, fmt.Sprint(c.Fence()), fenceOf(f, 0))
			m, last = c.Mutex, c.Fence()
		}
		f.unlock(m)
		f.nobodyWaits()
		f.noKeys()
	})
}

// One who gives and one who receives, of which one has no fencing.
func TestFenceIsNotHandedToOrFromThoseWithout(t *testing.T) {
	for _, gives := range []bool{false, true} {
		t.Run(fmt.Sprint(gives), func(t *testing.T) {
			play(t, func(f field) {
				f.meet()
				options := map[bool][]redsync.Option{true: {redsync.WithFencing()}}
				m := f.NewMutex("lock", options[gives]...)
				require.NoError(t, m.Lock())
				value := redsync.PeekValue(m)
				c := f.calls(f.Redsync, patient(options[!gives]...)...)
				f.atOnce(m, c)
				assert.NotEqual(t, value, c.Value())
				assert.Equal(t, !gives, c.Fence() != 0)
				f.unlock(c.Mutex)
			})
		})
	}
}

func TestFenceRegisterIsKeptForADay(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		for range 3 {
			require.NoError(t, m.Lock())
			f.unlock(m)
			f.areAt(fenceOf(f, 0), fenceOf(f, 0), fenceOf(f, 0), fenceOf(f, 0), fenceOf(f, 0))
			time.Sleep(23 * time.Hour)
			assert.Equal(t, 5, f.nodes.Keys(fenceKey))
		}
		time.Sleep(time.Hour + time.Second)
		assert.Zero(t, f.nodes.Keys(fenceKey))
	})
}

func fenceOf(f field, i int) string {
	synctest.Wait()
	got, _ := f.nodes[i].Get(fenceKey)
	return got
}

func TestFenceKeysOfNames(t *testing.T) {
	for name, key := range map[string]string{
		"lock":    "{lock}:fence",
		"a{b}c":   "{b}:a{b}c:fence",
		"{b}":     "{b}:{b}:fence",
		"a}b":     "{}:a}b:fence",
		"a b:c\n": "{a b:c\n}:fence",
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.fenced().NewMutex(name)
				require.NoError(t, m.Lock())
				synctest.Wait()
				assert.Equal(t, 5, f.nodes.Keys(key))
				f.unlock(m)
				require.Error(t, f.NewMutex(key).TryLock(), "it is reserved")
			})
		})
	}
}

// A name that has no side key in its slot cannot be fenced on a Cluster.
func TestFenceRefusedByTheNodes(t *testing.T) {
	for _, text := range []string{
		"CROSSSLOT Keys in request don't hash to the same slot",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"NOPERM No permissions to access a key",
	} {
		t.Run(text, func(t *testing.T) {
			play(t, func(f field) {
				m := f.fenced().NewMutex("lock")
				for _, n := range f.nodes {
					n.On("evalsha", 1, embedded.Fault{Err: text})
				}
				require.ErrorContains(t, m.TryLock(), text)
				assert.Zero(t, m.Fence())
				f.noKeys()
			})
		})
	}
}

// The guard.

const fencedQuarantine = quarantine + 10*time.Second + 3*400*time.Millisecond

func TestFenceUnderTheRestartGuardWaitsForTheSkewToo(t *testing.T) {
	for name, c := range map[string]struct {
		options []redsync.Option
		want    time.Duration
	}{
		"plain":         {nil, quarantine},
		"fencing":       {[]redsync.Option{redsync.WithFencing()}, fencedQuarantine},
		"fair":          {[]redsync.Option{redsync.WithFencing(), redsync.WithFair()}, fencedQuarantine},
		"node deadline": {[]redsync.Option{redsync.WithFencing(), redsync.WithNodeTimeout(time.Second)}, quarantine + 13*time.Second},
		"short expiry":  {[]redsync.Option{redsync.WithFencing(), redsync.WithExpiry(2 * time.Second)}, quarantine + 10*time.Second + 3*100*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				m := f.process(guards[true]...).NewMutex("lock", c.options...)
				require.ErrorContains(t, m.TryLock(), fmt.Sprintf("it counts from %v on", c.want))
				time.Sleep(c.want - time.Nanosecond)
				require.ErrorIs(t, m.TryLock(), redsync.ErrFailed)
				time.Sleep(time.Nanosecond)
				require.NoError(t, m.TryLock())
				f.unlock(m)
			})
		})
	}
}

// A majority restarts empty, while the clock of one process is ahead of the other's by
// the most that is allowed.
func TestFenceOrderAcrossAnEmptyRestart(t *testing.T) {
	for name, c := range map[string]struct {
		guarded bool
		skew    time.Duration
		kept    bool
	}{
		"without the guard, clocks that differ": {false, 10 * time.Second, false},
		"without the guard, clocks that agree":  {false, 0, true},
		"the guard, clocks that differ":         {true, 10 * time.Second, true},
		"the guard, clocks that agree":          {true, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(f field) {
				var options []pool.Option
				if c.guarded {
					options = guards[true]
				}
				a, b := f.veteran(options...), f.veteran(options...)
				if c.skew > 0 {
					redsync.KnowsToken(a, "lock", uint64(time.Now().Add(c.skew).UnixMicro())) //nolint:gosec // after 1970
				}
				m := a.NewMutex("lock", redsync.WithFencing())
				require.NoError(t, m.Lock())
				token := m.Fence()
				synctest.Wait()
				f.reboot(true, 0, 1, 2)
				wake(b)
				f.freeze(3, 4) // only those that have forgotten are asked
				other := b.NewMutex("lock", redsync.WithFencing(), redsync.WithTries(0), redsync.WithRetryDelay(50*time.Millisecond))
				start := time.Now()
				require.NoError(t, other.Lock())
				if c.guarded {
					assert.Greater(t, time.Since(start), guard+10*time.Second)
				} else {
					assert.Less(t, time.Since(start), time.Second)
				}
				assert.Equal(t, c.kept, other.Fence() > token)
				f.thaw(3, 4)
			})
		})
	}
}
