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
	"github.com/seed14bd9ef4/redsync/internal/puppet"
	"github.com/seed14bd9ef4/redsync/internal/testlength"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests locks with tokens on nodes whose fencing register has a value that no client can have written.

// poisons are values that no client can have written, at a clock of the year 2000.
var poisons = []string{"18446744073709551615", "18446744073709551000", "9223372036854775808", "9223372036854775000", "10000000000000000", "948000000000000"}

// fencedKinds are the options of locks with tokens, by kind.
var fencedKinds = map[string]opts{"plain": nil, "fair": {withFair}, "reader": {withShared}, "names": nil, "all": {hearsAll}}

// fencedLock returns a lock of a kind.
func fencedLock(rs *redsync.Redsync, kind string) *redsync.Mutex {
	if kind == "names" {
		return rs.NewMultiMutex([]string{"lock", "other"})
	}
	return rs.NewMutex("lock", fencedKinds[kind]...)
}

// isClock checks that a token is a reading of the clock.
func (f field) isClock(token uint64) {
	require.LessOrEqual(f, token, uint64(time.Now().Add(sec).UnixMicro())) //nolint:gosec // after 1970
}

// locksThrice locks in a process, which it closes, three times after a hold with the token last. It returns the last
// token.
func (f field) locksThrice(rs *redsync.Redsync, kind string, last uint64) uint64 {
	for range 3 {
		m := obtained(f, fencedLock(rs, kind))
		assert.Greater(f, m.Fence(), last)
		last = m.Fence()
		f.isClock(last)
		f.unlock(m)
	}
	shut(f, rs)
	return last
}

// Two nodes of five have such a register. Locks of every kind go on. The values become nobody's token, and come to no
// other node. Observers are told once.
func TestFenceRegistersThatNoClientCanHaveWritten(t *testing.T) {
	for kind := range fencedKinds {
		for i, poison := range poisons {
			if kind != "plain" && i > 0 && testlength.InGate(0, 0, 1, 1) == 0 {
				continue
			}
			playAs(t, kind+" "+poison, func(f field) {
				r := &redsynctest.Recorder{}
				f.registers("-", poison, "-", poison)
				last := uint64(0)
				for range 4 { // each time another process
					last = f.locksThrice(process(f.nodes).With(withFencing, withObserver(r)), kind, last)
				}
				f.areAt(last, poison, last, poison, last)
				told := redsynctest.Events[observe.RegisterIgnored](r)
				of := map[int]int{}
				for _, e := range told {
					of[e.Node]++
				}
				require.Equal(f, map[int]int{1: 4, 3: 4}, of, "each process tells once of each node")
				require.ErrorContains(f, told[0].Err, fenceKey)
				require.ErrorContains(f, told[0].Err, poison)
				assert.Equal(f, fmt.Sprint("127.0.0.1:", 7001+told[0].Node), told[0].Address)
				assert.Empty(f, redsynctest.Events[observe.NodeDown](r))
			})
		}
	}
}

// A quorum of nodes has such a register. Nobody gets a token from it that is 2^63 or more. Below that, the clock of a
// client was wrong: the next token is just high enough for a quorum.
func TestFenceFollowsFarRegistersOfAQuorum(t *testing.T) {
	numbers := strings.NewReplacer("over", "18446744073709551615", "wrong", "1000000000000000",
		"poison", "1500000000000000", "highest", "9223372036854775807")
	for registers, followed := range map[string]string{
		"wrong wrong wrong - -":            "wrong",
		"wrong wrong highest - -":          "wrong",
		"wrong wrong wrong poison highest": "wrong",
		"poison wrong highest highest -":   "poison",
		"wrong wrong wrong over over":      "wrong",
		"over over over - -":               "",
		"wrong wrong over - -":             "",
		"highest highest highest - -":      "",
		"highest wrong wrong wrong wrong":  "wrong",
		"wrong":                            "wrong",
		"wrong wrong wrong -":              "wrong",
		"wrong wrong - -":                  "",
	} {
		for _, failFast := range []bool{true, false} {
			playAs(t, fmt.Sprintf("%s, failFast %v", registers, failFast), func(f field) {
				nodes := f.nodes[:len(strings.Fields(registers))]
				f.registers(numbers.Replace(registers))
				locks := func() (*redsync.Mutex, error) {
					m := process(nodes).NewMutex("lock", withFencing, redsync.WithFailFast(failFast))
					return m, m.TryLock()
				}
				m, err := locks()
				if followed == "" {
					require.ErrorIs(f, err, redsync.ErrNoQuorum)
					require.ErrorContains(f, err, "the fencing register {lock}:fence is at ")
					require.ErrorContains(f, err, "which no client can have written")
					f.noKeys()
					return
				}
				require.NoError(f, err)
				token := m.Fence()
				assert.Equal(f, numbers.Replace(followed), fmt.Sprint(token-1))
				f.unlock(m)
				time.Sleep(sec)
				next, err := locks()
				require.NoError(f, err)
				assert.Greater(f, next.Fence(), token, "the order goes on")
				f.unlock(next)
			})
		}
	}
}

// A day ahead is what a client can write.
func TestFenceRegisterWithinADayIsFollowed(t *testing.T) {
	play(t, func(f field) {
		edge := ahead(24 * hour)
		f.registers(edge, edge, edge)
		m := obtained(f, f.fenced(hearsAll).NewMutex("lock"))
		assert.Equal(f, edge, fmt.Sprint(m.Fence()-1))
	})
}

// Of three nodes, one is silent, and one or two are far ahead: then there is no token. Nobody follows a register that a
// minority has, and nobody waits longer than the node deadline.
func TestFenceFarRegistersAndASilentNodeOfThree(t *testing.T) {
	for _, registers := range [][]string{{poisons[0], "-"}, {"1000000000000000", "9223372036854775805"}} {
		play(t, func(f field) {
			f.registers(registers...)
			f.freeze(2)
			start := time.Now()
			err := process(f.nodes[:3]).NewMutex("lock", withFencing).TryLock()
			require.ErrorIs(f, err, redsync.ErrNoQuorum)
			require.ErrorContains(f, err, "which no client can have written")
			if registers[1] == "-" {
				assert.LessOrEqual(f, time.Since(start), patience)
			}
			f.thaw(2)
			assert.Contains(f, append(registers, "1000000000000001", "1000000000000002"), fenceOf(f, 0))
		})
	}
}

// The error of several names says which registers it may be.
func TestFenceFarRegisterOfSeveralNames(t *testing.T) {
	play(t, func(f field) {
		f.registers(strings.Repeat(poisons[0]+" ", 5))
		err := fencedLock(f.fenced(), "names").TryLock()
		require.ErrorContains(f, err, "one of the fencing registers {lock}:fence, {other}:fence is at "+poisons[0])
		require.Equal(f, 3, strings.Count(err.Error(), poisons[0]), "nobody waits for the others")
		require.ErrorIs(f, err, redsync.ErrNoQuorum)
	})
}

// A liar returns a node that answers each acquire with a token as lie says, and everything else with yes.
func liar(lie func(proposal uint64) []any) *puppet.Puppet {
	return &puppet.Puppet{Answer: func(req pool.Request) (*pool.Reply, error) {
		keys, isScript := req.Args[min(2, len(req.Args)-1)].(int)
		if !isScript || len(req.Args) < 3+keys+7-1 {
			return puppet.Yes(req)
		}
		if _, isAcquire := req.Args[3+keys+1].(int64); !isAcquire {
			return puppet.Yes(req)
		}
		proposal, _ := strconv.ParseUint(req.Args[len(req.Args)-2].(string), 10, 64)
		reply := lie(proposal)
		if keys > 3 { // a reply to several names also says which of them are in the way
			reply = append(reply, []any{})
		}
		return &pool.Reply{Value: reply, Fate: pool.Answered, Conn: 1}, nil
	}}
}

// One node of five lies about its register. Tokens stay clock readings, no register of the others rises above the clock,
// and Locks of every kind go on, with the liar and without it.
func TestFenceTokensStayClockReadingsBesideALiar(t *testing.T) {
	testlength.NotShort(t)
	const end = uint64(1<<63 - 3)
	lies := map[string]func(proposal uint64) []any{}
	for done := range int64(8) {
		for what, register := range map[string]func(proposal uint64) uint64{
			"the end":               func(uint64) uint64 { return end },
			"beyond the end":        func(uint64) uint64 { return math.MaxUint64 },
			"twice the clock":       func(p uint64) uint64 { return 2 * p },
			"below the proposal":    func(p uint64) uint64 { return p - 1 },
			"just above a proposal": func(p uint64) uint64 { return p + 1 },
			"nothing":               func(uint64) uint64 { return 0 },
		} {
			lies[fmt.Sprint(what, done)] = func(p uint64) []any { return []any{int64(0), fmt.Sprint(register(p)), done} }
		}
	}
	lies["a refusal"] = func(uint64) []any { return []any{int64(7), fmt.Sprint(end), int64(1)} }
	at, every := 0, testlength.InGate(1, 11, 1, 1)
	for kind := range sorted(fencedKinds) {
		for name, lie := range sorted(lies) {
			if at++; at%every != 0 {
				continue
			}
			playAs(t, kind+" "+name, func(f field) {
				honest := f.nodes[1:]
				pools := append([]pool.Pool{liar(lie)}, poolsOf(clientsOf(honest))...)
				last := f.locksThrice(redsync.New(pools...).With(withFencing), kind, 0)
				last = f.locksThrice(process(honest).With(withFencing), kind, last) // it has gone, and another process takes over
				f.areAt("", last, last, last, last)
			})
		}
	}
}

// An older version believed a liar: a quorum of registers is at the end. Deleting them brings the tokens of the name back,
// also for a process that knows the last token.
func TestFenceIsRecoveredByDeletingTheRegisters(t *testing.T) {
	play(t, func(f field) {
		rs := f.fenced()
		f.registers(strings.Repeat("9223372036854775805 ", 4))
		for range 2 {
			f.unlock(obtained(f, rs.NewMutex("lock")))
		}
		require.ErrorIs(f, rs.NewMutex("lock").TryLock(), redsync.ErrNoQuorum)
		f.allAt(uint64(math.MaxInt64))
		for _, n := range f.nodes {
			n.Del(fenceKey)
		}
		for _, rs := range []*redsync.Redsync{rs, f.fenced()} {
			m := obtained(f, rs.NewMutex("lock"))
			f.isClock(m.Fence())
			f.unlock(m)
		}
	})
}
