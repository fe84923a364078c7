package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/testkit/claimtest"
)

// stuck returns the splits of a waiter for which keys have been in the way for splitFor, on the first of five nodes. They
// end after these times. The last node has not answered.
func stuck(ends ...time.Duration) *splits {
	all := make([]time.Duration, 4)
	for i, end := range ends {
		if all[i] = end; end != noEnd {
			all[i] += splitFor
		}
	}
	o := refusedBy(true, all...)
	o.Result.Count = claim.Count{Granted: 0b01111}
	s := newSplits(5)
	s.note(o, time.Now())
	time.Sleep(splitFor)
	return s
}

// Keys are remembered if they leave no quorum without late nodes, until they run out.
func TestLeftoversAreKeysThatMakeALateNodeNecessary(t *testing.T) {
	const end = time.Minute
	for name, c := range map[string]struct {
		ends       []time.Duration
		remembered claim.Nodes
	}{
		"two keys":                {[]time.Duration{end, end}, 0b00011},
		"a quorum is without":     {[]time.Duration{end}, 0},
		"one of them has no end":  {[]time.Duration{end, noEnd}, 0b00001},
		"one of them ends sooner": {[]time.Duration{end, time.Nanosecond}, 0b00001},
		"none of them has an end": {[]time.Duration{noEnd, noEnd}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l leftovers
				l.note("lock", stuck(c.ends...), claimtest.Majority(5))
				time.Sleep(end / 2)
				if s := l.of("lock"); c.remembered == 0 {
					assert.Nil(t, s)
				} else {
					assert.Equal(t, c.remembered, s.old(splitFor))
					assert.False(t, s.arePatient(), "the keys must be seen again first")
				}
				assert.Nil(t, l.of("another lock"))
				time.Sleep(end / 2)
				assert.Nil(t, l.of("lock"))
				assert.Empty(t, l.byName)
			})
		})
	}
}

func TestLeftoversAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l leftovers
		s := stuck(time.Minute, time.Minute)
		for i := range 3 * maxLeftovers / 2 {
			l.note(fmt.Sprint(i), s, claimtest.Majority(5))
			require.NotNil(t, l.of(fmt.Sprint(i)))
			require.LessOrEqual(t, len(l.byName), maxLeftovers)
		}
	})
}
