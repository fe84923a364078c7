package main

import (
	"slices"
	"strings"
	"testing"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/testkit/safety"
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
	if o.Generated != "" {
		options = append(options, rival.WithGenValueFunc(func() (string, error) { return o.Generated, nil }))
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
var redsyncEmbedded = strings.Split(`each of the 32 subsets of five nodes dead
two nodes dead: every operation at once
one node frozen: every operation at once
two nodes frozen: every operation at once
two nodes freeze while the lock is held
three nodes frozen: TryLock fails in time and leaves no key
three nodes freeze while the lock is held: Valid and Unlock answer in time
context cancelled during the attempt leaves no key
context cancelled before Unlock: the keys go all the same
a cancelled Lock says so
reply to the acquire lost on a majority leaves no key and is not called taken
reply to the release lost on a majority is not called expired and leaves no key
straggler's SET lands after the rollback
straggler's SET lands after Unlock
extend confirmed after Until does not succeed
Valid answered after Until is not true
extend of a shorter expiry shortens no TTL
one value for all locks of a process: no second holder
extend after Unlock, with healing, resurrects nothing
extend after a loss, with healing, resurrects nothing
extend after expiry fails, says expired and not taken
Until is zero after Unlock; a second Unlock is an error
unlock after expiry says so and leaves the next holder alone
clocks of two nodes jump forward: no second holder`, "\n")

// TestRedsyncV4InScenes shows that the scenes tell libraries apart. It fails if an outcome
// differs from the table, not because redsync breaks a promise.
func TestRedsyncV4InScenes(t *testing.T) {
	var names []string
	for _, s := range safety.Scenes {
		names = append(names, s.Name)
		t.Run(s.Name, func(t *testing.T) {
			err := safety.PlayEmbedded(t, openRival, s)
			assert.Equal(t, slices.Contains(redsyncEmbedded, s.Name), err != nil, err)
		})
	}
	assert.Subset(t, names, redsyncEmbedded)
}

// envLong is the environment variable that, when set, adds tests that wait for
// minutes.
const envLong = "REDSYNC_TEST_LONG"
