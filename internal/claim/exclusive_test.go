package claim_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/script"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
)

// reads returns the answer that a reply stands for.
func reads(t *testing.T, call claim.Call, reply any) claim.Answer {
	t.Helper()
	a, err := call.Read(reply)
	require.NoError(t, err)
	return a
}

// fenced returns an acquire with the fencing token 7.
func fenced(place script.Place) claim.Call {
	return claimtest.Exclusive("lock").With("v", &claim.Room{}).Acquire(time.Minute, place, script.Fence{Token: 7, TTL: 1000})
}

// permits returns an acquire of one of three permits.
func permits(place script.Place) claim.Call {
	return claim.NewPermits("lock", 3, 1).With("v", nil).Acquire(time.Minute, place, noFence)
}

var (
	stores   = []any{int64(0), "7", int64(1)}
	wasThere = []any{int64(0), "7", int64(3)}
	higher   = []any{int64(0), "9", int64(0)}
	refuses  = []any{int64(500), "7", int64(0)}
)

func TestFencedGrantsThatStoreTheTokenShareADetail(t *testing.T) {
	call := fenced(noPlace)
	usual := reads(t, call, stores)
	assert.Equal(t, claim.Answer{Found: claim.Mine, Detail: &claim.Detail{Wait: claim.Never, Register: 7, Stored: true}}, usual)
	assert.Same(t, usual.Detail, reads(t, call, stores).Detail)
	assert.NotSame(t, usual.Detail, reads(t, fenced(noPlace), stores).Detail, "another round")
	assert.Equal(t, claim.Detail{Wait: claim.Never, Register: 7, Stored: true, WasThere: true}, reads(t, call, wasThere).Details())
	assert.Equal(t, claim.Detail{Wait: claim.Never, Register: 9}, reads(t, call, higher).Details())
	refused := reads(t, call, refuses)
	assert.Equal(t, claim.Other, refused.Found)
	assert.Equal(t, claim.Detail{Wait: 500 * time.Millisecond, Register: 7}, refused.Details())
	assert.True(t, usual.Detail.Stored, "the other answers have left it alone")
	_, err := call.Read([]any{int64(0), "x", int64(1)})
	assert.Error(t, err)
}

// An acquire that is sent again makes a grant of a claim that it sets, and of nothing else.
func TestAnAcquireAgainTakesNothingOfOthers(t *testing.T) {
	call := claimtest.Exclusive("lock").With("v", &claim.Room{}).AcquireAgain(time.Minute, noPlace, noFence, true)
	for reply, found := range map[int64]claim.Found{
		script.Created: claim.Mine, script.Mine: claim.Mine, script.Other: claim.Other, script.Missing: claim.Missing,
	} {
		assert.Equal(t, found, reads(t, call, reply).Found, reply)
	}
}

func TestGrantsOfTheSamePermitShareADetail(t *testing.T) {
	call := permits(noPlace)
	one := reads(t, call, int64(0))
	assert.Same(t, one.Detail, reads(t, call, int64(0)).Detail)
	assert.NotSame(t, one.Detail, reads(t, permits(noPlace), int64(0)).Detail, "another round")
	other := reads(t, call, int64(1))
	assert.NotEqual(t, one.Details().Own, other.Details().Own)
	assert.Equal(t, one.Details(), reads(t, call, int64(0)).Details())
	refused := reads(t, call, []any{int64(0), int64(500), []any{}, []any{}})
	assert.Equal(t, claim.Other, refused.Found)
	assert.Equal(t, 500*time.Millisecond, refused.Details().Wait)
	assert.Equal(t, claim.Never, one.Details().Wait)
}

// With a ticket the round notes in each Detail when the answer came.
func TestAnswersToATicketHaveADetailEach(t *testing.T) {
	place := script.Place{Ticket: script.TicketOf("ticket"), Alive: 1}
	call := fenced(place)
	assert.NotSame(t, reads(t, call, stores).Detail, reads(t, call, stores).Detail)
	call = permits(place)
	assert.NotSame(t, reads(t, call, int64(0)).Detail, reads(t, call, int64(0)).Detail)
}

// A node may answer after its round, while the votes of the others are still read.
func TestLateAnswersShareADetail(t *testing.T) {
	for name, test := range map[string]struct {
		call    claim.Call
		replies []any
	}{
		"fenced":  {fenced(noPlace), []any{stores, stores, higher, stores, wasThere, stores}},
		"permits": {permits(noPlace), []any{int64(0), int64(0), int64(1), int64(0), int64(1), int64(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			early := reads(t, test.call, test.replies[0])
			before := early.Details()
			var nodes sync.WaitGroup
			for _, reply := range test.replies {
				nodes.Go(func() {
					late, err := test.call.Read(reply)
					assert.NoError(t, err)
					assert.Equal(t, claim.Mine, late.Found)
					_ = late.Details()
				})
				assert.Equal(t, before, early.Details())
			}
			nodes.Wait()
			assert.Equal(t, before, early.Details())
		})
	}
}
