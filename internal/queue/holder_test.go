package queue

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seed14bd9ef4/redsync/internal/claim/claimtest"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
)

// The line of waiters asks a lease how long it lasts, even before the lease has begun.
func TestBeginAndTheLooksOfTheLineDoNotRace(t *testing.T) {
	over := errors.New("over")
	for range 100 {
		k := &lease.Keeper{
			Set:     quorum.NewSet(nil, quorum.NewKnown(0), nil),
			Errors:  &lease.Errors{NotHeld: over, Expired: over, Lost: func(error, *quorum.Result) error { return over }},
			Waiters: newGroup(0),
		}
		k.Init()
		terms := &lease.Terms{Keeper: k, Claim: claimtest.Exclusive("lock"), Policy: &lease.Policy{Timing: lease.Timing{
			Expiry: 8 * time.Second, TTL: 8 * time.Second, Validity: 50 * time.Microsecond,
		}}}
		h := lease.New(terms, "v", clock.Now())
		l := &line{holder: h}
		var wg sync.WaitGroup
		wg.Go(func() {
			for l.heldFor() > 0 {
				continue
			}
		})
		_ = h.Begin()
		wg.Wait()
		h.End(nil)
		k.BeginClose()
		_ = k.Close(t.Context(), time.Second, func() {})
	}
}
