// Package script holds the Lua scripts that nodes run, one per operation. Each touches only its keys, and says at its
// top what it does and replies. A function that returns a Command sends nothing.
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
	Missing int64 = 0
	Mine    int64 = 1 // the caller's value
	Other   int64 = 2 // another value
	Created int64 = 3 // no key; it has been set again

	// Added by Release, ReleaseShared and Downgrade, if waiters may go on.
	Woke   int64 = 4  // a waiter of another process has been told
	First  int64 = 8  // a waiter of the caller's process may go on: the first, or a reader at the front
	Others int64 = 16 // with First, and without Woke: the next waiter is of another process
)

// Granted is what Enter returns for a grant.
const Granted int64 = 0

// What scripts include.

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

// newScript returns a script that is completed when it is first needed, to spare programs that only import it.
func newScript(script string) *wire.Script {
	return wire.NewScript(func() string { return complete(script) })
}

// complete returns a script with what it includes, without comments and needless spaces: each new connection sends all.
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

func shortened(lua string) string {
	var short strings.Builder
	short.Grow(len(lua))
	for line := range strings.Lines(lua) {
		if !strings.Contains(line, "-- include ") { // still to be replaced
			line, _, _ = strings.Cut(line, "--")
		}
		if line = strings.TrimSpace(line); line != "" {
			short.WriteString(line + "\n")
		}
	}
	return short.String()
}

// words matches a text in quotes, a word, or signs with the spaces around them.
func words() *regexp.Regexp {
	makeWords.Do(func() { madeWords = regexp.MustCompile(`'(?:\\.|[^'\\])*'|\w+| *[-=~<>+*/%.,{}()]+ *`) })
	return madeWords
}

var (
	makeWords sync.Once
	madeWords *regexp.Regexp
)

// local are local names in included functions, each behind a short one.
const local = "Qqueue Ddeadline Tticket Pprocess Gdigits Vvalue Rrecord Bbefore Mmiddle Oother Llatest Nlength Ilimit Ssecond " +
	"Wwriter Aasked Hhead Xtext Ystop Zlast Etold Useen Ffirst Jvalues Kthere "

func shorter(match string) string {
	if match[0] == '\'' {
		return match
	}
	if at := strings.Index(local, match+" "); len(match) > 1 && at > 0 && local[at-1] >= 'A' && local[at-1] <= 'Z' {
		return local[at-1 : at]
	}
	return strings.Trim(match, " ")
}

// Keys are the keys of a lock, its names, with what follows from them, which saves allocations.
type Keys struct {
	name         [1]string // of several names, all of them
	arg          [1]any    // the name, as an argument
	queue, fence side      // of one name
	several      *several  // nil for one name
}

// A several has several names and their keys, as arguments.
type several struct {
	names         []string
	locks, queues []any
}

// A side is a key beside the lock's own. It is nil, then &named, and from the second use on kept: many locks are used
// once.
type side struct{ key atomic.Pointer[any] }

var named any

// of returns the key of name that ends in side, both always the same.
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

// KeysOf returns the Keys of names, sorted and distinct. For a command there must be 1 to MaxNames.
func KeysOf(names ...string) Keys {
	if len(names) == 1 {
		return Keys{name: [1]string{names[0]}, arg: [1]any{names[0]}}
	}
	s := &several{names: slices.Clone(names)}
	for _, name := range names {
		s.locks, s.queues = append(s.locks, name), append(s.queues, QueueKey(name))
	}
	label := ""
	if len(names) <= MaxNames {
		label = strings.Join(names, NamesSeparator)
	}
	return Keys{name: [1]string{label}, several: s}
}

// Name returns the name, or several names as one text, empty if there are none or too many.
func (k *Keys) Name() string { return k.name[0] }

// Lines returns the names, which must not change.
func (k *Keys) Lines() []string {
	if k.several != nil {
		return k.several.names
	}
	return k.name[:]
}

// Lock returns the Lock of k with a value, a string.
func (k *Keys) Lock(value any) Lock {
	if k.several != nil {
		return Lock{k.several.locks, value, k}
	}
	return Lock{k.arg[:], value, k}
}

// A Lock is what commands of a lease are about: keys and the holder's value, as arguments, which saves allocations. A
// node has all keys or none.
type Lock struct {
	keys  []any
	value any
	of    *Keys // has the queues, one for each key, or one for all slots
}

// A lastTTL saves an allocation: most locks of a program have the same TTL.
type lastTTL struct{ last atomic.Pointer[any] }

var lockTTL, fenceTTL, aliveTTL lastTTL

func (t *lastTTL) argument(ttl int64) any {
	if last := t.last.Load(); last != nil && (*last).(int64) == ttl {
		return *last
	}
	arg := any(ttl)
	t.last.Store(&arg)
	return arg
}

// Acquire sets the one key to value if it is free, for ttl milliseconds, as redsync v4 and node-redlock do.
func Acquire(l Lock, ttl int64) Command {
	return Command{Args: []any{"set", l.keys[0], l.value, "nx", "px", lockTTL.argument(ttl)}}
}

// Ping asks whether the node answers.
func Ping() Command {
	return Command{Args: []any{"ping"}}
}

// Valid checks whether all keys have the value. It is no GET: a Cluster client may send that to a replica.
func Valid(l Lock) Command { return l.command(validScript) }

// A Fence is a fencing token for the register of a lock, which is kept for TTL milliseconds. Zero is none.
type Fence struct {
	Token uint64
	TTL   int64
	text  any // of Token, as an argument; may be nil
}

// Kept returns f with its text, for several commands.
func (f Fence) Kept() Fence {
	f.text = strconv.FormatUint(f.Token, 10)
	return f
}

// A Turnover says whose tickets enter and leave the queue with a release.
type Turnover struct {
	// Quietly says that the release names no queue, because the user may not, and tells nobody. The rest is empty then.
	Quietly bool

	Enters Ticket // of the first name
	Alive  int64  // how long a ticket that enters counts as alive, in milliseconds
	Leave  []Ticket

	// Parts says, for several names, who enters and leaves single queues; nil for nobody. Then Enters is zero. Leave is
	// about all queues.
	Parts []Part
}

// A Part says whose tickets enter and leave the queue of one name.
type Part struct {
	Enters Ticket
	Leave  []Ticket
}

// noQueue stands for the process in a quiet release.
const noQueue = "-"

func (t Turnover) changes() bool {
	return !t.Enters.IsZero() || len(t.Leave) > 0 || slices.ContainsFunc(t.Parts, func(p Part) bool {
		return !p.Enters.IsZero() || len(p.Leave) > 0
	})
}

// Release deletes the keys that have the value, raises the registers and changes the queues: see release.lua. The node
// tells waiters that they may go on, but not those of process, the caller's: the reply does that. ParseReleasedNames
// reads the reply about several names.
func Release(l Lock, process Process, turnover Turnover, fence Fence) Command {
	return releaseOf(releaseScript, l, process, turnover, fence)
}

func releaseOf(s *wire.Script, l Lock, process Process, turnover Turnover, fence Fence) Command {
	changes := turnover.changes()
	k, plain := len(l.keys), process.IsZero() && fence.Token == 0 && !turnover.Quietly && !changes
	n := keyCount + 2 + 2*k
	switch {
	case changes:
		n += 5 + len(turnover.Leave) + 2*len(turnover.Parts)
		if !turnover.Enters.IsZero() || fence.Token != 0 {
			n += 2 + k
		}
	case !plain:
		n += 3 + k
	}
	r := newRequest(s, n)
	r.keys(l.keys...)
	if !turnover.Quietly {
		r.queues(l.of)
	}
	if fence.Token != 0 {
		r.registers(l.of)
	}
	r.args(l.value)
	if plain {
		return r.command()
	}
	return r.ends(process, turnover, fence)
}

// AliveFor is how long a waiter counts as alive after the nodes have seen its ticket, in milliseconds, in all versions:
// a later deadline is cut (show.lua).
const AliveFor = 1000

// A Place says where an acquire stands in the queue: nowhere, if its ticket is zero.
type Place struct {
	Ticket Ticket
	Alive  int64 // how long it counts as alive, in milliseconds, at most AliveFor
	Strict bool  // it is granted only if its process is the first; EnterShared does not use it

	// Blind says that EnterShared does not look at the queue: the user may not touch it. Ticket is zero then.
	Blind bool
}

// Enter puts the ticket of place in the queues, sets all keys to value for ttl milliseconds if they are free, and
// raises the registers: see enter.lua.
func Enter(l Lock, ttl int64, place Place, fence Fence) Command {
	r := newRequest(enterScript, keyCount+7+3*len(l.keys))
	r.keys(l.keys...)
	if !place.Ticket.IsZero() {
		r.queues(l.of)
	}
	if fence.Token != 0 {
		r.registers(l.of)
	}
	r.args(l.value, lockTTL.argument(ttl), place.Ticket.argument(), aliveTTL.argument(place.Alive), bit(place.Strict))
	r.token(fence)
	return r.command()
}

// An Entered is what a node answers to Enter.
type Entered struct {
	Wait     int64  // Granted, or after how many milliseconds a refusal may end by itself; -1 for never
	Register uint64 // of the fence
	Stored   bool   // the token is the register now
	WasThere bool   // a key had the value before
	Blind    bool   // granted without a look at the queue, which the user may not read: for EnterShared
	By       Names  // of several names: all that keep it back
}

// ParseEntered reads a reply to Enter about one name.
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

// Checked returns e, the answer to an acquire with a token, 0 for none. A grant that neither stores the token nor has a
// register as high is an error.
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

func newRequest(s *wire.Script, n int) request {
	return request{script: s, cmd: s.Append(make([]any, 0, n), 0)}
}

func (r *request) keys(keys ...any) {
	r.cmd = append(r.cmd, keys...)
	r.n += len(keys)
}

func (r *request) args(args ...any) { r.cmd = append(r.cmd, args...) }

func bit(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (r *request) queues(k *Keys) {
	if k.several != nil {
		r.keys(k.several.queues...)
		return
	}
	r.keys(k.queue.of(k.name[0], queueSide))
}

func (r *request) registers(k *Keys) {
	if k.several == nil {
		r.keys(k.fence.of(k.name[0], fenceSide))
		return
	}
	for _, name := range k.several.names {
		r.keys(FenceKey(name))
	}
}

func (r *request) token(f Fence) {
	if f.Token == 0 {
		return
	}
	if f.text == nil {
		f = f.Kept()
	}
	r.args(f.text, fenceTTL.argument(f.TTL))
}

func (r *request) tokenOrNone(f Fence) {
	if f.Token == 0 {
		r.args(none, 0)
		return
	}
	r.token(f)
}

// ends adds how a release ends: the process, the token and the tickets.
func (r *request) ends(process Process, t Turnover, f Fence) Command {
	if t.Quietly {
		r.args(noQueue)
	} else {
		r.args(process.argument())
	}
	changes := t.changes()
	if f.Token != 0 || changes {
		r.tokenOrNone(f)
	}
	if !changes {
		return r.command()
	}
	return r.turnover(t)
}

func (r *request) turnover(t Turnover) Command {
	if t.changes() {
		r.args(aliveTTL.argument(t.Alive))
		r.tickets(t.Leave)
		if !t.Enters.IsZero() { // the only queue
			r.args(t.Enters.argument(), 0)
		}
		for _, part := range t.Parts {
			r.args(part.Enters.argument())
			r.tickets(part.Leave)
		}
	}
	return r.command()
}

func (r *request) tickets(tickets []Ticket) {
	r.args(len(tickets))
	for _, t := range tickets {
		r.args(t.argument())
	}
}

func (r *request) command() Command {
	r.cmd[keyCount] = r.n
	return Command{Args: r.cmd, script: r.script}
}

// keyCount is the index of the number of keys.
const keyCount = 2

// Extend raises the TTL of all keys to ttl milliseconds if all have the value. With heal it sets missing keys again, if
// none has another value.
func Extend(l Lock, ttl int64, heal bool) Command {
	if heal {
		return l.command(healScript, lockTTL.argument(ttl))
	}
	return l.command(extendScript, lockTTL.argument(ttl))
}

// A Command is what the nodes of a round are sent.
type Command struct {
	Args   []any
	script *wire.Script
}

func (l Lock) command(s *wire.Script, args ...any) Command {
	r := newRequest(s, keyCount+2+len(l.keys)+len(args))
	r.keys(l.keys...)
	r.args(l.value)
	r.args(args...)
	return r.command()
}

// An Encoding is a Command as RESP, in the forms that nodes need. Free ends it.
type Encoding struct {
	Command    *Command
	args, resp *[]byte // nil until needed
	as         wire.Native
}

var encodings = sync.Pool{New: func() any { return new([]byte) }}

// Args returns c as RESP.
func (e *Encoding) Args() []byte {
	if e.args == nil {
		e.args = encodings.Get().(*[]byte)
		*e.args, _ = wire.AppendCommand((*e.args)[:0], e.Command.Args) // every element is a string or an integer
	}
	return *e.args
}

// As returns c as native command n, which Native has returned.
func (e *Encoding) As(n wire.Native) []byte {
	if e.as != n {
		if e.resp == nil {
			e.resp = encodings.Get().(*[]byte)
		}
		*e.resp, e.as = e.Command.appendNative((*e.resp)[:0], n), n
	}
	return *e.resp
}

// Free ends the use of what the methods have returned.
func (e *Encoding) Free() {
	for _, b := range []*[]byte{e.args, e.resp} {
		if b != nil {
			encodings.Put(b)
		}
	}
}

// MayBeNative reports whether Native may return something.
func (c Command) MayBeNative() bool { return c.script == releaseScript || c.script == enterScript }

// IsScript reports whether the command runs a script by its SHA1.
func (c Command) IsScript() bool { return c.script != nil }

// Key returns the first key of c.
func (c Command) Key() string {
	first := 1
	if c.IsScript() {
		first = 3
	}
	name, _ := c.Args[first].(string)
	return name
}

// InFull returns the command with its source, after NOSCRIPT or without EVALSHA.
func (c Command) InFull() []any {
	if c.script == nil {
		return c.Args
	}
	return c.script.InFull(c.Args)
}

// Describe returns a short text of a reply, which may have what was sent: see Conceal.
func Describe(reply any) string {
	switch reply := reply.(type) {
	case string:
		return fmt.Sprintf("%.100q", reply)
	case []any:
		return describeArray(reply)
	}
	return fmt.Sprint(reply)
}

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
