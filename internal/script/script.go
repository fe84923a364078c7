// Package script holds the Lua scripts that nodes run, one per operation. Each script touches only the keys
// that it is given. Its reply says what it found: no reply stands for several cases. A function that returns
// a Command sends nothing: its comment says what the command does on a node.
package script

import (
	_ "embed" // the sources
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// What a script found at the key.
const (
	Missing int64 = 0 // no key
	Mine    int64 = 1 // the caller's value
	Other   int64 = 2 // another value
	Created int64 = 3 // no key; it has been set again

	// Added to the above by Release, ReleaseShared and Downgrade, if waiters may go on.
	Woke   int64 = 4  // a waiter of another process has been told
	First  int64 = 8  // a waiter of the caller's process may go on: it is the first, or one of the readers at the front
	Others int64 = 16 // with First, and without Woke: the next waiter is of another process
)

// Granted is what Enter returns for a grant. Anything else is a refusal: see Enter.
const Granted int64 = 0

// What scripts include: turnover, next, queue, show, slots, writers, tell, readers, above and read.

//go:embed turnover.lua
var turnover string

//go:embed next.lua
var next string

//go:embed queue.lua
var queue string

//go:embed show.lua
var show string

//go:embed slots.lua
var slots string

//go:embed above.lua
var above string

//go:embed writers.lua
var writers string

//go:embed tell.lua
var tell string

//go:embed readers.lua
var readers string

//go:embed read.lua
var read string

//go:embed release.lua
var release string

//go:embed enter.lua
var enter string

//go:embed extend.lua
var extend string

//go:embed heal.lua
var heal string

//go:embed valid.lua
var valid string

var (
	releaseScript = newScript(release)
	enterScript   = newScript(enter)
	extendScript  = newScript(extend)
	healScript    = newScript(heal)
	validScript   = newScript(valid)
)

// newScript returns a script that is completed when the program first connects to a node, or first uses it: every
// program that imports the library would pay for what is done here.
func newScript(script string) *wire.Script {
	return wire.NewScriptOf(func() string { return complete(script) })
}

// complete returns a script with what it includes, and without comments and indentation: each new connection sends all
// scripts. Functions that several scripts include lose all needless spaces, too. A script that releases ends with
// turnover.lua, which says what it needs.
func complete(script string) string {
	for _, i := range []struct {
		name, text string
		functions  bool
	}{ // an included script can include those further down in this list
		{"turnover", turnover, false},
		{"next", next, false},
		{"queue", queue, true},
		{"show", show, true},
		{"slots", slots, true},
		{"writers", writers, true},
		{"tell", tell, true},
		{"readers", readers, true},
		{"above", above, true},
		{"read", read, true},
	} {
		text := i.text
		if i.functions {
			text = words().ReplaceAllStringFunc(shortened(text), shorter)
		}
		script = strings.ReplaceAll(script, "-- include "+i.name+".lua\n", text)
	}
	return shortened(script)
}

// shortened returns Lua without comments, indentation and empty lines.
func shortened(lua string) string {
	var short strings.Builder
	short.Grow(len(lua))
	for line := range strings.Lines(lua) {
		if !strings.Contains(line, "-- include ") { // otherwise it is still to be replaced
			line, _, _ = strings.Cut(line, "--")
		}
		if line = strings.TrimSpace(line); line != "" {
			short.WriteString(line + "\n")
		}
	}
	return short.String()
}

// words matches a text in quotes, a word, or signs with the spaces around them. It is made when it is first used: every
// program that imports the library would pay for it.
func words() *regexp.Regexp {
	makeWords.Do(func() { madeWords = regexp.MustCompile(`'(?:\\.|[^'\\])*'|\w+| *[-=~<>+*/%.,{}()]+ *`) })
	return madeWords
}

var (
	makeWords sync.Once
	madeWords *regexp.Regexp
)

// local are the names of what is local to the functions that scripts include, each behind a short one. Nothing else there
// has such a short name.
const local = "Qqueue Ddeadline Tticket Pprocess Gdigits Vvalue Rrecord Bbefore Mmiddle Oother Llatest Nlength Ilimit Ssecond " +
	"Wwriter Aasked Hhead Xtext Ystop Zlast Etold Useen Ffirst Jvalues Kthere "

// shorter returns a match of words without the spaces, which Lua does not need, or with a short name.
func shorter(match string) string {
	if match[0] == '\'' {
		return match
	}
	if at := strings.Index(local, match+" "); len(match) > 1 && at > 0 && local[at-1] >= 'A' && local[at-1] <= 'Z' {
		return local[at-1 : at]
	}
	return strings.Trim(match, " ")
}

// A Key is the key of a lock, which is its name, and what follows from it. Each part is kept, because one that is made
// for each command would cost an allocation.
type Key struct {
	lines        [1]string // the name
	arg          any       // the name, in the type of a command's arguments
	queue, fence side
}

// A side is a key beside the lock's own. It is kept from the second command that names it on, because many locks are
// used once. Before that it is nil, and then &named.
type side struct{ key atomic.Pointer[any] }

var named any

// of returns the key of a name, which is always the same one, that ends in side: see sideKey.
func (s *side) of(name, side string) any {
	kept := s.key.Load()
	if kept != nil && kept != &named {
		return *kept
	}
	text := sideKey(name, side)
	if kept == nil && s.key.CompareAndSwap(nil, &named) {
		return text
	}
	key := any(text)
	s.key.Store(&key)
	return key
}

// NewKey returns the Key of a lock.
func NewKey(name string) Key { return Key{lines: [1]string{name}, arg: name} }

// Name returns the name.
func (k *Key) Name() string { return k.lines[0] }

// Lines returns the name alone.
func (k *Key) Lines() []string { return k.lines[:] }

// Lock returns the Lock of k and a value, which must be a string.
func (k *Key) Lock(value any) Lock { return Lock{k.arg, value, k} }

// A Lock is what all commands of a lease are about: a key and the holder's value. Both are strings, kept in
// the type of a command's arguments, which saves an allocation for each command.
type Lock struct {
	key, value any
	of         *Key // nil for a slot, which has no queue of its own
}

// queue returns the key of the queue of the lock's waiters.
func (l Lock) queue() any { return l.of.queue.of(l.of.lines[0], queueSide) }

// A lastTTL keeps the last TTL that was an argument. Most locks of a program have the same TTL, so that saves an
// allocation.
type lastTTL struct{ last atomic.Pointer[any] }

var lockTTL, fenceTTL, aliveTTL lastTTL

// argument returns a TTL in the type of a command's arguments.
func (t *lastTTL) argument(ttl int64) any {
	if last := t.last.Load(); last != nil && (*last).(int64) == ttl {
		return *last
	}
	arg := any(ttl)
	t.last.Store(&arg)
	return arg
}

// Value returns the value.
func (l Lock) Value() string { return l.value.(string) }

// Acquire sets key to value for ttl milliseconds where it is free. It is a
// plain command: the wire format that redsync, node-redlock and others share.
func Acquire(l Lock, ttl int64) Command {
	return Command{Args: []any{"set", l.key, l.value, "nx", "px", lockTTL.argument(ttl)}}
}

// Ping asks whether the node answers.
func Ping() Command {
	return Command{Args: []any{"ping"}}
}

// Valid checks whether key holds value. It is a script and not a GET, because a Cluster client may be set to
// send a GET to a replica.
func Valid(l Lock) Command {
	return of(validScript, l.key, l.value)
}

// A Fence is a fencing token for the register of a lock, which is kept for TTL milliseconds. The zero Fence
// stands for no fence.
type Fence struct {
	Token uint64
	TTL   int64
	text  any // of Token, in the type of a command's arguments; nil if it is made for each command
}

// Kept returns f with the text of its token, which saves allocations if several commands have it.
func (f Fence) Kept() Fence {
	f.text = strconv.FormatUint(f.Token, 10)
	return f
}

// A Turnover says whose tickets enter and leave the queue of a lock's waiters with a release.
type Turnover struct {
	// Quietly says that the release touches no queue, because the user may not use it: it names none, and nobody is told.
	// The other fields are empty then.
	Quietly bool

	Enters Ticket // of the first name, which is mostly the only one
	Alive  int64  // how long a ticket that enters counts as alive, in milliseconds
	Leave  []Ticket

	// Parts says, for a Multi, who enters and leaves the queues of single names, in the order of the names. It
	// is nil if nobody does. Then Enters is zero. Leave is about the queues of all names.
	Parts []Part
}

// noQueue stands in the place of the process that sends a quiet release.
const noQueue = "-"

// queues returns those queues that a release with t names.
func (t Turnover) queues(all ...any) []any {
	if t.Quietly {
		return nil
	}
	return all
}

// changes reports whether somebody enters or leaves a queue.
func (t Turnover) changes() bool {
	return !t.Enters.IsZero() || len(t.Leave) > 0 || slices.ContainsFunc(t.Parts, func(p Part) bool {
		return !p.Enters.IsZero() || len(p.Leave) > 0
	})
}

// Release deletes key if it holds value, and raises the register to the token of fence. It lets the tickets
// of turnover enter and leave the queue of waiters. If the key is free then, the node tells the first waiter,
// and if that is a reader, all readers that may go on with it. If readers hold the key, and a writer that has
// kept other readers back leaves the queue, the node tells those readers.
//
// The node sends no message to process, which is the caller's: the reply tells it instead. The zero process
// says that nobody of the caller's process waits.
func Release(l Lock, process Process, turnover Turnover, fence Fence) Command {
	return releaseOf(releaseScript, l, l.queue(), process, turnover, fence)
}

func releaseOf(s *wire.Script, l Lock, queue any, process Process, turnover Turnover, fence Fence) Command {
	changes := turnover.changes()
	n, plain := 6, process.IsZero() && fence.Token == 0 && !turnover.Quietly && !changes
	switch {
	case changes:
		n = 11 + len(turnover.Leave)
		if !turnover.Enters.IsZero() || fence.Token != 0 {
			n += 3
		}
	case !plain:
		n = 10
	}
	r := newRequest(s, n)
	r.keys(l.key)
	if !turnover.Quietly { // without turnover.queues, which costs an allocation
		r.keys(queue)
	}
	r.register(l, fence)
	r.args(l.value)
	if plain {
		return r.command()
	}
	return r.ends(process, turnover, fence)
}

// AliveFor is how long a waiter counts as alive after its ticket has been shown to the nodes, in milliseconds. It is the
// same in all versions: a ticket whose deadline is later is cut (show.lua).
const AliveFor = 1000

// A Place says where an acquire stands in the queue of the lock's waiters: nowhere, if its ticket is zero.
type Place struct {
	Ticket Ticket
	Alive  int64 // how long it counts as alive, in milliseconds; no waiter counts as alive for longer
	Strict bool  // it is granted only if its process is the first; EnterShared does not use it

	// Blind says that the user may not touch the queue: EnterShared does not look at it. Ticket is zero then.
	Blind bool
}

// Enter puts the ticket of place in the queue of key's waiters, and sets key to value for ttl milliseconds
// if it is free. If Enter grants, it then raises the register to the token of fence, if that is strictly
// greater.
//
// For a grant, the node replies Granted. For a refusal, it replies the number of milliseconds after which the
// refusal may end by itself, because the key's TTL or the deadline of the first waiter runs out; -1 means
// never. ParseEntered reads the reply.
func Enter(l Lock, ttl int64, place Place, fence Fence) Command {
	r := newRequest(enterScript, 12)
	r.keys(l.key)
	strict := 0
	if !place.Ticket.IsZero() {
		r.keys(l.queue())
	}
	if place.Strict {
		strict = 1
	}
	r.register(l, fence)
	r.args(l.value, lockTTL.argument(ttl), place.Ticket.argument(), aliveTTL.argument(place.Alive), strict)
	r.token(fence)
	return r.command()
}

// An Entered is what a node answers to Enter.
type Entered struct {
	Wait     int64  // Granted, or how long a refusal may last; see Enter
	Register uint64 // of the fence
	Stored   bool   // the token is the register now
	WasThere bool   // the key had the value before; for a Multi: a key had it
	Blind    bool   // for EnterShared: granted without a look at the queue, which the user may not read
	By       Names  // for a refusal to a Multi: all names that keep it back
}

// ParseEntered reads a reply to Enter.
func ParseEntered(reply any) (Entered, error) {
	if wait, ok := reply.(int64); ok {
		return Entered{Wait: wait}, nil
	}
	if parts, ok := reply.([]any); ok && len(parts) == 3 {
		wait, isWait := parts[0].(int64)
		text, _ := parts[1].(string)
		done, isDone := parts[2].(int64)
		register, err := strconv.ParseUint(text, 10, 64)
		if isWait && isDone && err == nil {
			return Entered{Wait: wait, Register: register, Stored: done&1 != 0, WasThere: done&2 != 0}, nil
		}
	}
	return Entered{}, fmt.Errorf("redsync: odd answer to an acquire: %s", Describe(reply))
}

// Checked returns e, the answer of a node to an acquire that has proposed a token; 0 stands for none. It returns an error
// if the node grants the lock, but cannot have run the script: that stores a proposal which is above the register.
func (e Entered) Checked(token uint64) (Entered, error) {
	if token == 0 || e.Wait != Granted || e.Stored && e.Register == token || !e.Stored && e.Register >= token {
		return e, nil
	}
	return Entered{}, fmt.Errorf("redsync: odd answer to an acquire: the proposal was %d, stored is %v, and the fencing register %d",
		token, e.Stored, e.Register)
}

// A request is a command under construction, its keys first.
type request struct {
	script *wire.Script
	cmd    []any
	n      int // keys
}

// newRequest begins a command that will have about n elements.
func newRequest(s *wire.Script, n int) request {
	return request{script: s, cmd: s.Append(make([]any, 0, n), 0)}
}

func (r *request) keys(keys ...any) {
	r.cmd = append(r.cmd, keys...)
	r.n += len(keys)
}

func (r *request) args(args ...any) { r.cmd = append(r.cmd, args...) }

// register adds the key of the register, if there is a fence.
func (r *request) register(l Lock, f Fence) {
	if f.Token != 0 {
		r.keys(l.of.fence.of(l.of.lines[0], fenceSide))
	}
}

// token adds the arguments of a fence, if there is one.
func (r *request) token(f Fence) {
	if f.Token == 0 {
		return
	}
	if f.text == nil {
		f = f.Kept()
	}
	r.args(f.text, fenceTTL.argument(f.TTL))
}

func (r *request) command() Command {
	r.cmd[keyCount] = r.n
	return Command{Args: r.cmd, script: r.script}
}

// keyCount is the index at which a command says how many keys it has.
const keyCount = 2

// Extend raises the TTL of key to ttl milliseconds if key holds value. It never shortens the TTL.
func Extend(l Lock, ttl int64) Command {
	return of(extendScript, l.key, l.value, lockTTL.argument(ttl))
}

// Heal does what Extend does, and sets key again if it is missing.
func Heal(l Lock, ttl int64) Command {
	return of(healScript, l.key, l.value, lockTTL.argument(ttl))
}

// A Command is what all nodes of a round are sent.
type Command struct {
	Args   []any
	script *wire.Script
}

// of returns the command that runs s on the key that args begin with.
func of(s *wire.Script, args ...any) Command {
	return Command{Args: s.Args(1, args...), script: s}
}

// encodings are buffers for WithRESP.
var encodings = sync.Pool{New: func() any { return new([]byte) }}

// WithRESP calls f with the command as RESP, which is valid until f returns.
func (c Command) WithRESP(f func(resp []byte)) {
	b := encodings.Get().(*[]byte)
	*b, _ = wire.AppendCommand((*b)[:0], c.Args) // every element is a string or an integer
	f(*b)
	encodings.Put(b)
}

// IsScript reports whether the command runs a script by its SHA1.
func (c Command) IsScript() bool { return c.script != nil }

// Key returns the first key of c, which is the name of the lock or the first of several names.
func (c Command) Key() string {
	first := 1
	if c.IsScript() {
		first = 3
	}
	name, _ := c.Args[first].(string)
	return name
}

// InFull returns the command for a node that answered NOSCRIPT, or does not have EVALSHA.
func (c Command) InFull() []any {
	if c.script == nil {
		return c.Args
	}
	return c.script.InFull(c.Args)
}

// Describe returns a node's reply as a short text, however long the reply is. It may have what the node was sent: see Conceal.
func Describe(reply any) string {
	switch reply := reply.(type) {
	case string:
		return fmt.Sprintf("%.100q", reply)
	case []any:
		return describeArray(reply)
	}
	return fmt.Sprint(reply)
}

// describeArray describes the first elements of an array.
func describeArray(reply []any) string {
	const most = 4
	var elements []string
	for _, e := range reply[:min(len(reply), most)] {
		if inner, ok := e.([]any); ok {
			e = fmt.Sprintf("an array of %d", len(inner))
		}
		elements = append(elements, fmt.Sprintf("%.100s", fmt.Sprint(e)))
	}
	if len(reply) > most {
		elements = append(elements, "...")
	}
	return "[" + strings.Join(elements, " ") + "]"
}
