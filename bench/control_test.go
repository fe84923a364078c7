package main

import (
	"slices"
	"testing"
	"time"

	"github.com/bsm/redislock"
	rival "github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
)

// with returns a copy of c that calls change on its library after opening it.
func (c contender) with(change func(library)) contender {
	open := c.open
	c.open = func(addrs []string, ttl time.Duration) (library, error) {
		lib, err := open(addrs, ttl)
		if err == nil {
			change(lib)
		}
		return lib, err
	}
	return c
}

// plainly returns the oursLibrary inside a variant, or lib if lib is an oursLibrary.
func plainly(lib library) *oursLibrary {
	switch l := lib.(type) {
	case *watchedLibrary:
		return l.oursLibrary
	case *multiLibrary:
		return l.oursLibrary
	case *atRandomLibrary:
		return l.oursLibrary
	}
	return lib.(*oursLibrary)
}

func the(name string) contender { return named(name)[0] }

// A contender that differs in one thing from what its name promises does not start, and the error says why. The control
// compares all settings in one way, so one of them stands for the others.
func TestAContenderThatIsNotWhatItsNameSaysDoesNotStart(t *testing.T) {
	addrs := startNodes(t, nodes)
	fails := func(c contender, says string) {
		_, err := c.start(t.Context(), addrs, patientExpiry)
		require.ErrorContains(t, err, c.name+": "+says)
	}
	// opened is a contender that is opened with other arguments.
	opened := func(name string, nodes int, longer time.Duration) contender {
		c := the(name)
		open := c.open
		c.open = func(addrs []string, ttl time.Duration) (library, error) { return open(addrs[:nodes], ttl+longer) }
		return c
	}
	changed := func(name, says string, change func(c *contender)) {
		c := the(name)
		change(&c)
		fails(c, says)
	}
	for _, name := range []string{defaults, failFast, onRueidis, inTurn} {
		fails(the(name).with(func(lib library) {
			l, ok := lib.(*redsyncLibrary)
			if !ok {
				l = lib.(*inTurnLibrary).redsyncLibrary
			}
			l.options = append(slices.Clone(l.options), rival.WithTries(1))
		}), "its lock.tries is 1, want ")
		fails(opened(name, 4, 0), "its lock.pools is 4, want 5")
	}
	for _, c := range slices.Concat(named(ours), variants) {
		fails(c.with(func(lib library) {
			l := plainly(lib)
			l.rs = l.rs.With(redsync.WithTries(1))
		}), "its set.options.tries is 1, want ")
		fails(opened(c.name, 4, 0), "its core.keeper.Set.Nodes is 4, want 5")
	}
	changed(oursFenced, "its set.options.fencing is false, want true", func(c *contender) { c.open = openOursWith() })
	fails(the(oursTwo).with(func(lib library) { lib.(*multiLibrary).names++ }), "its names is ")
	changed(oursPermits, "0 nodes kept its locks, want 5", func(c *contender) { c.oneOf = keysOfPermits(0) })
	changed(oursTwo, "a node has 2 of its keys, want 1", func(c *contender) { c.oneOf = oneOfNames(2) })
	changed(oursTwo, "a node has its key 1, but not key 3", func(c *contender) { c.names, c.like = 3, likeNothing })
	changed(floor, "5 nodes kept its locks, want 1", func(c *contender) { c.single = true })
	fails(opened(floor, 3, 0), "3 nodes kept its locks, want 5")
	fails(opened(floor, 5, -patientExpiry*4/10), "a node keeps its lock for ")
	fails(opened(oneNode, 5, patientExpiry/10), "a node keeps its lock for ")
	fails(opened(oneKey, 5, -patientExpiry*4/10), "its lock.validity is ")
	fails(the(oneNode).with(func(lib library) {
		lib.(*redislockLibrary).options.RetryStrategy = redislock.LinearBackoff(time.Millisecond)
	}), "its lock.RetryStrategy is false, want true")
	fails(the(ours).with(func(lib library) {
		cs := lib.(interface{ onGoRedis() clients }).onGoRedis()
		addr := cs[0].Options().Addr
		cs[0].Close()
		cs[0] = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 3})
	}), "its options.PoolSize is 3, want ")
}
