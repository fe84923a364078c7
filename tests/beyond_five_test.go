package redsync_test

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/pool"
)

// This file has the code of docs/beyond-five.md, and shows what the page says of it.

// setOf returns which of n sets has the locks of a name.
func setOf(name string, n int) int {
	h := fnv.New32a() // the same in every process, unlike hash/maphash
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(n))
}

// jointSets returns what locks a name while the sets change.
func jointSets(before, after [][]pool.Pool) func(name string) *redsync.Redsync {
	pairs := make(map[[2]int]*redsync.Redsync)
	for i := range before {
		for j := range after {
			pairs[[2]int{i, j}] = redsync.NewJoint(before[i], after[j])
		}
	}
	return func(name string) *redsync.Redsync {
		return pairs[[2]int{setOf(name, len(before)), setOf(name, len(after))}]
	}
}

func TestBeyondFiveShowsThisCode(t *testing.T) {
	code := read(t, "beyond_five_test.go")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "../docs/beyond-five.md"), -1)
	require.Len(t, blocks, 2)
	for _, block := range blocks {
		assert.Contains(t, code, block[1])
	}
}

func TestLockOnClusters(t *testing.T) {
	var servers []*miniredis.Miniredis
	start := func() *redis.ClusterClient {
		servers = append(servers, miniredis.RunT(t))
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[len(servers)-1].Addr()}})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	one, two, three := start(), start(), start()
	rs := redsync.New(pool.New(one), pool.New(two), pool.New(three)) // each of redis.NewClusterClient
	require.NoError(t, rs.Ping(t.Context()))
	m := locked(t, rs.NewMutex("a", forever, withExpiry(2*minute)))
	require.Eventually(t, func() bool {
		return servers[0].Exists("a") && servers[1].Exists("a") && servers[2].Exists("a")
	}, minute, ms)
	confirmed(t, m.Unlock)
	require.NoError(t, rs.Close(t.Context()))
}

// From two sets to three: joint sets exclude the locks of both, although two processes without them hold one name.
func TestTheNumberOfSetsChanges(t *testing.T) {
	changing(t, 9, func(c change) {
		before := [][]pool.Pool{c.at(0, 1, 2), c.at(3, 4, 5)}
		after := append(before[:2:2], c.at(6, 7, 8))
		sets := func(pools [][]pool.Pool) func(name string) *redsync.Redsync {
			var all []*redsync.Redsync
			for i := range pools {
				all = append(all, c.alone(pools[i]))
			}
			return func(name string) *redsync.Redsync { return all[setOf(name, len(all))] }
		}
		was, is, joint := sets(before), sets(after), jointSets(before, after)
		twice, joints := 0, map[*redsync.Redsync]bool{}
		for i := range 20 {
			name := fmt.Sprint("name ", i)
			joints[joint(name)] = true
			m := locked(c, was(name).NewMutex(name))
			c.taken(joint(name), name, "two holders")
			if other := is(name).NewMutex(name); other.TryLock() == nil {
				twice++
				confirmed(c, other.Unlock)
			}
			confirmed(c, m.Unlock)
			sleep(sec)

			m = locked(c, joint(name).NewMutex(name))
			c.taken(was(name), name, "two holders")
			c.taken(is(name), name, "two holders")
			confirmed(c, m.Unlock)
			sleep(sec)

			m = locked(c, is(name).NewMutex(name))
			c.taken(joint(name), name, "two holders")
			confirmed(c, m.Unlock)
			sleep(sec)
		}
		assert.Positive(c, twice)
		for rs := range joints {
			c.closes(rs)
		}
	})
}
