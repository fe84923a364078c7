package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rival "github.com/go-redsync/redsync/v4"
	rivalredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/safety"
)

// rivalLibrary is redsync v4 on the nodes of a scene. Those who made the clients
// close them.
type rivalLibrary struct{ rs *rival.Redsync }

func openRival(clients []*redis.Client) safety.Library {
	pools := make([]rivalredis.Pool, len(clients))
	for i, c := range clients {
		pools[i] = goredis.NewPool(c)
	}
	return rivalLibrary{rival.New(pools...)}
}

// NewMutex implements safety.Library.
func (l rivalLibrary) NewMutex(name string, o safety.Options) safety.Mutex {
	var options []rival.Option
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

// brokenByRedsync names the scenes in which redsync v4.18.1 breaks the promise
// on embedded nodes. A scene that is not here is kept.
var brokenByRedsync = map[string]bool{}

// TestRedsyncV4InScenes shows that the scenes tell libraries apart. It does not
// judge redsync: it fails when a row of the table changes.
func TestRedsyncV4InScenes(t *testing.T) {
	outcomes := make(map[string]error)
	for _, s := range safety.Scenes {
		t.Run(s.Name, func(t *testing.T) {
			outcomes[s.Name] = safety.PlayEmbedded(t, openRival, s)
		})
	}
	compare(t, outcomes, brokenByRedsync)
}

// brokenByRedsyncOnRealServers is the same on redis-server processes, where a
// few seconds of waiting are forgiven and some faults cannot be played.
var brokenByRedsyncOnRealServers = map[string]bool{}

func TestRedsyncV4InScenesOnRealServers(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for many timeouts of redsync")
	}
	outcomes := make(map[string]error)
	for _, s := range safety.Scenes {
		if s.Embedded {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			outcomes[s.Name] = safety.PlayReal(t, openRival, s)
		})
	}
	if len(outcomes) > 0 { // else there is no redis-server
		compare(t, outcomes, brokenByRedsyncOnRealServers)
	}
}

// compare prints the table of outcomes and fails t where it is not as expected.
func compare(t *testing.T, outcomes map[string]error, broken map[string]bool) {
	t.Helper()
	t.Log(table(outcomes))
	for name, err := range outcomes {
		require.Equal(t, broken[name], err != nil, "%s: the outcome is %v", name, err)
	}
	for name := range broken {
		require.Contains(t, outcomes, name, "there is no such scene")
	}
}

// table has one row per scene, in their order.
func table(outcomes map[string]error) string {
	width := 0
	for name := range maps.Keys(outcomes) {
		width = max(width, len(name))
	}
	var b strings.Builder
	b.WriteString("redsync v4.18.1:\n")
	for _, s := range safety.Scenes {
		err, played := outcomes[s.Name]
		switch {
		case !played:
		case err == nil:
			fmt.Fprintf(&b, "%-*s  kept\n", width, s.Name)
		default:
			fmt.Fprintf(&b, "%-*s  BROKEN: %v\n", width, s.Name, err)
		}
	}
	return b.String()
}

var _ = slices.Sort[[]int]
