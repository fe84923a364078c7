package main

import (
	"slices"
	"testing"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/safety"
)

// rivalLibrary is redsync v4 on the nodes of a scene. It does not close the clients: the
// function that made them does.
type rivalLibrary struct {
	rs       *rival.Redsync
	defaults []rival.Option
}

func openRival(clients []*redis.Client) safety.Library { return openRivalWith()(clients) }

// openRivalWith opens redsync v4 with options as the defaults of its locks.
func openRivalWith(options ...rival.Option) safety.Open {
	return func(clients []*redis.Client) safety.Library {
		pools := make([]rivalredis.Pool, len(clients))
		for i, c := range clients {
			pools[i] = goredis.NewPool(c)
		}
		return rivalLibrary{rival.New(pools...), options}
	}
}

// NewMutex implements safety.Library.
func (l rivalLibrary) NewMutex(name string, o safety.Options) safety.Mutex {
	options := slices.Clone(l.defaults)
	if o.Expiry != 0 {
		options = append(options, rival.WithExpiry(o.Expiry))
	}
	if o.Tries != 0 {
		options = append(options, rival.WithTries(o.Tries))
	}
	if o.RetryDelay != 0 {
		options = append(options, rival.WithRetryDelay(o.RetryDelay))
	}
	if o.Value != "" {
		options = append(options, rival.WithValue(o.Value))
	}
	if o.Heal {
		options = append(options, rival.WithSetNXOnExtend())
	}
	return l.rs.NewMutex(name, options...)
}

// Close implements safety.Library; redsync has nothing to close.
func (rivalLibrary) Close() {}

// redsyncEmbedded are the scenes in which redsync v4.18.1 breaks the promise on
// embedded nodes. It keeps the promise in all other scenes.
var redsyncEmbedded = map[string]verdict{
	"each of the 32 subsets of five nodes dead":                                       broken,
	"two nodes dead: every operation at once":                                         broken,
	"one node frozen: every operation at once":                                        broken,
	"two nodes frozen: every operation at once":                                       broken,
	"two nodes freeze while the lock is held":                                         broken,
	"three nodes frozen: TryLock fails in time and leaves no key":                     broken,
	"three nodes freeze while the lock is held: Valid and Unlock answer in time":      broken,
	"context cancelled during the attempt leaves no key":                              broken,
	"context cancelled before Unlock: the keys go all the same":                       broken,
	"a cancelled Lock says so":                                                        broken,
	"reply to the acquire lost on a majority leaves no key and is not called taken":   broken,
	"reply to the release lost on a majority is not called expired and leaves no key": broken,
	"straggler's SET lands after the rollback":                                        broken,
	"straggler's SET lands after Unlock":                                              broken,
	"extend confirmed after Until does not succeed":                                   broken,
	"Valid answered after Until is not true":                                          broken,
	"extend of a shorter expiry shortens no TTL":                                      broken,
	"extend after Unlock, with healing, resurrects nothing":                           broken,
	"extend after a loss, with healing, resurrects nothing":                           broken,
	"extend after expiry fails, says expired and not taken":                           broken,
	"Until is zero after Unlock; a second Unlock is an error":                         broken,
	"unlock after expiry says so and leaves the next holder alone":                    broken,
	"clocks of two nodes jump forward: no second holder":                              broken,
}

// TestRedsyncV4InScenes shows that the scenes tell libraries apart. It fails if an outcome
// differs from the table, not because redsync breaks a promise.
func TestRedsyncV4InScenes(t *testing.T) {
	outcomes := make(map[string]error)
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			outcomes[s.Name] = safety.PlayEmbedded(t, openRival, s)
		})
	}
	compare(t, outcomes, redsyncEmbedded)
}

// envLong is the environment variable that, when set, adds tests that wait for
// minutes.
const envLong = "REDSYNC_TEST_LONG"

// compare fails t if an outcome differs from expected, or if
// expected names a scene that does not exist.
func compare(t *testing.T, outcomes map[string]error, expected map[string]verdict) {
	t.Helper()
	for name, err := range outcomes {
		if want := expected[name]; (err != nil) != (want == broken) {
			t.Errorf("%s: the outcome is %v, but the table expects another", name, err)
		}
	}
	for name := range expected {
		if !slices.ContainsFunc(safety.Scenes, func(s safety.Scene) bool { return s.Name == name }) {
			t.Errorf("the table has %q, but there is no such scene", name)
		}
	}
}
