package main

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/wire"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file finds out what the user of a node may not do with a lock. Only trying shows that on every version: ACL DRYRUN
// needs Redis 7.0, and a permission that few users have.

// The ends of the keys beside a lock.
const (
	queueSide = ":queue"
	fenceSide = ":fence"
	slotSide  = ":slot:0"
	slotsSide = ":slots"
)

var sideEnds = []string{queueSide, fenceSide, slotSide, slotsSide}

// sideKey returns the key beside the lock called name.
func sideKey(name, end string) string {
	switch end {
	case queueSide:
		return script.QueueKey(name)
	case fenceSide:
		return script.FenceKey(name)
	case slotsSide:
		return script.SlotQueueKey(name)
	}
	return strings.TrimSuffix(script.SlotQueueKey(name), slotsSide) + end
}

// trialTTL is how long a key of a trial lasts if it cannot be deleted.
const trialTTL = int64(2 * time.Second / time.Millisecond)

// nothing is a script that touches no key. A node asks for the permission to read and write the keys that it is given
// (before Redis 7.0: for its permission, which is not divided).
const nothing = "return 1"

// keepsTTL writes as readers do.
const keepsTTL = "redis.call('SET', KEYS[1], 1, 'PXAT', ARGV[1]) return redis.call('SET', KEYS[1], 1, 'KEEPTTL')"

// A place is what a trial touches.
type place struct {
	end     string // of a key beside the lock; "" for the lock's own
	written bool   // of the name with a random end
	channel bool
	none    bool // no key that matters
}

// A trial is a command that shows whether a rule is there.
type trial struct {
	rule string
	at   place
	args []any
}

// trials returns those on one connection, in order. other is the name that is written.
func trials(name, other, channel string) []trial {
	none, own, written := place{none: true}, place{}, place{written: true}
	all := []trial{
		{"+ping", none, []any{"ping"}},
		{"+info", none, []any{"info", "server"}},
		{"+time", none, []any{"time"}},
		{"+script|load", none, []any{"script", "load", nothing}},
		{"+get", own, []any{"get", name}},
		{"+pttl", own, []any{"pttl", name}},
		{"+exists", own, []any{"exists", name}},
		{"+mget", own, []any{"mget", name}},
		{"+type", own, []any{"type", name}},
		{"+strlen", none, []any{"strlen", name}},
		{"+getrange", none, []any{"getrange", name, 0, 0}},
		{"+eval", own, []any{"eval", nothing, 1, name}},
		{"+evalsha", own, []any{"evalsha", redis.NewScript(nothing).Hash(), 1, name}},
	}
	for _, end := range sideEnds {
		key := sideKey(name, end)
		all = append(all, trial{"+get", place{end: end}, []any{"get", key}}, trial{"+eval", place{end: end}, []any{"eval", nothing, 1, key}})
	}
	all = append(
		all,
		trial{"+set", written, []any{"set", other, 1, "nx", "px", trialTTL}},
		trial{"+pexpire", written, []any{"pexpire", other, trialTTL}},
		trial{"+del", written, []any{"del", other}},
	)
	for _, end := range sideEnds {
		key := sideKey(other, end)
		all = append(
			all,
			trial{"+set", place{end: end, written: true}, []any{"set", key, 1, "px", trialTTL}},
			trial{"+del", place{end: end, written: true}, []any{"del", key}},
		)
	}
	return append(all, trial{"+publish", place{channel: true}, []any{"publish", channel, "1"}})
}

// What an answer says.
type verdict int

const (
	notTold verdict = iota
	allowed
	denied
)

// Access is what the trials have shown.
type access struct {
	commands map[string]verdict // by rule
	places   map[place]verdict
	absent   []string          // commands that the server does not have
	full     map[string]bool   // by the end of a key beside the lock: the user may read and write this very key
	types    map[string]string // of keys that have another type than those of locks
	lasts    bool              // the lock's key has no expiry
	writes   error             // why the node refused to write, for another reason than the ACL
}

// The ends of the texts with which nodes deny. A denial that names neither a key nor a channel is one of a command.
var (
	keyDenials     = []string{"access one of the keys", "access at least one of the keys", "access a key"}
	channelDenials = []string{"access one of the channels", "access a channel", "publish to the channel"}
)

// denialOf returns what err denies.
func denialOf(err error) (command, key, channel bool) {
	if !wire.IsDenied(err) {
		return false, false, false
	}
	says := func(part string) bool { return strings.Contains(err.Error(), part) }
	switch {
	case slices.ContainsFunc(keyDenials, says):
		return false, true, false
	case slices.ContainsFunc(channelDenials, says):
		return false, false, true
	}
	return true, false, false
}

// add notes the answer to a trial.
func (a *access) add(t trial, err error) {
	command, key, channel := denialOf(err)
	switch {
	case err == nil:
	case redis.HasErrorPrefix(err, "unknown command"), redis.HasErrorPrefix(err, "unknown subcommand"):
		if !slices.Contains(a.absent, t.rule) {
			a.absent = append(a.absent, t.rule)
		}
		a.commands[t.rule] = denied
		return
	case command:
		a.commands[t.rule] = denied
		return
	}
	if a.commands[t.rule] != denied {
		a.commands[t.rule] = allowed
	}
	if t.at.none {
		return
	}
	if t.rule == "+eval" && !key { // which needs both: see nothing
		a.full[t.at.end] = true
	}
	if key || channel {
		a.places[t.at] = denied
	} else if a.places[t.at] == notTold {
		a.places[t.at] = allowed
	}
	switch {
	case wire.IsWrongType(err):
		a.types[fmt.Sprint(t.args[1])] = "key of another type"
	case err != nil && t.at.written && !key:
		a.writes = err
	}
}

// askPermissions finds what the user may not do with the lock, and what that costs.
func (r *findings) askPermissions(node pool.Pool) error {
	if r.lock == "" {
		return nil
	}
	other := r.lock + ":check-" + rand.Text()
	a := &access{commands: map[string]verdict{}, places: map[place]verdict{}, full: map[string]bool{}, types: map[string]string{}}
	if err := r.try(node, a, trials(r.lock, other, "redsync:check-"+rand.Text())); err != nil {
		return err
	}
	if err := r.tryKeepTTL(node, a, other); err != nil {
		return err
	}
	if err := r.askExpiry(node, a); err != nil {
		return err
	}
	for key := range a.types {
		answer, refused, err := r.do(node, "type", key)
		if err != nil {
			return err
		}
		if refused == nil {
			a.types[key] = field(answer)
		}
	}
	refused, err := r.subscribe(node, "redsync:check-"+rand.Text())
	if err != nil {
		return err
	}
	a.add(trial{"+subscribe", place{channel: true}, nil}, refused)
	r.judge(a)
	return nil
}

// askExpiry finds whether the lock's key lasts for ever, as that of no lock does. A key that is not there has -2.
func (r *findings) askExpiry(node pool.Pool, a *access) error {
	if a.commands["+pttl"] != allowed || a.places[place{}] != allowed || a.types[r.lock] != "" {
		return nil
	}
	answer, refused, err := r.do(node, "pttl", r.lock)
	a.lasts = refused == nil && answer == int64(-1)
	return err
}

// try sends trials, and adds their answers to a.
func (r *findings) try(node pool.Pool, a *access, all []trial) error {
	var commands [][]any
	for _, t := range all {
		commands = append(commands, t.args)
	}
	replies, err := r.send(node, commands, false)
	for i, reply := range replies {
		a.add(all[i], reply.Err)
	}
	return err
}

// tryKeepTTL finds whether SET has what readers need. Only an error of the command itself says that.
func (r *findings) tryKeepTTL(node pool.Pool, a *access, other string) error {
	if r.clock == nil || a.commands["+eval"] != allowed || a.commands["+set"] != allowed {
		return nil
	}
	at := time.Now().Add(r.clock.ahead).UnixMilli() + trialTTL
	_, refused, err := r.do(node, "eval", keepsTTL, 1, other, at)
	if err != nil {
		return err
	}
	if refused != nil && strings.Contains(refused.Error(), "syntax error") {
		r.warn("SET with PXAT and KEEPTTL in scripts: %s", noKeepTTL)
	}
	_, _, err = r.do(node, "del", other)
	return err
}

// noKeepTTL is what that costs, in the words of the page.
const noKeepTTL = "no shared locks"

// A finding is what the trials say about the rules for keys.
type finding struct {
	rules   []string        // that are missing, as ACL SETUSER takes them
	sides   map[string]bool // the ends of the keys beside the lock whose rules are missing
	name    bool            // the rule for the lock's own key is missing
	reading bool            // the lock's own key may be written, but not read
	unknown []string        // keys of which the trials tell too little
}

// judgeKeys finds the missing rules for keys. Where the lock's key may be read, and the one with a random end may not be
// written, the rules may match the name alone, which a script that is given the key shows.
func (r *findings) judgeKeys(a *access) finding {
	f := finding{sides: map[string]bool{}}
	judge := func(end, key string) (isDenied bool) {
		own, written := a.places[place{end: end}], a.places[place{end: end, written: true}]
		switch {
		case own == denied && written == allowed:
			f.rules = append(f.rules, "%R~"+glob(key))
			return true
		case own == denied:
			f.rules = append(f.rules, "~"+glob(key))
			return true
		case a.full[end]:
		case written == denied, own == notTold && written == notTold:
			f.unknown = append(f.unknown, key)
		}
		return false
	}
	f.name = judge("", r.lock)
	f.reading = f.name && a.places[place{written: true}] == allowed
	before := len(f.rules)
	for _, end := range sideEnds {
		f.sides[end] = judge(end, sideKey(r.lock, end))
	}
	if len(f.rules)-before == len(sideEnds) {
		f.rules = append(f.rules[:before], r.sidesRule())
	}
	return f
}

// sidesRule returns the rule for all keys beside the lock.
func (r *findings) sidesRule() string {
	return "~" + glob(strings.TrimSuffix(script.QueueKey(r.lock), queueSide)) + ":*"
}

// glob returns a pattern for key. What an ACL rule or a terminal cannot have in it is a ?, which matches any byte.
func glob(key string) string {
	escaped := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(key)
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, escaped)
}

// judge adds what a has found.
func (r *findings) judge(a *access) {
	f := r.judgeKeys(a)
	if a.places[place{channel: true}] == denied {
		f.rules = append(f.rules, channelRule)
	}
	for _, rule := range slices.Sorted(maps.Keys(a.commands)) {
		if a.commands[rule] == denied && !slices.Contains(a.absent, rule) {
			f.rules = append(f.rules, rule)
		}
	}
	lacks := func(rule string) bool {
		switch rule {
		case nameRule:
			return f.name && !f.reading
		case "+get":
			return f.reading || a.commands[rule] == denied
		case channelRule:
			return a.places[place{channel: true}] == denied
		}
		return a.commands[rule] == denied
	}
	lines := costs(lacks, func(end string) bool { return f.sides[end] }, r.guard > 0)
	words := strings.NewReplacer(sideRule, r.sidesRule(), nameRule, "~"+glob(r.lock))
	for i, text := range lines {
		lines[i] = "\n" + words.Replace(text)
	}
	cost := strings.Join(lines, "")
	switch missing := strings.Join(a.absent, " "); {
	case len(f.rules) > 0 && missing != "":
		r.warn("the ACL denies %s, and the server does not have %s%s", strings.Join(f.rules, " "), missing, cost)
	case len(f.rules) > 0:
		r.warn("the ACL denies %s%s", strings.Join(f.rules, " "), cost)
	case missing != "":
		r.warn("the server does not have %s%s", missing, cost)
	}
	r.votes = r.votes && !lacks(nameRule) && !lacks("+set")
	r.sayPermissions(f, a)
	r.sayWrites(a)
}

// sayPermissions adds the line of what the user may do.
func (r *findings) sayPermissions(f finding, a *access) {
	switch {
	case len(f.rules) > 0, len(a.absent) > 0:
		r.fact("permissions", "not all that locks can use: see below")
	case len(f.unknown) == 0:
		r.fact("permissions", "all that locks of %q can use", r.lock)
	}
	if len(f.unknown) > 0 {
		r.fact("permissions", "not known whether this user may write %s: its rules for keys match no longer name, or it may use no command that would show it", quoted(f.unknown))
	}
}

// quoted returns keys in quotes.
func quoted(keys []string) string {
	var all []string
	for _, key := range keys {
		all = append(all, strconv.Quote(key))
	}
	return strings.Join(all, ", ")
}

// What it costs if the lock's own key is somebody's data, and what helps.
const (
	noLock     = "the node grants no lock of this name"
	useAnother = "Use another name. If nobody needs the key, delete it"
)

// sayWrites adds warnings of keys and of a node that refuse writes.
func (r *findings) sayWrites(a *access) {
	for _, key := range slices.Sorted(maps.Keys(a.types)) {
		cost, cure := noLock, "Delete that key: the library makes it anew"
		switch {
		case key == r.lock:
			r.votes, cure = false, useAnother
		case key == sideKey(r.lock, fenceSide):
			cost = "it keeps the node from granting locks with WithFencing"
		case key == sideKey(r.lock, slotSide):
			cost = "the node does not grant this permit"
		default:
			cost = "it keeps the node from granting locks with WithFair"
		}
		r.warn("the key %q is a %s: %s. %s", key, a.types[key], cost, cure)
	}
	if a.lasts {
		r.votes = false
		r.warn("the key %q has no expiry, as that of no lock: %s. %s", r.lock, noLock, useAnother)
	}
	if a.writes != nil && !r.replica {
		r.votes = false
		r.warn("it refuses to write: %v", a.writes)
	}
}
