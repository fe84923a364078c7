package claim

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Shared is the claim of a reader: a record in the key that the readers of a name share. It has the fields of an
// Exclusive, so that a Room fits either.
type Shared Exclusive

// Shared returns the claim of a reader of e's name, in the memory of e.
func (e *Exclusive) Shared() *Shared { return (*Shared)(e) }

// Value implements Claim.
func (s *Shared) Value() string { return s.value.(string) }

// With implements Claim.
func (s *Shared) With(value string, room *Room) Claim {
	room.exclusive = Exclusive{s.Keys, value}
	return (*Shared)(&room.exclusive)
}

// Shares implements Claim.
func (s *Shared) Shares() bool { return true }

// HoldsAlone implements Claim.
func (s *Shared) HoldsAlone() bool { return false }

// PassesTo implements Claim: readers of one process share a hold instead.
func (s *Shared) PassesTo(Claim) bool { return false }

// Acquire implements Claim. If a node denies the user the queue, an Acquire with a ticket fails. Another is granted
// with Detail.Blind, or fails if a script may not even name the queue, unless the place is Blind.
func (s *Shared) Acquire(ttl time.Duration, at script.Place, f script.Fence) Call {
	call := Call{script.EnterShared(s.Lock(s.value), ttl.Milliseconds(), at, f), readEnteredShared}
	switch {
	case f.Token != 0:
		call.Read = readEnteredWith(script.ParseEnteredShared, at, f)
	case at.Ticket.IsZero():
		call.Read = readEnteredSharedPlainly
	}
	return call
}

// AcquireAgain implements Claim.
func (s *Shared) AcquireAgain(ttl time.Duration, at script.Place, f script.Fence, _ bool) Call {
	return s.Acquire(ttl, at, f)
}

// Extend implements Claim.
func (s *Shared) Extend(ttl time.Duration, heal bool) Call {
	return Call{script.ExtendShared(s.Lock(s.value), ttl.Milliseconds(), heal), readFound}
}

// Fill implements Claim. Waiting writers do not keep back a reader that has the lock.
func (s *Shared) Fill(ttl time.Duration) Call { return s.Extend(ttl, true) }

// Check implements Claim.
func (s *Shared) Check() Call { return Call{script.ValidShared(s.Lock(s.value)), readFound} }

// Release implements Claim.
func (s *Shared) Release(p script.Process, t script.Turnover, f script.Fence) Call {
	return Call{script.ReleaseShared(s.Lock(s.value), p, t, f), readFound}
}

// A Downgraded is the claim of a reader that was a writer. Only Extend makes it a reader's on a node that the downgrade
// has not reached; other commands find it in either form.
type Downgraded struct {
	Shared
	how script.Downgrade
}

// Downgraded returns the claim that replaces e, with its value.
func (e *Exclusive) Downgraded(how script.Downgrade) *Downgraded {
	return &Downgraded{Shared(*e), how}
}

// Blindly returns d for a user who may not touch the queue: Extend does not name it.
func (d *Downgraded) Blindly() *Downgraded {
	if d.how.Blind {
		return d
	}
	how := d.how
	how.Blind = true
	return &Downgraded{d.Shared, how}
}

// Extend implements Claim. Each one repeats the downgrade, for nodes that it has not reached.
func (d *Downgraded) Extend(ttl time.Duration, heal bool) Call {
	return Call{d.how.Extend(d.Lock(d.value), ttl.Milliseconds(), heal), readFound}
}

func readEnteredShared(reply any) (Answer, error) {
	entered, err := script.ParseEnteredShared(reply)
	if err != nil {
		return Answer{}, err
	}
	return answerTo(entered), nil
}

// readEnteredSharedPlainly gives a plain grant no Detail, which saves an allocation.
func readEnteredSharedPlainly(reply any) (Answer, error) {
	if reply == script.Granted {
		return Answer{Found: Mine}, nil
	}
	return readEnteredShared(reply)
}
