package queue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/lease"
	"github.com/seed14bd9ef4/redsync/internal/quorum"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
)

// A denial is an error that a node answers.
type denial string

func (d denial) Error() string { return string(d) }
func (denial) RedisError()     {}

var _ redis.Error = denial("")

// voted returns an outcome with these votes, of three nodes.
func voted(votes ...claim.Vote) lease.Outcome {
	rule := claimtest.Majority(3)
	return lease.Outcome{Kind: lease.NotWon, Result: quorum.Result{Rule: rule, Votes: votes}}
}

func TestDenialsAddUp(t *testing.T) {
	synctest.Test(t, denialsAddUp)
}

func denialsAddUp(t *testing.T) {
	t.Helper()
	denied := claim.Failure(denial("NOPERM no"))
	down := claim.Failure(denial("LOADING"))
	unheard := claim.Vote{}
	taken := claim.Vote{Choice: claim.Refused}

	var d denials
	assert.False(t, d.note(lease.Outcome{Kind: lease.Waiting}, false), "no node was asked")
	assert.False(t, d.note(voted(denied, down, unheard), false))
	assert.True(t, d.note(voted(unheard, denied, down), false), "of two attempts")
	assert.Equal(t, []claim.Vote{denied, denied, {}}, d.votes)

	assert.True(t, d.note(voted(down, down, unheard), false), "they have broken the connection, perhaps")
	assert.False(t, d.note(voted(taken, unheard, unheard), false), "node 0 lets the user lock by now")
	time.Sleep(denialLasts)
	assert.True(t, d.note(voted(denied, down, unheard), false), "node 1 denied it not too long ago")
	time.Sleep(time.Nanosecond)
	assert.False(t, d.note(voted(denied, down, unheard), false), "node 1 may, too")
	assert.False(t, d.note(voted(denied, denied, denied), true), "perhaps they deny only the queues")
	noauth := claim.Failure(denial("NOAUTH no"))
	assert.True(t, d.note(voted(noauth, noauth, unheard), true), "that is not about queues")

	late := voted()
	late.Result.Won = true
	assert.False(t, d.note(late, false), "a quorum has granted")
	assert.False(t, d.note(voted(denied, unheard, unheard), false))
}
