package quorum

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/claim"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/testkit/scripted"
	"github.com/seed14bd9ef4/redsync/internal/wire"
)

// This file shows when a restarted node counts again.

func TestNodeCounts(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		guard  time.Duration
		server *wire.Server
		want   bool
	}{
		"no guard, unknown":         {0, nil, true},
		"no guard, just started":    {0, &wire.Server{At: now}, true},
		"unknown":                   {sec, nil, false},
		"new":                       {sec, &wire.Server{At: now, New: true}, true},
		"just started":              {sec, &wire.Server{At: now}, false},
		"a nanosecond too early":    {sec, &wire.Server{At: now.Add(1), Uptime: 2012 * ms}, false},
		"in time":                   {sec, &wire.Server{At: now, Uptime: 2012 * ms}, true},
		"identified long ago":       {sec, &wire.Server{At: now.Add(-2012 * ms)}, true},
		"identified after the vote": {sec, &wire.Server{At: now.Add(time.Hour), Uptime: time.Hour}, false},
		"longest guard":             {math.MaxInt64, &wire.Server{At: now, Uptime: time.Hour}, false},
		"almost the longest":        {math.MaxInt64 - sec, &wire.Server{At: now, Uptime: time.Hour}, false},
		"new, identified after it":  {sec, &wire.Server{At: now.Add(time.Hour), New: true}, true},
	} {
		err := (&guard{c.guard, &tenant{}}).Distrust(c.server, now, percent{}, 0)
		assert.Equal(t, c.want, err == nil, "%s: %v", name, err)
		assert.Equal(t, !c.want, isDistrust(err), "%s: %v", name, err)
	}
}

// An address that has led to another server counts only after the guard, however long its server has been running. If
// that server may be the same node, restarted, its age decides.
func TestNodeWhoseAddressHasMovedCountsAfterTheGuard(t *testing.T) {
	now := time.Now()
	n := &guard{sec, &tenant{}}
	server := func(id string, began time.Duration) *wire.Server {
		return &wire.Server{RunID: id, At: now.Add(began), New: id == "first"}
	}
	first, older := server("first", -time.Hour), server("older", -time.Hour)
	at := func(s *wire.Server, at time.Duration) error { return n.Distrust(s, now.Add(at), percent{}, 0) }
	require.NoError(t, at(first, 0))
	require.NoError(t, at(first, 10*sec))
	require.EqualError(t, at(older, 11*sec), "its address has led to another server for 0s, and the restart guard (1s + 1.012s) ignores it for another 2.012s")
	err := at(older, 13*sec)
	require.EqualError(t, err, "its address has led to another server for 2s, and the restart guard (1s + 1.012s) ignores it for another 12ms")
	assert.True(t, isDistrust(err))
	require.NoError(t, at(older, 13*sec+12*ms))
	require.Error(t, at(first, 20*sec), "back again: others may have used the other server meanwhile")
	require.NoError(t, at(first, 23*sec))
	require.NoError(t, at(server("restarted", 24*sec), time.Minute), "it began after the last answer")
	require.NoError(t, at(server("again", 58*sec+sec), time.Minute+2*sec+12*ms),
		"it may have begun up to a second later")

	// Servers that do not say which they are differ by their start.
	n = &guard{sec, &tenant{}}
	require.NoError(t, at(server("", -time.Hour), 0))
	require.NoError(t, at(server("", -time.Hour-maxStartError), sec))
	require.ErrorContains(t, at(server("", -2*time.Hour), 2*sec), "its address has led to another server for 0s")
	require.NoError(t, at(server("", 20*sec), time.Minute), "it began after the last answer")
	require.Error(t, at(server("told", -time.Hour), time.Minute))

	// Of two pools of one client, only one may tell.
	n = &guard{sec, &tenant{}}
	for i, id := range []string{"", "first", "", "first", ""} {
		require.NoError(t, at(server(id, -time.Hour), time.Duration(i)*sec))
	}
	require.ErrorContains(t, at(server("second", -time.Hour), 5*sec), "its address has led to another server for 0s")

	// While the client is suspended, its monotonic clock stands still.
	defer clock.Step(func(i clock.Instant) clock.Instant {
		if i.Wall.After(now.Add(time.Minute)) {
			i.Wall = i.Wall.Add(time.Hour)
		}
		return i
	})()
	n = &guard{sec, &tenant{}}
	require.NoError(t, at(server("", -time.Hour), 0))
	for ran, want := range map[float64]bool{2: false, 3: false, 4: false, 5: true} {
		then := now.Add(2 * time.Hour)
		_, moved := n.tenant.peek(&wire.Server{At: then, Uptime: time.Duration(ran * float64(time.Hour))}, then)
		assert.Equal(t, want, moved, "it has been running for %v h", ran)
	}
}

// Looking whether a server counts begins no guard.
func TestGuardOfAMovedAddressDoesNotBeginWithALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &guard{sec, &tenant{}}
		first, other := &wire.Server{RunID: "first", At: time.Now(), New: true}, &wire.Server{RunID: "other", Uptime: time.Hour, At: time.Now()}
		distrust := func(s *wire.Server) error { return n.Distrust(s, time.Now(), percent{}, 0) }
		require.NoError(t, distrust(first))
		quarantine := n.Quarantine(percent{}, 0)
		for range 3 {
			require.Error(t, n.DistrustNow(other, quarantine))
			time.Sleep(quarantine)
		}
		require.Error(t, distrust(other))
		time.Sleep(quarantine - 1)
		require.Error(t, n.DistrustNow(other, quarantine))
		require.Error(t, distrust(other))
		time.Sleep(time.Nanosecond)
		require.NoError(t, n.DistrustNow(other, quarantine))
		require.NoError(t, distrust(other))
	})
}

// A log says the reason again with the figures of that time.
func TestReasonOfARestartedNodeAges(t *testing.T) {
	now := time.Now()
	e := &restarted{false, now, 998 * ms, 8 * sec, 9082 * ms}
	require.NoError(t, e.At(e.CountsFrom()), "the guard has ended")
	for age, want := range map[time.Duration]string{
		-sec:      "its server started 0s ago, and the restart guard (8s + 1.082s) ignores it for another 9.082s",
		0:         "its server started 998ms ago, and the restart guard (8s + 1.082s) ignores it for another 8.084s",
		7*sec + 1: "its server started 7.998s ago, and the restart guard (8s + 1.082s) ignores it for another 1.084s",
	} {
		then := e.At(now.Add(age))
		require.EqualError(t, then, want)
		assert.True(t, isDistrust(then))
	}
	assert.Equal(t, time.Duration(math.MaxInt64), roundUp(math.MaxInt64))
}

// A linked node is a fake node that tells whether its connection is open.
type linked struct {
	*scripted.Node
	open bool
}

func (l linked) Link() wire.Link { return wire.Link{Open: l.open} }

// A set is open without a node that is known to be dead, so an acquire under a restart guard does not wait for it each time.
func TestSetIsOpenAsSoonAsAQuorumAndAllButLateNodesAre(t *testing.T) {
	for name, c := range map[string]struct {
		open, late claim.Nodes
		want       bool
	}{
		"all":                      {0b11111, 0, true},
		"all, some late":           {0b11111, 0b11100, true},
		"all but one":              {0b01111, 0, false},
		"all but one that is late": {0b01111, 0b10000, true},
		"another one is late":      {0b01111, 0b01000, false},
		"a quorum":                 {0b00111, 0b11000, true},
		"no quorum":                {0b00011, 0b11100, false},
		"none":                     {0, 0b11111, false},
	} {
		t.Run(name, func(t *testing.T) {
			var pools []wire.Pool
			for i := range 5 {
				pools = append(pools, linked{&scripted.Node{}, c.open.Has(i)})
			}
			s := setOf(pools...)
			s.known.late.add(c.late)
			assert.Equal(t, c.want, s.IsOpen())
		})
	}
	assert.True(t, newScene(3).IsOpen(), "pools that do not tell")
}
