package claim

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Shared is the claim of a reader: a record in the key that the readers of a name share. Many such claims
// can be held at a time, each with its value. They exclude the claims Exclusive and Multi for that name.
//
// It has the fields of an Exclusive, so that a Room has memory for either. Readers and writers of a name wait in the same
// line.
type Shared Exclusive

// Shared returns the claim of a reader of e's name. It uses the memory of e, which saves an allocation.
func (e *Exclusive) Shared() *Shared { return (*Shared)(e) }

// Value implements Claim.
func (s *Shared) Value() string { return s.value.(string) }

// With implements Claim.
func (s *Shared) With(value string, room *Room) Claim {
	room.exclusive = Exclusive{s.Key, value}
	return (*Shared)(&room.exclusive)
}

// Shares implements Claim.
func (s *Shared) Shares() bool { return true }

// HoldsAlone implements Claim.
func (s *Shared) HoldsAlone() bool { return false }

// PassesTo implements Claim. A shared lease is not handed over: readers of one process share a hold instead.
func (s *Shared) PassesTo(Claim) bool { return false }

// Acquire implements Claim. It makes the ticket of the place a reader's.
//
// A node may deny the user access to the queue. Then an Acquire with a ticket fails. Without a ticket it is
// granted with Detail.Blind, or fails if the node does not even let a script name the queue. If the place is
// Blind, the command does not name it.
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

// AcquireAgain implements Claim. The script of Acquire finds the claim.
func (s *Shared) AcquireAgain(ttl time.Duration, at script.Place, f script.Fence, _ bool) Call {
	return s.Acquire(ttl, at, f)
}

// Extend implements Claim.
func (s *Shared) Extend(ttl time.Duration, heal bool) Call {
	if heal {
		return Call{script.HealShared(s.Lock(s.value), ttl.Milliseconds()), readFound}
	}
	return Call{script.ExtendShared(s.Lock(s.value), ttl.Milliseconds()), readFound}
}

// Fill implements Claim. Writers that wait do not keep a reader back that has the lock already.
func (s *Shared) Fill(ttl time.Duration) Call {
	return Call{script.HealShared(s.Lock(s.value), ttl.Milliseconds()), readFound}
}

// Check implements Claim.
func (s *Shared) Check() Call { return Call{script.ValidShared(s.Lock(s.value)), readFound} }

// Release implements Claim.
func (s *Shared) Release(p script.Process, t script.Turnover, f script.Fence) Call {
	return Call{script.ReleaseShared(s.Lock(s.value), p, t, f), readFound}
}

// A Downgraded is the claim of a reader that was a writer. A node that the downgrade has not reached still
// holds it in the writer's form. Only Extend makes it a reader's there, takes the writer's tickets out of the
// queue and wakes the readers that have waited for that. Every other command finds the claim in either form.
type Downgraded struct {
	Shared
	how script.Downgrade
}

// Downgraded returns the claim that replaces e, with the same value, when its lease is downgraded.
func (e *Exclusive) Downgraded(how script.Downgrade) *Downgraded {
	return &Downgraded{Shared(*e), how}
}

// Blindly returns d with an Extend that does not name the queue, for a user who may not touch it.
func (d *Downgraded) Blindly() *Downgraded {
	if d.how.Blind {
		return d
	}
	how := d.how
	how.Blind = true
	return &Downgraded{d.Shared, how}
}

// Extend implements Claim. The first Extend is the downgrade, and each later one repeats it for the nodes
// that the first has not reached.
func (d *Downgraded) Extend(ttl time.Duration, heal bool) Call {
	return Call{d.how.Extend(d.Lock(d.value), ttl.Milliseconds(), heal), readFound}
}

// readEnteredShared reads the reply of enter_shared.lua to an acquire without a fence.
func readEnteredShared(reply any) (Answer, error) {
	entered, err := script.ParseEnteredShared(reply)
	if err != nil {
		return Answer{}, err
	}
	return answerTo(entered), nil
}

// readEnteredSharedPlainly reads the reply to a reader without a ticket. A plain grant has no Detail, which
// saves an allocation.
func readEnteredSharedPlainly(reply any) (Answer, error) {
	if reply == script.Granted {
		return Answer{Found: Mine}, nil
	}
	return readEnteredShared(reply)
}
