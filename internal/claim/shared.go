package claim

import (
	"time"

	"github.com/seed14bd9ef4/redsync/internal/script"
)

// A Shared is the claim of a reader: a record in the key that readers of a name share. Many leases have it at a
// time, each with its value. It excludes the leases of Exclusive and Multi for that name.
//
// It has the memory of an Exclusive, so that a Room holds either.
type Shared Exclusive

// NewShared returns the claim of a reader of a name. It has no value yet.
func NewShared(name string) Shared { return Shared(NewExclusive(name)) }

// Shared returns e as the claim of a reader. It is in the memory of e, which saves an allocation.
func (e *Exclusive) Shared() *Shared { return (*Shared)(e) }

// Name implements Claim.
func (s *Shared) Name() string { return s.lock.Name() }

// Value implements Claim.
func (s *Shared) Value() string { return s.lock.Value() }

// With implements Claim.
func (s *Shared) With(value string, room *Room) Claim {
	room.exclusive = Exclusive{s.lock.With(value), s.lines}
	return (*Shared)(&room.exclusive)
}

// Lines implements Claim. Readers and writers of a name stand in one line.
func (s *Shared) Lines() []string { return s.lines[:] }

// Shares implements Claim.
func (s *Shared) Shares() bool { return true }

// HoldsAlone implements Claim.
func (s *Shared) HoldsAlone() bool { return false }

// PassesTo implements Claim. A lease passes to a reader of the same name, and never to a writer.
func (s *Shared) PassesTo(other Claim) bool {
	o, same := other.(*Shared)
	return same && o.Name() == s.Name()
}

// Acquire implements Claim. The ticket of the place must be shared. If the node denies access to the queue, the
// call fails, or, without a ticket, may be granted with Detail.Blind. A place that is Blind needs no access.
func (s *Shared) Acquire(ttl time.Duration, at script.Place, f script.Fence) Call {
	call := Call{script.EnterShared(s.lock, ttl.Milliseconds(), at, f), readEnteredShared}
	if at.Ticket.IsZero() {
		call.Read = readEnteredSharedPlainly
	}
	return call
}

// Extend implements Claim.
func (s *Shared) Extend(ttl time.Duration, heal bool) Call {
	if heal {
		return Call{script.HealShared(s.lock, ttl.Milliseconds()), readFound}
	}
	return Call{script.ExtendShared(s.lock, ttl.Milliseconds()), readFound}
}

// Check implements Claim.
func (s *Shared) Check() Call { return Call{script.ValidShared(s.lock), readFound} }

// Release implements Claim.
func (s *Shared) Release(p script.Process, t script.Turnover, f script.Fence) Call {
	return Call{script.ReleaseShared(s.lock, p, t, f), readFound}
}

// ReleaseQuietly implements Claim.
func (s *Shared) ReleaseQuietly(f script.Fence) Call {
	return Call{script.ReleaseSharedQuietly(s.lock, f), readFound}
}

// A Downgraded is the claim of a reader that was a writer. A node may hold it in the writer's form. Extend, and
// only Extend, makes it a reader's there, takes the writer's tickets out of the queue and wakes the readers that
// have waited for that. Every other command finds the claim in either form.
type Downgraded struct {
	Shared
	how script.Downgrade
}

// Downgraded returns the claim that a lease of e has from its downgrade on, with the value of e.
func (e *Exclusive) Downgraded(how script.Downgrade) *Downgraded {
	return &Downgraded{Shared{e.lock, e.lines}, how}
}

// Blindly returns d for a user who may not touch the queue.
func (d *Downgraded) Blindly() *Downgraded {
	if d.how.Blind {
		return d
	}
	how := d.how
	how.Blind = true
	return &Downgraded{d.Shared, how}
}

// Extend implements Claim. The first Extend is the downgrade, and each later one finishes the work on the nodes
// that the first has not reached.
func (d *Downgraded) Extend(ttl time.Duration, heal bool) Call {
	return Call{d.how.Extend(d.lock, ttl.Milliseconds(), heal), readFound}
}

// PassesTo implements Claim. The lease of a Downgraded may have tickets in queues, so it is not handed over.
func (d *Downgraded) PassesTo(Claim) bool { return false }

// readEnteredShared reads the reply of enter_shared.lua.
func readEnteredShared(reply any) (Answer, error) {
	entered, err := script.ParseEnteredShared(reply)
	if err != nil {
		return Answer{}, err
	}
	return answerTo(entered), nil
}

// readEnteredSharedPlainly reads the reply to a reader without a ticket. A plain grant has no Detail, which saves
// an allocation.
func readEnteredSharedPlainly(reply any) (Answer, error) {
	if reply == script.Granted {
		return Answer{Found: Mine}, nil
	}
	return readEnteredShared(reply)
}
