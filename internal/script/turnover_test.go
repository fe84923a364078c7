package script

import (
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// This file tests what a release does with the queue when it deletes the lock.

// A user who may not ask for the time cannot tell which waiters live. The release deletes the
// lock all the same, says so, and leaves the queue alone.
func TestReleaseWithoutPermissionToAskForTheTime(t *testing.T) {
	g := ground{T: t, client: realredis.Start(t, 1)[0].Client()}
	g.line(queueKey, "they1")
	g.do("acl", "setuser", "default", "-time")
	turnover := Turnover{Enters: aTicket(2, us), Alive: alive}
	for value, found := range map[string]int64{"v": Mine, "w": Other, "": Missing} {
		if value != "" {
			g.do("set", "lock", value, "px", ttl)
		}
		g.runs(found, Release(lockV, ProcessOf(us), turnover, noFence), value)
		g.do("del", "lock")
	}
	g.lines(queueKey, "they1")
}
