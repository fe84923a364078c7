package cost

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/clock"
	"github.com/seed14bd9ef4/redsync/internal/fortests"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// A figure is everything that is bounded. A held lock has no clocks; its alarms are those that it waits for.
type figure struct {
	mallocs, bytes, commands float64
	clocks                   float64 // readings of both clocks (clock.Now)
	alarms                   float64 // set in the schedules of package alarm
}

// bounds are what each row may cost. They are exact: a row that costs less has its bound lowered. CONTRIBUTING.md says
// what to do when one costs more ("When a guard fails").
var bounds = map[string]figure{
	//                                          mallocs, bytes, commands, clocks, alarms
	"Lock + Unlock":                           {7, 1329, 10, 5, 1},
	"Lock + Unlock, 1 node":                   {7, 1329, 2, 5, 1},
	"Lock + Unlock, 3 nodes":                  {7, 1329, 6, 5, 1},
	"Lock + Unlock, 9 nodes":                  {7, 1585, 18, 5, 1},
	"Lock + Unlock, joint 5 + 5, 3 in common": {7, 1585, 14, 5, 1},
	"Lock + Unlock, 2 nodes refuse":           {7, 1329, 10, 6, 1},
	"NewMutex, Lock + Unlock":                 {11, 1584, 10, 5, 1},
	"NewMutex with an option, Lock + Unlock":  {12, 1600, 10, 5, 1},
	"Lock + Unlock, watchdog":                 {8, 1409, 10, 6, 2},
	"Lock + Unlock, one observer":             {9, 1521, 10, 8, 1},
	"Lock + Unlock, a log without Debug":      {13, 1377, 10, 8, 1},
	"Lock + Unlock, fenced":                   {12, 1777, 10, 6, 1},
	// A release that takes a ticket off a queue says how many leave, as that of several names does: 16 bytes.
	"Lock + Unlock, fair":          {23, 3465, 10, 11, 1},
	"Lock + Unlock, with an owner": {8, 1409, 10, 5, 1},
	"Lock + Unlock, shared":        {16, 2977, 10, 8, 1},
	"Lock + Unlock, permits":       {13, 2512, 10, 5, 1},
	"Lock + Unlock, two names":     {7, 1505, 10, 5, 1},
	"TryLock, taken":               {26, 2904, 10, 1, 0}, // it waits for what the release finds in its way, and its outermost error is an *ErrTaken
	"Lock waits, handed over":      {46, 7537, 30, 17, 2},
	"Lock waits, by the nodes":     {53, 8849, 40, 18, 2},
	"Extend":                       {3, 496, 5, 5, 0},
	"Extend by the watchdog":       {2, 575, 5, 10, 3.5},
	"Do":                           {17, 2064, 10, 8, 2},
	"TryDo":                        {17, 2064, 10, 8, 2},
	"a Mutex, not locked":          {2, 208, 0, 0, 0}, // it remembers its last Unlock: see lease.Unlocks
	"a held lock":                  {5, 585, 5, 0, 1},
	"a held lock, watchdog":        {6, 674, 5, 0, 2},
	"a held lock, fenced":          {8, 740, 5, 0, 1},
	"a held lock, shared":          {13, 1836, 5, 0, 1},
	"a held lock, permits":         {25, 1681, 5, 0, 1},
	"import of the package":        {45, 2000, 0, 0, 0},
}

// goVersion is the version of Go that the bounds are for: allocations of the runtime and the standard library count.
const goVersion = "go1.26"

func TestRowsCostWhatTheirBoundsSay(t *testing.T) {
	testlength.NotShort(t)
	switch {
	case hasRaceDetector():
		t.Skip("the race detector allocates")
	case strconv.IntSize != 64 || !strings.HasPrefix(runtime.Version(), goVersion):
		t.Skipf("the bounds are for 64 bits and %s", goVersion)
	}
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			got := cost(t, name, bounds[name])
			t.Logf("%q: {%.3g, %.0f, %.3g, %.3g, %.3g},", name, got.mallocs, got.bytes, got.commands, got.clocks, got.alarms)
			assert.Empty(t, compare(bounds[name], got, slackOf(name)))
		})
	}
	assert.Len(t, bounds, len(names()), "each bound is that of a row")
}

// names returns the names of all rows.
func names() []string {
	list := []string{ImportRow}
	for name := range Rows {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// slackOf returns by which share the memory of a row may differ from its bound. What is held, and what a package makes,
// has maps and slices whose room depends on chance.
func slackOf(row string) float64 {
	if row == ImportRow || Rows[row].Hold != nil {
		return 0.05
	}
	return 0
}

// compare returns what is wrong with a figure, "" if nothing is. slack is a share of the bound, for the memory.
func compare(bound, got figure, slack float64) string {
	var wrong []string
	check := func(what string, bound, got, slack float64) {
		switch {
		case got > bound+slack:
			wrong = append(wrong, fmt.Sprintf("%.1f %s are above the bound, %.1f (CONTRIBUTING.md: When a guard fails)", got, what, bound))
		case got < bound-slack:
			wrong = append(wrong, fmt.Sprintf("%.1f %s: lower the bound, %.1f", got, what, bound))
		}
	}
	check("mallocs", bound.mallocs, got.mallocs, max(0.1, slack*bound.mallocs))
	check("bytes", bound.bytes, got.bytes, max(2, slack*bound.bytes)) // the runtime allocates now and then
	check("commands", bound.commands, got.commands, 0.01)
	check("clock readings", bound.clocks, got.clocks, 0.1)
	check("alarms", bound.alarms, got.alarms, 0.1)
	return strings.Join(wrong, "\n")
}

// cost measures a row.
func cost(t *testing.T, name string, bound figure) (f figure) {
	t.Helper()
	row := Rows[name]
	switch {
	case name == ImportRow:
		c, _ := importCost(t)
		f.mallocs, f.bytes = c.Mallocs, c.Bytes
	case row.Hold != nil:
		f = weigh(row, bound)
	case row.Virtual:
		synctest.Test(t, func(*testing.T) { f = count(row, bound) })
	default:
		f = count(row, bound)
	}
	return f
}

// count measures a row that has a Call. Of several measurements the least is the library's: what the runtime allocates
// besides, and what a goroutine that has not ended yet keeps from being used again, come on top of it. With one CPU both
// are rare, and no sync.Pool has parts that the caller cannot reach.
func count(row Row, bound figure) figure {
	const calls = 1000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	run := row.Begin()
	defer run.End()
	set, _ := fortests.Alarms(run.Redsync)
	c := run.Measure(calls)
	setAfter, _ := fortests.Alarms(run.Redsync)
	for range 20 {
		if compare(figure{mallocs: bound.mallocs, bytes: bound.bytes}, figure{mallocs: c.Mallocs, bytes: c.Bytes}, 0) == "" {
			break // the least is not less
		}
		again := run.Measure(calls)
		c.Mallocs, c.Bytes = min(c.Mallocs, again.Mallocs), min(c.Bytes, again.Bytes)
	}
	var clocks atomic.Int64
	restore := clock.Step(func(now clock.Instant) clock.Instant { clocks.Add(1); return now })
	run.Calls(calls)
	restore()
	return figure{c.Mallocs, c.Bytes, c.Commands, float64(clocks.Load()) / calls, float64(setAfter-set) / calls}
}

// weigh measures a row that has a Hold. Of several measurements the greatest is right: what the row before it has left
// to the garbage collector makes the others too small.
func weigh(row Row, bound figure) figure {
	const locks = 10_000
	alarms, c := 0, Cost{}
	for range 3 {
		if compare(figure{mallocs: bound.mallocs, bytes: bound.bytes}, figure{mallocs: c.Mallocs, bytes: c.Bytes}, 0.05) == "" {
			break
		}
		again := row.Weigh(locks, func(r *redsync.Redsync) { _, alarms = fortests.Alarms(r) })
		c = Cost{max(c.Mallocs, again.Mallocs), max(c.Bytes, again.Bytes), again.Commands}
	}
	return figure{mallocs: c.Mallocs, bytes: c.Bytes, commands: c.Commands, alarms: float64(alarms) / locks}
}
