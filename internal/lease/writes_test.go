package lease

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/pool"
)

func TestWritesFootprintCountsMany(t *testing.T) {
	w := New(nowhere(1), "v", at(0, 0)).writes
	for range 1 << 16 {
		w.sending(0)
	}
	assert.False(t, w.onNode(0).settled())
	for range 1 << 16 {
		w.answered(0, pool.Answered)
	}
	assert.True(t, w.onNode(0).settled())
	w.sending(0)
	w.answered(0, pool.Unknown)
	assert.False(t, w.onNode(0).settled(), "what was lost may come yet")
}

func TestWritesFootprintCountsNoFurtherThanMaxSent(t *testing.T) {
	w := New(nowhere(1), "v", at(0, 0)).writes
	w.nodes[0].Store((maxSent - 1) * oneSent)
	for range 3 {
		w.sending(0)
		assert.EqualValues(t, maxSent, w.onNode(0).sent())
	}
}
