package redsync

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/journal"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/notice"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// Inspect asks the nodes for the holder and the waiters of m's lock, and changes nothing. m itself need not hold the lock.
// Inspect waits for every node, for at most the node deadline. Status.State is
//
//   - StateHeld, if a quorum of nodes has the value of a holder (with NewJoint a quorum of both sets);
//   - StateFree, if no value can have a quorum;
//   - StateUnknown otherwise.
//
// A STATUS IS NO PROOF, because it tells the past: for your own lock see Remaining, Valid and Fence. With WithPermits,
// Inspect sees holders of permits up to that number, otherwise the writer or the readers. See docs/owners.md.
//
// Errors:
//
//   - ErrNoQuorum, with the error of each silent node, if the state is unknown. The Status has what the others have
//     said.
//   - ErrClosed, the error and the cause of ctx, or one that names an option or a name that cannot be used. Nothing was
//     asked.
func (m *Mutex) Inspect(ctx context.Context) (Status, error) {
	ctx = orBackground(ctx)
	t, err := m.beginCall()
	if err != nil {
		return Status{State: StateUnknown}, m.failure("inspect", err)
	}
	defer m.core.keeper.EndCall()
	if ctx.Err() != nil {
		return Status{State: StateUnknown}, m.failure("inspect", contextErrors(ctx))
	}
	i := lease.NewInspection(t)
	s, err := m.statusOf(i.Run(ctx, true, i.Limits()))
	if err != nil {
		return s, m.failure("inspect", err, m.interruption(ctx))
	}
	return s, nil
}

// The states of a lock: see Mutex.Inspect.
const (
	StateUnknown = "unknown" // too few nodes have answered
	StateHeld    = "held"    // a quorum of nodes has the value of a holder
	StateFree    = "free"    // no value has a quorum
)

// A Status is what the nodes have said of a lock: see Mutex.Inspect.
type Status struct {
	Name     string   // of the Mutex
	State    string   // of several names: held if one is, free if all are
	Holders  []Holder // those whose keys last longest first
	Waiters  []Waiter // those that wait longest first
	Register uint64   // highest fencing register, not the holder's token: a failed attempt may have raised it
	Nodes    []NodeStatus
	Names    []Status // of several names: one for each, without Nodes
}

// A Holder is who holds a lock, as far as the nodes tell. No text shows its secret value. In JSON, Process is a string,
// because not every reader keeps 16 digits.
type Holder struct {
	Owner   string        // of WithOwner; "" without
	Process uint64        `json:",string"` // a number that the process has drawn; 0 without WithOwner
	Since   time.Time     // when it began to lock, by its own clock; zero without WithOwner
	TTL     time.Duration // how long a quorum keeps the keys; negative: for ever
	Shared  bool          // a reader's (WithShared, Downgrade)
	Permits int           // 0 if the lock is no semaphore
	Names   []string      // those of the Mutex that it holds
	Library string        // that made the value, guessed by its form; "" if none fits
	ID      string        // the first 8 hex digits of the SHA-256 of the value

	value *string // package fmt shows it as a number
}

// A Waiter is a process in the queues of a quorum, from its first failed attempt on, if its user may write to the
// queue. Its place may outlast the wait by a second.
type Waiter struct {
	Process uint64 `json:",string"` // a number that the process has drawn, for all locks of one New or Open
	Count   int    // places; several waiters may share one
}

// A NodeStatus is what one node has said.
type NodeStatus struct {
	Node    int      // its index in New or Open, from 0
	Address string   // its Pool's String
	Holders []Holder // also without a quorum: with TTL, names and permits on this node
	Waiters int      // places in its queues
	Denied  bool     // it shows the lock, but not its queue and fencing register
	Err     error    // a *RedisError: why it has said nothing
}

func (m *Mutex) statusOf(seen lease.Inspected) (Status, error) {
	names := m.names()
	var holders []Holder
	for _, h := range seen.Holdings() {
		holders = append(holders, m.holderOf(h))
	}
	part := func(name string, holders []Holder, keys, queues []int) Status {
		return Status{
			Name: name, State: stateOf(seen, keys), Holders: holders,
			Waiters: waitersOf(seen, queues), Register: registerOf(seen, queues),
		}
	}
	s := part(m.Name(), holders, m.inspectedKeys(), firstInts(len(names)))
	s.Nodes = m.nodeStatuses(seen)
	known := s.State != StateUnknown
	if len(names) > 1 {
		for i, name := range names {
			without := func(h Holder) bool { return !slices.Contains(h.Names, name) }
			one := part(name, slices.DeleteFunc(slices.Clone(holders), without), []int{i}, []int{i})
			known = known && one.State != StateUnknown
			s.Names = append(s.Names, one)
		}
	}
	if known {
		return s, nil
	}
	return s, tooFewAnswers(s.Nodes, seen)
}

func tooFewAnswers(nodes []NodeStatus, seen lease.Inspected) error {
	f := &failure{}
	count := claim.Count{}
	for i := range nodes {
		switch n := &nodes[i]; {
		case !seen.Rule.All().Has(i): // the same server as another
		case n.Err == nil:
			count.Granted = count.Granted.With(i)
		default:
			count.Failed = count.Failed.With(i)
			f.nodes = append(f.nodes, n.Err)
		}
	}
	res := seen.Result
	res.Count, res.Votes = count, seen.Votes
	f.causes = []error{noQuorum(res)}
	return f
}

func (m *Mutex) inspectedKeys() []int { return firstInts(max(len(m.names()), m.set.permits)) }

func firstInts(n int) (numbers []int) {
	for i := range n {
		numbers = append(numbers, i)
	}
	return numbers
}

func stateOf(seen lease.Inspected, keys []int) string {
	switch {
	case seen.IsHeld(keys...):
		return StateHeld
	case seen.IsFree(keys...):
		return StateFree
	}
	return StateUnknown
}

func waitersOf(seen lease.Inspected, queues []int) (waiters []Waiter) {
	places := make(map[uint64]int)
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
	n, _ := strconv.ParseUint(text, 10, 64) // 0 for a text of another program
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
	holder := Holder{TTL: h.TTL, Shared: h.Shared, Library: libraryOf(h.Value), ID: script.IDOf(h.Value), value: &h.Value}
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

func (m *Mutex) nodeStatuses(seen lease.Inspected) (nodes []NodeStatus) {
	for i, n := range m.core.keeper.Set.Nodes {
		s := NodeStatus{Node: i, Address: n.Address()}
		if report := claim.ReportIn(seen.Votes[i]); report != nil {
			s.Denied = seen.Lacks.Has(i)
			for _, h := range claim.HoldingsIn(report) {
				s.Holders = append(s.Holders, m.holderOf(h))
			}
			for _, tickets := range report.Tickets {
				s.Waiters += len(tickets)
			}
		} else {
			s.Err = nodeError(i, n.Address(), cmp.Or(seen.Votes[i].Err, quorum.ErrDuplicate))
		}
		nodes = append(nodes, s)
	}
	return nodes
}

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

// Format writes the name, the state, and the end, such as redsync.Mutex("orders:17", held until 15:04:05.000, token 7),
// for every verb, and never the value.
func (m *Mutex) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, m.shown().String()) }

// LogValue returns the name, the state, and the time and the token of the hold, for package slog, and never the value.
// The state is "idle", "held", "adopted" (see WithValue), or "over" (expired or lost).
func (m *Mutex) LogValue() slog.Value {
	s := m.shown()
	attrs := []slog.Attr{slog.String("name", s.Name), slog.String("state", s.State)}
	if !s.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", s.Until))
	}
	if s.Token != 0 {
		attrs = append(attrs, slog.Uint64("token", s.Token))
	}
	return slog.GroupValue(attrs...)
}

type shownMutex struct {
	Name, State string
	Until       time.Time
	Token       uint64
}

func (m *Mutex) shown() shownMutex {
	if m == nil {
		return shownMutex{State: "nil"}
	}
	s := shownMutex{Name: journal.CutName(m.Name()), State: "idle"}
	h, adopted := m.holdOrAdopted()
	switch {
	case h != nil:
		s.State, s.Token, s.Until = "held", h.Token(), h.Until()
		if m.Err() != nil {
			s.State = "over"
		}
	case adopted != nil:
		s.State, s.Token = "adopted", adopted.sequencer.Token
	}
	return s
}

func (s shownMutex) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redsync.Mutex(%q, %s", s.Name, s.State)
	if !s.Until.IsZero() {
		fmt.Fprintf(&b, " until %s", s.Until.Format("15:04:05.000"))
	}
	if s.Token != 0 {
		fmt.Fprintf(&b, ", token %d", s.Token)
	}
	b.WriteByte(')')
	return b.String()
}

// Format writes the nodes, for every verb.
func (r *Redsync) Format(f fmt.State, _ rune) {
	addresses := []string{}
	if r != nil && r.core != nil {
		for _, n := range r.core.keeper.Set.Nodes {
			addresses = append(addresses, n.Address())
		}
	}
	_, _ = fmt.Fprintf(f, "redsync.Redsync(%s)", strings.Join(addresses, ", "))
}

func init() {
	fortests.Lease = func(mutex any) *lease.Lease { return mutex.(*Mutex).current() }
	fortests.Keeper = func(r any) *lease.Keeper { return &r.(*Redsync).core.keeper }
	fortests.Exclusions = func() (pairs [][2]string) {
		for _, x := range exclusions {
			pairs = append(pairs, [2]string{x.one.String(), x.other.String()})
		}
		return pairs
	}
	fortests.LogHooks = func(log *slog.Logger) any {
		return (&logLines{log, journal.New(&notice.Queue{}, func() map[string]int { return nil })}).hooks()
	}
}
