package redsync_test

import (
	"time"

	"github.com/seed14bd9ef4/redsync"
)

// This file has the words that many tests use.

const (
	sec    = time.Second
	minute = time.Minute
	hour   = time.Hour
)

var (
	withTries        = redsync.WithTries
	withExpiry       = redsync.WithExpiry
	withOwner        = redsync.WithOwner
	withValue        = redsync.WithValue
	withSequencer    = redsync.WithSequencer
	withPermits      = redsync.WithPermits
	withObserver     = redsync.WithObserver
	withNodeTimeout  = redsync.WithNodeTimeout
	withRetryDelay   = redsync.WithRetryDelay
	withMaxHold      = redsync.WithMaxHold
	withLockDelay    = redsync.WithLockDelay
	withMinHold      = redsync.WithMinHold
	withGenValueFunc = redsync.WithGenValueFunc
)
