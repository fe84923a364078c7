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
// names does not matter, and a duplicate counts once. With one name it returns a plain lock. There must be 1 to
// 64 names; NewMutex says which names are allowed.
//
// Each node decides about all names in one command: it grants all or none. So an attempt takes one round trip,
// however many names there are. No client holds some of the names while it waits for the others, so locks on
// several names cannot deadlock. The lock excludes every other lock that has one of its names, also one of
// NewMutex or of redsync v4. Fence returns one token for all names, greater than every earlier token of each
// name. A release wakes the next waiter of each name.
//
// Without WithFair, locks on single names may overtake a lock on several names again and again, because all of
// its names must be free at the same time. With WithFair no later waiter overtakes it. In return, later waiters
// for one of its names wait behind it, even while that name is free.
//
// The options are those of NewMutex, with four exceptions. WithValue is an error: WithSequencer adopts a
// lock on several names. WithShared is an error: a lock on several names is exclusive. WithPermits is an
// error: permits are of one name. WithHandOver has no effect, because Unlock never hands such a lock to
// another waiter of the process.
//
// If the client of a node is one for a Redis Cluster, all names must lie in one slot; with a Ring, they must have
// one hash tag. Give them a common tag, as in {acc}:1 and {acc}:2. Otherwise every operation fails before it
// sends anything, with an error that names two of them. With other kinds of clients this check is not possible: a
// node that keeps the names in different places then fails each time.
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

// setNames makes m a lock on names, which are distinct. If there are no names or too many, m can never be held, and
// m.name stays empty, so that no error lists thousands of names.
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

// checkSeveral returns why no lock can have all of these names, nil if one can. c may be nil.
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
		return fail(fmt.Sprintf("pool #%d", n.Index), "", fmt.Errorf(
			"the names %s and %s do not lie in one slot: give them a common hash tag, as in {tag}:name", quoted(a), quoted(b)))
	}
	return nil
}

// The errors of what does not go together with WithShared.
var (
	errSharedNames = errors.New("redsync: WithShared excludes NewMultiMutex: a lock on several names is exclusive")
	errSharedValue = errors.New("redsync: WithValue excludes WithShared: WithSequencer adopts a shared lock")
)

// errValueOfSeveral is the error of WithValue for several names.
var errValueOfSeveral = errors.New(
	"redsync: WithValue excludes NewMultiMutex: WithSequencer adopts a lock on several names")
