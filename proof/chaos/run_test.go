package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

func sceneOf(t *testing.T, name string) scene {
	s, err := findScene(name)
	require.NoError(t, err)
	return s
}

func playWith(t *testing.T, name string, length time.Duration, s settings) *result {
	testlength.NotWhileAPersonWaits(t)
	realredis.Start(t, 0) // skips the test where there is no redis-server
	t.Cleanup(func() { goleak.VerifyNone(t) })
	s.Scene = sceneOf(t, name)
	s.FakeTime, _ = findFakeTime() // without libfaketime, run leaves out the faults that need it
	s.Seed, s.Length, s.processes, s.say = 5, length, processCount, t.Logf
	r, err := run(t.Context(), s)
	require.NoError(t, err)
	return r
}

// maxRepeats is how often a scene is played again at most if its runs prove nothing. Each time it is played twice as
// long as the time before: what a slow machine does not reach in a run it does not reach in the next one of that length.
const maxRepeats = 3

// proving returns the first run that proves something: r, or a repetition of it. It repeats a run that proves nothing,
// because a slow machine or chance may be the reason. It returns a run with a violation at once, and never repeats it.
func proving(r *result, again func() *result) (*result, error) {
	for repeats := 0; ; repeats++ {
		if err := r.violated(); err != nil {
			return r, err
		}
		err := r.unproved()
		if err == nil || repeats == maxRepeats {
			return r, err
		}
		r.say("played again, because %v", err)
		r = again()
	}
}

// playProving plays a scene for a time, and longer until a run proves something.
func playProving(t *testing.T, name string, length time.Duration) *result {
	again := func() *result {
		defer func() { length *= 2 }()
		return playWith(t, name, length, settings{})
	}
	r, err := proving(again(), again)
	require.NoError(t, err)
	return r
}

// rulesBroken returns the rules that r breaks.
func rulesBroken(r *result) map[string]int {
	counts := map[string]int{}
	for _, v := range r.Violations {
		counts[v.Rule]++
	}
	return counts
}

// playUntil calls the function one until every count in counts is positive, at most 1 + maxRepeats times. Each call
// plays a run of the length that it gets, and adds to counts. The first length is length. playUntil returns the keys
// whose count is still zero after the last call.
func playUntil(length time.Duration, counts map[string]int, one func(length time.Duration)) (missing []string) {
	for range 1 + maxRepeats {
		one(length)
		length *= 2
		missing = nil
		for what, n := range counts {
			if n == 0 {
				missing = append(missing, what)
			}
		}
		if missing == nil {
			break
		}
	}
	return missing
}

// zeros returns a count of each word.
func zeros(words string) map[string]int {
	counts := map[string]int{}
	for word := range strings.FieldsSeq(words) {
		counts[word] = 0
	}
	return counts
}

func TestRunWithoutFaultsFindsNothing(t *testing.T) {
	acquired := zeros("plain try several reader permit candidate nesting tick redsync-v4 probe held free owners")
	noted := []history.Kind{history.Key, history.Extended}
	for _, k := range noted {
		acquired[string(k)] = 0
	}
	missing := playUntil(2*time.Second, acquired, func(length time.Duration) {
		r := playWith(t, "calm", length, settings{})
		require.Empty(t, r.Violations)
		for h := range acquired {
			acquired[h] += tallyOf(r.clientCounts(), h) + r.looks()[h]
		}
		for _, k := range noted {
			acquired[string(k)] += r.count(k)
		}
	})
	assert.Empty(t, missing)
}

func tallyOf(list []tallied, what string) int {
	for _, c := range list {
		if c.What == what {
			return c.Count
		}
	}
	return 0
}

func TestRunUnderFaultsOfTheContractFindsNothing(t *testing.T) {
	testlength.NotShort(t) // the gate plays this scene for longer, as a program
	r := playWith(t, "contract", 4*time.Second, settings{})
	assert.Empty(t, r.Violations)
	assert.NotEmpty(t, r.Plan)
	assert.GreaterOrEqual(t, r.count(history.Fault), 2*len(r.Plan)) // each fault must begin and end
}

// Some clients claim locks without asking a node, as writers and as readers. Others lock the first of several names but
// claim all, and the judge counts a lock on several names as a lock on each of them. Others downgrade a lock but still
// believe that it is exclusive. Others use a semaphore whose permits each node counts for itself. The judge must find
// all of them.
func TestRunFindsClientsThatClaimWhatTheyDoNotHave(t *testing.T) {
	found := zeros("fake partial fake-reader stubborn counting")
	found[history.TokenOrder] = 0
	missing := playUntil(3*time.Second, found, func(length time.Duration) {
		r := playWith(t, "calm", length, settings{fakes: 2, partials: 4, readers: 2, stubborn: 4, counting: 8})
		require.ErrorContains(t, r.verdict(), history.Exclusion)
		found[history.TokenOrder] += rulesBroken(r)[history.TokenOrder]
		for _, v := range r.Violations {
			if v.Rule == history.TooMany {
				assert.Equal(t, counted.name, v.Name, v)
				found["counting"]++
			}
			if v.Rule != history.Exclusion {
				continue
			}
			culprits := culpritsOf(v, found)
			assert.NotEmpty(t, culprits, v)
			assert.Less(t, strings.Count(v.What, " reading ["), 2, v) // two readers may share a name
			if len(culprits) == 1 {
				found[culprits[0]]++
			}
		}
	})
	assert.Empty(t, missing)
}

// culpritsOf returns the habits whose clients v names.
func culpritsOf(v history.Violation, habits map[string]int) (culprits []string) {
	for h := range habits {
		if strings.Contains(v.What, "/"+h+"/") {
			culprits = append(culprits, h)
		}
	}
	return culprits
}

// made returns the result of a run of one second in which three locks were acquired.
func made(t *testing.T, name string, violations ...history.Violation) *result {
	r := &result{settings: settings{Scene: sceneOf(t, name), Seed: 9, Length: time.Second}, To: 3 * time.Second, Violations: violations}
	r.Plan = []fault{{Kind: freeze, At: 500 * ms, For: 100 * ms, Nodes: []int{2}}}
	what := r.Plan[0].String()
	r.Events = []history.Event{
		{At: 500 * ms, Kind: history.Fault, Where: "node 2", What: what},
		{At: 600 * ms, Kind: history.Fault, Where: "node 2", What: what, Ends: true},
	}
	for i := range 3 {
		start := time.Duration(i) * time.Second
		of := history.Event{Client: "1/plain/4", Term: i, Name: "quick"}
		call, held, unlock := of, of, of
		call.At, call.Kind = start, history.Call
		held.At, held.Kind, held.Until, held.Token = start+1, history.Held, start+time.Second, uint64(i+1)
		unlock.At, unlock.Kind = start+500*ms, history.Unlock
		r.Events = append(r.Events, call, held, unlock)
	}
	r.Events = append(r.Events, keyEvent(550*ms, 1, "{quick}:fence", 77), keyEvent(550*ms, 1, "slow", 77))
	r.Events = history.Merge(r.Events)
	r.Terms = history.Terms(r.Events)
	return r
}

var (
	two   = history.Violation{Rule: history.Exclusion, Name: "quick", At: 520 * ms, What: "<two> & more"}
	late  = history.Violation{Rule: history.LateLost, Name: "quick", At: 520 * ms}
	order = history.Violation{Rule: history.TokenOrder, Name: "quick", At: 520 * ms}
)

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		r    *result
		want string
	}{
		"nothing broken":                   {made(t, "contract"), ""},
		"two holders":                      {made(t, "contract", two), "1 violations: exclusion"},
		"each rule once":                   {made(t, "contract", late, two, two), "3 violations: exclusion, loss told too late"},
		"excluded, and found":              {made(t, "flushall", two, late), ""},
		"excluded, and not found":          {made(t, "flushall", late), "exclusion was not broken"},
		"excluded, but tokens have fallen": {made(t, "flushall", two, order), "1 violations: token order"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == "" {
				require.NoError(t, c.r.verdict())
				return
			}
			require.ErrorContains(t, c.r.verdict(), c.want)
		})
	}
	few := made(t, "contract")
	few.Terms = few.Terms[:2]
	require.ErrorContains(t, few.verdict(), "only 2 locks were acquired: 3 are needed")
}
