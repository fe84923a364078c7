package redsync

// NewMultiMutex returns a lock on several names: it has all of them or none. There must be 1 to 64 names, each as for
// NewMutex. Their order does not matter. With one name it is a plain lock.
//
// An attempt takes one round trip. Locks on several names cannot deadlock. The lock excludes every other lock that
// has one of its names. Fence returns one token for all names.
//
// Without WithFair, locks on single names may overtake it again and again. With a Redis Cluster or a Ring, give the
// names a common hash tag, as in {acc}:1 and {acc}:2.
//
// The options are those of NewMutex. WithValue, WithShared and WithPermits are errors, and WithHandOver has no
// effect. See docs/several-names.md.
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
