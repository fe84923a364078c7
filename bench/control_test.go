package main

import (
	"fmt"
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

// on returns a copy of c whose library uses only the first n of the nodes that the control looks at.
func (c contender) on(n int) contender {
	open := c.open
	c.open = func(addrs []string, ttl time.Duration) (library, error) { return open(addrs[:n], ttl) }
	return c
}

// longer returns a copy of c whose locks have a TTL longer by d than the TTL that the control expects.
func (c contender) longer(d time.Duration) contender {
	open := c.open
	c.open = func(addrs []string, ttl time.Duration) (library, error) { return open(addrs, ttl+d) }
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

// A wrong contender differs in one thing from what its name promises. The control must return an error that says so.
type wrong struct {
	contender
	says string
}

func mislabelled() (list []wrong) {
	add := func(c contender, says string) { list = append(list, wrong{c, says}) }
	rivals := []string{defaults, failFast, onRueidis, inTurn}
	rivalWith := func(name string, option rival.Option) contender {
		return the(name).with(func(lib library) {
			l, ok := lib.(*redsyncLibrary)
			if !ok {
				l = lib.(*inTurnLibrary).redsyncLibrary
			}
			l.options = append(slices.Clone(l.options), option)
		})
	}
	for says, option := range map[string]rival.Option{
		"its lock.expiry is ":                  rival.WithExpiry(8 * time.Second),
		"its lock.tries is 1, want ":           rival.WithTries(1),
		"its lock.timeoutFactor is 0.5, want ": rival.WithTimeoutFactor(0.5),
		"its lock.driftFactor is 0.5, want ":   rival.WithDriftFactor(0.5),
		"its lock.delayFunc is ":               rival.WithRetryDelay(time.Second),
		"its lock.shuffle is true, want false": rival.WithShufflePools(true),
	} {
		for _, name := range rivals {
			add(rivalWith(name, option), says)
		}
	}
	for _, name := range rivals {
		add(rivalWith(name, rival.WithFailFast(name == defaults || name == inTurn)), "its lock.failFast is ")
		add(the(name).on(3), "its lock.quorum is 2, want 3")
		add(the(name).on(4), "its lock.pools is 4, want 5")
	}
	oursWith := func(name string, option redsync.Option) contender {
		return the(name).with(func(lib library) {
			l := plainly(lib)
			l.rs = l.rs.With(option)
		})
	}
	for says, option := range map[string]redsync.Option{
		"its set.options.expiry is ":                  redsync.WithExpiry(8 * time.Second),
		"its set.options.waitAll is true, want false": redsync.WithFailFast(false),
		"its set.options.tries is 1, want ":           redsync.WithTries(1),
		"its set.options.timeoutFactor is 0.5, want ": redsync.WithTimeoutFactor(0.5),
		"its set.options.driftFactor is 0.5, want ":   redsync.WithDriftFactor(0.5),
		"its set.options.retryDelay is ":              redsync.WithRetryDelay(time.Second),
	} {
		for _, c := range slices.Concat(named(ours), variants) {
			add(oursWith(c.name, option), says)
		}
	}
	for _, n := range []int{1, 4} {
		for _, c := range slices.Concat(named(ours), variants) {
			add(c.on(n), fmt.Sprintf("its core.keeper.Set.Nodes is %d, want 5", n))
		}
	}
	for name, option := range map[string]redsync.Option{
		oursPermits: redsync.WithPermits(fewPermits + 1), oursPermitsFair: redsync.WithPermits(fewPermits + 1),
		oursManyPermits: redsync.WithPermits(fewPermits),
	} {
		add(oursWith(name, option), "its set.options.permits is ")
	}
	opened := func(name, says string, open func([]string, time.Duration) (library, error)) {
		c := the(name)
		c.open = open
		add(c, "its set.options."+says)
	}
	for name, option := range map[string]string{
		oursApart: "noHandOver", oursFair: "fair", oursFenced: "fencing", oursWatched: "watchdog", oursShared: "shared",
	} {
		opened(name, option+" is false, want true", openOursWith())
	}
	opened(oursPatient, "nodeTimeout is ", openOursWith())
	opened(oursPermitsFair, "fair is false, want true", openOursWith(redsync.WithPermits(fewPermits)))
	opened(oursAtRandom, "noHandOver is false, want true", openAtRandom(fewPermits))
	opened(oursTwoFair, "fair is false, want true", openOursOn(2))
	for _, name := range []string{oursTwo, oursTwoFair, oursEight} {
		add(the(name).with(func(lib library) { lib.(*multiLibrary).names++ }), "its names is ")
		add(the(name).with(func(lib library) { lib.(*multiLibrary).names = 1 }), "its set.options.several is false, want true")
	}
	changed := func(name, says string, change func(c *contender)) {
		c := the(name)
		change(&c)
		add(c, says)
	}
	changed(oursPermits, "0 nodes kept its locks, want 5", func(c *contender) { c.oneOf = keysOfPermits(0) })
	changed(oursTwo, "a node has 2 of its keys, want 1", func(c *contender) { c.oneOf = oneOfNames(2) })
	changed(oursTwo, "a node has its key 1, but not key 3", func(c *contender) { c.names, c.like = 3, likeNothing })
	changed(floor, "5 nodes kept its locks, want 1", func(c *contender) { c.single = true })
	add(the(floor).on(3), "3 nodes kept its locks, want 5")
	for _, name := range []string{oneNode, floor} {
		add(the(name).longer(-patientExpiry*4/10), "a node keeps its lock for ")
		add(the(name).longer(patientExpiry/10), "a node keeps its lock for ")
	}
	add(the(oneNode).with(func(lib library) {
		lib.(*redislockLibrary).options.RetryStrategy = redislock.LinearBackoff(time.Millisecond)
	}), "its lock.RetryStrategy is false, want true")
	twoKeys := the(oneKey)
	twoKeys.open = func(addrs []string, ttl time.Duration) (library, error) { return openKeys(addrs, ttl, 2) }
	add(twoKeys, "its lock.majority is 2, want 1")
	add(the(oneKey).longer(-patientExpiry*4/10), "its lock.validity is ")
	for _, name := range []string{ours, defaults, failFast, oneNode} {
		add(the(name).with(func(lib library) {
			cs := lib.(interface{ onGoRedis() clients }).onGoRedis()
			addr := cs[0].Options().Addr
			cs[0].Close()
			cs[0] = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 3})
		}), "its options.PoolSize is 3, want ")
	}
	return list
}

func TestAContenderThatIsNotWhatItsNameSaysDoesNotStart(t *testing.T) {
	addrs := startNodes(t, nodes)
	for _, c := range mislabelled() {
		_, err := c.start(t.Context(), addrs, patientExpiry)
		require.ErrorContains(t, err, c.name+": "+c.says)
	}
}
