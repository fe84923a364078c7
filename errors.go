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
	// ErrFailed is the error of a Lock, TryLock, Do or TryDo that has acquired nothing, and of a Lead that
	// ends while the process does not lead. The reason comes with it; LockContext and Lead list the reasons.
	ErrFailed = errors.New("redsync: failed to acquire lock")

	// ErrExtendFailed is the error of an Extend or a Downgrade that too few nodes confirmed.
	// The lock is still held until the old Until.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")

	// ErrLockAlreadyExpired is the error of an operation on a lock whose Until
	// has passed, or that the nodes no longer hold.
	ErrLockAlreadyExpired = errors.New("redsync: lock was already expired")

	// ErrLockLost says that a hold has ended, but not by Unlock or Detach. It always comes with the
	// cause. Err returns it for every such end. Extend, Downgrade and Valid return it when the nodes
	// have proved that no quorum holds the lock; Extend and Downgrade also when Until passed during the
	// call. After that every later call that needs the hold returns ErrLockLost too, until Unlock or the
	// next Lock. If Until passes during a Valid, the error is ErrLockAlreadyExpired alone.
	ErrLockLost = errors.New("redsync: lock lost")

	// ErrMaxHold comes with ErrLockAlreadyExpired when the hold has reached the limit of
	// WithMaxHold. It comes with ErrExtendFailed when Extend cannot prolong the hold any
	// further; in that case the lock is held until Until.
	ErrMaxHold = errors.New("redsync: lock held for the longest time allowed")

	// ErrNotHeld is the error of Unlock, Extend, Downgrade and Valid on a Mutex that is not held: then
	// nothing was sent. It is also their error if another call unlocks or detaches the Mutex
	// meanwhile. errors.Is finds ErrLockAlreadyExpired in it too, because redsync v4 returns that
	// from a second Unlock. To tell the two apart look for ErrNotHeld first.
	ErrNotHeld error = &notHeldError{}

	// ErrNoPools is the error of every operation of a Redsync without nodes.
	ErrNoPools = errors.New("redsync: no pools")

	// ErrDuplicateNode is the error of every operation if two pools of New have the same address
	// or the same client. It is the error of Open or of a Lock if the run ID shows that pools lead to
	// one server, and the distinct servers are no quorum of all pools. With enough servers locks go
	// on: a server counts once, and observers and the log are told (observe.OneServer). Of two
	// addresses of one server in different sets of NewJoint neither counts. The text of the error
	// names two pools. A Lock that returns it makes no further attempt; the next Lock first asks the
	// nodes which servers they are.
	ErrDuplicateNode = errors.New("redsync: two pools lead to one server")

	// ErrUpgrade is the error of a Lock, TryLock, Do, TryDo or Lead that would lock a name exclusively inside a
	// Do that holds the name shared, by WithShared or after Downgrade. The call would wait for the end of
	// that Do, and the Do waits for the call. Nothing was sent. Lock after the Do has ended.
	//
	// A call is inside a Do if its context is that of the function of the Do, or derived from it, and the function
	// has not returned. Both locks must be of the same New or Open. Any other call waits until its tries are used up.
	ErrUpgrade = errors.New("redsync: an exclusive lock within a shared one of the same name")

	// ErrNested is the error of a call that conflicts with a Do around it, or with calls that have joined the hold
	// of a Do. ErrUpgrade says which calls are inside a Do. Nothing was sent. These calls return it:
	//
	//   - a Lock, TryLock or Lead of a name that the Do holds: the call could wait for the end of the Do, and the Do
	//     waits for the call. Call Do instead of Lock: Do joins the hold;
	//   - any call that would take a permit (WithPermits), if the Do has a permit of the same semaphore;
	//   - a Do or TryDo on several names, if the Dos around it hold some of them but not all;
	//   - a Do or TryDo that asks for more than the hold has (see Mutex.Do), or that exceeds WithNesting;
	//   - an Unlock or Downgrade of a hold on which there are joined calls. For Downgrade only exclusive ones count.
	ErrNested = errors.New("redsync: nested calls on one name")

	// ErrClosed is the error of every operation after Close.
	ErrClosed = errors.New("redsync: closed")
)

// A notHeldError is the type of ErrNotHeld alone. It has a field, because pointers to values of size
// zero may be equal.
type notHeldError struct{ _ byte }

func (*notHeldError) Error() string { return "redsync: lock not held" }

// Is makes ErrNotHeld match ErrLockAlreadyExpired, which programs for redsync v4 look for.
func (*notHeldError) Is(target error) bool { return target == ErrLockAlreadyExpired } //nolint:errorlint // a sentinel

// ErrTaken says that the lock is taken. Unlock, Extend, Downgrade and Valid return it if so many
// nodes hold another value that the others are no quorum. Lock returns it if no quorum granted the
// lock, some node holds another value, and the nodes that did not fail are a quorum. In that case
// Lock also returns the errors of the nodes that failed. For Lock, a node that keeps the lock for
// a waiter ahead (WithFair, WithShared) counts as one that holds another value. Methods always
// return ErrTaken as a pointer.
type ErrTaken struct {
	Nodes []int // the nodes that hold another value: indices into the pools of New or the addresses of Open, from 0

	// Name is set by a Lock of several names: it is the first name that was not free on a quorum. Others
	// may be taken, too. For a lock on one name, and for other calls, it is empty.
	Name string
}

// Error names the nodes, and Name if there is one.
func (err ErrTaken) Error() string {
	if err.Name != "" {
		return fmt.Sprintf("lock already taken: %q, locked nodes: %v", err.Name, err.Nodes)
	}
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

// nodeMissing is one node's answer that it holds no such key, or that it does not hold all keys of a lock on
// several names. It does not match ErrLockAlreadyExpired, because one node proves nothing.
type nodeMissing struct {
	node    int
	address string
	part    bool // of a lock on several names; the node does not say which of its keys are missing
}

func (e *nodeMissing) Error() string {
	if e.part {
		return nodeName(e.node, e.address) + ": not all keys of the lock were there"
	}
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

// asLost returns the error of a hold that was lost because of cause.
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

// errWaiting is the reason of a Lock that asked no node, because other waiters of this process were ahead of it.
var errWaiting = errors.New("redsync: others of this process wait for it")

// whyNot returns why an attempt with the outcome o has acquired nothing.
func whyNot(o lease.Outcome) error {
	if o.Told != nil {
		return o.Told // the very error that observers were told, not a new one with the same text
	}
	switch o.Kind {
	case lease.Waiting:
		return errWaiting
	case lease.NotWon:
		err := notAcquired(o.Result)
		var taken *ErrTaken
		if len(o.Lines) > 1 && errors.As(err, &taken) {
			taken.Name = o.Lines[o.KeptBackBy()]
		}
		return err
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

// duplicateError returns ErrDuplicateNode with the two nodes that are one server.
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

// Error begins with the text of ErrFailed or ErrExtendFailed if the first cause is one of them,
// otherwise with the name of the operation.
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

// causes joins errors that are all true at once. Its text is one line. Functions return a *causes,
// because callers compare errors with == and use them as map keys: a struct with a slice would panic.
type causes struct{ all []error }

// because joins the errors that are not nil; it returns nil if all are nil.
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

// leaves appends errs to all. It replaces each *causes by the errors in it, and adds no error twice.
func leaves(all, errs []error) []error {
	for _, err := range errs {
		switch c, isCauses := err.(*causes); { //nolint:errorlint // a wrapper has a text of its own
		case isCauses:
			all = leaves(all, c.all)
		case !reflect.ValueOf(err).Comparable() || !slices.Contains(all, err): // a user's error may be a slice
			all = append(all, err)
		}
	}
	return all
}

// told returns the text of errors that are all true at once. For a lost lock it leaves out "already expired"
// if a more detailed cause follows. After an expiry it names the nodes that hold another value, and does not
// say that the lock is taken.
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

// Unwrap returns a slice, as the errors of errors.Join do, for programs that walk such errors.
func (e *within) Unwrap() []error { return []error{e.error} }

// nodeErrors joins one error for each node, on one line; it returns nil for none.
func nodeErrors(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return &errorsOfNodes{all: errs, told: errs}
}

// errorsOfNodes lets programs for any version of redsync v4 find the errors of nodes. Up to v4.16.0 redsync
// returned a *multierror.Error, which As provides. Since v4.17.0 redsync returns what errors.Join makes,
// and Unwrap returns the same slice as the Unwrap of that.
type errorsOfNodes struct {
	all  []error // one for each node that did not grant
	told []error // those errors of all whose texts are in the text
}

func (e *errorsOfNodes) Error() string { return joined(e.told, "; ") }

// Unwrap returns one error for each node that did not grant.
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

// errOutOfRange is in every error of outOfRange.
var errOutOfRange = errors.New("out of range")

func outOfRange(option string, value any, valid string) error {
	return fmt.Errorf("redsync: %s(%v) is %w: %s", option, value, errOutOfRange, valid)
}
