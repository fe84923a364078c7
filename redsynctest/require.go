package redsynctest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// RequireHeld fails the test unless the lock is held: a quorum of all nodes is up and has the same value of it.
// Who holds it does not matter. A node that is frozen is not up. Permits do not count: they are independent of
// the lock.
func (ns *Nodes) RequireHeld(name string) {
	ns.t.Helper()
	ns.require("RequireHeld", name, 0, ns.checkHeld)
}

// AwaitHeld waits until the lock is held, as RequireHeld defines it. After 10 s it fails the test.
func (ns *Nodes) AwaitHeld(name string) {
	ns.t.Helper()
	ns.require("AwaitHeld", name, patience, ns.checkHeld)
}

// RequireFree fails the test unless the lock can be acquired: a quorum of all nodes is up and does not have it.
func (ns *Nodes) RequireFree(name string) {
	ns.t.Helper()
	ns.require("RequireFree", name, 0, ns.checkFree)
}

// AwaitFree waits until the lock can be acquired, as RequireFree defines it. After 10 s it fails the test.
func (ns *Nodes) AwaitFree(name string) {
	ns.t.Helper()
	ns.require("AwaitFree", name, patience, ns.checkFree)
}

func (ns *Nodes) checkHeld(name string, values map[string]int, _ int) error {
	most := 0
	for _, nodes := range values {
		most = max(most, nodes)
	}
	if most >= ns.quorum() {
		return nil
	}
	if len(ns.nodes) == 1 {
		return fmt.Errorf("lock %q is not held", name)
	}
	return fmt.Errorf("lock %q is not held: %d of %d nodes have the same value, a quorum is %d",
		name, most, len(ns.nodes), ns.quorum())
}

func (ns *Nodes) checkFree(name string, _ map[string]int, free int) error {
	if free >= ns.quorum() {
		return nil
	}
	if len(ns.nodes) == 1 {
		return fmt.Errorf("lock %q is not free", name)
	}
	return fmt.Errorf("lock %q is not free: it is free on %d of %d nodes, a quorum is %d",
		name, free, len(ns.nodes), ns.quorum())
}

// RequireNothingLeft fails the test unless no lock and no waiter has a key on any node that is up: everything
// was released. It waits for releases that are under way: up to 10 s, but at most half of the time until the
// first key would expire by itself. Locks of HoldBySomebody and Steal do not count, nor do the registers of
// WithFencing, which stay by design, nor keys that an Unlock has left for the rest of a minimal hold (WithMinHold). The keys of a lock that was lost at Until count until they run out.
func (ns *Nodes) RequireNothingLeft() {
	ns.t.Helper()
	var left error
	ns.try("RequireNothingLeft", nil, func() error {
		left = ns.leftNow()
		return nil
	})
	if left != nil {
		ns.fatal(left)
	}
}

// require looks at a lock on the nodes, and calls check with what look returns. If check returns an error, require
// repeats both for as long as patience. If check still returns an error then, require fails the test.
func (ns *Nodes) require(method, name string, patience time.Duration,
	check func(name string, values map[string]int, free int) error,
) {
	ns.t.Helper()
	var wrong error
	ns.try(method, &name, func() error {
		wrong = await(patience, func() error {
			values, free, seen := ns.look(name)
			if err := check(name, values, free); err != nil {
				return fmt.Errorf("%w\n%s", err, seen)
			}
			return nil
		})
		return nil
	})
	if wrong != nil {
		ns.fatal(wrong)
	}
}

// look returns how many nodes have each value of a lock, and how many are up and have no value. seen is a text
// that says what each node has. The numbers leave out nodes that fail to answer.
func (ns *Nodes) look(name string) (values map[string]int, free int, seen string) {
	values = map[string]int{}
	var lines []string
	for _, n := range ns.nodes {
		s := n.sees(name)
		lines = append(lines, fmt.Sprintf("%v: %v", n, s))
		switch {
		case s.err != nil || s.state != up:
		case s.value == "":
			free++
		default:
			values[s.value]++
		}
	}
	return values, free, strings.Join(lines, "\n")
}

func (ns *Nodes) fatal(err error) {
	ns.t.Helper()
	ns.t.Fatalf("%s", formatted(ns.t.Name(), err.Error()))
}

// formatted returns a failure as testify shows it.
func formatted(test, what string) string {
	text := "\n\tError:      \t" + strings.ReplaceAll(what, "\n", "\n\t            \t") + "\n"
	if test != "" {
		text += "\tTest:       \t" + test + "\n"
	}
	return text
}

// leftNow returns an error if a node that is up has a key of a lock or a waiter. It waits for releases under way,
// but at most half of the time until the first key expires: a key that expires by itself was not released.
func (ns *Nodes) leftNow() error {
	everyNode, noKey := func(*Node) bool { return true }, func(string) bool { return false }
	shortest, err := ns.left(everyNode, noKey)
	if err == nil {
		return nil
	}
	return await(min(patience, shortest/2), func() error {
		_, err := ns.left(everyNode, noKey)
		return err
	})
}

// leftAtEnd returns an error if a node that has had no fault has a key of a lock or a waiter, although all
// processes are closed. It waits up to 2 s, because the keys of a lost lock last a little longer than the hold.
func (ns *Nodes) leftAtEnd() error {
	return await(2*time.Second, func() error {
		_, err := ns.left((*Node).neverFaulty, ns.isApart)
		return err
	})
}

// left looks at the nodes for which counts returns true, and leaves out the keys for which except returns true. It
// returns an error if these nodes have other keys of locks or waiters, and the shortest TTL of those keys.
func (ns *Nodes) left(counts func(*Node) bool, except func(key string) bool) (shortest time.Duration, err error) {
	shortest = somebodyTTL
	var errs []error
	for _, n := range ns.nodes {
		if !counts(n) {
			continue
		}
		keys, err := n.ask("keys", "*")
		errs = append(errs, err)
		list, _ := keys.([]any)
		for _, key := range list {
			name := fmt.Sprint(key)
			seen := n.sees(name)
			if script.Reserved(name) != ":fence" && seen.value != "" && !seen.ofSomebody() && !except(name) && !ns.kept.has(name, seen.value) {
				shortest = min(shortest, seen.ttl)
				errs = append(errs, fmt.Errorf("%v: %q is left: %v", n, name, seen))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return shortest, fmt.Errorf("%w\nthe code under test must unlock each Mutex, and close each Redsync that it makes itself", err)
	}
	return shortest, nil
}

// A sight says what a node has in place of a lock's key.
type sight struct {
	state state
	value string
	ttl   time.Duration
	err   error
}

// sees asks for a key. It holds n.mu meanwhile, so that the state of the node is that at the time of the
// answer: a node that has just gone down must not seem free.
func (n *Node) sees(key string) sight {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := sight{state: n.state}
	if s.state != up {
		return s
	}
	value, err := n.askLocked("get", key)
	if value == nil || err != nil {
		s.err = err
		return s
	}
	ttl, err := n.askLocked("pttl", key)
	milliseconds, _ := ttl.(int64)
	if milliseconds == noKey {
		return s // it was released after the answer to GET
	}
	s.value, s.ttl, s.err = fmt.Sprint(value), time.Duration(milliseconds)*time.Millisecond, err
	return s
}

const (
	somebodyValue = "redsynctest:somebody:" // and a number
	somebodyTTL   = 24 * time.Hour
	noKey         = -2 // the answer to PTTL
	shownValue    = 8  // that many characters of a value are enough to tell two holders apart
)

func (s sight) ofSomebody() bool { return strings.HasPrefix(s.value, somebodyValue) }

func (s sight) String() string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case s.state != up:
		return string(s.state)
	case s.value == "":
		return "free"
	case s.ofSomebody():
		return "held by somebody else, whom Steal or HoldBySomebody made up"
	case len(s.value) > shownValue:
		return fmt.Sprintf("value %q..., expires in %v", s.value[:shownValue], s.ttl)
	}
	return fmt.Sprintf("value %q, expires in %v", s.value, s.ttl)
}
