package main

import (
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
	"github.com/seed14bd9ef4/redsync/proof/history"
)

// A scene is a plan of faults, and what may break under them.
type scene struct {
	name  string
	about string
	guard bool // the pools have a restart guard
	v4    bool // clients of redsync v4 lock as well; redsync v4 has no guard

	expiry time.Duration // the clients choose their expiries near this one
	// excluded means that the contract does not cover these faults, and that mutual exclusion must break.
	excluded bool
	faketime bool // the scene needs libfaketime

	timeoutFactor float64 // of the clients' node deadlines; 0: the default

	waits   bool          // waits are judged: a free lock must not rest while a client waits for it
	forces  bool          // releases by force are judged; all locks have fencing tokens
	tells   bool          // what clients are told of nodes is judged
	clients []habit       // of each process; if waits are judged, some must have been; nil: habits
	apart   time.Duration // a message takes so much longer between a process and a node of different zones

	nodes       int          // how many nodes run; 0: nodeCount
	deployments []deployment // they replace each other during the traffic; nil: there is one, with all nodes

	plan func(seed uint64, length time.Duration) []fault
}

const (
	// shortExpiry allows many holds in a run.
	shortExpiry = 1500 * ms
	// calmFactor makes the node deadline 600 ms or so. Where nothing else is bad, a busy machine shall not be: with the
	// default of 75 ms no client gets a lock while all nodes answer later than that, and all clients ask again and again.
	calmFactor = 0.4
	// badNodeExpiry and badNodeFactor make the node deadline 800 ms or so. If clients waited for a bad node, locks would
	// rest for seconds.
	badNodeExpiry = 8 * time.Second
	badNodeFactor = 0.1
	// longExpiry leaves time for an excluded fault within a hold.
	longExpiry = 3 * time.Second
	// deployExpiry makes the wait between two deployments short.
	deployExpiry = 900 * ms
	// deployFactor lengthens the node deadline, which deployExpiry shortens, so that a busy machine can answer in time.
	deployFactor = 0.3
)

var scenes = []scene{
	{
		name:   "contract",
		about:  "whatever the contract allows: nothing may break",
		guard:  true,
		waits:  true,
		expiry: shortExpiry,
		plan: func(seed uint64, length time.Duration) []fault {
			return planContract(seed, length, quarantine(longestTTL(shortExpiry)))
		},
	},
	{
		name:    "native",
		about:   "few clients, whose releases need no script on newer servers, under what the contract allows: nothing may break",
		guard:   true,
		expiry:  shortExpiry,
		clients: loners,
		plan: func(seed uint64, length time.Duration) []fault {
			return planContract(seed, length, quarantine(longestTTL(shortExpiry)))
		},
	},
	{
		name:          "bad-node",
		about:         "one bad node of five at a time, and processes in two zones: nothing may break",
		waits:         true,
		tells:         true,
		expiry:        badNodeExpiry,
		timeoutFactor: badNodeFactor,
		clients:       waiters,
		apart:         3 * ms,
		plan:          planBadNode,
	},
	{
		name:          "calm",
		about:         "no faults: nothing may break",
		guard:         true,
		waits:         true,
		v4:            true,
		expiry:        shortExpiry,
		timeoutFactor: calmFactor,
		plan:          noFaults,
	},
	{
		name:   "v4",
		about:  "clients of redsync v4 as well, and the faults that it withstands: nothing may break",
		guard:  true,
		v4:     true,
		expiry: shortExpiry,
		plan: func(seed uint64, length time.Duration) []fault {
			plan := planContract(seed, length, quarantine(longestTTL(shortExpiry)))
			return slices.DeleteFunc(plan, func(f fault) bool { return slices.Contains(notForV4, f.Kind) })
		},
	},
	{
		name:    "forgetful",
		about:   "two processes want a lock at one moment, and soon after one node restarts without data: nothing may break",
		expiry:  longExpiry,
		clients: duelists,
		apart:   3 * ms,
		plan:    planForgetting,
	},
	{
		name:     "forgetful-v4",
		about:    "the same with redsync v4",
		v4:       true,
		expiry:   longExpiry,
		excluded: true,
		clients:  duelists,
		apart:    3 * ms,
		plan:     planForgetting,
	},
	{
		name:    "wrong-addresses",
		about:   "three addresses of a process lead to one node: nothing may break",
		expiry:  shortExpiry,
		clients: stayers,
		plan:    planWrongAddresses,
	},
	{
		name:    "closing",
		about:   "clients close while a majority of nodes restarts with data: nothing may break",
		expiry:  longExpiry,
		clients: closers,
		plan: func(seed uint64, length time.Duration) []fault {
			return planRepeated(seed, length, 1500*ms, quorum, fault{Kind: restartMany, For: 700 * ms})
		},
	},
	{
		name:    "forced",
		about:   "clients release the locks of others by force, many while the holder is stopped: nothing else may break",
		expiry:  shortExpiry,
		forces:  true,
		clients: forcers,
		plan:    planForced,
	},
	excluded("majority-restart", "a majority of nodes restarts without data, and no guard",
		quorum, fault{Kind: restartMost, For: 20 * ms}),
	excluded("majority-clock", "the clocks of a majority are set forward by more than the expiry",
		quorum, fault{Kind: clockForward, By: 2 * longExpiry}),
	excluded("flushall", "all nodes are flushed",
		nodeCount, fault{Kind: flushAll}),
	{
		name:          "nodes",
		about:         "all nodes are swapped for others, one after another, by joint sets: nothing may break",
		guard:         true,
		expiry:        deployExpiry,
		timeoutFactor: deployFactor,
		nodes:         2 * nodeCount,
		deployments:   swapEach(),
		plan: func(seed uint64, length time.Duration) []fault {
			return planBrief(seed, length, 2*nodeCount)
		},
	},
	{
		name:          "nodes-unjoined",
		about:         "one node is swapped for another, without a joint set",
		expiry:        deployExpiry,
		timeoutFactor: deployFactor,
		excluded:      true,
		nodes:         nodeCount + 1,
		deployments:   swapUnjoined(),
		plan:          noFaults,
	},
}

// notForV4 are the faults under which redsync v4 lets a second holder in. It has no restart guard, accepts
// nonsense as a reply of Redis, and does not notice that a node has refused its SELECT.
var notForV4 = []kind{restartKept, restartEmpty, restartFlushed, password, noSelect, babble}

func noFaults(uint64, time.Duration) []fault { return nil }

// excluded returns a scene that repeats the fault f, which the contract does not cover. nodes is how many
// nodes each fault affects.
func excluded(name, about string, nodes int, f fault) scene {
	return scene{
		name: name, about: about, expiry: longExpiry, excluded: true,
		faketime: f.Kind == clockForward,
		plan: func(seed uint64, length time.Duration) []fault {
			return planRepeated(seed, length, 2*time.Second, nodes, f)
		},
	}
}

func findScene(name string) (scene, error) {
	i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })
	if i < 0 {
		return scene{}, cli.Misusef("-scene %s: there is no such scene; there are: %s", name, sceneNames())
	}
	return scenes[i], nil
}

// lockDelay is the lock delay of the clients with the habit "delay".
const lockDelay = 300 * ms

// longestExpiry returns the longest expiry that clients choose.
func longestExpiry(expiry time.Duration) time.Duration { return expiry + expiry/3 }

// longestTTL returns the longest TTL that clients give the keys of their locks.
func longestTTL(expiry time.Duration) time.Duration { return longestExpiry(expiry) + lockDelay }

// quarantine returns how long a restart guard for ttl excludes a node whose locks use fencing. The library
// adds to ttl the drift, 10 s for the skew of clocks, 1 s for granularity, and the time of some rounds.
func quarantine(ttl time.Duration) time.Duration {
	const skew, granularity, rounds = 10 * time.Second, time.Second, 500 * ms
	return ttl + ttl/100 + skew + granularity + rounds
}

// queueTTL is the longest TTL of a lock's queue. fenceTTL is the longest TTL of its fencing register.
const (
	queueTTL = 2*time.Second + 20*ms // the 20 ms are for the small jump of a clock whose rate changes
	fenceTTL = 24 * time.Hour
)

// lostSlop is how late a busy machine may tell a client that its lock is lost. It counts from the start of
// the next hold, and in checkTold from the end of the client's own hold.
const lostSlop = 2 * time.Second

// rules returns the rules that a history must obey.
func (s scene) rules(settled time.Duration, left, setBack map[int]time.Duration) history.Rules {
	return history.Rules{
		MaxTTL:     longestTTL(s.expiry),
		MaxSideTTL: map[string]time.Duration{":queue": queueTTL, ":slots": queueTTL, ":fence": fenceTTL},
		LostSlop:   lostSlop,
		Settled:    settled,
		SettledOn:  left,
		Gone:       []string{":queue", ":slots"},
		SetBack:    setBack,
		Idle:       s.idle(),
		Sights:     s.sights(setBack),
		Forces:     s.forcesRules(),
	}
}

// allowed reports whether the scene may break the rule of v. In an excluded scene nodes may admit a second holder, or
// more holders than there are permits. Then the first holder also learns of its loss too late, the second holder may
// come within a minimal hold, and the terms of two leaders may be numbered in the wrong order. A look may miss a holder
// whose keys the nodes have lost.
func (s scene) allowed(v history.Violation) bool {
	broken := []string{history.Exclusion, history.TooMany, history.LateLost, history.TooSoon, history.TermOrder, history.WrongState}
	return s.excluded && slices.Contains(broken, v.Rule)
}
