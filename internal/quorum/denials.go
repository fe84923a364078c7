package quorum

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file remembers on which nodes the client cannot use a queue. A command that can do without it then does so at
// once.

const (
	deniedFor = 5 * time.Second
	noSHAFor  = time.Minute

	// maxRecent bounds the memory. A denial that is forgotten costs a round trip.
	maxRecent = 1000
)

// A Recent is the names of which something was noted not long ago. It needs a mutex.
type Recent map[string]time.Duration // until when it counts, by the monotonic clock

// Note notes a name for that long.
func (r *Recent) Note(name string, lasts time.Duration) {
	now := clock.Now().Mono
	if _, known := (*r)[name]; !known && len(*r) >= maxRecent {
		maps.DeleteFunc(*r, func(_ string, until time.Duration) bool { return until <= now })
		if len(*r) >= maxRecent {
			clear(*r)
		}
	}
	if *r == nil {
		*r = make(Recent)
	}
	(*r)[name] = now + lasts
}

// Has reports whether a name is noted.
func (r *Recent) Has(name string) bool {
	until, known := (*r)[name] // a test's virtual time may be negative
	return known && clock.Now().Mono < until
}

// denials are what a node has denied, by the names of locks: a user may lack the permission for some queues only, and a
// cluster keep only some apart from their locks.
type denials struct {
	until   atomic.Int64 // monotonic time when the last is forgotten
	told    atomic.Bool
	doubted atomic.Pointer[doubt] // nil once told
	noSHA   atomic.Int64          // monotonic time until which scripts are sent in full

	mu    sync.Mutex // guards names
	names Recent     // "" stands for all locks of the user
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if ofUser {
		d.names.Note("", deniedFor)
	}
	if name != "" {
		d.names.Note(name, deniedFor)
	}
	d.until.Store(int64(clock.Now().Mono + deniedFor))
}

// Tells reports true once: observers are to be told of a denial.
func (d *denials) Tells() (first bool) { return !d.told.Swap(true) }

// DeniesQueueOf reports whether the node has denied that queue less than deniedFor ago.
func (d *denials) DeniesQueueOf(name string) bool {
	if until := d.until.Load(); until == 0 || int64(clock.Now().Mono) >= until {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names.Has(name)
}

// DeniesQueues guesses whether the node denies the queues of these locks. That will do if leaving the queue out costs
// only a wake-up.
func (d *denials) DeniesQueues(names []string) bool {
	return d.DeniesQueueOf("") || len(names) == 1 && d.DeniesQueueOf(names[0])
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
