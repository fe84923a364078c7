// Package history records what clients of locks believed and when, and finds the promises that the
// locks broke. It knows nothing about the implementation of locks: the simulation and the chaos
// program write histories of this library and of others.
package history

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// A Kind says what happened in an Event.
type Kind string

// The kinds that clients note. A term is one call of Lock and everything that follows from it.
// Each client numbers its terms.
const (
	Call      Kind = "call"      // Lock is about to be called
	Held      Kind = "held"      // Lock has succeeded: the client holds the lock until Until
	Refused   Kind = "refused"   // Lock has failed
	Extended  Kind = "extended"  // the hold was extended: the client holds the lock until Until
	Lost      Kind = "lost"      // the client was told, or noticed, that the hold is over
	Downgrade Kind = "downgrade" // Downgrade is about to be called: from now on the client believes in a shared lock
	Gave      Kind = "gave"      // the client no longer believes that it holds the lock; others with its value may
	Unlock    Kind = "unlock"    // Unlock is about to be called: the client no longer believes that it holds the lock
	Unlocked  Kind = "unlocked"  // Unlock has returned
	Broken    Kind = "broken"    // the client itself saw a promise broken: Err says which
	Saw       Kind = "saw"       // the client has looked who holds a lock (Inspect), as Sight says; it belongs to no term
)

// The kinds by which releases by force are judged: see Forces.
const (
	Forcing Kind = "forcing" // ForceUnlock is about to be called for the holder with the ID in Value; it belongs to no term
	Forced  Kind = "forced"  // it has returned; Err says what, "" if it has released the lock
	Told    Kind = "told"    // an observer was told of the loss of a term
)

// The kinds that the simulation and the chaos program note themselves.
const (
	Key   Kind = "key"   // the state of a key on a node
	Fault Kind = "fault" // a fault begins or ends
)

// The kinds by which waits are judged: see Idle.
const (
	Waits Kind = "waits" // after Call: the client waits, as Wait says, for what this event says, until Held or Refused
	Ails  Kind = "ails"  // a node begins, or ends, not to serve a process in time
	Left  Kind = "left"  // a client has crashed, and its keys are on a node until Until
)

// NoTTL is the TTL of a Key that never expires.
const NoTTL = time.Duration(-1)

// An Event is something that happened. All writers of a history take times from one clock, whose
// origin is arbitrary.
type Event struct {
	At   time.Duration `json:"at"`
	Kind Kind          `json:"kind"`

	// For the kinds that clients note. A Key event has a Name too, if the key is a lock's own.
	Client string        `json:"client,omitempty"` // its name
	Term   int           `json:"term,omitempty"`
	Name   string        `json:"name,omitempty"`
	More   []string      `json:"more,omitempty"`  // the other names of a lock on several names
	Until  time.Duration `json:"until,omitempty"` // of Held and Extended
	Token  uint64        `json:"token,omitempty"` // of Held, with fencing
	Reads  bool          `json:"reads,omitempty"` // of Held: the lock is shared, so other readers may hold it too

	Permits int `json:"permits,omitempty"` // of Held: how many permits the name has, as the client knows; 0: it is a lock
	Weight  int `json:"weight,omitempty"`  // of Held: how many of them the client holds; 0: one

	Keeps  time.Duration `json:"keeps,omitempty"`  // of Held: nobody else may begin to hold the lock until so long after Call
	Leads  bool          `json:"leads,omitempty"`  // of Held: the client is the leader, and Token is the number of its term
	Within bool          `json:"within,omitempty"` // of Held: the client holds the lock within a function, whose context ends with the hold

	Expiry   time.Duration `json:"expiry,omitempty"`   // of Held: the client's expiry, if releases by force are judged
	Heals    bool          `json:"heals,omitempty"`    // of Held: its extensions set keys again (WithSetNXOnExtend)
	Hears    bool          `json:"hears,omitempty"`    // of Held: its process hears of a release by force
	Observed bool          `json:"observed,omitempty"` // of Held: an observer of the term notes Told
	ByForce  bool          `json:"by_force,omitempty"` // of Lost and Told: the error says that the lock was released by force

	Owner string `json:"owner,omitempty"` // the label of the client's locks (WithOwner)
	Sight *Sight `json:"sight,omitempty"` // of Saw; Permits says how many permits the client knows of

	Shares string `json:"shares,omitempty"` // the ID of the term whose hold this term shares; "": it has a hold of its own
	Paused bool   `json:"paused,omitempty"` // of Lost and Extended, and of Unlock and Gave: the client or its clock may have stopped during the term
	Err    string `json:"err,omitempty"`

	Wait *Waiting `json:"wait,omitempty"` // of Waits

	// For Ails, which also has Node: the process, "" for all, and the latest time after which answers come, 0 if none
	// comes. Left has Node, Name, More, Permits and Until.
	// Call has the client's Process, if looks are judged.
	Process string        `json:"process,omitempty"`
	Late    time.Duration `json:"late,omitempty"`

	// For Key.
	Node  int           `json:"node,omitempty"`
	Key   string        `json:"key,omitempty"`
	TTL   time.Duration `json:"ttl,omitempty"`
	Value string        `json:"value,omitempty"` // of a lock's own key; "" if nobody looked. Held and Forcing have the ID of the value: see IDOf

	// For Fault: where it happens, what it is, and whether it ends.
	Where string `json:"where,omitempty"`
	What  string `json:"what,omitempty"`
	Ends  bool   `json:"ends,omitempty"`
}

// ID identifies the term of an event. If that term began a hold, the other terms of the hold have this ID
// in Shares.
func (e Event) ID() string { return fmt.Sprintf("%s #%d", e.Client, e.Term) }

// Of reports whether the event is about the lock name, alone or among others.
func (e Event) Of(name string) bool { return e.Name == name || slices.Contains(e.More, name) }

// hold identifies the hold of the term.
func (e Event) hold() string { return cmp.Or(e.Shares, e.ID()) }

// A Log takes events from many goroutines. It keeps them, or writes them as JSON, one per line.
// The zero value keeps them.
type Log struct {
	mu     sync.Mutex
	out    *json.Encoder
	events []Event
	err    error
}

// NewLog returns a Log that writes to w, each event in one Write.
func NewLog(w io.Writer) *Log { return &Log{out: json.NewEncoder(w)} }

// Note takes an event.
func (l *Log) Note(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		l.events = append(l.events, e)
		return
	}
	l.err = errors.Join(l.err, l.out.Encode(e))
}

// Err returns the errors of writing.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Events returns what the Log has kept, in the order of time.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Merge(l.events)
}

// Read reads the output of a Log. It ignores a last line that is incomplete because the writing process
// was killed.
func Read(r io.Reader) ([]Event, error) {
	var events []Event
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("history: line %d: %w", len(events)+1, err)
		}
		events = append(events, e)
	}
}

// Merge returns the events of several logs in the order of time.
func Merge(logs ...[]Event) []Event {
	all := slices.Concat(logs...)
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return all
}

// A Waiting is how a client waits: see Waits.
type Waiting struct {
	Process  string        `json:"process,omitempty"`  // the client's: see Ails
	Sets     [][]int       `json:"sets,omitempty"`     // the nodes that vote; a quorum of each set decides
	Deadline time.Duration `json:"deadline,omitempty"` // the node deadline
	Fair     bool          `json:"fair,omitempty"`     // it overtakes nobody
	Unjudged bool          `json:"unjudged,omitempty"` // it has delays of its own, or tries only once
}

// A Sight is what a look has said of a name: see Saw.
type Sight struct {
	Began    time.Duration `json:"began"` // when the client has begun to look; the event has the end
	State    string        `json:"state"`
	NoQuorum bool          `json:"no_quorum,omitempty"` // the error was ErrNoQuorum
	Silent   int           `json:"silent,omitempty"`    // how many nodes have said nothing
	Holders  []Holder      `json:"holders,omitempty"`
}

// A Holder is named by a look.
type Holder struct {
	ID    string        `json:"id"` // see IDOf
	Owner string        `json:"owner,omitempty"`
	Since time.Duration `json:"since,omitempty"` // 0: it does not say so
	Reads bool          `json:"reads,omitempty"`
}

// IDOf returns the ID that a look shows of a value.
func IDOf(value string) string {
	if value == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:4])
}

// A Violation is a promise that was broken.
type Violation struct {
	Rule string
	Name string
	At   time.Duration
	What string
}

func (v Violation) String() string {
	return fmt.Sprintf("%v %s %q: %s", v.At, v.Rule, v.Name, v.What)
}

// The names of the rules.
const (
	Exclusion   = "exclusion"
	TooMany     = "more permits held than there are"
	TokenOrder  = "token order"
	TokenUnique = "token used twice"
	LateLost    = "loss told too late"
	Endless     = "key without a TTL"
	TooLong     = "key with too long a TTL"
	LeftBehind  = "key left behind"
	InPart      = "lock set in part"
	TooSoon     = "begun too soon"
	TermOrder   = "leader's term out of order"
	Promise     = "promise to a client"
	Idled       = "free lock rests while somebody waits"
	WrongHolder = "look names one that does not hold"
	WrongOwner  = "look names a wrong owner"
	WrongState  = "look contradicts a holder"
	Unexplained = "look cannot tell, without a reason"
	NobodyForce = "lock gone that nobody has forced"
	StaysHeld   = "forced lock stays held"
	ToldOnce    = "observer not told once of a loss"
)
