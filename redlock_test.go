package redsync_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/internal/safety"
)

// The algorithm's safety properties, from outside: every scene of package
// safety, in virtual time and on real servers.

func TestMain(m *testing.M) {
	code := m.Run()
	// go-redis looks once a second whether a pool that could not dial has been
	// closed; goleak waits for less.
	time.Sleep(1100 * time.Millisecond)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestScenesInVirtualTime(t *testing.T) {
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			require.NoError(t, safety.PlayEmbedded(t, safety.Ours(), s))
		})
	}
}

func TestScenesOnPlainClients(t *testing.T) {
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			require.NoError(t, safety.PlayEmbedded(t, safety.OursOnPlainClients, s))
		})
	}
}

func TestScenesOnRealServers(t *testing.T) {
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, safety.PlayReal(t, safety.Ours(), s))
		})
	}
}
