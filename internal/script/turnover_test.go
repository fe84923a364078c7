package script_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
	"github.com/seed14bd9ef4/redsync/internal/script"
)

// This file tests what a release does with the queue when it deletes the lock.

// A user who may not ask for the time cannot tell which waiters live. The release deletes the
// lock all the same, says so, and leaves the queue alone.
func TestReleaseWithoutPermissionToAskForTheTime(t *testing.T) {
	g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	g.line(queueKey, "they1")
	g.do("acl", "setuser", "default", "-time")
	turnover := script.Turnover{Enters: aTicket(2, us), Alive: alive}
	for value, found := range map[string]int64{"v": script.Mine, "w": script.Other, "": script.Missing} {
		if value != "" {
			g.do("set", "lock", value, "px", ttl)
		}
		assert.Equal(t, found, g.run(script.Release(script.NewLock("lock", "v"), script.ProcessOf(us), turnover, script.Fence{})), value)
		g.do("del", "lock")
	}
	assert.Equal(t, "they1", g.lined(queueKey))
}
