package redsync

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file tells who holds a lock, by what the nodes say.

// Inspect asks the nodes who holds the lock of m, whoever that is, and who waits for it. It changes nothing, and m need not
// be held.
//
// It sends one request to each node, and waits for every node, at most for the node deadline (WithNodeTimeout) and until
// ctx is done. A node whose votes do not count (pool.WithRestartGuard) is silent. A holder is a value that a quorum of nodes
// has. Status.State is
//
//   - StateHeld, if there is a holder. If some nodes are silent there may be further readers, or holders of permits.
//   - StateFree, if no value can have a quorum, whatever the silent nodes have.
//   - StateUnknown otherwise. Only then Inspect returns an error: ErrNoQuorum, with the error of each silent node.
//     The Status has what the others have said. With several names it is enough if one of Status.Names is unknown.
//
// If nothing was asked, the Status is the zero one. The error then matches ErrClosed, the error and the cause of ctx, or
// names the option or the name that cannot be used.
//
// # What it does not prove
//
// The Status is what nodes have said, at slightly different moments, in the past. Do not decide with it whether you have
// the lock: use Remaining, Valid or Fence. A holder in the Status may have unlocked by now, or it may have lost the lock
// and not know. Its keys may stay for a while after it has ended (WithLockDelay, WithMinHold, a process that was killed).
// While a failed attempt is undone, or after messages to nodes were late, nodes may have a value that nobody holds.
// StateFree does not say that a Lock succeeds: with WithFair or WithShared, waiters may be ahead, and too few nodes may be
// up.
//
// # What m sees
//
// The mode of m decides which keys are read. With WithPermits these are the permits of the semaphore, up to the number of
// WithPermits: holders of permits with a higher number are not seen. Otherwise it is the lock, with WithShared or without:
// in both cases an exclusive holder or the readers. Other clients of Redlock are seen, too. NewMultiMutex reads all its
// names, and Status.Names has what is known of each.
func (m *Mutex) Inspect(ctx context.Context) (Status, error) {
	ctx = orBackground(ctx)
	t, err := m.beginCall()
	if err != nil {
		return Status{}, m.failure("inspect", err)
	}
	defer m.core.endCall()
	if ctx.Err() != nil {
		return Status{}, m.failure("inspect", contextErrors(ctx))
	}
	i := lease.NewInspection(&t.Terms)
	s, err := m.statusOf(i.Run(ctx, true, i.Limits()))
	if err != nil {
		return s, m.failure("inspect", err, m.interruption(ctx))
	}
	return s, nil
}

// A State says whether somebody holds a lock.
type State uint8

// The states of a lock.
const (
	StateUnknown State = iota // too few nodes have answered to tell
	StateHeld                 // a quorum of nodes has the value of a holder
	StateFree                 // no value has a quorum
)

// String returns "unknown", "held" or "free".
func (s State) String() string {
	if s > StateFree {
		return "State(" + strconv.Itoa(int(s)) + ")"
	}
	return [...]string{"unknown", "held", "free"}[s]
}

// MarshalText returns what String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Status is what the nodes have said of a lock. See Mutex.Inspect for what that means.
type Status struct {
	Name     string   // what Mutex.Name returns
	State    State    // of several names: held if one of them is, free if all are
	Holders  []Holder // none, one, or several readers or holders of permits; those whose keys last longest come first
	Waiters  []Waiter // those that wait longest come first
	Register uint64   // the highest fencing register: not the token of the holder, as a failed attempt may have raised it
	Nodes    []NodeStatus
	Names    []Status // of a lock on several names: one for each, without Nodes; nil for one name
}

// A Holder is who holds a lock, as far as the nodes tell.
//
// Its value is a secret and is shown nowhere: neither by package fmt nor by log/slog or encoding/json. A Holder that was
// not made by Inspect or Watch is of no use.
type Holder struct {
	Owner   string        // the label of WithOwner; "" without
	Process uint64        // a number that the process of the holder has drawn, as Waiter.Process; 0 without WithOwner
	Since   time.Time     // when the holder began to lock, by its own clock; zero without WithOwner
	TTL     time.Duration // how long a quorum of nodes keeps the keys, if nobody extends or deletes them; negative: for ever
	Shared  bool          // a reader's (WithShared, Downgrade)
	Permits int           // how many permits it has; 0 if the lock is no semaphore
	Names   []string      // those names of the Mutex that it holds: one, or several of NewMultiMutex
	Library string        // which library has made the value, guessed by its form; "" if no guess fits
	ID      string        // tells holders apart: the first 8 hex digits of the SHA-256 of the value

	value *string // a pointer, because package fmt shows the fields of a Holder that is in a field that is not exported
}

// A Waiter is a process that waits in the queues of the lock. Only waiters with a place in the queue of a quorum of nodes
// are seen: a waiter takes a place after its first failed attempt, unless its user may not write to the queue.
type Waiter struct {
	Process uint64 // a number that the process has drawn: all locks of one New or Open have the same
	Count   int    // how many places it has; waiters of one process share a place
}

// A NodeStatus is what one node has said.
type NodeStatus struct {
	Node    int      // index into the pools of New or the addresses of Open, from 0
	Address string   // of the node, as its Pool's String has it
	Holders []string // Holder.ID of each value that the node has, also of those that have no quorum; each once
	Waiters int      // places in its queues
	Denied  bool     // the user may use the lock there, but not its queue or its fencing register: their share is not seen
	Err     error    // why the node has said nothing; nil if it has answered
}

// statusOf returns what an inspection of m has seen. The error is that of Inspect without the operation: nil if all states
// are known.
func (m *Mutex) statusOf(seen lease.Inspected) (Status, error) {
	names := m.names()
	s := Status{Name: m.Name(), Nodes: m.nodeStatuses(seen)}
	several, keys, holdings := len(names) > 1, m.inspectedKeys(), seen.Holdings()
	for _, h := range holdings {
		s.Holders = append(s.Holders, m.holderOf(h))
	}
	s.State, s.Waiters, s.Register = stateOf(seen, holdings, keys), waitersOf(seen, queuesOf(names)), registerOf(seen, queuesOf(names))
	known := s.State != StateUnknown
	if several {
		for i, name := range names {
			one := Status{Name: name, State: stateOf(seen, holdings, []int{i}), Waiters: waitersOf(seen, []int{i}), Register: registerOf(seen, []int{i})}
			for _, h := range s.Holders {
				if slices.Contains(h.Names, name) {
					one.Holders = append(one.Holders, h)
				}
			}
			known = known && one.State != StateUnknown
			s.Names = append(s.Names, one)
		}
	}
	if known {
		return s, nil
	}
	return s, silentNodes(s.Nodes, seen)
}

// silentNodes returns ErrNoQuorum with the errors of the nodes that have said nothing.
func silentNodes(nodes []NodeStatus, seen lease.Inspected) error {
	f := &failure{}
	count := claim.Count{}
	for i := range nodes {
		switch n := &nodes[i]; {
		case !seen.Rule.All().Has(i): // another node is the same server
		case n.Err == nil:
			count.Granted = count.Granted.With(i)
		default:
			count.Failed = count.Failed.With(i)
			f.nodes = append(f.nodes, n.Err)
		}
	}
	seen.Count, seen.Result.Votes = count, seen.Votes
	f.causes = []error{noQuorum(seen.Result)}
	return f
}

// inspectedKeys returns the indices of the keys that an inspection of m reads.
func (m *Mutex) inspectedKeys() (keys []int) {
	n := max(len(m.names()), m.set.permits)
	for i := range n {
		keys = append(keys, i)
	}
	return keys
}

// queuesOf returns the indices of the queues and registers that an inspection of these names reads.
func queuesOf(names []string) (queues []int) {
	for i := range names {
		queues = append(queues, i)
	}
	return queues
}

// stateOf returns the state of these keys together. holdings is seen.Holdings, which is not cheap.
func stateOf(seen lease.Inspected, holdings []claim.Holding, keys []int) State {
	switch {
	case slices.ContainsFunc(holdings, func(h claim.Holding) bool {
		return slices.ContainsFunc(h.Keys, func(key int) bool { return slices.Contains(keys, key) })
	}):
		return StateHeld
	case seen.IsFree(keys...):
		return StateFree
	}
	return StateUnknown
}

// waitersOf returns who waits in these queues.
func waitersOf(seen lease.Inspected, queues []int) (waiters []Waiter) {
	places := make(map[uint64]int) // in waiters, by process
	for _, ticket := range seen.Waiting(queues...) {
		process := processNumber(script.ProcessIn(ticket))
		at, known := places[process]
		if !known {
			at = len(waiters)
			places[process] = at
			waiters = append(waiters, Waiter{Process: process})
		}
		waiters[at].Count++
	}
	return waiters
}

func processNumber(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // 0 if another program has made the text
	return n
}

func registerOf(seen lease.Inspected, registers []int) (highest uint64) {
	for _, v := range seen.Votes {
		if report := claim.ReportIn(v); report != nil {
			for i, register := range report.Registers {
				if slices.Contains(registers, i) {
					highest = max(highest, register)
				}
			}
		}
	}
	return highest
}

func (m *Mutex) holderOf(h claim.Holding) Holder {
	holder := Holder{TTL: h.TTL, Shared: h.Shared, Library: libraryOf(h.Value), ID: idOf(h.Value), value: &h.Value}
	if h.TTL == script.Endless {
		holder.TTL = -1
	}
	if o, ok := script.OwnerOf(h.Value); ok {
		holder.Owner, holder.Process, holder.Since = o.Label, processNumber(o.Process), o.Since
	}
	names := m.names()
	if m.set.permits != 0 {
		holder.Permits, holder.Names = len(h.Keys), slices.Clone(names)
		return holder
	}
	for _, key := range h.Keys {
		holder.Names = append(holder.Names, names[key])
	}
	return holder
}

// idOf returns the ID of the holder with a value.
func idOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:4])
}

func (m *Mutex) nodeStatuses(seen lease.Inspected) (nodes []NodeStatus) {
	for i, n := range m.core.keeper.Set.Nodes {
		s := NodeStatus{Node: i, Address: n.Address(), Denied: seen.Lacks.Has(i)}
		if report := claim.ReportIn(seen.Votes[i]); report != nil {
			told := make(map[string]bool, len(report.Holds)) // there may be thousands of readers
			for _, h := range report.Holds {
				if id := idOf(h.Value); !told[id] {
					told[id] = true
					s.Holders = append(s.Holders, id)
				}
			}
			for _, tickets := range report.Tickets {
				s.Waiters += len(tickets)
			}
		} else {
			s.Err = &RedisError{Node: i, Address: n.Address(), Err: cmp.Or(seen.Votes[i].Err, quorum.ErrDuplicate)}
		}
		nodes = append(nodes, s)
	}
	return nodes
}

// libraryOf guesses which library has made a value.
func libraryOf(value string) string {
	const letters, digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "0123456789"
	is := func(length int, alphabet string) bool {
		return len(value) == length && strings.Trim(value, alphabet) == ""
	}
	_, owned := script.OwnerOf(value)
	switch {
	case owned, is(26, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"):
		return "redsync"
	case strings.HasSuffix(value, "==") && is(24, letters+digits+"+/="):
		return "redsync v4"
	case is(22, letters+digits+"-_"):
		return "redislock"
	case is(32, digits+"abcdef"):
		return "node-redlock or redis-py"
	}
	return ""
}

// Format writes who holds the lock, for every verb. It never writes the value.
func (h Holder) Format(f fmt.State, _ rune) {
	var b strings.Builder
	b.WriteString("redsync.Holder(")
	if h.Owner != "" {
		fmt.Fprintf(&b, "%q since %s, process %016d, ", h.Owner, h.Since.Format(time.RFC3339), h.Process)
	}
	if h.Shared {
		b.WriteString("shared, ")
	}
	if h.Permits > 0 {
		fmt.Fprintf(&b, "%d permits, ", h.Permits)
	}
	fmt.Fprintf(&b, "TTL %v, ID %s)", h.TTL, h.ID)
	_, _ = fmt.Fprint(f, b.String())
}

// LogValue returns what Format writes, in parts, for package slog.
func (h Holder) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("id", h.ID), slog.Duration("ttl", h.TTL)}
	if h.Owner != "" {
		attrs = append(attrs, slog.String("owner", h.Owner), slog.Time("since", h.Since), slog.Uint64("process", h.Process))
	}
	if h.Shared {
		attrs = append(attrs, slog.Bool("shared", true))
	}
	if h.Permits > 0 {
		attrs = append(attrs, slog.Int("permits", h.Permits))
	}
	return slog.GroupValue(attrs...)
}
