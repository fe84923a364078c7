package claim

import (
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Multi is the claim of a Mutex on several names: a key for each, all with one value. A node sets all or none, and
// votes once.
type Multi struct {
	locks script.Multi
	name  string // for errors and events
}

// NewMulti returns the claim of names, sorted and distinct, without a value. To send it, they must be 2 to MaxLines.
func NewMulti(names []string) *Multi {
	return &Multi{script.NewMulti(names), strings.Join(names, ", ")}
}

// Name implements Claim.
func (m *Multi) Name() string { return m.name }

// Value implements Claim.
func (m *Multi) Value() string { return m.locks.Value() }

// With implements Claim.
func (m *Multi) With(value string, _ *Room) Claim { return &Multi{m.locks.With(value), m.name} }

// Lines implements Claim.
func (m *Multi) Lines() []string { return m.locks.Names() }

// Shares implements Claim.
func (m *Multi) Shares() bool { return false }

// HoldsAlone implements Claim.
func (m *Multi) HoldsAlone() bool { return true }

// PassesTo implements Claim.
func (m *Multi) PassesTo(Claim) bool { return false }

// Acquire implements Claim.
func (m *Multi) Acquire(ttl time.Duration, at script.Place, f script.Fence) Call {
	call := Call{script.EnterMulti(m.locks, ttl.Milliseconds(), at, f), readEnteredMulti}
	if f.Token != 0 {
		call.Read = func(reply any) (Answer, error) { return readEnteredMultiWith(f.Token, reply) }
	}
	return call
}

// AcquireAgain implements Claim.
func (m *Multi) AcquireAgain(ttl time.Duration, at script.Place, f script.Fence, fresh bool) Call {
	if fresh && at.Ticket.IsZero() && f.Token == 0 {
		return again(m.Extend(ttl, true))
	}
	return againWith(m.Acquire(ttl, at, f), f)
}

// Extend implements Claim.
func (m *Multi) Extend(ttl time.Duration, heal bool) Call {
	if heal {
		return Call{script.HealMulti(m.locks, ttl.Milliseconds()), readFoundAll}
	}
	return Call{script.ExtendMulti(m.locks, ttl.Milliseconds()), readFoundAll}
}

// Fill implements Claim.
func (m *Multi) Fill(ttl time.Duration) Call {
	call := m.Acquire(ttl, script.Place{}, script.Fence{})
	call.Read = filled(call.Read)
	return call
}

// Check implements Claim.
func (m *Multi) Check() Call { return Call{script.ValidMulti(m.locks), readFoundAll} }

// Release implements Claim.
func (m *Multi) Release(p script.Process, t script.Turnover, f script.Fence) Call {
	return Call{script.ReleaseMulti(m.locks, p, t, f), readReleasedMulti}
}

// Shorten implements Shortener.
func (m *Multi) Shorten(rest time.Duration, p script.Process, t script.Turnover, f script.Fence) Call {
	return Call{script.ShortenMulti(m.locks, rest.Milliseconds(), p, t, f), readReleasedMulti}
}

func readEnteredMulti(reply any) (Answer, error) { return readEnteredMultiWith(0, reply) }

func readEnteredMultiWith(token uint64, reply any) (Answer, error) {
	entered, err := script.ParseEnteredMulti(reply)
	if err == nil {
		entered, err = entered.Checked(token)
	}
	if err != nil {
		return Answer{}, err
	}
	if entered == (script.Entered{}) { // a grant without a token: no Detail, which saves an allocation
		return Answer{Found: Mine}, nil
	}
	a := answerTo(entered)
	if a.Found == Other {
		a.Detail.Free = allLines &^ entered.By
	}
	return a, nil
}

func readReleasedMulti(reply any) (Answer, error) {
	released, err := script.ParseReleasedMulti(reply)
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

// readFoundAll is readFound for the values of several keys.
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
