package redsync

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/claim"
)

// maxNames is how many names a Mutex can have.
const maxNames = claim.MaxLines

// NewMultiMutex returns a lock on several names: it has all of them or none. It sends nothing. The order of the
// names does not matter, and a name that is there twice counts once. With one name it returns the plain lock.
// There must be 1 to 64 names, each as NewMutex wants it.
//
// Each node decides about all names in one command: it grants all or none. So an attempt takes one round trip,
// however many names there are, and nobody ever holds a part of them while waiting for the rest. Locks on several
// names cannot deadlock, in whatever order they name them. The lock excludes every other lock that shares a name
// with it, those of NewMutex and of redsync v4 too. Fence is one token for all names, greater than each token
// that was given for one of them before. A release wakes the next waiter of each name.
//
// Without WithFair, locks on single names may overtake it again and again: whenever one of its names is free,
// another may not be. With WithFair nobody who waits overtakes it. In return others wait behind it for names that
// are free, as if it took its names one by one.
//
// The options are those of NewMutex, with three exceptions. WithValue is an error: WithSequencer adopts a
// lock on several names. WithShared is an error: a lock on several names is exclusive. WithHandOver has no
// effect, because Unlock never hands such a lock to another waiter of the process.
//
// On a client of a Redis Cluster all names must lie in one slot, and on a Ring they must have one hash tag: give
// them a common tag, as in {acc}:1 and {acc}:2. Otherwise every operation fails, with an error that names two of
// them, before anything is sent. A node that keeps the names apart behind another kind of client fails each time.
func (r *Redsync) NewMultiMutex(names []string, options ...Option) *Mutex {
	all := distinct(names)
	if len(all) == 1 {
		return r.NewMutex(all[0], options...)
	}
	if r == nil {
		r = &Redsync{} // see With
	}
	m := &Mutex{core: r.core, set: r.set}
	m.setNames(all)
	m.configure(options)
	return m
}

// distinct returns names sorted, each once.
func distinct(names []string) []string {
	all := slices.Clone(names)
	slices.Sort(all)
	return slices.Compact(all)
}

// setNames makes m a lock on names, which are distinct. If they are none or too many, m can never be held, and m.name
// stays empty, so that no error lists thousands of names.
func (m *Mutex) setNames(names []string) {
	m.multi = claim.NewMulti(names)
	if m.badNames = checkNumber(len(names)); m.badNames == nil {
		m.name = m.multi.Name()
		m.badNames = m.core.checkSeveral(names)
	}
}

func checkNumber(names int) error {
	if names == 0 || names > maxNames {
		return fmt.Errorf("redsync: NewMultiMutex: %d names are %w: 1 to %d", names, errOutOfRange, maxNames)
	}
	return nil
}

// checkSeveral returns why no lock can have all of these names. c may be nil.
func (c *core) checkSeveral(names []string) error {
	for _, name := range names {
		if err := checkName(name); err != nil {
			return err
		}
	}
	if c == nil || c.err != nil { // every operation fails for another reason
		return nil //nolint:nilerr // see above
	}
	if n, a, b := c.keeper.Set.Apart(names); n != nil {
		return &within{fmt.Sprintf("pool #%d", n.Index), fmt.Errorf(
			"the names %q and %q do not lie in one slot: give them a common hash tag, as in {tag}:name", a, b)}
	}
	return nil
}

// What does not go together with WithShared.
var (
	errSharedNames = errors.New("redsync: WithShared excludes NewMultiMutex: a lock on several names is exclusive")
	errSharedValue = errors.New("redsync: WithValue excludes WithShared: WithSequencer adopts a shared lock")
)

// errValueOfSeveral is the error of WithValue for several names.
var errValueOfSeveral = errors.New(
	"redsync: WithValue excludes NewMultiMutex: WithSequencer adopts a lock on several names")
