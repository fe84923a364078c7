package redsync

import (
	"errors"
	"fmt"
	"slices"
)

// NewMutex returns a lock with the given name, its Redis key, after the prefix of WithPrefix. It sends nothing. Names
// {x}:queue, {x}:fence, {x}:slots and {x}:slot:0 (or another number) are reserved for the name x. With an empty or
// reserved name, or an out-of-range option, every operation fails and says so.
func (r *Redsync) NewMutex(name string, options ...Option) *Mutex {
	m := r.newMutex(r.prefix() + name)
	m.configure(options)
	return m
}

// NewMultiMutex returns a lock on several names: it has all of them or none, and excludes every other lock on one of
// them. There must be 1 to 64 names, each as for NewMutex, in any order. With one name it is a plain lock.
//
// Locks on several names cannot deadlock, but without WithFair locks on single names may overtake them again and again.
// Fence returns one token for all. With a Redis Cluster or a Ring, the names need a common hash tag, as in {acc}:1 and
// {acc}:2. WithValue, WithShared and WithPermits are errors, and WithHandOver has no effect. See docs/several-names.md.
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

func (r *Redsync) newMutex(key string) *Mutex {
	if r == nil {
		r = &Redsync{} // from an Open that failed
	}
	m := &Mutex{core: r.core, set: r.set}
	m.keyed.Init(key)
	return m
}

// With returns a Redsync on the same nodes, with other defaults for its locks. Close of one closes both.
func (r *Redsync) With(options ...Option) *Redsync {
	m := r.newMutex(r.prefix())
	m.apply(options)
	m.settle()
	return &Redsync{core: m.core, set: m.set}
}

// An Option configures a Mutex. If it is out of its range, every operation fails with an error that names the option,
// the value and the range. On a held Mutex it takes effect with the next Lock.
type Option interface {
	Apply(*Mutex)
}

// OptionFunc is a function that configures a Mutex.
type OptionFunc func(*Mutex)

// Apply calls f(m).
func (f OptionFunc) Apply(m *Mutex) {
	if f == nil {
		m.change().fail(errors.New("redsync: nil OptionFunc"))
		return
	}
	f(m)
}

// A setting is an Option that needs nothing else of a Mutex.
type setting func(*settings)

// Apply implements Option.
func (change setting) Apply(m *Mutex) { change(m.change()) }

// within returns ok, which says that the value of an option is in its range. Otherwise the option fails.
func within[T any](s *settings, ok bool, option string, value T, valid string) bool {
	if !ok {
		s.fail(outOfRange(option, value, valid))
	}
	return ok
}

// change returns the settings of m for an option to change: a copy, unless m has its own.
func (m *Mutex) change() *settings {
	if !m.changed {
		base := &defaultOptions
		if m.set != nil {
			base = &m.set.options
		}
		m.set, m.changed = newSettings(base), true
		m.set.givenTries, m.set.givenWait = false, false // what is given now replaces the other
	}
	m.set.policy = nil
	return m.set
}

func (m *Mutex) apply(options []Option) {
	for i, o := range options {
		if o == nil {
			m.change().fail(fmt.Errorf("redsync: option #%d is nil", i))
			continue
		}
		o.Apply(m)
	}
}

func (m *Mutex) settle() {
	if m.changed && m.core != nil {
		set, shared := m.core.recents.settle(m.set)
		m.set, m.changed = set, !shared
	}
}

func (m *Mutex) configure(options []Option) {
	m.apply(options)
	if m.set != nil && m.set.adopts != nil {
		m.takeWholeName(m.set.adopts.sequencer)
	}
	m.checkNames()
	if m.set != nil && m.set.adopts != nil {
		m.adoptNamed()
	}
	m.settle()
	m.prepare()
}

func (m *Mutex) checkNames() {
	var err error
	prefix := m.prefix()
	if m.hasSeveral() {
		err = m.core.checkNames(prefix, m.keyed.Lines())
	} else {
		err = checkName(prefix, m.keyed.Name())
	}
	if err != nil {
		m.change().fail(err)
	}
}

// adoptNamed makes m a lock such as the one it adopts. If m does not fit, its operations fail.
func (m *Mutex) adoptNamed() {
	set := m.change()
	own := *set.adopts // other Mutexes may have the same
	m.adopts, set.adopts = &own, &own
	names, err := set.adopt(m.label(), m.names())
	if err != nil {
		set.fail(err)
	} else if len(names) != len(m.names()) {
		m.setNames(names)
		m.checkNames()
	}
}

func (m *Mutex) setNames(names []string) {
	m.change().several = true
	m.keyed.Init(names...)
}

func (m *Mutex) hasSeveral() bool { return len(m.keyed.Lines()) != 1 }

func (r *Redsync) prefix() string {
	if r == nil || r.set == nil {
		return ""
	}
	return r.set.prefix
}

func (m *Mutex) prefix() string {
	if m.set == nil {
		return ""
	}
	return m.set.prefix
}

func (m *Mutex) replacePrefix(prefix string) {
	former := len(m.prefix())
	m.change().prefix = prefix
	names := slices.Clone(m.keyed.Lines())
	for i, name := range names {
		names[i] = prefix + name[former:]
	}
	m.keyed.Init(names...)
}

// takeWholeName takes the prefix off the names of m if the program has given those of s, which have it.
func (m *Mutex) takeWholeName(s Sequencer) {
	prefix, names := m.prefix(), s.Names()
	if !m.hasSeveral() {
		names = []string{s.Name}
	}
	if prefix != "" && s.Name != "" && s.isUnder(prefix) &&
		slices.EqualFunc(m.keyed.Lines(), names, func(own, of string) bool { return own == prefix+of }) {
		m.keyed.Init(names...)
	}
}

func (m *Mutex) prepare() {
	switch {
	case m.core == nil:
	case m.set.policy != nil:
		m.terms = m.termsBy(m.set.policy)
	default:
		m.terms.Keeper = &m.core.keeper // see isMade
	}
}

// isMade reports whether NewMutex or NewMultiMutex has made m. Then its names stay: leases use their memory.
func (m *Mutex) isMade() bool { return m.terms.Keeper != nil }

// twin returns a new Mutex with the name and the settings of m, which adopts nothing.
func (m *Mutex) twin() *Mutex {
	twin := (&Redsync{core: m.core, set: m.set}).newMutex(m.label())
	twin.prepare()
	return twin
}
