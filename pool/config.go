package pool

import (
	"errors"
	"time"
)

const (
	// defaultOutstanding is more than a healthy node owes (measured: with 1024
	// goroutines a node that lagged reached 2048 now and then), and little memory
	// when a frozen one does (a stream without a limit stalled every caller for 21 s
	// behind one frozen node).
	defaultOutstanding = 4096

	// maxOutstanding keeps the memory that a frozen node costs in bounds.
	maxOutstanding = 16384

	// maxOwed bounds requests of every kind, reserved ones included.
	maxOwed = 2 * maxOutstanding
)

// A config is what the options of New have set. Every pool of New embeds it.
type config struct {
	outstanding int           // see WithOutstanding
	guard       time.Duration // see WithRestartGuard
	newNodes    bool          // see WithNewNodes
	anonymous   bool          // see WithoutIdentity
	err         error         // why no Send can ever succeed
}

// Err returns why no Send can ever succeed: the pool was made from a nil
// client, with an option out of its range, or with one that its client cannot
// have. A Redsync asks for it, so that its first operation fails at once instead
// of trying again.
func (c *config) Err() error { return c.err }

// RestartGuard returns the longest expiry plus lock delay of WithRestartGuard, 0
// without a guard. A Redsync asks for it.
func (c *config) RestartGuard() time.Duration { return c.guard }

// usable returns why req cannot be sent.
func (c *config) usable(req *Request) error {
	if c.err == nil && (len(req.Args) == 0 || req.To == nil) {
		return errors.New("pool: a Request needs Args and To")
	}
	return c.err
}

// admit returns the error of a request that the node's outstanding replies leave
// no room for.
func admit(owed, limit int, reserved bool) error {
	if owed < limit || reserved && owed < maxOwed {
		return nil
	}
	return &OutstandingError{Limit: limit}
}
