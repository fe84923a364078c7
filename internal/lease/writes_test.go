package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim"
)

func TestWritesFootprintCountsNoFurtherThanMaxSent(t *testing.T) {
	w := New(nowhere(t, 1), "v", at(0, 0)).writes
	w.nodes[0].Store((maxSent - 1) * oneSent)
	for range 3 {
		w.sending(0)
		assert.EqualValues(t, maxSent, w.onNode(0).sent())
	}
}

// Whether a filled key counts depends on the last fill that a node has confirmed, and not on the first one.
func TestWritesKnowTheLastFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nowhere(t, 2), "v", at(0, 0))
		l.refusedBy(0)
		l.refusedBy(1)
		l.writes.confirms(0, claim.Created)
		first := l.writes.lastFilled()
		time.Sleep(sec)
		l.writes.confirms(1, claim.Created)
		assert.Equal(t, first+sec, l.writes.lastFilled())
		time.Sleep(sec)
		l.writes.confirms(1, claim.Mine)
		assert.Equal(t, first+sec, l.writes.lastFilled(), "an extension sets nothing")
	})
}
