package redsync

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/observe"
)

// This file says what kinds of locks there are, and what does not go together.

// A kind is what the constructor and the options of a Mutex make of it together.
type kind struct {
	// claim returns what the holds of a Mutex write on the nodes. room has that of an exclusive lock.
	claim func(of *options, room *claim.Keyed) claim.Claim

	mode observe.Mode

	// adopted returns the claim c of an adopted hold with the slots of its Sequencer. nil leaves c as it is.
	adopted func(c claim.Claim, slots script.Slots) claim.Claim

	isReader bool

	// sharesName: several can hold the name at once, so a grant does not prove a former hold over.
	sharesName bool

	// alone is empty if a Do inside another on the same name joins. Otherwise it says what the outer one holds.
	alone string

	// isFixed is why Downgrade cannot make a hold shared.
	isFixed error
}

var (
	plainLock = &kind{
		mode:  observe.Plain,
		claim: exclusive,
	}
	severalNames = &kind{
		mode:    observe.Names,
		claim:   exclusive,
		isFixed: errors.New("a lock on several names cannot become shared"),
	}
	readers = &kind{
		mode:     observe.Shared,
		claim:    func(_ *options, room *claim.Keyed) claim.Claim { return room.Shared() },
		isReader: true, sharesName: true,
		isFixed: errors.New("WithShared: the lock is shared already"),
	}
	permits = &kind{
		mode: observe.Permits,
		claim: func(of *options, room *claim.Keyed) claim.Claim {
			return claim.NewPermits(room.Name(), of.permits, max(of.weight, 1))
		},
		adopted: func(c claim.Claim, slots script.Slots) claim.Claim {
			return c.(*claim.Permits).Of(slots) //nolint:forcetypeassert // it is what claim returns
		},
		sharesName: true, alone: "a permit of",
		isFixed: errors.New("WithPermits: a permit cannot become shared"),
	}
)

func exclusive(_ *options, room *claim.Keyed) claim.Claim { return &room.Exclusive }

func (o *options) kind() *kind {
	switch {
	case o.several:
		return severalNames
	case o.permits != 0:
		return permits
	case o.shared:
		return readers
	}
	return plainLock
}

// A feature is a set of things that a Mutex can have.
type feature uint16

const (
	hasLead feature = 1 << iota
	hasSeveral
	hasShared
	hasPermits
	hasFencing
	hasMinHold
	hasValue
	hasSequencer
	hasOwner
	hasGenValue
	hasTries
	hasWait

	// What a Sequencer is of: String does not look at these.
	ofPermits
	ofLock
	ofExclusive
	ofShared
)

// exclusions are the pairs that do not go together. docs/reference.md lists them for users.
var exclusions = []struct {
	one   feature
	other feature
	why   string
}{
	{hasLead, hasSequencer, "each term is a new hold"},
	{hasLead, hasValue, "each term is a new hold"},
	{hasLead, hasShared, "readers hold a name together, and only one can lead"},
	{hasLead, hasPermits, "several hold permits of a name, and only one can lead"},
	{hasValue, hasSequencer, "both name a lock to adopt"},
	{hasSequencer | ofPermits, hasSeveral, "the sequencer is of permits"},
	{hasSequencer | ofLock, hasPermits, "the sequencer is of a lock"},
	{hasSequencer | ofExclusive, hasShared, "the sequencer is of an exclusive lock"},
	{hasSequencer | ofShared, hasSeveral, "the sequencer is of a shared lock"},
	{hasPermits, hasSeveral, "permits are of one name"},
	{hasPermits, hasShared, "a permit is neither a reader's nor a writer's lock"},
	{hasPermits, hasFencing, "tokens of several holders at once order nothing"},
	{hasValue, hasPermits, "WithSequencer adopts a permit"},
	{hasShared, hasSeveral, "a lock on several names is exclusive"},
	{hasValue, hasShared, "WithSequencer adopts a shared lock"},
	{hasValue, hasSeveral, "WithSequencer adopts a lock on several names"},
	{hasMinHold, hasValue, "it is not known when the adopted lock was acquired"},
	{hasMinHold, hasSequencer, "it is not known when the adopted lock was acquired"},
	{hasMinHold, hasShared, "only an exclusive lock or a permit can stay after Unlock"},
	{hasOwner, hasValue, "WithSequencer adopts a lock whose value says an owner"},
	{hasOwner, hasGenValue, "the function makes the whole value"},
	{hasWait, hasTries, "each says how long to wait for the lock"},
}

func (f feature) String() string {
	return map[feature]string{
		hasLead: "Lead", hasSeveral: "NewMultiMutex", hasShared: "WithShared", hasPermits: "WithPermits", hasFencing: "WithFencing",
		hasMinHold: "WithMinHold", hasValue: "WithValue", hasSequencer: "WithSequencer", hasOwner: "WithOwner", hasGenValue: "WithGenValueFunc",
		hasTries: "WithTries", hasWait: "WithWait",
	}[f&(ofPermits-1)]
}

func (o *options) features() feature {
	f := when(o.leads, hasLead) | when(o.several, hasSeveral) | when(o.shared, hasShared) | when(o.permits != 0, hasPermits) |
		when(o.fencing, hasFencing) | when(o.minHold != 0, hasMinHold) |
		when(o.owner != "", hasOwner) | when(o.genValue != nil, hasGenValue) |
		when(o.givenTries, hasTries) | when(o.givenWait, hasWait)
	if a := o.adopts; a != nil {
		f |= when(a.value != "", hasValue) | when(a.sequencer.Value != "", hasSequencer|featuresOf(a.sequencer.Mode))
	}
	return f
}

func when(is bool, f feature) feature {
	if is {
		return f
	}
	return 0
}

func featuresOf(mode string) feature {
	switch _, _, permits := parsePermitsMode(mode); {
	case permits:
		return ofPermits
	case mode == modeRead:
		return ofLock | ofShared
	case mode == modeReaders:
		return ofLock
	}
	return ofLock | ofExclusive
}

func (o *options) excluded() error {
	f := o.features()
	for _, x := range exclusions {
		if f&x.one == x.one && f&x.other == x.other {
			return fmt.Errorf("redsync: %v excludes %v: %s", x.one, x.other, x.why)
		}
	}
	return nil
}

// adopt makes the options those of the lock whose hold they adopt, and returns its names.
func (o *options) adopt(name string, names []string) (of []string, err error) {
	s := o.adopts.sequencer
	switch {
	case s.Value == "" && !script.MayBeValue(o.adopts.value, false):
		return nil, errors.New("redsync: WithValue: " + noValue)
	case s.Value == "":
		return names, nil
	case s.Name != name:
		return nil, fmt.Errorf("redsync: WithSequencer: the sequencer is of the lock %s, not of %s", quoted(s.Name), quoted(name))
	case !script.MayBeValue(s.Value, s.Mode == modeRead || s.Mode == modeReaders):
		return nil, errors.New("redsync: WithSequencer: " + noValue)
	case s.Mode == modeReaders:
		return nil, errors.New("redsync: WithSequencer: other readers of the giver's process share the hold of the sequencer: " +
			"the giver must use Detach, or WithHandOver(false)")
	case s.Mode == modeRead:
		o.shared = true
	case s.Mode == modePlain && o.several:
		return nil, fmt.Errorf("redsync: WithSequencer: the sequencer is of one name, %s, not of the names %s", quoted(s.Name), quotedAll(names))
	case s.Mode == modePlain:
	default:
		if n, slots, ok := parsePermitsMode(s.Mode); ok {
			return names, o.adoptPermits(n, slots)
		}
		return o.adoptNames(names)
	}
	return names, nil
}

func (o *options) adoptPermits(n int, slots script.Slots) error {
	weight := slots.Len()
	switch {
	case o.permits != 0 && o.permits != n:
		return fmt.Errorf("redsync: WithSequencer: the sequencer is of %d permits, which excludes WithPermits(%d)", n, o.permits)
	case o.weight != 0 && o.weight != weight:
		return fmt.Errorf("redsync: WithSequencer: the sequencer is of weight %d, which excludes WithWeight(%d)", weight, o.weight)
	case weight > 1:
		o.weight, o.fair = weight, true
	}
	o.permits, o.adopts.slots = n, slots
	return nil
}

// adoptNames makes the options those of a lock on the names of the sequencer. The Mutex may have one name.
func (o *options) adoptNames(names []string) ([]string, error) {
	s := o.adopts.sequencer
	of, ok := s.cut()
	switch {
	case !ok || !slices.Equal(of, distinct(of)):
		return nil, fmt.Errorf("redsync: WithSequencer: the sequencer is of several names, but they do not make up the name %s", quoted(s.Name))
	case o.several && !slices.Equal(of, names):
		return nil, fmt.Errorf("redsync: WithSequencer: the sequencer is of the names %s, not of %s", quotedAll(of), quotedAll(names))
	}
	return of, nil
}

func (o *options) checkPermits() error {
	switch {
	case o.weight == 0:
		return nil
	case o.permits == 0:
		return fmt.Errorf("redsync: WithWeight(%d) needs WithPermits", o.weight)
	case o.weight > o.permits:
		return outOfRange("WithWeight", o.weight, fmt.Sprintf("1 to %d: the permits of WithPermits(%[1]d)", o.permits))
	case !o.fair:
		return fmt.Errorf("redsync: WithWeight(%d) needs WithFair: without it, others could overtake again and again", o.weight)
	}
	return nil
}

// noValue says why a value cannot be adopted, without that secret.
const noValue = `no holder has this value: it begins with "readers" and a line feed, or has a line feed although the lock is shared`
