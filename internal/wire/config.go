package wire

import (
	"errors"
	"time"
)

const (
	// defaultOutstanding is more than a healthy node owes: a lagging one was measured at 2048. Without a limit, one
	// frozen node stalled every caller of a stream for 21 s.
	defaultOutstanding = 4096

	// MaxOutstanding is the upper end of pool.WithOutstanding's range. It bounds the memory that a frozen node costs.
	MaxOutstanding = 16384

	// maxOwed includes reserved requests.
	maxOwed = 2 * MaxOutstanding
)

// A Config is what the options of package pool set.
type Config struct {
	Outstanding   int // 0 stands for the default
	Guard         time.Duration
	NoLocksBefore time.Time
	Anonymous     bool // pool.WithoutIdentity
	Name          string
	ViaClient     bool
	HooksAreKnown bool // pool.WithoutHooks
	NoNatives     bool // pool.WithoutNativeCommands

	Wrong error
}

// Err returns why no Send can ever succeed: the client, its address or an option cannot be used.
func (c *Config) Err() error { return c.Wrong }

// RestartGuard returns the maxExpiry of pool.WithRestartGuard, 0 without a guard.
func (c *Config) RestartGuard() time.Duration { return c.Guard }

func (c *Config) usable(req *Request) error {
	if c.Wrong == nil && (len(req.Args) == 0 || req.To == nil) {
		return errors.New("pool: a Request needs Args and To")
	}
	return c.Wrong
}

func admit(owed, limit int, reserved bool) error {
	if owed < limit || reserved && owed < maxOwed {
		return nil
	}
	return &OutstandingError{Limit: limit}
}
