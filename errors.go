package redsync

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-multierror"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
)

// Errors of the package, for errors.Is: a method's error wraps one of them together with the cause.
var (
	// ErrFailed is the error of a Lock, TryLock, Do, TryDo or Lead that has acquired nothing because others have the
	// lock, have taken some nodes at the same moment, or are ahead in this process. Except in the last case, *ErrTaken
	// comes with it. No other failure matches ErrFailed.
	ErrFailed = errors.New("redsync: failed to acquire lock")

	// ErrNoQuorum is the error of every operation to which too few nodes answered in time. It does not say who has the
	// lock: one that was held is held until Until. So it never comes with ErrFailed, *ErrTaken or ErrLockLost. Each failed
	// node has its *RedisError. The text says if nodes deny access until somebody changes a setting.
	ErrNoQuorum = errors.New("redsync: too few nodes answered in time")

	// ErrExtendFailed is the error of an Extend or a Downgrade that too few nodes confirmed: with ErrNoQuorum if nodes
	// that failed could have. The lock is still held until the old Until.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")

	// ErrLockAlreadyExpired is the error of an operation on a lock whose Until has passed, or that the nodes no longer
	// hold.
	ErrLockAlreadyExpired = errors.New("redsync: failed to unlock, lock was already expired")

	// ErrLockLost means that the lock has ended without your Unlock or Detach. Stop the work. errors.Is finds the cause,
	// and errors.As nodes that did not answer.
	//
	// Err, Do, TryDo and Lead return it for every such end. Extend, Downgrade and Valid return it if the nodes prove the
	// loss, and later calls that need the lock do until Unlock or the next Lock. If Until passes during the call, Extend
	// and Downgrade return it, but Valid returns ErrLockAlreadyExpired alone.
	ErrLockLost = errors.New("redsync: lock lost")

	// ErrMaxHold means that the limit of WithMaxHold is reached. With ErrLockAlreadyExpired the lock is over. With
	// ErrExtendFailed it is held until Until, but cannot be extended.
	ErrMaxHold = errors.New("redsync: lock held for the longest time allowed")

	// ErrNotHeld means that this Mutex has no lock: it was never locked, or is unlocked or detached already. It also
	// matches ErrLockAlreadyExpired, which redsync v4 returns from a second Unlock: test for ErrNotHeld first.
	ErrNotHeld error = &said{ErrLockAlreadyExpired, "redsync: lock not held"}

	// ErrForced means that an operator called ForceUnlock, or deleted the keys within the first second. It matches
	// ErrLockLost. Only a holder with WithOwner is told.
	ErrForced error = &said{ErrLockLost, "redsync: lock released by force"}

	// ErrNoPools is the error of every operation of a Redsync without nodes.
	ErrNoPools = errors.New("redsync: no pools")

	// ErrDuplicateNode means that two nodes, which the text names, are one server. Every operation returns it if two pools
	// of New have the same address or client. If only the run ID shows it, the server counts once, and Open, Ping and Lock
	// return it only if the distinct servers are no quorum. See docs/nodes.md.
	ErrDuplicateNode = errors.New("redsync: two nodes are one server")

	// ErrNested is the error of a call that conflicts with a Do around it, or with calls that have joined the lock of a
	// Do. Nothing was sent. See docs/nesting.md. It comes from
	//
	//   - Lock, TryLock or Lead of a name that the Do holds. Call Do: it joins;
	//   - an exclusive call, if the Do holds the name shared;
	//   - a call for a permit, if the Do has one of the same name;
	//   - a Do on several names, if the Dos around it hold only some;
	//   - a Do that asks for more than the lock has, or exceeds WithNesting;
	//   - Unlock or Downgrade, if calls have joined the lock.
	ErrNested = errors.New("redsync: nested calls on one name")

	// ErrClosed is the error of every operation after Close.
	ErrClosed = errors.New("redsync: this Redsync was closed")
)

// ErrTaken says that another client has the lock. Methods return it as a pointer. From Lock, TryLock, Unlock, Extend
// and Valid it is the outermost error, as in redsync v4. errors.Is and errors.As find what comes with it.
//
// Lock returns it with ErrFailed, if a quorum has answered. Perhaps no client has the lock yet: several may have tried
// at the same moment, or nodes keep it for a waiter ahead (WithFair, WithShared). Unlock, Extend, Downgrade and Valid
// return it if other clients have so many nodes that the rest are no quorum.
type ErrTaken struct {
	Nodes []int // those that hold another value: indices, from 0

	// Name is the name of the lock. Of several, Lock gives the first that was not free on a quorum, other calls what
	// Mutex.Name returns.
	Name string

	// Owner is the label of the holder (WithOwner), "" if it is not known; of several, of one whose keys last longest.
	// Lock, TryLock and Do of a Mutex with WithOwner ask the nodes for it when they give up.
	Owner string

	asked *askedOwner
	whole *failure // on the outermost error of a call: see inV4
}

// An askedOwner is what else is known of an *ErrTaken with an Owner.
type askedOwner struct {
	held   time.Duration // by the clocks of both
	before *ErrTaken     // what observers were told
}

// takenBy returns err with the owner in its *ErrTaken, if nodes tell it in time.
func takenBy(t *lease.Terms, err error) error {
	f, isOne := err.(*failure) //nolint:errorlint // nobody wraps it
	if !isOne {
		return err
	}
	for at, cause := range f.causes {
		taken, is := cause.(*ErrTaken) //nolint:errorlint // see text
		if !is {
			continue
		}
		line := taken.Name
		if lines := t.Claim.Lines(); len(lines) == 1 {
			line = lines[0] // a semaphore's is not the name
		}
		if owner, known := lease.AskOwner(t, line); known {
			own := &failure{causes: slices.Clone(f.causes), nodes: f.nodes}
			own.causes[at] = &ErrTaken{
				Nodes: taken.Nodes, Name: taken.Name, Owner: owner.Label,
				asked: &askedOwner{max(0, time.Since(owner.Since)), taken},
			}
			return own
		}
	}
	return err
}

// Error names the lock and the nodes.
func (err ErrTaken) Error() string {
	switch {
	case err.whole != nil:
		return err.whole.Error()
	case err.Name == "": // made by a program
		return err.says()
	}
	return quoted(err.Name) + ": " + err.says()
}

func (err ErrTaken) says() string {
	text := fmt.Sprintf("lock already taken, locked nodes: %v", err.Nodes) // as in redsync v4
	if err.Owner != "" {
		by := err.Owner
		if strings.ContainsFunc(by, unicode.IsSpace) {
			by = strconv.Quote(by)
		}
		text += ", by " + by
	}
	if err.asked != nil {
		text += fmt.Sprintf(" for %d s", err.asked.held/time.Second)
	}
	return text
}

// Unwrap returns everything else that is true.
func (err ErrTaken) Unwrap() []error {
	if err.whole == nil {
		return nil
	}
	return []error{err.whole}
}

// ErrNodeTaken is the refusal of one node that holds another value. Methods return it as a pointer.
type ErrNodeTaken struct {
	Node    int    // its index in New or Open, from 0
	Address string // its Pool's String
}

// Error names the node.
func (err ErrNodeTaken) Error() string {
	return nodeName(err.Node, err.Address) + ": lock already taken"
}

// A RedisError is the failure of one node: no answer, or an error. Methods return it as a pointer.
type RedisError struct {
	Node    int // its index in New or Open, from 0
	Err     error
	Address string // its Pool's String
}

// Error names the node and the cause.
func (e RedisError) Error() string {
	text := foreign.Text(bare(e.Err), foreign.MaxError)
	if strings.HasPrefix(text, "NOAUTH ") {
		text += " Give the password as redis://:PASSWORD@host:port, or in redis.Options"
	}
	return nodeName(e.Node, e.Address) + ": " + text
}

// MarshalText returns what Error does, for JSON.
func (e RedisError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Unwrap returns the cause.
func (e RedisError) Unwrap() error {
	return e.Err
}

// ErrWrongType is the answer of one node that a key of the lock has another type, such as a list. It is in a
// *RedisError. Methods return it as a pointer.
//
// Such a node cannot grant the lock. If the others are no quorum, every call fails at once with ErrNoQuorum, and a lock
// that you have is lost: use another name, or delete the key. See docs/errors.md.
type ErrWrongType struct {
	Key     string // cut after 200 bytes; "" if the node does not say it
	Type    string // as TYPE says it; "" if the Redis user may not call TYPE
	Node    int    // its index in New or Open, from 0
	Address string // its Pool's String

	answer error
}

// Error returns the answer of the node.
func (err ErrWrongType) Error() string {
	if err.answer == nil { // made by a program
		return fmt.Sprintf("WRONGTYPE the key %s is a %s", err.Key, err.Type)
	}
	return bare(err.answer)
}

// Unwrap returns the answer of the node.
func (err ErrWrongType) Unwrap() error { return err.answer }

func nodeName(i int, address string) string {
	if address == "" {
		return fmt.Sprintf("node #%d", i)
	}
	return fmt.Sprintf("node #%d (%s)", i, address)
}

// A failure is the one form of this package's errors: what failed, and all that is true of it. It does not change, so
// failures may share their lists. Functions return a pointer: callers compare errors with == and use them as map keys.
//
// Programs for any version of redsync v4 find the errors of nodes: As gives the *multierror.Error of versions up to
// v4.16.0, and Unwrap works as that of errors.Join, which later versions use.
type failure struct {
	op, name string  // "" for what is not said
	causes   []error // in the order of the text; no *failure without an op, and nothing twice
	nodes    []error // one for each that refused or failed
}

// A note is the end of a failure's text. It stands among the causes, but is none.
type note string

func (n note) Error() string { return string(n) }

func notef(format string, args ...any) note { return note(fmt.Sprintf(format, args...)) }

// fail returns a *failure of errs, or nil if nothing failed. A *failure without an op becomes a part of it.
func fail(op, name string, errs ...error) error {
	f := &failure{op: op, name: name}
	for _, err := range errs {
		f.add(err)
	}
	if op == "" && len(f.causes) == 0 && len(f.nodes) == 0 {
		return nil
	}
	return f
}

func (f *failure) add(err error) {
	part, isPart := err.(*failure) //nolint:errorlint // a wrapper has a text of its own
	switch {
	case err == nil:
	case isPart && part.op == "" && len(f.causes) == 0 && len(f.nodes) == 0:
		f.causes, f.nodes = slices.Clip(part.causes), slices.Clip(part.nodes)
	case isPart && part.op == "":
		for _, cause := range part.causes {
			f.add(cause)
		}
		f.nodes = append(f.nodes, part.nodes...)
	case !f.has(err):
		f.causes = append(f.causes, err)
	}
}

// has reports whether err is a cause of f. One that cannot be compared is none.
func (f *failure) has(err error) bool {
	return reflect.ValueOf(err).Comparable() && slices.Contains(f.causes, err)
}

// hasOwnerFor reports whether err is f's *ErrTaken before its Owner was known.
func (f *failure) hasOwnerFor(err error) bool {
	return slices.ContainsFunc(f.causes, func(cause error) bool {
		taken, is := cause.(*ErrTaken)                               //nolint:errorlint // see text
		return is && taken.asked != nil && taken.asked.before == err //nolint:errorlint // see text
	})
}

func (f *failure) Error() string {
	parts := make([]string, 0, len(f.causes)+3)
	parts = append(parts, "redsync")
	if what := f.what(); what != "" {
		parts = append(parts, what)
	}
	for i := range f.causes {
		if text := f.text(i); text != "" {
			parts = append(parts, text)
		}
	}
	if nodes := f.told(); len(nodes) > 0 {
		parts = append(parts, joined(nodes))
	}
	for _, cause := range f.causes {
		if n, ok := cause.(note); ok { //nolint:errorlint // nobody wraps it
			parts[len(parts)-1] += "; " + string(n)
		}
	}
	return strings.Join(parts, ": ")
}

// what says what failed, in words of redsync v4 if it has some.
func (f *failure) what() string {
	is := func(target error) bool {
		return slices.ContainsFunc(f.causes, func(cause error) bool { return errors.Is(cause, target) })
	}
	what, of := f.op, " "
	switch {
	case slices.Contains(f.causes, ErrExtendFailed), f.op == "extend" && is(ErrLockAlreadyExpired):
		what = bare(ErrExtendFailed)
	case slices.Contains(f.causes, ErrFailed),
		f.op == "lock" && (is(context.Canceled) || is(context.DeadlineExceeded) || is(ErrNoPools)):
		what = bare(ErrFailed)
	case f.op == "unlock" && is(ErrLockAlreadyExpired):
		what, of = bare(ErrLockAlreadyExpired), ": "
	}
	if f.name != "" {
		what += of + quoted(f.name)
	}
	return what
}

// inV4 returns f with the outermost type of redsync v4, for programs that look at no other.
func (f *failure) inV4() error {
	if !slices.Contains([]string{"lock", "unlock", "extend", "valid"}, f.op) {
		return f
	}
	for _, cause := range f.causes {
		if taken, is := cause.(*ErrTaken); is { //nolint:errorlint // see text
			outer := *taken
			outer.whole = f
			return &outer
		}
	}
	return f
}

// text returns the text of a cause, "" if another part of the text says it.
func (f *failure) text(i int) string {
	err := f.causes[i]
	taken, isTaken := err.(*ErrTaken) //nolint:errorlint // one that is wrapped has a text of its own
	_, isNote := err.(note)           //nolint:errorlint // nobody wraps it
	switch {
	case isNote, err == ErrFailed, err == ErrExtendFailed: //nolint:errorlint // sentinels: see what
		return ""
	case err == ErrLockAlreadyExpired && slices.Contains(f.causes, ErrLockLost): //nolint:errorlint // a sentinel
		if i+1 < len(f.causes) || len(f.nodes) > 0 {
			return ""
		}
		return "it has expired"
	case err == ErrLockAlreadyExpired && f.op == "unlock": //nolint:errorlint // see what
		return ""
	case err == ErrLockAlreadyExpired: //nolint:errorlint // its own text is about Unlock, as in redsync v4
		return "lock was already expired"
	case isTaken && (taken.Name == f.name || slices.Contains(f.causes, ErrLockAlreadyExpired)):
		return taken.says()
	}
	return bare(err)
}

// told returns the errors of nodes that are in the text: those with another value only if no cause counts them.
func (f *failure) told() []error {
	counted := func(err error) bool {
		_, isTaken := err.(*ErrTaken) //nolint:errorlint // see text
		return isTaken || errors.Is(err, ErrNoQuorum)
	}
	if !slices.ContainsFunc(f.causes, counted) {
		return f.nodes
	}
	return slices.DeleteFunc(slices.Clone(f.nodes), func(err error) bool {
		_, is := err.(*ErrNodeTaken) //nolint:errorlint // nobody wraps it
		return is
	})
}

// Is finds a failure that is part of f: the error of a call matches what observers were told of its last attempt.
func (f *failure) Is(target error) bool {
	part, isPart := target.(*failure) //nolint:errorlint // errors.Is unwraps
	if !isPart || part.op != "" || len(part.causes) == 0 {
		return false
	}
	missing := func(cause error) bool { return !f.has(cause) && !f.hasOwnerFor(cause) }
	return !slices.ContainsFunc(part.causes, missing)
}

func (f *failure) Unwrap() []error {
	return slices.DeleteFunc(slices.Concat(f.causes, f.nodes), func(err error) bool {
		_, isNote := err.(note) //nolint:errorlint // nobody wraps it
		return isNote
	})
}

func (f *failure) As(target any) bool {
	as, ok := target.(**multierror.Error)
	if !ok || len(f.nodes) == 0 {
		return false
	}
	*as = &multierror.Error{Errors: slices.Clone(f.nodes), ErrorFormat: joined}
	return true
}

func joined(nodes []error) string {
	texts := make([]string, 0, len(nodes))
	for _, err := range nodes {
		texts = append(texts, bare(err))
	}
	return strings.Join(texts, "; ")
}

func bare(err error) string {
	if err == nil {
		return "no error"
	}
	text := strings.TrimPrefix(err.Error(), "redsync: ")
	return strings.TrimPrefix(text, "pool: ")
}

// A said is an error with a text of its own.
type said struct {
	error
	text string
}

func (e *said) Error() string { return e.text }

func (e *said) Unwrap() error { return e.error }

var errOutOfRange = errors.New("out of range")

func outOfRange(option string, value any, valid string) error {
	hint, unit := "", "Second"
	if d, ok := value.(time.Duration); ok && d > 0 && d < time.Microsecond*10 {
		if d >= 1000 { // 8000 ms rather than 8000 s
			unit = "Millisecond"
		}
		hint = fmt.Sprintf("; did you mean %d*time.%s?", int64(d), unit)
	}
	return fmt.Errorf("redsync: %s(%v) is %w: %s%s", option, value, errOutOfRange, valid, hint)
}

func quoted(name string) string {
	begin, length := journal.Cut(name)
	return fmt.Sprintf("%q%s", begin, length)
}

func quotedAll(names []string) string {
	all := make([]string, 0, min(len(names), maxNamed)+1)
	for _, name := range names[:min(len(names), maxNamed)] {
		all = append(all, quoted(name))
	}
	if more := len(names) - maxNamed; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}

const maxNamed = 10
