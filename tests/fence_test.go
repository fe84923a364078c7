package redsync_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/pool"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// This file tests fencing tokens: their order, their registers, and which locks have none.

func TestFenceIsTheClock(t *testing.T) {
	play(t, func(f field) {
		m := f.fenced().NewMutex("lock")
		sleep(1234567 * time.Microsecond)
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
		sleep(9 * sec)
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
		sleep(5 * sec)
		f.confirms(m.Extend())
		assert.Equal(f, token, m.Fence(), "extended")
		sleep(hour)
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

		sleep(hour)
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
			sleep(c.want - time.Nanosecond)
			errorIs(k, m.TryLock(), redsync.ErrNoQuorum)
			sleep(time.Nanosecond)
			k.unlock(obtained(k, m))
		})
	}
}

// A majority restarts empty, while the clock of one process is ahead of the other's by the most that is allowed. Without
// the guard, the order of the tokens depends on the clocks.
func TestFenceOrderAcrossAnEmptyRestart(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for guarded, options := range guards {
		for _, skew := range []time.Duration{0, 10 * sec} {
			playAs(t, fmt.Sprint(guarded, skew), func(f field) {
				a, b := f.veteran(options...), f.veteran(options...)
				if skew > 0 {
					fortests.KnowsToken(a, "lock", uint64(time.Now().Add(skew).UnixMicro())) //nolint:gosec // after 1970
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
			rs := redsync.New(&scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
				if proposes(req) {
					return &wire.Reply{Value: "OK", Fate: wire.Answered, Conn: 1}, nil
				}
				return scripted.Yes(req)
			}})
			m := rs.NewMutex("lock", option, withFencing)
			require.ErrorContains(t, m.TryLock(), `odd answer to an acquire: "OK"`)
			assert.Zero(t, m.Fence())
			shut(t, rs)
		})
	}
}

// What follows tests how an attempt is repeated with a greater token because a register is ahead of its token.

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
			f.isValidFrom(m, start)
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
		f.isValidFrom(m, start)
		f.rests(guard - 100*ms) // the second round does not prolong the key
	})
}

func TestFenceOddRegisterIsAnErrorThatNamesIt(t *testing.T) {
	for _, odd := range []string{"abcdefghijklmnopqrstuvwxyz", "18446744073709551616", "-9999999999999999999999999"} {
		playAs(t, odd, func(f field) {
			m := f.fenced().NewMutex("lock")
			f.registers(odd, odd, odd)
			err := m.TryLock()
			errorIs(f, err, redsync.ErrNoQuorum)
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
			synctest.Wait() // a release behind a lost reply may be repeated
			f.unlock(m)
			f.allAt(token)
			f.noKeys()
		})
	}
}

// What follows tests locks with tokens on nodes whose fencing register has a value that no client can have written.

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
	parallelComputing(t)
	testlength.NotShort(t)
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
					last = f.locksThrice(process(f.nodes).With(withFencing, recordsTo(r)), kind, last)
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
	parallelComputing(t)
	testlength.NotShort(t)
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
					errorIs(f, err, redsync.ErrNoQuorum)
					require.ErrorContains(f, err, "the fencing register {lock}:fence is at ")
					require.ErrorContains(f, err, "which no client can have written")
					f.noKeys()
					return
				}
				require.NoError(f, err)
				token := m.Fence()
				assert.Equal(f, numbers.Replace(followed), fmt.Sprint(token-1))
				f.unlock(m)
				sleep(sec)
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
			errorIs(f, err, redsync.ErrNoQuorum)
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
		errorIs(f, err, redsync.ErrNoQuorum)
	})
}

// proposes reports whether a request is an acquire with a token.
func proposes(req wire.Request) bool {
	keys, isScript := req.Args[min(2, len(req.Args)-1)].(int)
	if !isScript || len(req.Args) < 3+keys+7-1 {
		return false
	}
	_, isAcquire := req.Args[3+keys+1].(int64)
	return isAcquire
}

// A liar returns a node that answers each acquire with a token as lie says, and everything else with yes.
func liar(lie func(proposal uint64) []any) *scripted.Node {
	return &scripted.Node{Answer: func(req wire.Request) (*wire.Reply, error) {
		if !proposes(req) {
			return scripted.Yes(req)
		}
		proposal, _ := strconv.ParseUint(req.Args[len(req.Args)-2].(string), 10, 64)
		reply := lie(proposal)
		if req.Args[2].(int) > 3 { // a reply to several names also says which of them are in the way
			reply = append(reply, []any{})
		}
		return &wire.Reply{Value: reply, Fate: wire.Answered, Conn: 1}, nil
	}}
}

// One node of five lies about its register. Tokens stay clock readings, no register of the others rises above the clock,
// and Locks of every kind go on, with the liar and without it.
func TestFenceTokensStayClockReadingsBesideALiar(t *testing.T) {
	parallelComputing(t)
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
	at, every := 0, testlength.InGate(1, 11, 3, 1)
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
		errorIs(f, rs.NewMutex("lock").TryLock(), redsync.ErrNoQuorum)
		f.allAt(uint64(math.MaxInt64))
		f.drop(fenceKey)
		f.registers(strings.Repeat(ahead(100*ms)+" ", 5)) // by a process whose clock is ahead
		for _, rs := range []*redsync.Redsync{rs, f.fenced()} {
			m := obtained(f, rs.NewMutex("lock"))
			f.isClock(m.Fence())
			f.unlock(m)
		}
	})
}
