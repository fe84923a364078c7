package redsync

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/go-multierror"

	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// Errors of the package. Compare them with errors.Is: the error of a method wraps one of them
// together with the cause.
var (
	// ErrFailed is the error of a Lock or TryLock that has acquired nothing. The reason comes with
	// it; LockContext lists the reasons.
	ErrFailed = errors.New("redsync: failed to acquire lock")

	// ErrExtendFailed is the error of an Extend that too few nodes confirmed.
	// The lock is still held until the old Until.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")

	// ErrLockAlreadyExpired is the error of an operation on a lock whose Until
	// has passed, or that the nodes no longer hold.
	ErrLockAlreadyExpired = errors.New("redsync: lock was already expired")

	// ErrLockLost says that a hold has ended, but not by Unlock or Detach. It always comes with
	// the cause. Err returns it for every such end. Extend and Valid return it when the nodes have
	// proved that no quorum holds the lock; Extend also when Until passed during the call. From
	// then on every call returns it, until Unlock or the next Lock. If Until passes during a
	// Valid, the error is ErrLockAlreadyExpired alone.
	ErrLockLost = errors.New("redsync: lock lost")

	// ErrMaxHold comes with ErrLockAlreadyExpired when the hold has reached the limit
	// of WithMaxHold. It comes with ErrExtendFailed when Extend cannot prolong the hold any
	// further; then the lock is held until Until.
	ErrMaxHold = errors.New("redsync: lock held for the longest time allowed")

	// ErrNotHeld is the error of Unlock, Extend and Valid on a Mutex that is not held: then
	// nothing was sent. It is also their error if another call unlocks or detaches the Mutex
	// meanwhile. errors.Is finds ErrLockAlreadyExpired in it too, because redsync v4 returns that
	// from a second Unlock. To tell the two apart look for ErrNotHeld first.
	ErrNotHeld error = &notHeldError{}

	// ErrNoPools is the error of every operation of a Redsync without nodes.
	ErrNoPools = errors.New("redsync: no pools")

	// ErrDuplicateNode is the error of every operation if two pools of New have one
	// address or one client. It is the error of Open or of a Lock when two pools turn out to
	// lead to one server, by its run ID. The votes of both count as one, so safety does not suffer;
	// but the configuration is wrong. The text names both pools. Lock does not try again then; the
	// next Lock first asks the nodes whether they are still one server.
	ErrDuplicateNode = errors.New("redsync: two pools lead to one server")

	// ErrClosed is the error of every operation after Close.
	ErrClosed = errors.New("redsync: closed")
)

// A notHeldError is the type of ErrNotHeld alone. It is not empty, because pointers to values
// without a size may be equal.
type notHeldError struct{ _ byte }

func (*notHeldError) Error() string { return "redsync: lock not held" }

// Is serves programs that look for the error of redsync v4.
func (*notHeldError) Is(target error) bool { return target == ErrLockAlreadyExpired } //nolint:errorlint // a sentinel

// ErrTaken says that the lock is taken: so many nodes hold another value that the others are no
// quorum. In the error of Lock the errors of nodes that failed stand beside it. Methods
// always return it as a pointer.
type ErrTaken struct {
	Nodes []int // that hold another value: indices into the pools of New or the addresses of Open, from 0
}

// Error names the nodes.
func (err ErrTaken) Error() string {
	return fmt.Sprintf("lock already taken, locked nodes: %v", err.Nodes)
}

// ErrNodeTaken is the refusal of one node that holds another value. Methods always return it as a
// pointer.
type ErrNodeTaken struct {
	Node    int    // index into the pools of New or the addresses of Open, from 0
	Address string // of the node, as its Pool's String has it
}

// Error names the node.
func (err ErrNodeTaken) Error() string {
	return nodeName(err.Node, err.Address) + ": it holds another value"
}

// A RedisError is the failure of one node: it did not answer, or it answered that it could not do
// what it was asked. Methods always return it as a pointer.
type RedisError struct {
	Node    int // index into the pools of New or the addresses of Open, from 0
	Err     error
	Address string // of the node, as its Pool's String has it
}

// Error names the node and the cause.
func (e RedisError) Error() string {
	return nodeName(e.Node, e.Address) + ": " + stem(e.Err)
}

// Unwrap returns the cause.
func (e RedisError) Unwrap() error {
	return e.Err
}

// nodeMissing is one node's answer that it holds no such key. It is not
// ErrLockAlreadyExpired: one node proves nothing.
type nodeMissing struct {
	node    int
	address string
}

func (e *nodeMissing) Error() string {
	return nodeName(e.node, e.address) + ": no such key"
}

// nodeName names a node in a message.
func nodeName(i int, address string) string {
	if address == "" {
		return fmt.Sprintf("node #%d", i)
	}
	return fmt.Sprintf("node #%d (%s)", i, address)
}

// ends are the errors for the ends of a lease.
var ends = lease.Errors{
	NotHeld:  ErrNotHeld,
	Expired:  ErrLockAlreadyExpired,
	MaxHold:  because(ErrLockAlreadyExpired, ErrMaxHold),
	Spent:    because(ErrExtendFailed, ErrMaxHold),
	Closed:   ErrClosed,
	Failed:   ErrFailed,
	Lost:     asLost,
	Rejected: func(res quorum.Result) error { return lost(notGranted(res)) },
}

// asLost returns the error of a hold that has ended for a cause.
func asLost(cause error) error {
	if errors.Is(cause, ErrLockLost) {
		return cause
	}
	return because(ErrLockLost, cause)
}

// lost returns the error of a hold that was found to be over.
func lost(why error) error {
	return because(ErrLockLost, ErrLockAlreadyExpired, why)
}

// errWaiting is the reason if no node has been asked.
var errWaiting = errors.New("redsync: others of this process wait for it")

// whyNot returns why an attempt that came to o has acquired nothing.
func whyNot(o lease.Outcome) error {
	if o.Told != nil {
		return o.Told // the same error
	}
	switch o.Kind {
	case lease.Waiting:
		return errWaiting
	case lease.NotWon:
		return notAcquired(o.Result)
	case lease.Late:
		return fmt.Errorf("%w: the nodes answered after the validity of %v", ErrLockAlreadyExpired, o.Validity)
	case lease.Duplicates:
		return duplicateError(o.Duplicate.A.Index, o.Duplicate.A.Address, o.Duplicate.B.Index, o.Duplicate.B.Address)
	case lease.Unusable:
		return o.Err
	case lease.NotAsked, lease.Won:
	}
	return nil
}

// duplicateError returns ErrDuplicateNode with the nodes that are one.
func duplicateError(a int, addressA string, b int, addressB string) error {
	if addressA == addressB {
		return fmt.Errorf("%w: #%d and #%d (%s)", ErrDuplicateNode, a, b, addressA)
	}
	return fmt.Errorf("%w: #%d (%s) and #%d (%s)", ErrDuplicateNode, a, addressA, b, addressB)
}

// An opError says which operation on which lock failed, and why.
type opError struct {
	op, name string
	causes
}

// Error says first what failed: in the words of ErrFailed or ErrExtendFailed if it is one of them,
// otherwise by the name of the operation.
func (e *opError) Error() string {
	all := leaves(nil, e.all)
	if len(all) > 0 && (all[0] == ErrFailed || all[0] == ErrExtendFailed) { //nolint:errorlint // sentinels
		head := fmt.Sprintf("%s %q", all[0], e.name)
		if len(all) == 1 {
			return head
		}
		return head + ": " + told(all[1:])
	}
	return fmt.Sprintf("redsync: %s %q: %s", e.op, e.name, told(all))
}

// causes are errors that hold all at once, on one line. Functions return a pointer to it, because
// callers compare errors with == and use them as keys: with a slice either would panic.
type causes struct{ all []error }

// because joins the errors that are not nil; it returns nil if all are.
func because(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &causes{all}
}

func (c *causes) Error() string { return "redsync: " + told(leaves(nil, c.all)) }

// Unwrap returns everything that errors.Is and errors.As may find.
func (c *causes) Unwrap() []error { return slices.Clone(c.all) }

// leaves appends to all the errors that errs consist of, each once.
func leaves(all, errs []error) []error {
	for _, err := range errs {
		switch c, isCauses := err.(*causes); { //nolint:errorlint // what it wraps is told by itself
		case isCauses:
			all = leaves(all, c.all)
		case !reflect.ValueOf(err).Comparable() || !slices.Contains(all, err): // a user's may be a slice
			all = append(all, err)
		}
	}
	return all
}

// told is the text of errors that hold all at once. It says nothing twice. For a lost lock it leaves out
// "already expired" if a more detailed cause follows. After an expiry it names the nodes that hold another
// value, and does not say that the lock is taken.
func told(all []error) string {
	lost, expired := slices.Contains(all, ErrLockLost), slices.Contains(all, ErrLockAlreadyExpired)
	texts := make([]string, 0, len(all))
	for i, err := range all {
		text := stem(err)
		taken, isTaken := err.(*ErrTaken) //nolint:errorlint // one that is wrapped has a text of its own
		switch {
		case err == ErrLockAlreadyExpired && lost && i+1 < len(all): //nolint:errorlint // a sentinel
			continue
		case err == ErrLockAlreadyExpired && lost: //nolint:errorlint // a sentinel
			text = "it has expired"
		case isTaken && expired:
			text = fmt.Sprintf("another value on nodes %v", taken.Nodes)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ": ")
}

// joined joins the texts of errs, without the package's name before each.
func joined(errs []error, separator string) string {
	var b strings.Builder
	for i, err := range errs {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(stem(err))
	}
	return b.String()
}

// stem returns the text of err without the prefix "redsync: " or "pool: ".
func stem(err error) string {
	if err == nil {
		return "no error"
	}
	text := strings.TrimPrefix(err.Error(), "redsync: ")
	return strings.TrimPrefix(text, "pool: ")
}

// A within is an error and where it happened, as in "redsync: Open: address #2: ...".
type within struct {
	where string
	error
}

func (e *within) Error() string { return "redsync: " + e.where + ": " + stem(e.error) }

// Unwrap returns a list, for programs that walk what errors.Join joins.
func (e *within) Unwrap() []error { return []error{e.error} }

// nodeErrors joins one error for each node, on one line; it returns nil for none.
func nodeErrors(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return &errorsOfNodes{all: errs, told: errs}
}

// errorsOfNodes matches like the errors of nodes in every version of redsync v4. Up to v4.16.0 those
// were a *multierror.Error, which As provides; since v4.17.0 they come from errors.Join, and Unwrap
// returns the same as theirs.
type errorsOfNodes struct {
	all  []error // of each node that did not grant
	told []error // those of them that the text tells
}

func (e *errorsOfNodes) Error() string { return joined(e.told, "; ") }

// Unwrap returns the error of each node, as what errors.Join returns does.
func (e *errorsOfNodes) Unwrap() []error { return slices.Clone(e.all) }

// As gives errors.As a *multierror.Error of the same errors.
func (e *errorsOfNodes) As(target any) bool {
	as, ok := target.(**multierror.Error)
	if ok {
		*as = &multierror.Error{Errors: slices.Clone(e.all), ErrorFormat: func(errs []error) string {
			return joined(errs, "; ")
		}}
	}
	return ok
}

// errOutOfRange marks every complaint about an option.
var errOutOfRange = errors.New("out of range")

func outOfRange(option string, value any, valid string) error {
	return fmt.Errorf("redsync: %s(%v) is %w: %s", option, value, errOutOfRange, valid)
}
