package pool

import (
	"errors"
	"time"
)

const (
	// defaultOutstanding is more than a healthy node ever owes: in a measurement with 1024
	// goroutines, a lagging node reached 2048 at times. It also limits the memory that a frozen
	// node costs. Without any limit, one frozen node stalled every caller of a stream for 21 s.
	defaultOutstanding = 4096

	// maxOutstanding is the upper end of WithOutstanding's range. It bounds the memory that a frozen
	// node can cost.
	maxOutstanding = 16384

	// maxOwed bounds requests of every kind, reserved ones included.
	maxOwed = 2 * maxOutstanding
)

// A config holds the settings made by the options of New. Every pool of New embeds it.
type config struct {
	outstanding int           // see WithOutstanding
	guard       time.Duration // see WithRestartGuard
	anonymous   bool          // see WithoutIdentity
	name        string        // see WithName
	viaClient   bool          // see ViaClient
	err         error         // why no Send can ever succeed

	noLocksBefore time.Time // see WithNoLocksBefore
	hooksAreKnown bool      // see WithoutHooks
}

// Err returns why no Send can ever succeed: the client is nil, its address cannot be dialed, or an
// option is nil, out of range or unsuitable for the client. A Redsync calls Err, so that its first
// operation fails at once instead of retrying.
func (c *config) Err() error { return c.err }

// RestartGuard returns the maxExpiry of WithRestartGuard, 0 without a guard. A Redsync calls it.
func (c *config) RestartGuard() time.Duration { return c.guard }

// usable returns an error if req cannot be sent.
func (c *config) usable(req *Request) error {
	if c.err == nil && (len(req.Args) == 0 || req.To == nil) {
		return errors.New("pool: a Request needs Args and To")
	}
	return c.err
}

// admit returns an error if a node that owes that many replies has no room for another request.
// limit applies to requests that are not reserved, maxOwed to the others.
func admit(owed, limit int, reserved bool) error {
	if owed < limit || reserved && owed < maxOwed {
		return nil
	}
	return &OutstandingError{Limit: limit}
}
