package script

import (
	_ "embed" // the source
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/wire"
)

//go:embed inspect.lua
var inspect string

var inspectScript = wire.NewScriptOnDemand(func() string { return complete(inspect) })

// Inspect reads the locks of k, and unless alone their queues and their fencing registers. ParseReport reads the reply.
func (k *Keys) Inspect(alone bool) Command {
	locks := k.Lock(nil).keys
	r := newRequest(inspectScript, keyCount+3+3*len(locks))
	r.keys(locks...)
	if alone {
		return r.inspects(len(locks), 0)
	}
	r.queues(k)
	r.registers(k)
	return r.inspects(len(locks), len(locks))
}

// Inspect reads all slots of s, and unless alone its queue.
func (s *Semaphore) Inspect(alone bool) Command {
	r := newRequest(inspectScript, keyCount+4+s.n)
	r.keys(s.slots[:s.n]...)
	if alone {
		return r.inspects(s.n, 0)
	}
	r.queues(&s.keys)
	return r.inspects(s.n, 1)
}

func (r *request) inspects(locks, queues int) Command {
	r.args(locks, queues)
	return r.command()
}

// A Report is what a node has of a lock, without readers and waiters whose time is up by its clock.
type Report struct {
	Holds     []Held
	Tickets   [][]string // by queue: the waiters in order, each with its kind
	Registers []uint64   // 0 for none
}

// A Held is a value that a node has at a key.
type Held struct {
	At     int // index of the key: of a name, or of a slot
	Value  string
	TTL    time.Duration // what is left, or Endless
	Shared bool          // it is a reader's
}

// Endless is the TTL of a key that does not expire.
const Endless time.Duration = math.MaxInt64

// ParseReport reads a reply to an Inspect of that many keys.
func ParseReport(reply any, locks int) (*Report, error) {
	if parts, ok := reply.([]any); ok && len(parts) == 4 {
		now, isNow := parts[0].(int64)
		held, areHeld := parts[1].([]any)
		queues, areQueues := parts[2].([]any)
		registers, areRegisters := parts[3].([]any)
		r := &Report{}
		if isNow && areHeld && areQueues && areRegisters && len(held) == 2*locks &&
			r.addHolds(held, now) && r.addTickets(queues) && r.addRegisters(registers) {
			return r, nil
		}
	}
	return nil, fmt.Errorf("redsync: odd answer to an inspection: %s", shapeOf(reply))
}

// shapeOf shows none of the values in a reply.
func shapeOf(reply any) string {
	switch reply := reply.(type) {
	case string:
		return fmt.Sprintf("a text of %d bytes", len(reply))
	case []any:
		return fmt.Sprintf("an array of %d", len(reply))
	}
	return fmt.Sprint(reply)
}

func (r *Report) addHolds(held []any, now int64) (ok bool) {
	for i := 0; i < len(held); i += 2 {
		ttl, isTTL := held[i+1].(int64)
		text, isText := held[i].(string)
		if !isTTL || !isText && held[i] != nil {
			return false
		}
		if isText {
			r.addHold(Held{At: i / 2, Value: text, TTL: DurationOf(ttl)}, now)
		}
	}
	return true
}

// DurationOf returns the duration of a PTTL, Endless for less than 0.
func DurationOf(ms int64) time.Duration {
	if ms < 0 || ms > int64(Endless/time.Millisecond) {
		return Endless
	}
	return time.Duration(ms) * time.Millisecond
}

func (r *Report) addHold(h Held, now int64) {
	readers, ok := readersIn(h.Value, now)
	if !ok {
		r.Holds = append(r.Holds, h)
		return
	}
	for _, reader := range readers {
		reader.At, reader.Shared = h.At, true
		r.Holds = append(r.Holds, reader)
	}
}

const deadlineDigits = 13

// readersIn returns the readers in the text of a lock that are not gone, false for a writer's value.
func readersIn(text string, now int64) (readers []Held, ok bool) {
	rest, ok := strings.CutPrefix(text, readersPrefix)
	if !ok || rest == "" {
		return nil, false
	}
	for rest != "" {
		record, after, complete := strings.Cut(rest, "\n")
		at := len(record) - deadlineDigits - 1
		if !complete || at < 0 || record[at] != ' ' {
			return nil, false
		}
		deadline, err := strconv.ParseUint(record[at+1:], 10, 63)
		if err != nil {
			return nil, false
		}
		if left := int64(deadline) - now; left > 0 {
			readers = append(readers, Held{Value: record[:at], TTL: DurationOf(left)})
		}
		rest = after
	}
	return readers, true
}

// Offsets in the text of a queue: see queue.lua.
const (
	waiterLength = 64
	processFrom  = 22
	processTo    = processFrom + processLength
)

func (r *Report) addTickets(queues []any) (ok bool) {
	for _, queue := range queues {
		text, isText := queue.(string)
		if !isText || len(text)%waiterLength != 0 {
			return false
		}
		tickets := make([]string, 0, len(text)/waiterLength)
		for ; text != ""; text = text[waiterLength:] {
			tickets = append(tickets, text[:ticketLength+len(shared)])
		}
		r.Tickets = append(r.Tickets, tickets)
	}
	return true
}

// ProcessIn returns the process of one of Report.Tickets.
func ProcessIn(ticket string) string { return ticket[processFrom:processTo] }

func (r *Report) addRegisters(registers []any) (ok bool) {
	for _, register := range registers {
		text, isText := register.(string)
		if !isText && register != nil {
			return false
		}
		token, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			token = 0 // something else at the key is no register
		}
		r.Registers = append(r.Registers, token)
	}
	return true
}
