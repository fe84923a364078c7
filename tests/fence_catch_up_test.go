package redsync_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// This file tests how an attempt is repeated with a greater token because a register is ahead of its token.

// ahead returns the register that is ahead of the clock by d.
func ahead(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).UnixMicro(), 10) }

// registers sets the registers of the first nodes, "-" for none.
func (f field) registers(of ...string) {
	for i, n := range strings.Fields(strings.Join(of, " ")) {
		if n != "-" {
			require.NoError(f, f.nodes[i].Set(fenceKey, n))
			f.nodes[i].SetTTL(fenceKey, hour)
		}
	}
}

// Each case has registers, and the token and the rounds that follow from them. The processes' clock is a little after
// 946684800000000 µs.
func TestFenceCatchesUp(t *testing.T) {
	for name, c := range map[string]struct {
		registers string
		token     uint64 // 0: the time of the clock
		rounds    int
	}{
		"no registers":                     {"", 0, 1},
		"all behind":                       {"5 6 7 8 9", 0, 1},
		"two ahead":                        {"2000000000000000 2000000000000000", 0, 1},
		"three ahead":                      {"2000000000000000 2000000000000000 2000000000000000", 2000000000000001, 2},
		"all ahead":                        {strings.Repeat("2000000000000000 ", 5), 2000000000000001, 2},
		"three ahead, by unlike times":     {"2000000000000000 3000000000000000 4000000000000000", 2000000000000001, 2},
		"beyond 2^53":                      {"9007199254740993 9007199254740993 9007199254740993 9007199254740992 9007199254740992", 9007199254740994, 2},
		"the last but one":                 {"9223372036854775806 9223372036854775806 9223372036854775806", math.MaxInt64, 2},
		"one odd, shorter than the clock":  {"abc", 0, 1},
		"all odd, shorter than the clock":  {"abc abc abc abc abc", 0, 1},
		"two odd, longer than the clock":   {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 0, 1},
		"two odd, and the last three slow": {"99999999999999999999999 99999999999999999999999 2000000000000000 2000000000000000 2000000000000000", 2000000000000001, 2},
	} {
		playAs(t, name, func(f field) {
			m := f.fenced(hearsAll).NewMutex("lock")
			f.registers(c.registers)
			before, start := f.scripts(), time.Now()
			obtained(f, m)
			want := c.token
			if want == 0 {
				want = uint64(start.UnixMicro()) //nolint:gosec // after 1970
			}
			assert.Equal(f, want, m.Fence())
			assert.Equal(f, before+5*c.rounds, f.scripts())
			assert.Equal(f, start.Add(validity).UnixNano(), m.Until().UnixNano())
			f.unlock(m)
			f.noKeys()
		})
	}
}

// slowly makes each of the next scripts on these nodes take the time d.
func (f field) slowly(times int, d time.Duration, nodes ...int) {
	for _, i := range nodes {
		f.nodes[i].On("evalsha", times, embedded.Fault{Delay: d})
	}
}

func TestFenceUntilCountsFromTheFirstRound(t *testing.T) {
	play(t, func(f field) {
		rs := f.fenced()
		f.registers(strings.Repeat("2000000000000000 ", 5))
		f.slowly(2, 100*ms, allNodes...)
		start := time.Now()
		m := obtained(f, rs.NewMutex("lock"))
		took(f, start, 200*ms, "Lock takes two rounds of 100 ms")
		assert.Equal(f, start.Add(validity).UnixNano(), m.Until().UnixNano())
		f.rests(guard - 100*ms) // the second round does not prolong the key
	})
}

// raising raises the registers of these nodes beyond every proposed token, before each of the next scripts.
func (f field) raising(times int, nodes ...int) {
	for _, i := range nodes {
		next := uint64(5000000000000000)
		f.nodes[i].On("evalsha", times, embedded.Fault{Then: func([]string) {
			next += 10
			_ = f.nodes[i].Set(fenceKey, fmt.Sprint(next))
			f.nodes[i].SetTTL(fenceKey, hour)
		}})
	}
}

func TestFenceCatchesUpTwiceAtMost(t *testing.T) {
	for raised, token := range map[int]uint64{1: 5000000000000011, 2: 5000000000000021, 9: 0} { // 9: for all rounds
		playAs(t, fmt.Sprint(raised), func(f field) {
			m := f.fenced(hearsAll).NewMutex("lock")
			f.raising(raised, allNodes...)
			before := f.commands("evalsha")
			err := m.TryLock()
			assert.Equal(f, token, m.Fence())
			if token != 0 {
				require.NoError(f, err)
				assert.Equal(f, before+5*(raised+1), f.scripts())
				f.unlock(m)
			} else {
				require.ErrorIs(f, err, redsync.ErrNoQuorum)
				require.ErrorContains(f, err, "the fencing register {lock}:fence is at 5000000000000030, which no client can have written")
				assert.Equal(f, before+5*4, f.scripts(), "three rounds, and a release")
				for i := range f.nodes {
					assert.Contains(f, []string{"5000000000000030", "5000000000000040"}, fenceOf(f, i), "the release raises nothing")
				}
			}
			f.noKeys()
		})
	}
}

func TestFenceOddRegisterIsAnErrorThatNamesIt(t *testing.T) {
	for _, odd := range []string{"abcdefghijklmnopqrstuvwxyz", "18446744073709551616", "-9999999999999999999999999"} {
		playAs(t, odd, func(f field) {
			m := f.fenced().NewMutex("lock")
			f.registers(odd, odd, odd)
			err := m.TryLock()
			require.ErrorIs(f, err, redsync.ErrNoQuorum)
			require.ErrorContains(f, err, odd)
			assert.Zero(f, m.Fence())
			f.noKeys()
			assert.Equal(f, odd, fenceOf(f, 0))
		})
	}
}

// A value that nodes have already is a grant to nobody, whatever their registers are.
func TestFenceValueOfAnother(t *testing.T) {
	for _, ahead := range []string{"", "2000000000000000 "} {
		play(t, func(f field) {
			value := "value " + ahead
			for _, n := range f.nodes {
				require.NoError(f, n.Set("lock", value))
			}
			f.registers(strings.Repeat(ahead, 5))
			m := f.NewMutex("lock", withFencing, repeating(value))
			isTaken(f, m.TryLock())
			assert.Zero(f, m.Fence())
		})
	}
}

// Grants whose replies are lost have raised the registers.
func TestFenceRepliesLost(t *testing.T) {
	for _, lost := range []int{2, 3, 5} {
		play(t, func(f field) {
			m := f.fenced().NewMutex("lock", withRetryDelay(100*ms))
			for _, n := range f.nodes[:lost] {
				n.On("evalsha", 1, embedded.Fault{LoseReply: true})
			}
			first := uint64(time.Now().UnixMicro()) //nolint:gosec // after 1970
			locked(f, m)
			token := m.Fence()
			assert.Equal(f, lost > 2, token > first)
			f.unlock(m)
			f.allAt(token)
			f.noKeys()
		})
	}
}
