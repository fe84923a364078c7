package redsync_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// This file tests replies that come after their round has ended. They cause no further command and are not counted as
// votes.

// hasNoScript makes the given nodes answer the next EVALSHA with NOSCRIPT, after d.
func (f field) hasNoScript(d time.Duration, nodes ...int) {
	synctest.Wait() // for scripts that are on their way
	for _, i := range nodes {
		f.nodes[i].On("evalsha", 1, embedded.Fault{Delay: d, Err: "NOSCRIPT No matching script. Please use EVAL."})
	}
}

// neverInFull checks for a second that no node is sent a script in full (an EVAL), and that no node
// has the key of the lock.
func (f field) neverInFull() {
	f.Helper()
	for range 100 {
		assert.Zero(f, f.commands("eval"))
		f.keysOn(0)
		time.Sleep(10 * ms)
	}
}

// Two nodes answer an acquire with NOSCRIPT, but only after the other three have decided it and the lock has been
// released. They must not be sent the acquire in full: it would set the key again. The same holds for all nodes if they
// say so after the caller has given up.
func TestANodeThatLacksTheScriptIsNotAskedOnceTheRoundIsOver(t *testing.T) {
	playMet(t, func(f field) {
		f.hasNoScript(100*ms, 3, 4)
		m := f.obtains(withFencing)
		f.unlock(m)
		time.Sleep(ms)
		f.neverInFull()

		f.hasNoScript(100*ms, allNodes...)
		errorIs(t, m.TryLockContext(limited(f, 50*ms)), context.DeadlineExceeded)
		f.neverInFull()
	})
}
