package script

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

var calls = regexp.MustCompile(`cmdstat_(\w+):calls=(\d+)`)

// The scripts execute no more Redis commands than these.
func TestScriptsExecuteNoNeedlessCommands(t *testing.T) {
	g := alone(t)
	writes := func() { g.do("set", "lock", "v", "px", ttl) }
	names := func() { g.entersAll(abc, noPlace, noFence) }
	reads := func() { g.reads("v") }
	states := map[string]func(){
		"":             func() {},
		"held":         writes,
		"waited for":   func() { writes(); g.line(queueKey, "they1") },
		"names":        names,
		"names, a row": func() { names(); g.line("{a}:queue", "they1") },
		"v reads":      reads,
		"v and w read": func() { reads(); g.reads("w") },
	}
	none, process, place := noProcess, ProcessOf(us), Place{Ticket: aTicket(2, us), Alive: alive}
	plain, all := noTurn, slotsOf(0, 1, 2, 3)
	release := Release(abc, none, plain, noFence)
	enters, gives := EnterShared(lockV, ttl, noPlace, noFence), ReleaseSlots(four, "v", 1, all, slotsOf(), process, plain)
	permit := EnterPermits(four, "v", ttl, wants(1, 1), noPlace)
	for name, c := range map[string]struct {
		state   string // one of states, or slots as fills takes them
		command Command
		want    string // the reply, and what has been executed
	}{
		"enter, queued":              {"", Enter(lockV, ttl, place, noFence), "0: get 2, pttl 1, set 2, strlen 2, time 1"},
		"release":                    {"held", Release(lockV, none, plain, noFence), "1: del 1, getrange 1, strlen 1"},
		"release, taken":             {"v reads", Release(lockW, process, plain, noFence), "2: get 1, strlen 1"},
		"release, somebody waits":    {"waited for", Release(lockV, none, plain, noFence), "5: del 1, get 2, publish 1, strlen 3, time 1"},
		"shorten":                    {"held", Shorten(lockV, 1000, none, plain, noFence), "1: get 2, pexpire 1, pttl 1, strlen 2"},
		"shorten, as it is":          {"held", Shorten(lockV, ttl, none, plain, noFence), "1: get 1, pttl 1, strlen 1"},
		"shorten, quietly":           {"held", Shorten(lockV, 1000, none, quietly, noFence), "1: get 1, pexpire 1, pttl 1, strlen 1"},
		"names: enter":               {"", Enter(abc, ttl, noPlace, noFence), "0: set 3"},
		"names: enter, queued":       {"", Enter(abc, ttl, place, noFence), "[0 0 0 []]: get 6, pttl 3, set 6, strlen 6, time 1"},
		"names: enter, fenced":       {"", Enter(abc, ttl, noPlace, token(7)), "[0 7 1 []]: get 6, set 6, strlen 6"},
		"names: extend":              {"names", Extend(abc, 2*ttl, false), "1: get 3, pexpire 3, pttl 3, strlen 3"},
		"names: release":             {"names", release, "1: del 1, mget 1, strlen 6"},
		"names: release, missing":    {"", release, "0: get 6, strlen 10"},
		"names: release, quietly":    {"names", Release(abc, none, quietly, noFence), "1: del 1, mget 1, strlen 3"},
		"names: release, waits":      {"names, a row", release, "[1 [] [1]]: del 1, get 3, mget 1, publish 1, strlen 7, time 1"},
		"reader: enter":              {"", enters, "0: get 1, set 1, strlen 2, time 1"},
		"reader: enter beside":       {"v reads", EnterShared(lockW, ttl, noPlace, noFence), "0: get 2, set 1, strlen 2, time 1"},
		"reader: enter again":        {"v reads", enters, "-2: get 1, strlen 1, time 1"},
		"reader: enter blindly":      {"", EnterShared(lockV, ttl, Place{Blind: true}, noFence), "0: get 1, set 1, strlen 1, time 1"},
		"reader: enter, queued":      {"v reads", EnterShared(lockW, ttl, place, noFence), "0: get 2, pttl 1, set 2, strlen 2, time 1"},
		"reader: enter, fenced":      {"", EnterShared(lockV, ttl, noPlace, token(7)), "[0 7 1]: get 3, set 2, strlen 3, time 1"},
		"reader: extend":             {"v and w read", ExtendShared(lockV, 2*ttl, false), "1: get 1, set 1, strlen 1, time 1"},
		"reader: extend for less":    {"v and w read", ExtendShared(lockV, ttl/2, false), "1: get 1, strlen 1, time 1"},
		"reader: extend, missing":    {"", ExtendShared(lockV, ttl, false), "0: get 1, strlen 1"},
		"reader: downgrade":          {"held", Downgrade{}.Extend(lockV, ttl, false), "1: get 2, pttl 1, set 1, strlen 2, time 1"},
		"reader: valid":              {"v and w read", ValidShared(lockV), "1: get 1, strlen 1, time 1"},
		"reader: release":            {"v and w read", leavesOf("v"), "1: get 1, set 1, strlen 1, time 1"},
		"reader: release, the last":  {"v reads", leavesOf("v"), "1: del 1, get 1, strlen 2"},
		"permit: enter":              {"-, -, -, -", permit, "0: set 1"},
		"permit: the first is taken": {"-, w, -, -", permit, "1: exists 1, mget 1, set 2, strlen 4"},
		"permit: full":               {"w, w, w, w", permit, "[0 -1 [] []]: mget 1, set 1, strlen 4"},
		"permit: enter, a list":      {"-, a list, w, w", permit, "3: exists 3, mget 1, set 2, strlen 4"},
		"permit: enter, queued":      {"-, -, -, -", EnterPermits(four, "v", ttl, wants(1, 1), place), "[1 0 [0] [1 2 3]]: exists 1, get 1, mget 1, pttl 1, set 2, strlen 5, time 1"},
		"permit: release of all":     {"v, w, w, w", gives, "1: del 1, get 1, mget 1, strlen 5"},
		"permit: release of none":    {"w, w, w, w", gives, "0: mget 1, strlen 4"},
		"permit: others are free":    {"w, -, -, -", gives, "0: get 1, mget 1, strlen 5"},
		"permit: release, quietly":   {"v, w, w, w", ReleaseSlots(four, "v", 1, all, Slots{}, none, quietly), "1: del 1, mget 1, strlen 4"},
		"permit: release of one":     {"v, w, w, w", Release(slotsWith(four, "v", 0), none, plain, noFence), "1: del 1, getrange 1, strlen 1"},
	} {
		g.fills("-")
		if set := states[c.state]; set != nil {
			set()
		} else {
			g.fills(c.state)
		}
		g.do("config", "resetstat")
		reply := g.do(c.command.InFull()...)
		var executed []string
		for _, m := range calls.FindAllStringSubmatch(g.do("info", "commandstats").(string), -1) {
			if m[1] != "eval" && m[1] != "config" {
				executed = append(executed, m[1]+" "+m[2])
			}
		}
		slices.Sort(executed)
		assert.Equal(t, c.want, fmt.Sprint(reply, ": ", strings.Join(executed, ", ")), name)
	}
}
