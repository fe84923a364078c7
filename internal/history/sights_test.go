package history_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/internal/history"
)

// looks judges looks, and says that keys stand for 10 after the last thing that a client did.
var looks = history.Rules{Sights: history.Sights{Stands: 10, Since: 1}}

// owned makes events those of a client that has this label. If it holds, it is with the value v.
func owned(label, v string, events []history.Event) []history.Event {
	for i := range events {
		if events[i].Owner = label; events[i].Kind == history.Held {
			events[i].Value = v
		}
	}
	return events
}

// saw returns a look at a in the times [began, at], in which no node was silent.
func saw(began, at int, state string, holders ...history.Holder) []history.Event {
	return []history.Event{{
		At: time.Duration(at), Kind: history.Saw, Client: "o", Name: "a",
		Sight: &history.Sight{Began: time.Duration(began), State: state, Holders: holders},
	}}
}

// partly makes a look one in which some nodes were silent.
func partly(events []history.Event) []history.Event {
	events[0].Sight.Silent = 1
	return events
}

// knowing makes a look one at a semaphore that has n permits, as its client knows.
func knowing(n int, events []history.Event) []history.Event {
	events[0].Permits = n
	return events
}

func noQuorum(events []history.Event) []history.Event {
	events[0].Sight.NoQuorum = true
	return events
}

func refused(client string, at int) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Refused, Client: client, Err: "taken"}}
}

func called(client string, at int) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Call, Client: client, Name: "a"}}
}

// elsewhere makes the first event, a Call, that of a client of another process.
func elsewhere(events []history.Event) []history.Event {
	events[0].Process = "other"
	return events
}

func TestCheckOfLooks(t *testing.T) {
	const holder, owner, state, unexplained = "look names one that does not hold", "look names a wrong owner", "look contradicts a holder", "look cannot tell, without a reason"
	x := history.Holder{ID: "v", Owner: "x"}
	read := x
	read.Reads = true
	y := history.Holder{ID: "w", Owner: "y"}
	since := func(h history.Holder, at int) history.Holder {
		h.Since = time.Duration(at)
		return h
	}
	// x locks from 10 on, holds from 12 to 50 at most, and unlocks from 20 to 22.
	lock := owned("x", "v", term("x", 10, 12, 50, 0, 0))
	whole := slices.Concat(owned("x", "v", term("x", 10, 12, 50, 20, 0)), owned("x", "", unlocked("x", 22, "")))
	// y tries from 10 to 20, in vain.
	failed := owned("y", "", slices.Concat(called("y", 10), refused("y", 20)))
	joint := looks
	joint.Sights.Joint = true

	for name, c := range map[string]struct {
		logs  [][]history.Event
		rules history.Rules
		want  string
	}{
		"a holder":                                     {logs: [][]history.Event{whole, saw(13, 15, "held", x)}},
		"before Lock returns":                          {logs: [][]history.Event{whole, saw(8, 11, "held", x)}},
		"before Lock is called":                        {logs: [][]history.Event{whole, saw(8, 9, "held", x)}, want: holder},
		"while Unlock runs":                            {logs: [][]history.Event{whole, saw(21, 24, "held", x)}},
		"when Unlock returns":                          {logs: [][]history.Event{whole, saw(22, 24, "held", x)}},
		"after Unlock":                                 {logs: [][]history.Event{whole, saw(23, 24, "held", x)}, want: holder},
		"after Unlock, of a minimal hold":              {logs: [][]history.Event{keeping(15, slices.Clone(whole)), saw(35, 36, "held", x)}},
		"after Unlock, and after the minimal hold":     {logs: [][]history.Event{keeping(15, slices.Clone(whole)), saw(36, 37, "held", x)}, want: holder},
		"after an Unlock that has failed":              {logs: [][]history.Event{lock, unlocked("x", 22, "no quorum"), saw(60, 61, "held", x)}},
		"long after an Unlock that has failed":         {logs: [][]history.Event{lock, unlocked("x", 22, "no quorum"), saw(61, 62, "held", x)}, want: holder},
		"long after the client has crashed":            {logs: [][]history.Event{lock, saw(61, 62, "held", x)}, want: holder},
		"of the hold as it is extended":                {logs: [][]history.Event{lock, extended("x", 40, 60), saw(70, 71, "held", x)}},
		"nobody, of a name":                            {logs: [][]history.Event{whole, saw(13, 15, "held", x, y)}, want: state + " " + holder},
		"nobody":                                       {logs: [][]history.Event{saw(13, 15, "held", x)}, want: holder},
		"of another name":                              {logs: [][]history.Event{named("b", slices.Clone(whole)), saw(13, 15, "held", x)}, want: holder},
		"an attempt that fails":                        {logs: [][]history.Event{failed, saw(13, 15, "held", y)}},
		"an attempt that has failed":                   {logs: [][]history.Event{failed, saw(30, 31, "held", y)}},
		"an attempt that has failed long ago":          {logs: [][]history.Event{failed, saw(31, 32, "held", y)}, want: holder},
		"an attempt that never ends":                   {logs: [][]history.Event{owned("y", "", called("y", 10)), saw(99, 100, "held", y)}},
		"an attempt before the one that holds":         {logs: [][]history.Event{owned("y", "u", term("y", 10, 20, 90, 80, 0)), partly(saw(18, 21, "held", y))}},
		"long after, an attempt before the one":        {logs: [][]history.Event{owned("y", "u", term("y", 10, 20, 90, 80, 0)), unlocked("y", 82, ""), saw(83, 84, "held", y)}, want: holder},
		"when the attempt began":                       {logs: [][]history.Event{failed, saw(13, 15, "held", since(y, 9))}},
		"before any attempt began":                     {logs: [][]history.Event{failed, saw(13, 15, "held", since(y, 8))}, want: holder},
		"after all attempts":                           {logs: [][]history.Event{failed, saw(13, 15, "held", since(y, 22))}, want: holder},
		"another owner":                                {logs: [][]history.Event{whole, saw(13, 15, "held", history.Holder{ID: "v", Owner: "y"})}, want: owner},
		"no owner":                                     {logs: [][]history.Event{whole, saw(13, 15, "held", history.Holder{ID: "v"})}, want: owner},
		"an owner that nobody is":                      {logs: [][]history.Event{failed, saw(13, 15, "held", x)}, want: holder},
		"the owner of who has given the lock away":     {logs: [][]history.Event{lock, gave("x", 13), sharing("x", owned("z", "v", term("z", 13, 14, 50, 0, 0))), saw(15, 16, "held", x)}},
		"an adopted lock":                              {logs: [][]history.Event{whole, sharing("x", owned("z", "v", term("z", 13, 14, 50, 40, 0))), saw(30, 31, "held", x)}},
		"a lock that could not be adopted":             {logs: [][]history.Event{whole, sharing("x", slices.Concat(called("z", 13), refused("z", 30))), saw(40, 41, "held", x)}},
		"handed over to one that has given up":         {logs: [][]history.Event{whole, owned("x", "", slices.Concat(called("z", 13), refused("z", 30))), saw(40, 41, "held", x)}},
		"not handed over, as another one came later":   {logs: [][]history.Event{whole, owned("x", "", slices.Concat(called("z", 23), refused("z", 30))), saw(40, 41, "held", x)}, want: holder},
		"not handed over, as another one went earlier": {logs: [][]history.Event{owned("x", "", slices.Concat(called("z", 9), refused("z", 11))), owned("x", "v", term("x", 10, 12, 50, 13, 0)), unlocked("x", 14, ""), saw(15, 16, "held", x)}, want: holder},
		"a client that only adopts":                    {logs: [][]history.Event{whole, sharing("y", owned("x", "", slices.Concat(called("z", 23), refused("z", 30)))), saw(31, 32, "held", history.Holder{ID: "u", Owner: "x"})}, want: holder},
		"a client of a name that another one had":      {logs: [][]history.Event{whole, owned("x", "u", term("x", 30, 32, 50, 40, 0)), saw(31, 33, "held", history.Holder{ID: "u", Owner: "x"})}},
		"a reader beside a writer that is named":       {logs: [][]history.Event{whole, reading(slices.Clone(failed)), partly(saw(13, 15, "held", x, history.Holder{ID: "w", Owner: "y", Reads: true}))}, want: state},
		"permits, and the lock is held":                {logs: [][]history.Event{whole, knowing(3, saw(13, 15, "free"))}},
		"not handed over to another process":           {logs: [][]history.Event{whole, elsewhere(owned("x", "", slices.Concat(called("z", 13), refused("z", 30)))), saw(40, 41, "held", x)}, want: holder},
		"free":                                         {logs: [][]history.Event{whole, saw(23, 24, "free"), saw(8, 9, "free")}},
		"free while it is held":                        {logs: [][]history.Event{whole, saw(13, 15, "free")}, want: state},
		"free while it is held, with silent nodes":     {logs: [][]history.Event{whole, partly(saw(13, 15, "free"))}, want: state},
		"free when the hold begins":                    {logs: [][]history.Event{whole, saw(11, 15, "free")}},
		"free when the hold ends":                      {logs: [][]history.Event{whole, saw(19, 21, "free")}},
		"free after the last promise":                  {logs: [][]history.Event{lock, extended("x", 40, 60), saw(49, 50, "free")}, want: state},
		"free while it is extended":                    {logs: [][]history.Event{lock, extended("x", 40, 60), saw(39, 51, "free")}},
		"free after an extension":                      {logs: [][]history.Event{lock, extended("x", 40, 60), saw(41, 60, "free")}, want: state},
		"free while somebody holds that is not noted":  {logs: [][]history.Event{term("x", 10, 12, 50, 20, 0), saw(13, 15, "free")}},
		"somebody else":                                {logs: [][]history.Event{whole, failed, partly(saw(13, 15, "held", y))}, want: state},
		"somebody else, of joint sets":                 {logs: [][]history.Event{whole, failed, saw(13, 15, "held", x, y)}, rules: joint, want: state},
		"unknown, with silence of nobody":              {logs: [][]history.Event{whole, noQuorum(saw(13, 15, "unknown"))}, want: state},
		"unknown, of joint sets":                       {logs: [][]history.Event{whole, noQuorum(saw(13, 15, "unknown"))}, rules: joint},
		"free, of joint sets":                          {logs: [][]history.Event{whole, saw(13, 15, "free")}, rules: joint, want: state},
		"without the holder":                           {logs: [][]history.Event{reading(slices.Clone(whole)), failed, saw(13, 15, "held", y)}, want: state},
		"readers":                                      {logs: [][]history.Event{reading(slices.Clone(whole)), reading(owned("y", "w", term("y", 10, 12, 50, 20, 0))), saw(13, 15, "held", read, history.Holder{ID: "w", Owner: "y", Reads: true})}},
		"one of two readers, with silent nodes":        {logs: [][]history.Event{reading(slices.Clone(whole)), reading(owned("y", "w", term("y", 10, 12, 50, 20, 0))), partly(saw(13, 15, "held", read))}},
		"one of two readers":                           {logs: [][]history.Event{reading(slices.Clone(whole)), reading(owned("y", "w", term("y", 10, 12, 50, 20, 0))), saw(13, 15, "held", read)}, want: state},
		"a writer beside a reader":                     {logs: [][]history.Event{reading(slices.Clone(whole)), failed, saw(13, 15, "held", read, y)}, want: state},
		"a writer that reads":                          {logs: [][]history.Event{whole, saw(13, 15, "held", read)}, want: state},
		"a writer that has downgraded":                 {logs: [][]history.Event{lock, downgraded("x", 13), saw(14, 15, "held", read)}},
		"permits":                                      {logs: [][]history.Event{permit(1, 3, slices.Clone(lock)), permit(1, 3, owned("y", "w", term("y", 10, 12, 50, 20, 0))), knowing(3, saw(13, 15, "held", x, y))}},
		"permits, one of them":                         {logs: [][]history.Event{permit(1, 3, slices.Clone(lock)), permit(1, 3, owned("y", "w", term("y", 10, 12, 50, 20, 0))), knowing(3, saw(13, 15, "held", x))}, want: state},
		"permits beyond those that are known":          {logs: [][]history.Event{permit(1, 3, slices.Clone(lock)), knowing(2, saw(13, 15, "free"))}},
		"the lock, and permits are held":               {logs: [][]history.Event{permit(1, 3, slices.Clone(lock)), saw(13, 15, "free")}},
		"several names, and the last of them is free":  {logs: [][]history.Event{several(named("b", slices.Clone(whole)), "a"), saw(13, 15, "free")}, want: state},
		"several names, and the last of them is held":  {logs: [][]history.Event{several(named("b", slices.Clone(whole)), "a"), saw(13, 15, "held", x)}},
		"unknown": {logs: [][]history.Event{whole, noQuorum(partly(saw(13, 15, "unknown")))}},
		"unknown, with the value that only one node has": {logs: [][]history.Event{whole, noQuorum(partly(saw(13, 15, "unknown", y)))}, want: state + " " + holder},
		"unknown, without an error":                      {logs: [][]history.Event{whole, partly(saw(13, 15, "unknown"))}, want: unexplained},
		"not judged":                                     {logs: [][]history.Event{whole, saw(13, 15, "free", y)}, rules: history.Rules{LostSlop: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var broken []string
			rules := c.rules
			if rules.LostSlop == 0 && !rules.Sights.Joint {
				rules = looks
			}
			for _, v := range history.Check(history.Merge(c.logs...), rules) {
				broken = append(broken, v.Rule)
			}
			slices.Sort(broken)
			assert.Equal(t, c.want, strings.Join(broken, " "))
		})
	}
}
