package redsync

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/jitter"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
)

// The defaults are those of redsync v4.
const (
	defaultExpiry        = 8 * time.Second
	defaultTries         = 32
	defaultDriftFactor   = 0.01
	defaultTimeoutFactor = 0.05

	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 250 * time.Millisecond
)

// settings are what options have written, and what follows. Mutexes share them (see recents): then they do not change.
type settings struct {
	options
	policy *lease.Policy // nil if an option is out of its range, or has changed since prepare
	isOwn  bool          // never shared: an option is or has a function
}

// options are what options write. They can be compared by ==.
type options struct {
	expiry        time.Duration
	driftFactor   float64
	timeoutFactor float64
	ownFactor     bool          // WithTimeoutFactor was applied
	nodeTimeout   time.Duration // 0: by timeoutFactor
	lockDelay     time.Duration
	maxHold       time.Duration // 0: no limit
	minHold       time.Duration // 0: none

	tries      int
	wait       time.Duration // 0: tries bound the wait
	retryDelay time.Duration // randomDelay by default
	delayFunc  *DelayFunc
	genValue   *func() (string, error)
	owner      string
	prefix     string
	adopts     *adoption  // WithValue, WithSequencer
	observers  *observers // WithHooks, WithLogger
	nesting    int        // 0: no limit
	priority   int
	permits    int // 0: a lock
	weight     int
	waitAll    bool // WithFailFast(false)
	heals      bool // WithSetNXOnExtend
	ownExpiry  bool // WithExpiry was applied
	watchdog   bool
	fair       bool
	shared     bool
	fencing    bool
	noHandOver bool  // WithHandOver(false)
	several    bool  // NewMultiMutex
	leads      bool  // Lead
	givenTries bool  // WithTries is given to this Mutex, or to this With
	givenWait  bool  // so is WithWait
	err        error // of the first option or name that cannot be used
}

// A DelayFunc returns how long to wait before attempt number tries + 1.
type DelayFunc func(tries int) time.Duration

// An adoption is a hold that a Mutex is to adopt.
type adoption struct {
	value     string
	sequencer Sequencer    // no Value if not set
	slots     script.Slots // of a hold of permits
	mode      observe.Mode // what observers are told; "": that of the kind
}

// takeAsIs makes the options those of a lock that is only looked at.
func (o *options) takeAsIs(a *adoption) {
	o.adopts = a
	o.shared, o.permits, o.weight = false, 0, 0
	o.fencing, o.minHold = false, 0
}

func (a *adoption) valueOf() string {
	switch {
	case a == nil:
		return ""
	case a.value != "":
		return a.value
	}
	return a.sequencer.Value
}

// with returns a changed copy of a; nil if there is nothing to adopt.
func (a *adoption) with(change func(*adoption)) *adoption {
	own := &adoption{}
	if a != nil {
		*own = *a
	}
	if change(own); own.valueOf() == "" {
		return nil
	}
	return own
}

const randomDelay time.Duration = -1

var defaultOptions = options{
	expiry: defaultExpiry, driftFactor: defaultDriftFactor, timeoutFactor: defaultTimeoutFactor,
	tries: defaultTries, retryDelay: randomDelay,
}

// defaultDelay is random, so that clients that collided do not meet again.
func defaultDelay(int) time.Duration {
	return minRetryDelay + jitter.N(maxRetryDelay-minRetryDelay)
}

func randomValue() (string, error) { return rand.Text(), nil }

func (o *options) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (s *settings) prepare() { s.policy, _ = s.check() }

func (o *options) check() (*lease.Policy, error) {
	if err := o.excluded(); err != nil {
		return nil, err
	}
	if o.err != nil {
		return nil, o.err
	}
	if err := o.checkPermits(); err != nil {
		return nil, err
	}
	timing, err := o.timing()
	if err != nil {
		return nil, err
	}
	return o.policyWith(timing), nil
}

func (o *options) policyWith(timing lease.Timing) *lease.Policy {
	var both struct{ own, inDo lease.Policy }
	p := &both.own
	*p = lease.Policy{
		Timing: timing, Value: randomValue, Owner: o.owner, WaitAll: o.waitAll, Heals: o.heals, Watchdog: o.watchdog, Fencing: o.fencing,
		Fair: o.fair, Priority: o.priority, Delay: defaultDelay, Mean: (minRetryDelay + maxRetryDelay) / 2, EndsIfDenied: o.leads,
		Rests: o.delayFunc == nil && o.retryDelay == randomDelay,
	}
	if o.genValue != nil {
		p.Value, p.UserValues = *o.genValue, true
	}
	if o.mayBeContinued() {
		p.Passes = !o.kind().isReader && !o.fair
		p.Joins = o.kind().isReader
	}
	switch delay := o.retryDelay; {
	case o.delayFunc != nil:
		p.Delay, p.Mean = *o.delayFunc, -1
	case delay != randomDelay:
		p.Delay, p.Mean = func(int) time.Duration { return delay }, delay
	}
	both.inDo = *p
	both.inDo.Watchdog, both.inDo.InDo = true, true
	p.OfDo = &both.inDo
	return p
}

// mayBeContinued reports whether another call may take over or share a hold with these options.
func (o *options) mayBeContinued() bool {
	return !o.noHandOver && !o.fencing && o.genValue == nil && o.adopts == nil && o.maxHold == 0 && o.minHold == 0
}

// recents are the last settings. Mutexes with the same options share them, which keeps them small.
type recents struct {
	list [4]atomic.Pointer[settings]
	next atomic.Uint32
}

// settle returns settings with the options of s and their policy, and whether others may share them. It may use up s.
func (r *recents) settle(s *settings) (settled *settings, shared bool) {
	mayShare := s.err == nil && s.adopts == nil && !s.isOwn
	for i := range r.list {
		if other := r.list[i].Load(); mayShare && other != nil && other.options == s.options {
			*s = settings{}
			spares.Put(s)
			return other, true
		}
	}
	if s.prepare(); !mayShare || s.policy == nil {
		return s, false
	}
	r.list[r.next.Add(1)%uint32(len(r.list))].Store(s)
	return s, true
}

// spares are zero settings that nobody has.
var spares = sync.Pool{New: func() any { return &settings{} }}

func newSettings(o *options) *settings {
	s := spares.Get().(*settings) //nolint:forcetypeassert // it is what New returns
	s.options = *o
	return s
}
