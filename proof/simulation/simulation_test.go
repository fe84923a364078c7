package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testkit/badreply"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fromEnv returns the number in an environment variable, or otherwise if that is not set.
func fromEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// oneByOne makes goroutines run one at a time. Otherwise the machine would decide their order,
// and not the seed.
func oneByOne(t *testing.T) {
	t.Helper()
	procs, garbage, stack := runtime.GOMAXPROCS(1), debug.SetGCPercent(400), debug.SetMaxStack(badreply.MaxStack)
	t.Cleanup(func() {
		debug.SetMaxStack(stack)
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(garbage)
	})
}

// queues are the suffixes of the keys that hold the waiters of a name.
var queues = []string{":queue", ":slots"}

// rules returns the rules that the history of a simulation must keep.
func (s *simulation) rules(events []history.Event) history.Rules {
	r := history.Rules{MaxTTL: s.longest, LostSlop: 1, SettledOn: map[int]time.Duration{}, Gone: queues, Idle: s.idle(), Sights: s.sights(), Forces: s.forces()}
	if s.clocks == "wall" {
		// Outside a bubble a time.Time also has a reading of the monotonic clock, and timers go by
		// that. In a bubble it has none, so timers are off by the steps of the wall clock.
		r.LostSlop = 0
	}
	for _, e := range events {
		switch e.What {
		case atRest:
			r.Settled = e.At
		case retired:
			r.SettledOn[e.Node] = e.At - 1
		}
	}
	return r
}

func TestSimulation(t *testing.T) {
	oneByOne(t)
	if os.Getenv("REDSYNC_SIM_SEED") != "" {
		seed := fromEnv(t, "REDSYNC_SIM_SEED", 0)
		s, events := simulate(t, uint64(seed), scene{realm: realm(os.Getenv("REDSYNC_SIM_REALM")), with: os.Getenv("REDSYNC_SIM_WITH")})
		t.Logf("%+v", s.simPlan)
		t.Log(tell(events))
		s.check(t, events)
		return
	}
	run(t, seedsOf(t, "REDSYNC_SIM_SEEDS", 3, 3000), scene{with: os.Getenv("REDSYNC_SIM_WITH")})
}

// run plays seeds of a scene, and checks what the clients believed.
func run(t *testing.T, seeds []int, in scene) {
	t.Helper()
	oneByOne(t)
	counts, longest := map[string]int{}, time.Duration(0)
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s, events := simulate(t, uint64(seed), in)
			s.check(t, events)
			for class, is := range isOf {
				counts[class] += count(events, is)
			}
			for _, rest := range history.Rests(s.withWaits(events), s.idle()) {
				counts["waits judged"]++
				longest = max(longest, rest.To-rest.From)
			}
			counts["joined"] += int(s.together.Load())
			if s.class[native] {
				counts[native] += s.natives()
			}
			counts[nesting] = int(s.nested.Load()) + counts[nesting]
		})
	}
	t.Logf("%d seeds, holds: %v; a free lock rested at most %v", len(seeds), counts, longest)
	assert.Greater(t, counts["held"], 5*(len(seeds)-2), "one seed alone may have few")
	for class, n := range counts {
		if strings.Contains(in.with, class) {
			assert.Greater(t, n, 2*(len(seeds)-2), class)
		}
	}
}

// isOf says which events count as holds of a class.
var isOf = map[string]func(history.Event) bool{
	"held":       isHeld,
	several:      func(e history.Event) bool { return isHeld(e) && len(e.More) > 0 },
	readers:      func(e history.Event) bool { return isHeld(e) && e.Reads },
	permits:      func(e history.Event) bool { return isHeld(e) && e.Permits > 0 },
	leaders:      func(e history.Event) bool { return isHeld(e) && e.Leads },
	ticks:        func(e history.Event) bool { return isHeld(e) && e.Keeps > 0 },
	elders:       func(e history.Event) bool { return isHeld(e) && strings.HasPrefix(e.Client, "v4.") },
	lookers:      func(e history.Event) bool { return e.Kind == history.Saw },
	forcers:      isForced,
	"downgraded": func(e history.Event) bool { return e.Kind == history.Downgrade },
}

// Some clients lock several names at once, and others a single name, in any realm.
func TestSimulationOfSeveralNames(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_SEVERAL", 3, 1000), scene{with: several})
}

// Some clients read, beside others, in any realm.
func TestSimulationOfReaders(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_READERS", 3, 1000), scene{with: readers})
}

// Some clients take permits, beside others, in any realm.
func TestSimulationOfPermits(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_PERMITS", 3, 1000), scene{with: permits})
}

// Some clients campaign for names, beside others, in any realm.
func TestSimulationOfLeaders(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_LEADERS", 3, 1000), scene{with: leaders})
}

// Some clients call Do within Do, beside others, in any realm.
func TestSimulationOfNesting(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_NESTING", 3, 1000), scene{with: nesting})
}

// Clients of redsync v4 lock the same names as those of this library, in every mode, and while the nodes change.
func TestSimulationBesideRedsyncV4(t *testing.T) {
	testlength.NotShort(t)
	for _, class := range []string{"plain", readers, permits, several, leaders, nesting, ticks}[:testlength.InGate(1, 1, 7, 7)] {
		t.Run(class, func(t *testing.T) {
			run(t, seedsOf(t, "REDSYNC_SIM_V4", 2, 200), scene{realm: rough, with: elders + "," + class})
		})
	}
	t.Run("change", func(t *testing.T) {
		testlength.FromGate(t)
		run(t, seedsOf(t, "REDSYNC_SIM_V4", 1, 200), scene{realm: changing, with: elders})
	})
}

// The checks see it if clients of redsync v4 need no quorum, or have the old and the new nodes at the same time.
func TestSimulationBesideRedsyncV4DoneWrong(t *testing.T) {
	controls := []control{
		{scene{rough, elders, fewElders}, []string{history.Exclusion}, 0},
		{scene{changing, elders, onBothSets}, []string{history.Exclusion}, 0},
	}
	doneWrong(t, controls[:testlength.InGate(0, 1, 2, 2)]...)
}

// Some clients try once per tick, beside others, in any realm.
func TestSimulationOfTicks(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_TICKS", 3, 1000), scene{with: ticks})
}

// Processes are closed again and again while their clients run jobs. A Close keeps the minimal holds.
func TestSimulationWhileProcessesClose(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_CLOSING", 3, 201), scene{rough, ticks + "," + closing, ""})
}

// Other processes extend the locks of holders, which some of them share, for a shorter time. That shortens no hold.
func TestSimulationOfShorterExtensions(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_SHORTER", 3, 201), scene{rough, readers + "," + shorter, ""})
}

// The clocks of the nodes run as fast as the drift allows, and many holders stay to the end of their validity. Each is
// told before the keys run out.
func TestSimulationWhileNodesRunFast(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_FAST", 3, 201), scene{rough, fast, ""})
}

// Nothing fails, and nobody polls. Wake-ups alone let those who wait go on, in every mode, and they do so at once.
func TestSimulationWithoutPolls(t *testing.T) {
	for _, class := range []string{readers, several, permits}[:testlength.Of(1, 3, 3)] {
		t.Run(class, func(t *testing.T) {
			run(t, seedsOf(t, "REDSYNC_SIM_UNPOLLED", 3, 201), scene{tidy, class + "," + unpolled, ""})
		})
	}
}

// The values of many locks say an owner. Between different owners of a process a lock is neither handed over nor shared.
// Without polls, a missing wake-up shows.
func TestSimulationOfOwners(t *testing.T) {
	testlength.NotShort(t)
	for _, class := range []string{several, readers, permits}[:testlength.InGate(1, 1, 3, 3)] {
		withFaultsAndWithout(t, class+","+owners, "REDSYNC_SIM_OWNERS", 2)
	}
}

// withFaultsAndWithout plays a scene with faults in any realm, and one without them in which nobody polls; before the gate
// only the first.
func withFaultsAndWithout(t *testing.T, with, env string, inGate int) {
	t.Helper()
	for _, in := range []scene{{with: with}, {tidy, with + "," + unpolled, ""}}[:testlength.InGate(1, 1, 2, 2)] {
		t.Run(in.with, func(t *testing.T) { run(t, seedsOf(t, env, inGate, 201), in) })
	}
}

// Nodes have commands that stand for scripts, lose them and get them, and processes die once they have unlocked. Without
// faults and polls, a waiter that is not told shows.
func TestSimulationOfNativeCommands(t *testing.T) {
	for name, in := range map[string]scene{
		"plain": {with: native}, values: {rough, values + "," + native, ""}, several: {with: several + "," + native}, shorter: {rough, readers + "," + shorter + "," + native, ""},
		unpolled: {tidy, native + "," + unpolled, ""},
	} {
		t.Run(name, func(t *testing.T) { run(t, seedsOf(t, "REDSYNC_SIM_NATIVE", 3, 1000), in) })
	}
}

// Clients look who holds, in every mode, with faults and without, and while the nodes change.
func TestSimulationOfLookers(t *testing.T) {
	testlength.NotShort(t)
	for _, class := range []string{"plain", several, readers, permits, leaders, nesting, ticks}[:testlength.InGate(1, 2, 7, 7)] {
		withFaultsAndWithout(t, class+","+lookers, "REDSYNC_SIM_LOOKERS", 1)
	}
	t.Run("change", func(t *testing.T) {
		testlength.FromGate(t)
		run(t, seedsOf(t, "REDSYNC_SIM_LOOKERS", 1, 201), scene{realm: changing, with: lookers})
	})
}

// Clients release the locks of others by force, in every mode, with faults and without. Nothing breaks but what a force
// breaks, and tokens keep their order.
func TestSimulationOfForcers(t *testing.T) {
	testlength.NotShort(t)
	for _, class := range []string{"plain", readers, permits, several, leaders, nesting}[:testlength.InGate(1, 1, 6, 6)] {
		withFaultsAndWithout(t, class+","+forcers, "REDSYNC_SIM_FORCERS", 1)
	}
}

// If a forced release compares no values, the checks see it.
func TestSimulationOfForcersDoneWrong(t *testing.T) {
	testlength.NotShort(t)
	doneWrong(t, control{scene{rough, forcers, deletesBlindly}, []string{history.Exclusion}, 0})
}

// All locks of a process have one value. Releases of earlier ones come late, and nodes freeze.
func TestSimulationOfConstantValues(t *testing.T) {
	for _, class := range []string{"plain", several, ticks, readers, permits, leaders}[:testlength.InGate(1, 2, 6, 6)] {
		t.Run(class, func(t *testing.T) {
			run(t, seedsOf(t, "REDSYNC_SIM_CONSTANTS", 2, 201), scene{with: class + "," + constants})
		})
	}
}

// If processes forget which values they have used, the checks see it.
func TestSimulationOfConstantValuesDoneWrong(t *testing.T) {
	doneWrong(t, control{scene{rough, constants, forgets}, []string{history.Exclusion}, 0})
}

// Dials to a host that is off fail, until 5 s after the clients have stopped. Still the locks become free in time, and
// clients that want several names at once are served.
func TestSimulationWhileDialsFail(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_DIALS", 3, 201), scene{tidy, several + "," + off + "," + dials, ""})
}

// A control is a scene with a mistake, or a realm beyond the contract.
type control struct {
	scene
	seen []string // the rules that the checks must see broken, each in at least one seed
	from int      // the seed at which the search begins, except in the nightly run; earlier ones broke nothing before
}

// If nodes treat several names wrongly, the checks see it.
func TestSimulationOfSeveralNamesDoneWrong(t *testing.T) {
	doneWrong(t,
		control{scene{rough, several, inPart}, []string{history.Exclusion, history.InPart}, 3},
		control{scene{tidy, several, firstAlone}, []string{history.LeftBehind, history.Promise}, 0},
	)
}

// If a downgrade takes two steps, the checks see it.
func TestSimulationOfReadersDoneWrong(t *testing.T) {
	doneWrong(t, control{scene{rough, readers, inTwoSteps}, []string{history.Exclusion}, 47})
}

// If clients count permits on each node, or keep strays, the checks see it.
func TestSimulationOfPermitsDoneWrong(t *testing.T) {
	doneWrong(t,
		control{scene{rough, permits, counted}, []string{history.TooMany}, 0},
		control{scene{tidy, permits, strays}, []string{history.LeftBehind}, 0},
	)
}

// If looks are wrong, the checks see it.
func TestSimulationOfLookersDoneWrong(t *testing.T) {
	doneWrong(t,
		control{scene{rough, lookers, silentIsFree}, []string{history.WrongState}, 0},
		control{scene{rough, lookers, anyLabel}, []string{history.WrongHolder, history.WrongOwner}, 13},
	)
}

func doneWrong(t *testing.T, controls ...control) {
	t.Helper()
	testlength.NotShort(t)
	oneByOne(t)
	for _, c := range controls {
		t.Run(cmp.Or(string(c.mistake), string(c.realm)), func(t *testing.T) {
			const most = 200
			enough, broken, rewritten := testlength.Of(1, 1, 15), map[string]int{}, false
			seed := testlength.Of(c.from, c.from, 0)
			missing := func() bool {
				return slices.ContainsFunc(c.seen, func(rule string) bool { return broken[rule] < enough })
			}
			for ; seed < most && missing(); seed++ {
				s, events := simulate(t, uint64(seed), c.scene)
				rewritten = rewritten || s.rewritten.Load()
				violations := history.Check(s.withWaits(events), s.rules(events))
				for _, rule := range c.seen {
					if slices.ContainsFunc(violations, func(v history.Violation) bool { return v.Rule == rule }) {
						broken[rule]++
					}
				}
			}
			t.Logf("before seed %d: %v", seed, broken)
			assert.False(t, missing())
			_, rewrites := rewrites[c.mistake]
			assert.Equal(t, rewrites, rewritten, "a script is changed")
		})
	}
}

// check fails t for each violation in the history, and shows the events that led to it.
func (s *simulation) check(t *testing.T, events []history.Event) {
	t.Helper()
	for _, v := range history.Check(s.withWaits(events), s.rules(events)) {
		if isOfEldersAlone(v) || v.Rule == history.InPart && s.class[constants] { // one value has single names and several at once
			continue
		}
		near := slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
			return e.At < v.At-time.Second || e.At > v.At+100*time.Millisecond ||
				e.Kind != history.Fault && !e.Of(v.Name)
		})
		t.Errorf("%v\n%s", v, tell(near))
	}
	if t.Failed() {
		t.Logf("%+v", s.simPlan)
		t.Logf("again: %s", s.again())
	}
}

// isOfEldersAlone reports whether v names two holders that both are clients of redsync v4. Nobody else has a part in that: all
// attempts of a Lock of theirs have one value, so a late release of an earlier attempt deletes the key of a later one.
func isOfEldersAlone(v history.Violation) bool {
	return v.Rule == history.Exclusion && strings.Count(v.String(), "v4.") == 2
}

// again returns the command that plays s again.
func (s *simulation) again() string {
	return fmt.Sprintf("REDSYNC_SIM_SEED=%d REDSYNC_SIM_REALM=%s REDSYNC_SIM_WITH=%s go test -run 'TestSimulation$' -v ./proof/simulation",
		s.seed, s.realm, s.asked.with)
}

func count(events []history.Event, is func(history.Event) bool) (n int) {
	for _, e := range events {
		if is(e) {
			n++
		}
	}
	return n
}

func isHeld(e history.Event) bool { return e.Kind == history.Held }

// tell returns a history as text, without the Key events.
func tell(events []history.Event) string {
	var b strings.Builder
	for _, e := range events {
		if e.Kind == history.Key || e.Kind == history.Waits || e.Kind == history.Ails {
			continue
		}
		text, _ := json.Marshal(e) // it cannot fail: no field has a type that could
		fmt.Fprintf(&b, "%14v  %s\n", e.At, text)
	}
	return b.String()
}

func underRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// lines returns a history as text, one line for each event: first the time, then the whole event. It sorts the events
// of each instant, because two goroutines may note them in any order. For example, one notes that a client is told of a
// loss, and another one notes what the client does next.
func lines(t *testing.T, events []history.Event) (list []string) {
	t.Helper()
	for _, e := range events {
		text, err := json.Marshal(e)
		require.NoError(t, err)
		list = append(list, fmt.Sprintf("%012d %s", e.At, text))
	}
	slices.Sort(list)
	return list
}

// In a lawless realm, which is beyond the contract, exclusion breaks and the checker sees it. Even
// there fencing tokens keep their order.
func TestSimulationBeyondTheContractIsSeenToBreak(t *testing.T) {
	testlength.NotShort(t)
	oneByOne(t)
	seeds, broken := fromEnv(t, "REDSYNC_SIM_LAWLESS", testlength.InGate(1, 1, 5, 100)), 0
	const first = 11 // it breaks at once
	for seed := first; seed < first+seeds || broken <= seeds/10 && seed < 50; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			_, events := simulate(t, uint64(seed), scene{realm: lawless})
			found := history.Check(events, history.Rules{})
			if slices.ContainsFunc(found, func(v history.Violation) bool { return v.Rule == history.Exclusion }) {
				broken++
			}
			for _, v := range found {
				assert.Equal(t, history.Exclusion, v.Rule, "%v", v)
			}
		})
	}
	t.Logf("exclusion broke in %d of %d seeds", broken, seeds)
	assert.Greater(t, broken, seeds/10)
}

// A change of nodes by joint sets keeps the contract.
func TestSimulationOfAChange(t *testing.T) {
	run(t, seedsOf(t, "REDSYNC_SIM_CHANGES", 3, 1500), scene{realm: changing, with: os.Getenv("REDSYNC_SIM_WITH")})
}

// A change without one of its steps breaks exclusion, and the checker sees it. The missing step is the joint sets, or
// the wait until the keys of ended processes have expired.
func TestSimulationOfAChangeDoneWrong(t *testing.T) {
	exclusion := []string{history.Exclusion}
	doneWrong(t, control{scene{realm: unjoined}, exclusion, 2}, control{scene{realm: hasty}, exclusion, 9})
}
