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

// Errors of the package. Compare them with errors.Is: the error of a method wraps one of them
// together with the cause.
var (
	// ErrFailed is the error of a Lock, TryLock, Do, TryDo or Lead that has acquired nothing because of contention:
	// others have the lock, others have taken some nodes at the same moment (a split vote), or other callers of this
	// process are ahead. In the first two cases *ErrTaken comes with it. No other failure matches ErrFailed: see
	// ErrNoQuorum for nodes that fail. So errors.Is with ErrFailed says whether a lock is taken; TryDo needs no test.
	ErrFailed = errors.New("redsync: failed to acquire lock")

	// ErrNoQuorum is the error of every operation to which too few nodes answered in time: the failed nodes, each with
	// its *RedisError, could have changed the outcome. It says nothing about who has the lock. A lock that was held is
	// still held until Until. So ErrNoQuorum never comes with ErrFailed, *ErrTaken or ErrLockLost. The text counts the
	// nodes. If so many nodes deny access that only a change of the settings can help, the text says so.
	ErrNoQuorum = errors.New("redsync: too few nodes answered in time")

	// ErrExtendFailed is the error of an Extend or a Downgrade that too few nodes confirmed. ErrNoQuorum comes with it
	// if nodes that failed could have confirmed it. The lock is still held until the old Until.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")

	// ErrLockAlreadyExpired is the error of an operation on a lock whose Until
	// has passed, or that the nodes no longer hold.
	ErrLockAlreadyExpired = errors.New("redsync: failed to unlock, lock was already expired")

	// ErrLockLost means that you had the lock, and it has ended without your Unlock or Detach. Stop the work. errors.Is
	// also finds the cause, and errors.As the nodes that did not answer, if the lock has expired for that reason.
	//
	// Err returns it for every such end, and so do Do, TryDo and Lead, even if only their release finds it out. Extend, Downgrade and Valid return it if the nodes prove the loss. Every later
	// call that needs the lock then returns it, too, until Unlock or the next Lock. If Until passes during the call, Extend
	// and Downgrade return it, but Valid returns ErrLockAlreadyExpired alone.
	ErrLockLost = errors.New("redsync: lock lost")

	// ErrMaxHold means that the limit of WithMaxHold is reached. With ErrLockAlreadyExpired the lock is over. With
	// ErrExtendFailed you still have the lock until Until, but it cannot be extended.
	ErrMaxHold = errors.New("redsync: lock held for the longest time allowed")

	// ErrNotHeld means that this Mutex has no lock. It was never locked, or it is unlocked or detached already, perhaps by
	// another call at the same time. Test for it before ErrLockAlreadyExpired, which it also matches, because redsync v4 returns
	// that from a second Unlock.
	ErrNotHeld error = &notHeldError{}

	// ErrForced means that the lock was released by ForceUnlock, by an operator. It matches ErrLockLost. It is a cause of
	// Lost and Err, and of the context of Do. Only a holder with WithOwner learns of the force; another one finds out that
	// the lock is lost, and not why: see Mutex.ForceUnlock. If the keys were deleted in another way within the first second,
	// before the holder listened, it is told this error, too.
	ErrForced error = &forcedError{}

	// ErrNoPools is the error of every operation of a Redsync without nodes.
	ErrNoPools = errors.New("redsync: no pools")

	// ErrDuplicateNode means that two nodes, which the text names, are one server. No lock can be acquired until you
	// correct the list.
	//
	// Every operation returns it if two pools of New have the same address or the same client. If only the run ID
	// shows that two nodes are one server, Open, Ping and Lock return it, and only if the distinct servers are no
	// quorum of all nodes. Otherwise locks go on: the server counts once, and the log tells. See docs/nodes.md.
	ErrDuplicateNode = errors.New("redsync: two nodes are one server")

	// ErrNested is the error of a call that conflicts with a Do around it, or with calls that have joined the lock of a Do.
	// Nothing was sent. See docs/nesting.md. It comes from
	//
	//   - Lock, TryLock or Lead of a name that the Do holds. Call Do: it joins;
	//   - an exclusive call, if the Do holds the name shared. Lock after the Do has ended;
	//   - a call for a permit, if the Do has one of the same name;
	//   - a Do on several names, if the Dos around it hold only some;
	//   - a Do that asks for more than the lock has, or exceeds WithNesting;
	//   - Unlock or Downgrade, if calls have joined the lock.
	ErrNested = errors.New("redsync: nested calls on one name")

	// ErrClosed is the error of every operation after Close.
	ErrClosed = errors.New("redsync: this Redsync was closed")
)

// A notHeldError is the type of ErrNotHeld alone. It has a field, because pointers to values of size
// zero may be equal.
type notHeldError struct{ _ byte }

func (*notHeldError) Error() string { return "redsync: lock not held" }

// Is makes ErrNotHeld match ErrLockAlreadyExpired, which programs for redsync v4 look for.
func (*notHeldError) Is(target error) bool { return target == ErrLockAlreadyExpired } //nolint:errorlint // a sentinel

// A forcedError is the type of ErrForced alone. It has a field, as notHeldError has.
type forcedError struct{ _ byte }

func (*forcedError) Error() string { return "redsync: lock released by force" }

// Is makes ErrForced match ErrLockLost.
func (*forcedError) Is(target error) bool { return target == ErrLockLost } //nolint:errorlint // a sentinel

// ErrTaken says that another client has the lock. If some nodes failed, their errors come with it. Methods always return
// ErrTaken as a pointer. From Lock, TryLock, Unlock, Extend and Valid it is the outermost error, as in redsync v4, so
// err.(*ErrTaken) finds it, too. errors.Is and errors.As find everything that comes with it.
//
// Lock returns it with ErrFailed, if a quorum of nodes has answered. Then perhaps no client has the lock yet: several may
// have tried at the same moment, or nodes keep the lock for a waiter ahead (WithFair, WithShared). Unlock, Extend, Downgrade and Valid return it if other
// clients have so many nodes that the rest are no quorum.
type ErrTaken struct {
	Nodes []int // the nodes that hold another value: indices into the pools of New or the addresses of Open, from 0

	// Name is the name of the lock. For a Lock of several names it is the first name that was not free on a quorum;
	// others may be taken, too. For other calls on several names it is what Mutex.Name returns.
	Name string

	// Owner is the label of the holder (WithOwner), "" if it is not known. Of several readers, or holders of permits, it is
	// one whose keys last longest. Lock, TryLock and Do of a Mutex with WithOwner ask the nodes for it when they give up,
	// for at most 50 ms, also after their context has ended. TryDo and Lead do not ask. The text of the error then also
	// says since when the holder has the lock.
	Owner string

	asked *askedOwner // nil without an Owner
	whole *failure    // of the outermost error of a call: everything that is true; otherwise nil: see inV4
}

// An askedOwner is what else is known of an *ErrTaken with an Owner.
type askedOwner struct {
	held   time.Duration // for how long, as far as the clocks of both agree
	before *ErrTaken     // what observers of the attempt were told, before the Owner was known
}

// takenBy returns err, which is that of a call that gives up, with the owner of the lock in its *ErrTaken. If nodes do not
// tell in time, it returns err as it is.
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
			line = lines[0] // of a semaphore it is not the name
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

// says returns Error without the name.
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

// ErrNodeTaken is the refusal of one node that holds another value. Methods always return it as a
// pointer.
type ErrNodeTaken struct {
	Node    int    // index into the pools of New or the addresses of Open, from 0
	Address string // of the node, as its Pool's String has it
}

// Error names the node.
func (err ErrNodeTaken) Error() string {
	return nodeName(err.Node, err.Address) + ": lock already taken"
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
	text := foreign.Text(bare(e.Err), foreign.MaxError)
	if strings.HasPrefix(text, "NOAUTH ") {
		text += " Give the password as redis://:PASSWORD@host:port, or in redis.Options"
	}
	return nodeName(e.Node, e.Address) + ": " + text
}

// MarshalText returns what Error does, so that JSON has the cause.
func (e RedisError) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// Unwrap returns the cause.
func (e RedisError) Unwrap() error {
	return e.Err
}

// ErrWrongType is the answer of one node that a key which the lock needs is somebody's data: a list, a hash or
// another type that is no lock. It is in a *RedisError. Methods always return it as a pointer.
//
// Such a node cannot grant the lock. While the other nodes are a quorum, locks go on. Otherwise every call fails at
// once with ErrNoQuorum, never with *ErrTaken, and a lock that you have is lost: use another name, or delete the key.
// It is never about a string, which may be a lock's value. See docs/errors.md.
type ErrWrongType struct {
	Key     string // its name; "..." replaces what follows the first 200 bytes; "" if the node does not say it
	Type    string // as TYPE calls it, such as "list"; "" if the Redis user may not call TYPE
	Node    int    // index into the pools of New or the addresses of Open, from 0
	Address string // of the node, as its Pool's String has it

	answer error // of the node
}

// Error returns what the node has answered.
func (err ErrWrongType) Error() string {
	if err.answer == nil { // made by a program
		return fmt.Sprintf("WRONGTYPE the key %s is a %s", err.Key, err.Type)
	}
	return bare(err.answer)
}

// Unwrap returns the answer of the node.
func (err ErrWrongType) Unwrap() error { return err.answer }

// nodeName names a node in a message.
func nodeName(i int, address string) string {
	if address == "" {
		return fmt.Sprintf("node #%d", i)
	}
	return fmt.Sprintf("node #%d (%s)", i, address)
}

// A failure is the one form of this package's errors: what failed, and everything that is true of it at once. Functions
// return a pointer, because callers compare errors with == and use them as map keys. A failure does not change, so
// failures may share their lists. Its text is one line, which is made when somebody asks for it.
//
// Programs for any version of redsync v4 find the errors of nodes. Up to v4.16.0 redsync returned a *multierror.Error,
// which As provides. Since v4.17.0 redsync returns what errors.Join makes, and Unwrap works like the Unwrap of that.
type failure struct {
	op, name string  // the operation, such as "lock" or "Open", and the lock; "" for what is not said
	causes   []error // what is true, in the order of the text; no *failure without an op, and nothing twice
	nodes    []error // one for each node that refused or failed
}

// A note stands among the causes of a failure, but is none: it is what else a person wants to know, at the end of the text.
type note string

func (n note) Error() string { return string(n) }

func notef(format string, args ...any) note { return note(fmt.Sprintf(format, args...)) }

// fail returns a *failure. It leaves out nils. A *failure without an op in errs becomes a part of the new one. If nothing
// failed, it returns nil.
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

// add adds what err says to f.
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

// has reports whether err is a cause of f. A user's error that cannot be compared, such as a slice, is none.
func (f *failure) has(err error) bool {
	return reflect.ValueOf(err).Comparable() && slices.Contains(f.causes, err)
}

// hasOwnerFor reports whether err is the *ErrTaken of f before its Owner was known.
func (f *failure) hasOwnerFor(err error) bool {
	return slices.ContainsFunc(f.causes, func(cause error) bool {
		taken, is := cause.(*ErrTaken)                               //nolint:errorlint // see text
		return is && taken.asked != nil && taken.asked.before == err //nolint:errorlint // see text
	})
}

// Error says what failed, then why, then on which nodes, and then what else a person wants to know.
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

// what returns what failed, in the words of redsync v4 if it has an error for that.
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

// inV4 returns f with the outermost type that redsync v4 returns, for programs that look at no other.
func (f *failure) inV4() error {
	if !slices.Contains([]string{"lock", "unlock", "extend", "valid"}, f.op) {
		return f // redsync v4 has no such operation
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

// text returns the text of a cause, "" if another part of the text says it. For a lost lock that is "already expired"
// if a more detailed cause follows.
func (f *failure) text(i int) string {
	err := f.causes[i]
	taken, isTaken := err.(*ErrTaken) //nolint:errorlint // one that is wrapped has a text of its own
	_, isNote := err.(note)           //nolint:errorlint // nobody wraps it
	switch {
	case isNote, err == ErrFailed, err == ErrExtendFailed: //nolint:errorlint // sentinels: see what
		return "" // Error and what say it
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

// told returns the errors of nodes that are in the text. If a cause says how many nodes failed, or which are taken,
// these are not the nodes that hold another value.
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

// Is finds a failure that has become a part of f. So the error of a call matches what observers were told of its last
// attempt.
func (f *failure) Is(target error) bool {
	part, isPart := target.(*failure) //nolint:errorlint // errors.Is unwraps
	if !isPart || part.op != "" || len(part.causes) == 0 {
		return false
	}
	missing := func(cause error) bool { return !f.has(cause) && !f.hasOwnerFor(cause) }
	return !slices.ContainsFunc(part.causes, missing)
}

// Unwrap returns everything that errors.Is and errors.As may find.
func (f *failure) Unwrap() []error {
	return slices.DeleteFunc(slices.Concat(f.causes, f.nodes), func(err error) bool {
		_, isNote := err.(note) //nolint:errorlint // nobody wraps it
		return isNote
	})
}

// As gives errors.As a *multierror.Error of the errors of nodes.
func (f *failure) As(target any) bool {
	as, ok := target.(**multierror.Error)
	if !ok || len(f.nodes) == 0 {
		return false
	}
	*as = &multierror.Error{Errors: slices.Clone(f.nodes), ErrorFormat: joined}
	return true
}

// joined joins the texts of the errors of nodes.
func joined(nodes []error) string {
	texts := make([]string, 0, len(nodes))
	for _, err := range nodes {
		texts = append(texts, bare(err))
	}
	return strings.Join(texts, "; ")
}

// bare returns the text of err without the prefix "redsync: " or "pool: ".
func bare(err error) string {
	if err == nil {
		return "no error"
	}
	text := strings.TrimPrefix(err.Error(), "redsync: ")
	return strings.TrimPrefix(text, "pool: ")
}

// A said is an error with another text, which says more.
type said struct {
	error
	text string
}

func (e *said) Error() string { return e.text }

// Unwrap returns the error.
func (e *said) Unwrap() error { return e.error }

// errOutOfRange is in every error of outOfRange.
var errOutOfRange = errors.New("out of range")

func outOfRange(option string, value any, valid string) error {
	hint, unit := "", "Second"
	if d, ok := value.(time.Duration); ok && d > 0 && d < time.Microsecond*10 {
		if d >= 1000 { // rather 8000 ms than 8000 s
			unit = "Millisecond"
		}
		hint = fmt.Sprintf("; did you mean %d*time.%s?", int64(d), unit)
	}
	return fmt.Errorf("redsync: %s(%v) is %w: %s%s", option, value, errOutOfRange, valid, hint)
}

// quoted returns a name in quotes. A long one is cut, and its length follows.
func quoted(name string) string {
	begin, length := journal.Cut(name)
	return fmt.Sprintf("%q%s", begin, length)
}

// quotedAll returns at most maxNamed names in quotes, and how many more there are.
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

// maxNamed is how many names a text shows.
const maxNamed = 10
