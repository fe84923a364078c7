package quorum

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file remembers for a while on which nodes the client cannot use a queue. A command that can do without the queue
// then leaves it out at once, instead of failing first.

// deniedFor is how long a denial is remembered.
const deniedFor = 5 * time.Second

// maxDenials is how many names the denials of a node remember at most.
const maxDenials = 1000

// noSHAFor is how long it is remembered that a node does not have EVALSHA.
const noSHAFor = time.Minute

// denials are what a node has denied: every Node embeds them. They are kept by the names of locks, because a user may lack the permission for
// the queues of some names only, and a cluster may keep only some queues on another node than their locks.
type denials struct {
	until   atomic.Int64 // monotonic time when the last of them is forgotten
	told    atomic.Bool
	doubted atomic.Pointer[doubt] // nil once told
	noSHA   atomic.Int64          // monotonic time until which scripts are sent in full; 0 before the first NoteScript

	mu    sync.Mutex // guards what follows
	user  time.Duration
	names map[string]time.Duration
}

// A doubt is the denial of a script on a lock and its queue, as long as it is not known whether the node denies the lock's
// own key, or all scripts. If so, nothing is to be said of the queue.
type doubt struct {
	name string
	err  error
}

// Doubt notes the denial of such a script.
func (d *denials) Doubt(name string, err error) {
	if !d.told.Load() {
		d.doubted.Store(&doubt{name, err})
	}
}

// Denies notes that the node denies a script on the lock with that name alone, too. So nothing is known of its queue.
func (d *denials) Denies(name string) {
	if in := d.doubted.Load(); in != nil && in.name == name {
		d.doubted.CompareAndSwap(in, nil)
	}
}

// Doubts reports whether a denial is doubted.
func (d *denials) Doubts() bool { return d.doubted.Load() != nil }

// Allows notes that the node has executed a script on the lock with that name. It returns the denial of the queue that has
// been doubted until now, if that is the first denial that the node is known for; otherwise nil.
func (d *denials) Allows(name string) error {
	in := d.doubted.Load()
	if in == nil || in.name != name || !d.doubted.CompareAndSwap(in, nil) || d.told.Swap(true) {
		return nil
	}
	return in.err
}

// Deny notes that the client cannot use the queue of a lock on the node. ofUser says that its user lacks a permission.
// If name is empty, it is not known which queue that is.
func (d *denials) Deny(name string, ofUser bool) {
	now := clock.Now().Mono
	d.mu.Lock()
	defer d.mu.Unlock()
	until := now + deniedFor
	if ofUser {
		d.user = until
	}
	if name != "" {
		d.noteLocked(name, now, until)
	}
	d.until.Store(int64(until))
}

// Tells reports whether it is the first time that observers are to be told that the node denies a queue.
func (d *denials) Tells() (first bool) { return !d.told.Swap(true) }

func (d *denials) noteLocked(name string, now, until time.Duration) {
	if _, known := d.names[name]; !known && len(d.names) >= maxDenials {
		for other, end := range d.names {
			if end <= now {
				delete(d.names, other)
			}
		}
		if len(d.names) >= maxDenials {
			clear(d.names) // a denial that is forgotten costs a round trip
		}
	}
	if d.names == nil {
		d.names = make(map[string]time.Duration)
	}
	d.names[name] = until
}

// DeniesQueueOf reports whether the node has denied the queue of the lock with that name less than deniedFor ago.
func (d *denials) DeniesQueueOf(name string) bool {
	return d.any(func(d *denials, now time.Duration) bool { return d.hasDeniedLocked(name, now) })
}

// hasDeniedLocked is DeniesQueueOf at now. Times of a test in virtual time may be negative.
func (d *denials) hasDeniedLocked(name string, now time.Duration) bool {
	until, known := d.names[name]
	return known && now < until
}

// DeniesQueues reports whether the node is likely to deny the queues of locks with these names, which one command uses:
// it has denied the queue of the only name, or the client's user lacked the permission for some queue. A command may
// rely on this only if leaving the queue out costs it no more than a wake-up.
func (d *denials) DeniesQueues(names []string) bool {
	return d.any(func(d *denials, now time.Duration) bool {
		return d.user != 0 && now < d.user || len(names) == 1 && d.hasDeniedLocked(names[0], now)
	})
}

// any returns what the function is returns. If nothing is remembered, it returns false at once.
func (d *denials) any(is func(d *denials, now time.Duration) bool) bool {
	until := d.until.Load()
	if until == 0 {
		return false
	}
	now := clock.Now().Mono
	if int64(now) >= until {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return is(d, now)
}

// NoteScript takes the error that a node has answered to a script by its SHA1, and returns what it means: see
// wire.OfScript. If the node does not have EVALSHA, that is remembered: a node whose answers come late would otherwise
// execute no script at all, because the others have decided by then, and nothing more is sent.
func (d *denials) NoteScript(err error) error {
	err = wire.OfScript(err)
	if wire.LacksSHA(err) {
		d.noSHA.Store(int64(clock.Now().Mono + noSHAFor))
	}
	return err
}

// LacksSHA reports whether the node has not had EVALSHA for less than noSHAFor.
func (d *denials) LacksSHA() bool {
	until := d.noSHA.Load()
	return until != 0 && int64(clock.Now().Mono) < until
}

// IsDenial reports whether err comes from a node that denies a command or a key, whatever lock it is for: the client's user
// lacks the permission, or the node does not have the command.
func IsDenial(err error) bool { return wire.IsDenied(err) || wire.IsUnknown(err) }
