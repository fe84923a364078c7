package queue

import (
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/claim/claimtest"
	"github.com/seed14bd9ef4/redsync/pool"
)

// A program may make a Redsync for each request, each with clients of its own.
func TestGroupsAreNotKept(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "a:1"})
	defer func() { _ = client.Close() }()
	known := func() int {
		groups.Lock()
		defer groups.Unlock()
		return len(groups.byKey)
	}
	before := known()
	var pools []pool.Pool
	var used []*Group
	for range 50 {
		pools = append(pools, pool.New(client))
		used = append(used, GroupOf(pools, claimtest.Majority(len(pools))))
	}
	runtime.GC()
	assert.Equal(t, before+50, known())
	runtime.KeepAlive(used)
	assert.Eventually(t, func() bool {
		runtime.GC()
		return known() <= before
	}, time.Minute, 10*time.Millisecond)
}
