package redsync

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
	for i, prefix := 0, r.prefix(); i < len(all); i++ {
		all[i] = prefix + all[i]
	}
	m := r.newMutex("")
	m.setNames(all)
	m.configure(options)
	return m
}
