package quorum

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file remembers on which nodes the client cannot use a queue. A command that can do without it then does so at
// once.

const deniedFor = 5 * time.Second

const maxDenials = 1000

const noSHAFor = time.Minute

// denials are what a node has denied, by the names of locks: a user may lack the permission for some queues only, and a
// cluster keep only some apart from their locks.
type denials struct {
	until   atomic.Int64 // monotonic time when the last is forgotten
	told    atomic.Bool
	doubted atomic.Pointer[doubt] // nil once told
	noSHA   atomic.Int64          // monotonic time until which scripts are sent in full

	mu    sync.Mutex // guards what follows
	user  time.Duration
	names map[string]time.Duration
}

// A doubt is the denial of a script on a lock and its queue, while the node may deny the lock's own key, or all
// scripts.
type doubt struct {
	name string
	err  error
}

// Doubt notes such a denial.
func (d *denials) Doubt(name string, err error) {
	if !d.told.Load() {
		d.doubted.Store(&doubt{name, err})
	}
}

// Denies notes that the node denies a script on the lock alone, too.
func (d *denials) Denies(name string) {
	if in := d.doubted.Load(); in != nil && in.name == name {
		d.doubted.CompareAndSwap(in, nil)
	}
}

// Doubts reports whether there is a doubt.
func (d *denials) Doubts() bool { return d.doubted.Load() != nil }

// Allows notes that the node has executed a script on the lock. It returns the doubted denial of the queue if observers
// are to be told.
func (d *denials) Allows(name string) error {
	in := d.doubted.Load()
	if in == nil || in.name != name || !d.doubted.CompareAndSwap(in, nil) || d.told.Swap(true) {
		return nil
	}
	return in.err
}

// Deny notes that the client cannot use the queue of a lock, whose name may be unknown. ofUser says that its user lacks
// a permission.
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

// Tells reports true once: observers are to be told of a denial.
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

// DeniesQueueOf reports whether the node has denied that queue less than deniedFor ago.
func (d *denials) DeniesQueueOf(name string) bool {
	return d.any(func(d *denials, now time.Duration) bool { return d.hasDeniedLocked(name, now) })
}

// hasDeniedLocked needs known, because a test's virtual time may be negative.
func (d *denials) hasDeniedLocked(name string, now time.Duration) bool {
	until, known := d.names[name]
	return known && now < until
}

// DeniesQueues guesses whether the node denies the queues of these locks. That will do if leaving the queue out costs
// only a wake-up.
func (d *denials) DeniesQueues(names []string) bool {
	return d.any(func(d *denials, now time.Duration) bool {
		return d.user != 0 && now < d.user || len(names) == 1 && d.hasDeniedLocked(names[0], now)
	})
}

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

// NoteScript returns what the error of a script by its SHA1 means: see wire.OfScript. It remembers a node without
// EVALSHA: to a slow one nothing more is sent, because the others have decided.
func (d *denials) NoteScript(err error) error {
	err = wire.OfScript(err)
	if wire.LacksSHA(err) {
		d.noSHA.Store(int64(clock.Now().Mono + noSHAFor))
	}
	return err
}

// LacksSHA reports whether the node is known to have no EVALSHA.
func (d *denials) LacksSHA() bool {
	until := d.noSHA.Load()
	return until != 0 && int64(clock.Now().Mono) < until
}

// IsDenial reports whether the client's user lacks a permission, or the node a command.
func IsDenial(err error) bool { return wire.IsDenied(err) || wire.IsUnknown(err) }
