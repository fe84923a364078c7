package wire

import (
	"errors"
	"time"
)

const (
	// defaultOutstanding is more than a healthy node owes: with 1024 goroutines a lagging node was measured at 2048.
	// Without a limit, one frozen node stalled every caller of a stream for 21 s.
	defaultOutstanding = 4096

	// MaxOutstanding is the upper end of pool.WithOutstanding's range. It bounds the memory that a frozen node can
	// cost.
	MaxOutstanding = 16384

	// maxOwed bounds requests of every kind, reserved ones included.
	maxOwed = 2 * MaxOutstanding
)

// A Config is what the options of package pool set. Every pool of this package embeds it.
type Config struct {
	Outstanding   int           // see pool.WithOutstanding; 0 stands for the default
	Guard         time.Duration // see pool.WithRestartGuard
	NoLocksBefore time.Time     // see pool.WithNoLocksBefore
	Anonymous     bool          // see pool.WithoutIdentity
	Name          string        // see pool.WithName
	ViaClient     bool          // see pool.ViaClient
	HooksAreKnown bool          // see pool.WithoutHooks

	Wrong error // why no Send can ever succeed
}

// Err returns why no Send can ever succeed: the client is nil, its address cannot be dialed, or an option is nil, out
// of range or unsuitable for the client. A Redsync asks first, so that it fails at once instead of retrying.
func (c *Config) Err() error { return c.Wrong }

// RestartGuard returns the maxExpiry of pool.WithRestartGuard, 0 without a guard.
func (c *Config) RestartGuard() time.Duration { return c.Guard }

func (c *Config) usable(req *Request) error {
	if c.Wrong == nil && (len(req.Args) == 0 || req.To == nil) {
		return errors.New("pool: a Request needs Args and To")
	}
	return c.Wrong
}

// admit returns an error if a node that owes so many replies has no room for another request. Reserved requests may go
// beyond limit.
func admit(owed, limit int, reserved bool) error {
	if owed < limit || reserved && owed < maxOwed {
		return nil
	}
	return &OutstandingError{Limit: limit}
}
