package redsync_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
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

// fencedKinds are locks with tokens, by kind.
var fencedKinds = map[string]func(*redsync.Redsync) *redsync.Mutex{
	"plain":  func(rs *redsync.Redsync) *redsync.Mutex { return rs.NewMutex("lock") },
	"fair":   func(rs *redsync.Redsync) *redsync.Mutex { return rs.NewMutex("lock", withFair) },
	"reader": func(rs *redsync.Redsync) *redsync.Mutex { return rs.NewMutex("lock", withShared) },
	"names":  func(rs *redsync.Redsync) *redsync.Mutex { return rs.NewMultiMutex([]string{"lock", "other"}) },
	"all":    func(rs *redsync.Redsync) *redsync.Mutex { return rs.NewMutex("lock", hearsAll) },
}

// Two nodes of five have such a register. Locks of every kind go on. The values become nobody's token, and come to no
// other node. Observers are told once.
func TestFenceRegistersThatNoClientCanHaveWritten(t *testing.T) {
	for kind, of := range fencedKinds {
		for i, poison := range poisons {
			if kind != "plain" && i > 0 && testlength.InGate(0, 0, 1, 1) == 0 {
				continue
			}
			playAs(t, kind+" "+poison, func(f field) {
				r := &redsynctest.Recorder{}
				f.registers("", poison, "", poison, "")
				last := uint64(0)
				for range 4 {
					rs := process(f.nodes).With(withFencing, redsync.WithObserver(r)) // each time another process
					for range 3 {
						m := obtained(f, of(rs))
						assert.Greater(f, m.Fence(), last)
						assert.LessOrEqual(f, m.Fence(), uint64(time.Now().Add(time.Second).UnixMicro())) //nolint:gosec // after 1970
						last = m.Fence()
						f.unlock(m)
					}
					shut(f, rs)
				}
				f.areAt(last, poison, last, poison, last)
				told := redsynctest.Events[observe.RegisterIgnored](r)
				of := map[int]int{}
				for _, e := range told {
					of[e.Node]++
				}
				require.Equal(f, map[int]int{1: 4, 3: 4}, of, "each process tells once of each node")
				for _, part := range []string{"{lock}:fence", poison} {
					require.ErrorContains(f, told[0].Err, part)
				}
				assert.Equal(f, fmt.Sprint("127.0.0.1:", 7001+told[0].Node), told[0].Address)
				assert.Empty(f, redsynctest.Events[observe.NodeDown](r))
			})
		}
	}
}

// A quorum of nodes has such a register. Nobody gets a token from it that is 2^63 or more. Below that, the clock of a
// client was wrong: the next token is just high enough for a quorum.
func TestFenceFollowsFarRegistersOfAQuorum(t *testing.T) {
	const over, wrong, poison, highest = "18446744073709551615", "1000000000000000", "1500000000000000", "9223372036854775807"
	for name, c := range map[string]struct {
		registers []string
		token     string // "" for none
	}{
		"three":                         {[]string{wrong, wrong, wrong, "", ""}, wrong},
		"three, one poisoned":           {[]string{wrong, wrong, highest, "", ""}, wrong},
		"all, two poisoned":             {[]string{wrong, wrong, wrong, poison, highest}, wrong},
		"three, unlike":                 {[]string{poison, wrong, highest, highest, ""}, poison},
		"beyond the last on the others": {[]string{wrong, wrong, wrong, over, over}, wrong},
		"three beyond the last":         {[]string{over, over, over, "", ""}, ""},
		"two, and one beyond the last":  {[]string{wrong, wrong, over, "", ""}, ""},
		"three at the last":             {[]string{highest, highest, highest, "", ""}, ""},
		"four, one poisoned":            {[]string{highest, wrong, wrong, wrong, wrong}, wrong},
		"one node, wrong":               {[]string{wrong}, wrong},
		"four nodes, three wrong":       {[]string{wrong, wrong, wrong, ""}, wrong},
		"four nodes, two wrong":         {[]string{wrong, wrong, "", ""}, ""},
	} {
		for _, failFast := range []bool{true, false} {
			playAs(t, fmt.Sprintf("%s, failFast %v", name, failFast), func(f field) {
				nodes := f.nodes[:len(c.registers)]
				f.registers(c.registers...)
				m := process(nodes).NewMutex("lock", withFencing, redsync.WithFailFast(failFast))
				err := m.TryLock()
				if c.token == "" {
					require.ErrorIs(f, err, redsync.ErrNoQuorum)
					require.ErrorContains(f, err, "the fencing register {lock}:fence is at ")
					require.ErrorContains(f, err, "which no client can have written")
					time.Sleep(time.Second)
					for i, n := range nodes {
						assert.False(f, n.Exists("lock"), "node %d", i)
					}
					return
				}
				require.NoError(f, err)
				assert.Equal(f, c.token, strconv.FormatUint(m.Fence()-1, 10))
				f.unlock(m)
				time.Sleep(time.Second)
				next := obtained(f, process(nodes).NewMutex("lock", withFencing, redsync.WithFailFast(failFast)))
				assert.Greater(f, strconv.FormatUint(next.Fence(), 10), c.token, "the order goes on")
				f.unlock(next)
			})
		}
	}
}

// Two processes whose clock is an hour ahead and right lock in turn. An hour is what a client can write.
func TestFenceRegisterWithinADayIsFollowed(t *testing.T) {
	play(t, func(f field) {
		edge := ahead(24 * time.Hour)
		f.registers(edge, edge, edge, "", "")
		m := obtained(f, f.fenced(hearsAll).NewMutex("lock"))
		assert.Equal(f, edge, strconv.FormatUint(m.Fence()-1, 10))
	})
}

// Of three nodes, one is silent, and one or two are far ahead: then there is no token. Nobody follows a register that a
// minority has, and nobody waits longer than the node deadline.
func TestFenceFarRegistersAndASilentNodeOfThree(t *testing.T) {
	for _, registers := range [][]string{{poisons[0], "", ""}, {"1000000000000000", "9223372036854775805", ""}} {
		play(t, func(f field) {
			f.registers(registers...)
			f.nodes[2].Freeze()
			start := time.Now()
			err := process(f.nodes[:3]).NewMutex("lock", withFencing).TryLock()
			require.ErrorIs(f, err, redsync.ErrNoQuorum)
			require.ErrorContains(f, err, "which no client can have written")
			if registers[1] == "" {
				assert.LessOrEqual(f, time.Since(start), patience)
			}
			f.nodes[2].Thaw()
			synctest.Wait()
			assert.Contains(f, append(registers, "1000000000000001", "1000000000000002"), fenceOf(f, 0))
		})
	}
}

// The error of several names says which registers it may be.
func TestFenceFarRegisterOfSeveralNames(t *testing.T) {
	play(t, func(f field) {
		f.registers(slices.Repeat([]string{poisons[0]}, 5)...)
		err := f.fenced().NewMultiMutex([]string{"lock", "other"}).TryLock()
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
			lies[fmt.Sprintf("%s, done %d", what, done)] = func(p uint64) []any {
				return []any{int64(0), strconv.FormatUint(register(p), 10), done}
			}
		}
	}
	lies["a refusal"] = func(uint64) []any { return []any{int64(7), strconv.FormatUint(end, 10), int64(1)} }
	at, every := 0, testlength.InGate(1, 11, 1, 1)
	for _, kind := range slices.Sorted(maps.Keys(fencedKinds)) {
		of := fencedKinds[kind]
		t.Run(kind, func(t *testing.T) {
			for _, name := range slices.Sorted(maps.Keys(lies)) {
				lie := lies[name]
				if at++; at%every != 0 {
					continue
				}
				play(t, func(f field) {
					honest, last := f.nodes[1:], uint64(0)
					locks := func(rs *redsync.Redsync) {
						for range 3 {
							m := of(rs)
							require.NoError(f, m.TryLock(), name)
							assert.Greater(f, m.Fence(), last, name)
							last = m.Fence()
							require.LessOrEqual(f, last, uint64(time.Now().Add(time.Second).UnixMicro()), name) //nolint:gosec // after 1970
							f.unlock(m)
						}
						shut(f, rs)
					}
					pools := []pool.Pool{liar(lie)}
					for _, c := range clientsOf(honest) {
						pools = append(pools, pool.New(c))
					}
					locks(redsync.New(pools...).With(withFencing))
					locks(process(honest).With(withFencing)) // it has gone, and another process takes over
					f.areAt("", last, last, last, last)
				})
			}
		})
	}
}

// An older version believed a liar: a quorum of registers is at the end. Deleting them brings the tokens of the name back,
// also for a process that knows the last token.
func TestFenceIsRecoveredByDeletingTheRegisters(t *testing.T) {
	play(t, func(f field) {
		const spoilt = "9223372036854775805"
		rs := f.fenced()
		f.registers(spoilt, spoilt, spoilt, spoilt, "")
		for range 2 {
			m := obtained(f, rs.NewMutex("lock"))
			f.unlock(m)
		}
		require.ErrorIs(f, rs.NewMutex("lock").TryLock(), redsync.ErrNoQuorum)
		f.areAt(slices.Repeat([]any{uint64(math.MaxInt64)}, 5)...)
		for _, n := range f.nodes {
			n.Del(fenceKey)
		}
		for _, rs := range []*redsync.Redsync{rs, f.fenced()} {
			m := obtained(f, rs.NewMutex("lock"))
			assert.LessOrEqual(f, m.Fence(), uint64(time.Now().Add(time.Second).UnixMicro())) //nolint:gosec // after 1970
			f.unlock(m)
		}
	})
}
