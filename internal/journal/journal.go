// Package journal decides how often a log says what lasts: that a node is down, or that no quorum answers. It says so
// at the beginning, then every 10 s while operations fail because of it, and at the end.
//
// A Journal has no goroutine and no timer: events that show a state also say it again. Notices write the lines, and
// delay no lock.
package journal

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/notice"
)

// A Journal is what all locks of one New or Open, and their loggers, share.
type Journal struct {
	notices *notice.Queue
	waiting func() map[string]int // see New
	lasts   atomic.Bool           // a state lasts: otherwise most events need not lock mu

	mu         sync.Mutex // guards what follows
	closed     bool
	loggers    []*slog.Logger   // of locks that had events while a state lasted
	quorum     state            // none answers
	denied     map[Op]time.Time // when a quorum last denied an Op
	nodes      []down           // by index
	twins      map[[2]int]*twins
	unextended map[Hold]string // the holds that could not be extended, by name; some may have ended
	sweep      int             // the size of unextended at which ended ones are removed
	subjects   map[Subject]*saying
	left       map[leftBy]Left // by Close
}

// A Hold is a lock that is held, or was: a map key.
type Hold interface {
	IsHeld() bool // still
}

// New returns a Journal whose lines notices writes. waiting, called under mu, returns the names for which calls wait,
// and their tries.
func New(notices *notice.Queue, waiting func() map[string]int) *Journal {
	return &Journal{notices: notices, waiting: waiting}
}

// Close makes the notices write what AddLeft has added, and no more.
func (j *Journal) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	j.loggers, j.nodes, j.twins, j.unextended = nil, nil, nil, nil
	j.quorum, j.denied = state{}, nil
	j.notices.Add(j, j.sayLeft)
}

// Dropped implements notice.Receiver. Observers are told instead.
func (*Journal) Dropped(int) {}

// A state is what lasts, from when it is first seen until its end is seen.
type state struct {
	on      bool
	said    bool // that it has begun
	since   time.Time
	last    time.Time // when a line last told of it
	omitted int       // how often it has come and gone since
	err     error     // the last reason
}

func (s *state) begin(now time.Time, err error) {
	if !s.on {
		s.on, s.since = true, now
	}
	s.err = err
}

// end reports whether a line must say that s has ended.
func (s *state) end(now time.Time) (say bool) {
	switch {
	case !s.on:
	case s.said:
		s.last, say = now, true
	default:
		s.omitted++
	}
	s.on, s.said, s.err = false, false, nil
	return say
}

// due reports whether s has not been said for long enough.
func (s *state) due(now time.Time) bool { return s.on && now.Sub(s.last) >= Every }

// tell returns what every line of s says. If not due, the line is for a new logger alone.
func (s *state) tell(now time.Time, due bool) (args []any) {
	if now != s.since {
		args = append(args, "for", Rounded(now.Sub(s.since)))
	}
	if !due {
		return args
	}
	if s.omitted > 0 {
		args = append(args, "omitted", s.omitted)
	}
	s.said, s.last, s.omitted = true, now, 0
	return args
}

// A Trouble is an operation to which no quorum has answered.
type Trouble struct {
	Name  string
	Tries int  // of a Lock or TryLock
	Joins bool // the call will wait from now on
	Held  Hold // the lock to extend, if any
	Err   error

	Op     Op
	Denied bool // by so many nodes that no quorum is left: it does not pass by itself
}

// An Op is a kind of operation. A quorum may deny one and answer another.
type Op uint8

// The values of Op.
const (
	Locks Op = iota + 1
	Extends
	Unlocks
)

// deniedFor is for how long a denial counts. Until then an answer to another kind does not end the lack of a quorum.
// Then it does, because the program may not try the denied kind again.
const deniedFor = time.Minute

// NoQuorum notes an operation to which no quorum has answered. log is that of the lock.
func (j *Journal) NoQuorum(log *slog.Logger, t Trouble) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	if t.Held != nil {
		put(&j.unextended, t.Held, t.Name)
		j.sweepLocked()
	}
	now := time.Now()
	j.quorum.begin(now, t.Err)
	if t.Denied {
		put(&j.denied, t.Op, now)
	}
	j.sayLocked(log, now, &t)
}

// sweepLocked removes ended holds whenever unextended has doubled.
func (j *Journal) sweepLocked() {
	if len(j.unextended) >= j.sweep {
		maps.DeleteFunc(j.unextended, func(h Hold, _ string) bool { return !h.IsHeld() })
		j.sweep = 2*len(j.unextended) + 64
	}
}

// Answered notes that a quorum has answered an operation. extended is the lock that it has extended, if any. An
// operation that began before the lack of a quorum does not end it.
func (j *Journal) Answered(log *slog.Logger, op Op, extended Hold, start time.Time) {
	if !j.lasts.Load() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	delete(j.unextended, extended)
	now := time.Now()
	delete(j.denied, op)
	maps.DeleteFunc(j.denied, func(_ Op, at time.Time) bool { return now.Sub(at) >= deniedFor })
	if len(j.denied) != 0 {
		return
	}
	if q := &j.quorum; q.on && !start.Before(q.since) {
		lasted := now.Sub(q.since)
		if q.end(now) {
			j.writeLocked(j.loggers, (*slog.Logger).Info, "redsync: a quorum answers again", "after", Rounded(lasted))
			for i := range j.nodes {
				if n := &j.nodes[i]; n.said {
					n.last = now // the lines of the quorum have named it, and it may be about to be up again
				}
			}
		}
		j.unextended, j.sweep = nil, 0
	}
	j.sayLocked(log, now, nil)
}

type down struct {
	state
	address string
	fails   time.Time // when it last failed
}

// NodeDown notes that a node is down, or has failed again. omitted is how often it was down without an event.
func (j *Journal) NodeDown(log *slog.Logger, i int, address string, omitted int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	for len(j.nodes) <= i {
		j.nodes = append(j.nodes, down{})
	}
	n, now := &j.nodes[i], time.Now()
	n.address = address
	if !n.on {
		n.omitted += omitted
	}
	n.begin(now, err)
	n.fails = now
	j.sayLocked(log, now, nil)
}

// An aging is an error with a time. At returns it as of now, nil if it is over.
type aging interface{ At(now time.Time) error }

// reason returns why n is down, nil if it may be up.
func (n *down) reason(now time.Time) error {
	if e, ok := n.err.(aging); ok { //nolint:errorlint // the reasons of nodes are not wrapped
		return e.At(now)
	}
	return n.err
}

// NodeUp notes that a node is up again.
func (j *Journal) NodeUp(i int, after time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < len(j.nodes) && j.nodes[i].end(time.Now()) {
		j.writeLocked(j.loggers, (*slog.Logger).Info, "redsync: node is up again",
			"node", i, "address", j.nodes[i].address, "down", Rounded(after))
	}
	j.restLocked()
}

// A twins is the state of two nodes that are one server. It is said once, because it lasts.
type twins struct {
	state
	args []any // of every line
}

// OneServer notes that two nodes are one server.
func (j *Journal) OneServer(log *slog.Logger, nodes [2]int, addresses [2]string, runID string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	t := j.twins[nodes]
	if t == nil {
		t = &twins{}
		put(&j.twins, nodes, t)
	}
	t.args = []any{"nodes", nodes[:], "addresses", addresses[:], "run_id", runID}
	now := time.Now()
	if t.on && now.Sub(t.since) >= Every {
		_ = t.end(now) // another Redsync with the same clients was told of the end
		t.last = time.Time{}
	}
	t.begin(now, nil)
	j.sayLocked(log, now, nil)
}

// TwoServers notes that they are different servers again.
func (j *Journal) TwoServers(nodes [2]int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t := j.twins[nodes]; t != nil && t.end(time.Now()) {
		j.writeLocked(j.loggers, (*slog.Logger).Info, "redsync: the two nodes are different servers again", t.args[:4]...)
	}
	j.restLocked()
}

// ForgetNodes ends the states of nodes without a line: events were dropped, so their ends may stay unknown.
func (j *Journal) ForgetNodes() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.nodes, j.twins = nil, nil
	j.restLocked()
}

// sayLocked says what is due, and to a new logger all that lasts. trouble, if any, has just shown that no quorum
// answers.
func (j *Journal) sayLocked(log *slog.Logger, now time.Time, trouble *Trouble) {
	if j.restLocked() {
		return
	}
	j.lasts.Store(true)
	var joined []*slog.Logger // log, if it is new
	if len(j.loggers) < maxLoggers && !slices.Contains(j.loggers, log) {
		joined = []*slog.Logger{log}
		j.loggers = append(j.loggers, log)
	}
	q := &j.quorum
	due := trouble != nil && q.due(now)
	if to := j.hearersLocked(q, joined, due); to != nil {
		args := append(q.tell(now, due), j.countsLocked(trouble)...)
		j.writeLocked(to, (*slog.Logger).Warn, "redsync: no quorum", append(args, "error", q.err)...)
	}
	for i := range j.nodes {
		n := &j.nodes[i]
		reason := n.reason(now)
		if reason == nil {
			continue
		}
		// Only a failure of the node repeats its line: another operation may be about to show that it is up.
		due := n.due(now) && n.fails.Equal(now) && !(n.said && q.said) // the lines of the quorum name the nodes
		if to := j.hearersLocked(&n.state, joined, due); to != nil {
			args := append([]any{"node", i, "address", n.address}, n.tell(now, due)...)
			j.writeLocked(to, (*slog.Logger).Warn, "redsync: node is down", append(args, "error", reason)...)
		}
	}
	for _, t := range j.twins {
		due := t.due(now) && !t.said
		if to := j.hearersLocked(&t.state, joined, due); to != nil {
			args := append(slices.Clone(t.args), t.tell(now, due)...)
			j.writeLocked(to, (*slog.Logger).Warn, "redsync: two nodes are one server, which counts once", args...)
		}
	}
}

// countsLocked returns what a line says of the locks that need a quorum: the name of a single one, without any that of
// trouble, a TryLock or nil.
func (j *Journal) countsLocked(trouble *Trouble) (args []any) {
	waiting, unextended := j.waiting(), make(map[string]bool)
	if trouble != nil && trouble.Joins {
		if waiting == nil {
			waiting = make(map[string]int)
		}
		waiting[trouble.Name] = max(waiting[trouble.Name], trouble.Tries)
	}
	for h, name := range j.unextended {
		if h.IsHeld() {
			unextended[name] = true
		}
	}
	switch len(waiting) + len(unextended) {
	case 0:
		if trouble != nil && trouble.Tries > 0 {
			args = []any{"lock", CutName(trouble.Name), "tries", trouble.Tries}
		}
	case 1:
		for name, tries := range waiting {
			args = []any{"lock", CutName(name), "tries", tries}
		}
		for name := range unextended {
			args = []any{"lock", CutName(name), "locks_unextended", 1}
		}
	default:
		if len(waiting) > 0 {
			args = append(args, "names_waiting", len(waiting))
		}
		if len(unextended) > 0 {
			args = append(args, "locks_unextended", len(unextended))
		}
	}
	return args
}

// hearersLocked returns to whom s must be said: to all if it is due, else to a new logger.
func (j *Journal) hearersLocked(s *state, joined []*slog.Logger, due bool) []*slog.Logger {
	switch {
	case due:
		return j.loggers
	case s.said:
		return joined
	}
	return nil
}

// restLocked reports whether no state lasts, and forgets the loggers then.
func (j *Journal) restLocked() bool {
	if j.quorum.on {
		return false
	}
	if slices.ContainsFunc(j.nodes, func(n down) bool { return n.on }) {
		return false
	}
	for _, t := range j.twins {
		if t.on {
			return false
		}
	}
	j.loggers = nil
	j.lasts.Store(false)
	return true
}

func (j *Journal) writeLocked(to []*slog.Logger, at func(*slog.Logger, string, ...any), message string, args ...any) {
	to = slices.Clone(to)
	j.notices.Add(j, func() {
		for _, log := range to {
			if !j.notices.IsSilent() {
				at(log, message, args...)
			}
		}
	})
}

const (
	// Every is the least time between two equal lines.
	Every = 10 * time.Second

	// maxLoggers bounds who says the same: a program may make a logger for each request.
	maxLoggers = 16
)

// A Subject is what a line says, and of which node.
type Subject struct {
	Message string
	Node    int
}

type saying struct {
	since time.Time      // when a line was last due
	told  []*slog.Logger // those that have written it
	more  int            // what has happened without a line
}

// Rarely notes that a subject has happened n more times. log must write a line if none was due for per, or only others
// have written it. total is n and what has had no line.
func (j *Journal) Rarely(log *slog.Logger, s Subject, n int, per time.Duration) (total int, say bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now, known := time.Now(), j.subjects[s]
	if known == nil {
		known = &saying{}
		put(&j.subjects, s, known)
	}
	switch {
	case now.Sub(known.since) >= per:
		total = n + known.more
		*known = saying{since: now, told: []*slog.Logger{log}}
		return total, true
	case len(known.told) < maxLoggers && !slices.Contains(known.told, log):
		known.told = append(known.told, log)
		return n, true
	}
	known.more += n
	return 0, false
}

// A Left is what a node has not confirmed at the end of Close.
type Left struct {
	Node     int
	Address  string
	Releases int
	Within   time.Duration // until the keys have run out
	Err      error
}

type leftBy struct {
	log  *slog.Logger
	node int
}

// AddLeft adds what locks with that logger have left on a node, for Close to say.
func (j *Journal) AddLeft(log *slog.Logger, l Left) {
	j.mu.Lock()
	defer j.mu.Unlock()
	by, loggers := leftBy{log, l.Node}, 0
	for other := range j.left {
		if other.node == l.Node {
			loggers++
		}
	}
	before, known := j.left[by]
	if !known && loggers >= maxLoggers {
		return
	}
	l.Releases += before.Releases
	l.Within = max(l.Within, before.Within)
	put(&j.left, by, l)
}

func (j *Journal) sayLeft() {
	j.mu.Lock()
	left := j.left
	j.left = nil
	j.mu.Unlock()
	for _, by := range slices.SortedFunc(maps.Keys(left), func(a, b leftBy) int { return a.node - b.node }) {
		l := left[by]
		by.log.Warn("redsync: releases unconfirmed", "node", l.Node, "address", l.Address, "releases", l.Releases,
			"keys_expire_within", Rounded(l.Within), "error", l.Err)
	}
}

// Rounded returns d as a line shows it.
func Rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}

func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[k] = v
}
