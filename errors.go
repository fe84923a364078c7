package redsync

import (
	"errors"
	"fmt"

	"github.com/hashicorp/go-multierror"
)

// Errors of the package. They are compared with errors.Is: what a method
// returns wraps them together with the cause.
var (
	// ErrFailed is the error of a Lock or TryLock that gave up. It comes with
	// the reason: *ErrTaken, a *RedisError per node that failed, or the cause
	// of the context's end.
	ErrFailed = errors.New("redsync: failed to acquire lock")

	// ErrExtendFailed is the error of an Extend that too few nodes confirmed.
	// The lock is still held until the old Until.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")

	// ErrLockAlreadyExpired is the error of an operation on a lock whose Until
	// has passed, or that the nodes no longer hold.
	ErrLockAlreadyExpired = errors.New("redsync: lock was already expired")

	// ErrLockLost joins ErrLockAlreadyExpired when a hold that was not unlocked
	// was found to be over: Extend or Valid found out.
	ErrLockLost = errors.New("redsync: lock lost")

	// ErrNotHeld is the error of Unlock, Extend and Valid on a Mutex that is
	// not held. Nothing was sent.
	ErrNotHeld = errors.New("redsync: lock not held")

	// ErrNoPools is the error of every operation of a Redsync without nodes.
	ErrNoPools = errors.New("redsync: no pools")

	// ErrClosed is the error of every operation after Close.
	ErrClosed = errors.New("redsync: closed")
)

// ErrTaken is the error of an operation when more nodes hold another value
// than a quorum allows: the lock is taken. Nodes are indices into the pools of
// New. It is always returned as a pointer.
type ErrTaken struct {
	Nodes []int
}

// Error names the nodes.
func (err ErrTaken) Error() string {
	return fmt.Sprintf("lock already taken, locked nodes: %v", err.Nodes)
}

// ErrNodeTaken is one node's refusal: it holds another value. It is always
// returned as a pointer.
type ErrNodeTaken struct {
	Node int
}

// Error names the node.
func (err ErrNodeTaken) Error() string {
	return fmt.Sprintf("node #%d: lock already taken", err.Node)
}

// A RedisError is one node's failure to answer, or its answer that it could
// not do what was asked. It is always returned as a pointer.
type RedisError struct {
	Node int
	Err  error
}

// Error names the node and the cause.
func (e RedisError) Error() string {
	return fmt.Sprintf("node #%d: %s", e.Node, e.Err)
}

// Unwrap returns the cause.
func (e RedisError) Unwrap() error {
	return e.Err
}

// nodeMissing is one node's answer that it holds no such key. It is not
// ErrLockAlreadyExpired: one node proves nothing.
type nodeMissing struct {
	node int
}

func (e *nodeMissing) Error() string {
	return fmt.Sprintf("node #%d: no such key", e.node)
}

// An opError says which operation on which lock failed, how (a sentinel of this
// package or several), and why.
type opError struct {
	op, name string
	is       []error
	why      error
}

func (e *opError) Error() string {
	text := fmt.Sprintf("redsync: %s %q", e.op, e.name)
	for _, err := range e.is {
		text += ": " + trimPrefix(err.Error())
	}
	if e.why != nil {
		text += ": " + trimPrefix(e.why.Error())
	}
	return text
}

// Unwrap returns everything that errors.Is and errors.As may find.
func (e *opError) Unwrap() []error {
	if e.why == nil {
		return e.is
	}
	return append(e.is[:len(e.is):len(e.is)], e.why)
}

func trimPrefix(text string) string {
	const prefix = "redsync: "
	if len(text) > len(prefix) && text[:len(prefix)] == prefix {
		return text[len(prefix):]
	}
	return text
}

// nodeErrors collects one entry per node, on one line.
func nodeErrors(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return &multierror.Error{Errors: errs, ErrorFormat: func(errs []error) string {
		text := ""
		for i, err := range errs {
			if i > 0 {
				text += "; "
			}
			text += err.Error()
		}
		return text
	}}
}
