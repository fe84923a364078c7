package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A second connection that was not needed is given up, and doubles the patience with the first one, up to the timeout.
// Each minute halves it again, down to what the requests accept.
func TestPatienceDoublesAndHalvesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silence{timeout: time.Hour}
		s.start(func() {})
		s.taken(100*time.Millisecond, true)
		givenUp := 0
		notNeeded := func(want time.Duration) {
			t.Helper()
			s.second = &second{cancel: func() { givenUp++ }}
			s.broken(true)
			assert.Nil(t, s.second)
			assert.Equal(t, want, s.patience())
		}
		after := func(d, want time.Duration) {
			t.Helper()
			time.Sleep(d)
			s.check(false, false)
			assert.Equal(t, want, s.patience(), "after %v", d)
		}
		assert.Equal(t, 100*time.Millisecond, s.patience())
		notNeeded(200 * time.Millisecond)
		notNeeded(400 * time.Millisecond)
		after(forgetAfter-1, 400*time.Millisecond)
		after(1, 200*time.Millisecond)
		after(forgetAfter-1, 200*time.Millisecond)
		after(1, 100*time.Millisecond)
		after(10*forgetAfter, 100*time.Millisecond)
		notNeeded(200 * time.Millisecond)
		notNeeded(400 * time.Millisecond)
		after(2*forgetAfter, 100*time.Millisecond)
		for want := 200 * time.Millisecond; want < 100*time.Millisecond<<maxDoubled; want *= 2 {
			notNeeded(want)
		}
		notNeeded(100 * time.Millisecond << maxDoubled)
		notNeeded(100 * time.Millisecond << maxDoubled)
		assert.Equal(t, 4+maxDoubled+1, givenUp)
		s.timeout = time.Minute
		assert.Equal(t, time.Minute, s.patience())
		s.end()
	})
}
