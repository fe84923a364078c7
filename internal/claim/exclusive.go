package claim

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// An Exclusive is the claim of a Mutex: a key for each name, all with one value. A node sets all or none, and votes once.
type Exclusive struct {
	*script.Keys
	value any // a string
}

// A Keyed is a claim with room for its Keys, which saves an allocation.
type Keyed struct {
	Exclusive
	room script.Keys
}

// Init names k. The names are sorted and distinct. To send the claim, there must be 1 to MaxLines.
func (k *Keyed) Init(names ...string) {
	k.room = script.KeysOf(names...)
	k.Exclusive = Exclusive{&k.room, ""}
}

// either returns what reads replies about one name, or about several.
func either[Reader any](e *Exclusive, one, several Reader) Reader {
	if len(e.Lines()) == 1 {
		return one
	}
	return several
}

// Name implements Claim. It is empty before Init.
func (k *Keyed) Name() string { return k.room.Name() }

// Lines implements Claim.
func (k *Keyed) Lines() []string { return k.room.Lines() }

// Value implements Claim.
func (e *Exclusive) Value() string { return e.value.(string) }

// With implements Claim.
func (e *Exclusive) With(value string, room *Room) Claim {
	room.exclusive = Exclusive{e.Keys, value}
	return &room.exclusive
}

// Shares implements Claim.
func (e *Exclusive) Shares() bool { return false }

// HoldsAlone implements Claim.
func (e *Exclusive) HoldsAlone() bool { return true }

// PassesTo implements Claim.
func (e *Exclusive) PassesTo(other Claim) bool {
	o, same := other.(*Exclusive)
	return same && len(e.Lines()) == 1 && slices.Equal(o.Lines(), e.Lines())
}

// Acquire implements Claim. For one name, without a ticket and a fence, it is the plain SET of other libraries.
func (e *Exclusive) Acquire(ttl time.Duration, at script.Place, f script.Fence) Call {
	if at.Ticket.IsZero() && f.Token == 0 && len(e.Lines()) == 1 {
		return Call{script.Acquire(e.Lock(e.value), ttl.Milliseconds()), readSet}
	}
	call := Call{script.Enter(e.Lock(e.value), ttl.Milliseconds(), at, f), either(e, readEntered, readEnteredNames)}
	if f.Token != 0 {
		call.Read = readEnteredWith(either(e, script.ParseEntered, script.ParseEnteredNames), at, f)
	}
	return call
}

// AcquireAgain implements Claim. A heal also tells whose value is there.
func (e *Exclusive) AcquireAgain(ttl time.Duration, at script.Place, f script.Fence, fresh bool) Call {
	if fresh && at.Ticket.IsZero() && f.Token == 0 {
		return again(e.Extend(ttl, true))
	}
	return againWith(e.Acquire(ttl, at, f), f)
}

func again(heals Call) Call {
	read := heals.Read
	heals.Read = func(reply any) (Answer, error) {
		a, err := read(reply)
		if a.Found == Created || a.Found == PartCreated {
			a.Found = Mine
		}
		return a, err
	}
	return heals
}

// errWhose is why a refusal is no answer, although the node works.
var errWhose error = undecided{}

type undecided struct{}

func (undecided) Error() string {
	return "redsync: the connection was lost, and the node does not tell whether the value there is the caller's own"
}

// NotCounted implements quorum.NotCounted.
func (undecided) NotCounted() {}

// againWith returns an acquire that is sent again. Without a token it does not tell whose value it has found.
func againWith(enters Call, f script.Fence) Call {
	if f.Token != 0 {
		return enters
	}
	read := enters.Read
	enters.Read = func(reply any) (Answer, error) {
		a, err := read(reply)
		if a.Found == Other {
			return Answer{}, errWhose
		}
		return a, err
	}
	return enters
}

// Extend implements Claim.
func (e *Exclusive) Extend(ttl time.Duration, heal bool) Call {
	return Call{script.Extend(e.Lock(e.value), ttl.Milliseconds(), heal), either(e, readFound, readFoundAll)}
}

// Fill implements Claim.
func (e *Exclusive) Fill(ttl time.Duration) Call {
	call := e.Acquire(ttl, script.Place{}, script.Fence{})
	call.Read = filled(call.Read)
	return call
}

// filled reads the reply to an acquire as that to a fill.
func filled(read func(any) (Answer, error)) func(any) (Answer, error) {
	return func(reply any) (Answer, error) {
		a, err := read(reply)
		if a.Found == Mine && !a.Details().WasThere {
			a.Found = Created
		}
		return a, err
	}
}

// Check implements Claim.
func (e *Exclusive) Check() Call {
	return Call{script.Valid(e.Lock(e.value)), either(e, readFound, readFoundAll)}
}

// Release implements Claim.
func (e *Exclusive) Release(p script.Process, t script.Turnover, f script.Fence) Call {
	return Call{script.Release(e.Lock(e.value), p, t, f), either(e, readFound, readReleased)}
}

// Shorten implements Shortener.
func (e *Exclusive) Shorten(rest time.Duration, p script.Process, t script.Turnover, f script.Fence) Call {
	return Call{script.Shorten(e.Lock(e.value), rest.Milliseconds(), p, t, f), either(e, readFound, readReleased)}
}

// Ping asks whether a node answers. Every reply is a grant.
func Ping() Call {
	return Call{script.Ping(), func(any) (Answer, error) { return Answer{Found: Mine}, nil }}
}

// readSet reads the reply to a plain SET. Our own value counts as another's: used twice, it must not admit two holders.
func readSet(reply any) (Answer, error) {
	switch text, _ := reply.(string); {
	case reply == nil:
		return Answer{Found: Other}, nil
	case text == "OK":
		return Answer{Found: Mine}, nil
	}
	return Answer{}, fmt.Errorf("redsync: odd answer to an acquire: %s", script.Describe(reply))
}

func readEntered(reply any) (Answer, error) {
	entered, err := script.ParseEntered(reply)
	if err != nil {
		return Answer{}, err
	}
	return answerTo(entered), nil
}

func readEnteredNames(reply any) (Answer, error) {
	entered, err := script.ParseEnteredNames(reply)
	switch {
	case err != nil:
		return Answer{}, err
	case entered == script.Entered{}: // a grant without a token: no Detail, which saves an allocation
		return Answer{Found: Mine}, nil
	}
	return answerTo(entered), nil
}

// readEnteredWith reads replies to an acquire with a fence. Without a ticket, the usual answers share one Detail, which
// must not change.
func readEnteredWith(parse func(any) (script.Entered, error), at script.Place, f script.Fence) func(reply any) (Answer, error) {
	stored := script.Entered{Wait: script.Granted, Register: f.Token, Stored: true}
	usual := usualTo(stored, at)
	return func(reply any) (Answer, error) {
		entered, err := parse(reply)
		if err == nil {
			entered, err = entered.Checked(stored.Register)
		}
		switch {
		case err != nil:
			return Answer{}, err
		case entered == stored && usual.Detail != nil:
			return usual, nil
		}
		return answerTo(entered), nil
	}
}

// usualTo returns the answer that nodes share, zero with a ticket: then each has its own time.
func usualTo(stored script.Entered, at script.Place) Answer {
	if at.Ticket.IsZero() {
		return answerTo(stored)
	}
	return Answer{}
}

func answerTo(entered script.Entered) Answer {
	d := &Detail{Wait: Never, Register: entered.Register, Stored: entered.Stored, WasThere: entered.WasThere, Blind: entered.Blind}
	if entered.Wait == script.Granted {
		return Answer{Found: Mine, Detail: d}
	}
	if entered.By != 0 {
		d.Free = allLines &^ entered.By
	}
	if entered.Wait > 0 {
		d.Wait = script.DurationOf(entered.Wait)
	}
	return Answer{Found: Other, Detail: d}
}

// readFound reads the reply of a script that looks for the value. An odd reply is an error, because Missing proves a
// loss.
func readFound(reply any) (Answer, error) {
	what, ok := reply.(int64)
	a := Answer{First: what&script.First != 0, Others: what&(script.Woke|script.Others) != 0}
	switch what &^= script.Woke | script.First | script.Others; {
	case !ok:
	case what == script.Mine:
		a.Found = Mine
		return a, nil
	case what == script.Other:
		a.Found = Other
		return a, nil
	case what == script.Missing:
		a.Found = Missing
		return a, nil
	case what == script.Created:
		a.Found = Created
		return a, nil
	}
	return Answer{}, fmt.Errorf("redsync: odd answer of a script: %s", script.Describe(reply))
}

func readReleased(reply any) (Answer, error) {
	released, err := script.ParseReleasedNames(reply)
	if err != nil {
		return Answer{}, err
	}
	a, err := readFoundAll(released.Found)
	if released.First|released.Others != 0 {
		a.First, a.Others = released.First != 0, released.Others != 0
		a.Detail = &Detail{Wait: Never, First: released.First, Others: released.Others}
	}
	return a, err
}

func readFoundAll(reply any) (Answer, error) {
	a, err := readFound(reply)
	switch {
	case err != nil:
	case a.Found == Missing:
		a.Found = PartMissing
	case a.Found == Created:
		a.Found = PartCreated
	}
	return a, err
}
