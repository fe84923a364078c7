package redsync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/safety"
	"github.com/seed14bd9ef4/redsync/internal/testkit/stall"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testmain"
)

// This file tests the algorithm's safety properties from outside. It plays every scene of package safety, in virtual
// time and on real servers.

func TestMain(m *testing.M) { testmain.RunWaiting(m) }

func TestScenesInVirtualTime(t *testing.T) {
	eachScene(t, func(t *testing.T, s safety.Scene) error { return safety.PlayEmbedded(t, safety.Ours(), s) })
}

// eachScene plays all scenes beside one another.
func eachScene(t *testing.T, play func(t *testing.T, s safety.Scene) error) {
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, play(t, s))
		})
	}
}

// unwatched has the scenes that cannot be played with a watchdog, each with the reason.
var unwatched = map[string]string{
	"extend after a loss, with healing, resurrects nothing":        "waits for the expiry",
	"extend after expiry fails, says expired and not taken":        "waits for the expiry",
	"unlock after expiry says so and leaves the next holder alone": "waits for the expiry",
	"extend confirmed after Until does not succeed":                "its faults are for the one extend",
	"Valid answered after Until is not true":                       "Until moves",
}

func TestScenesWithWatchdog(t *testing.T) {
	testlength.FromGate(t)
	eachScene(t, func(t *testing.T, s safety.Scene) error {
		if why := unwatched[s.Name]; why != "" {
			t.Skip(why)
		}
		return safety.PlayEmbedded(t, safety.Ours(redsync.WithWatchdog()), s)
	})
}

func TestScenesOnPlainClients(t *testing.T) {
	testlength.FromGate(t)
	eachScene(t, func(t *testing.T, s safety.Scene) error { return safety.PlayEmbedded(t, safety.OursOnPlainClients, s) })
}

func TestScenesOnRealServers(t *testing.T) {
	t.Parallel()
	eachScene(t, func(t *testing.T, s safety.Scene) error {
		if s.Name != safety.Scenes[0].Name {
			testlength.NotWhileAPersonWaits(t) // nodes in virtual time have shown it
		}
		// The default node deadline, 400 ms, is short for a slow machine.
		stall.Replay(t, 200*time.Millisecond, func() error {
			return safety.PlayReal(t, safety.Ours(redsync.WithTimeoutFactor(0.4)), s)
		})
		return nil
	})
}
