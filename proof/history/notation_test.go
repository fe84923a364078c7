package history_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed14bd9ef4/redsync/proof/history"
)

// A row is a history, and the rules that it breaks.
type row struct{ name, history, broken string }

func judge(t *testing.T, rules history.Rules, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			var broken []string
			for _, v := range history.Check(parse(r.history), rules) {
				broken = append(broken, v.Rule)
			}
			slices.Sort(broken)
			assert.Equal(t, r.broken, strings.Join(broken, " "))
		})
	}
}

// shortcuts are parts of many histories.
var shortcuts = strings.NewReplacer(
	"$x", "x 10 12-31 #1 owner=x value=v expiry=20 hears observed",
	"$deaf", "x 10 12-31 #1 owner=x value=v expiry=20 observed",
	"$y", "y 15 22-60/50 owner=y value=w",
	"$held", "x 10 12-50 owner=x value=v",
	"$whole", "x 10 12-50/20 owner=x value=v; x unlocked 22 owner=x",
	"$failed", "y call 10 owner=y; y refused 20 owner=y",
)

// parse reads a history: what clients did and what was seen, separated by semicolons, with the fields of history.Event as options.
//
//	x 1 2-9/5 #7 reads    client x calls Lock at 1 and holds from 2 until 9 with token 7, but calls Unlock at 5; it reads
//	x extended 5-19       an event of that kind at 5, with an Until of 19
//	x lost 12 told        the client was told of the loss, and so was an observer
//	o force 20-22 value=v a ForceUnlock from 20 to 22
//	o saw 13-15 held v:x  a look that shows the value v of the owner x; v:x@9! is one that reads since 9
//	x waits 100-200       the client waits on five nodes, and gets nothing
//	ails 120-150 nodes=01 these nodes do not serve a process, or answer late
func parse(text string) (all []history.Event) {
	for clause := range strings.SplitSeq(shortcuts.Replace(text), "; ") {
		if words := strings.Fields(clause); len(words) > 0 {
			all = append(all, eventsOfClause(words)...)
		}
	}
	return history.Merge(all)
}

func eventsOfClause(words []string) (events []history.Event) {
	var from, to, unlock int
	add := func(kind history.Kind, at int, name string) *history.Event {
		events = append(events, history.Event{At: time.Duration(at), Kind: kind, Client: words[0], Name: name})
		return &events[len(events)-1]
	}
	if words[0] == "key" || words[0] == "ails" || words[0] == "left" {
		words = append([]string{""}, words...)
	}
	_, _ = fmt.Sscanf(words[2], "%d-%d/%d", &from, &to, &unlock)
	switch kind := history.Kind(words[1]); kind {
	case "force":
		add(history.Forcing, from, "a")
		add(history.Forced, to, "a")
	case history.Saw:
		add(kind, to, "a").Sight = &history.Sight{Began: time.Duration(from), State: words[3]}
		words = words[1:]
	case history.Waits:
		add(kind, from, "a").Wait = &history.Waiting{Process: "p", Sets: [][]int{{0, 1, 2, 3, 4}}, Deadline: 20}
		if to != 0 {
			add(history.Refused, to, "a")
		}
	case history.Ails:
		add(kind, from, "")
		add(kind, to, "").Ends = true
	case history.Call, history.Unlock:
		add(kind, from, "a")
	case history.Extended:
		add(kind, from, "").Until = time.Duration(to)
	case history.Left:
		add(kind, from, "a").Until = time.Duration(to)
	default:
		if kind[0] <= '9' {
			add(history.Call, int(number(words[1])), "a")
			add(history.Held, from, "a").Until = time.Duration(to)
			if unlock != 0 {
				add(history.Unlock, unlock, "a")
			}
			break
		}
		add(kind, from, "")
	}
	for _, word := range words[3:] {
		events = with(events, word)
	}
	return events
}

// with gives an option to events.
func with(events []history.Event, option string) (all []history.Event) {
	field, value, _ := strings.Cut(option, "=")
	if field[0] == '#' {
		field, value = "token", field[1:]
	}
	known := false
	for _, e := range events {
		switch id, holder, looked := strings.Cut(option, ":"); {
		case field == "told":
			all = append(all, e)
			e.Kind, e.Paused = history.Told, false
		case field == "more":
			e.More = strings.Split(value, ",")
		case field == "shares":
			e.Shares = history.Event{Client: value}.ID()
		case field == "joint" && e.Wait != nil:
			e.Wait.Sets = [][]int{{0, 1, 2}, {2, 3, 4}}
		case field == "nodes":
			for _, node := range value[1:] {
				e.Node = int(node - '0')
				all = append(all, e)
			}
			e.Node = int(value[0] - '0')
		case field == "until" && e.Kind != history.Held:
		case looked && e.Sight != nil:
			h := history.Holder{ID: id, Reads: strings.HasSuffix(holder, "!")}
			h.Owner, holder, _ = strings.Cut(strings.TrimSuffix(holder, "!"), "@")
			h.Since = time.Duration(number(holder))
			e.Sight.Holders = append(e.Sight.Holders, h)
		default:
			known = set(field, value, &e, e.Sight, e.Wait) || known
			all = append(all, e)
			continue
		}
		known, all = true, append(all, e)
	}
	if !known {
		panic("no event has a field " + option)
	}
	return all
}

// set sets a field of each part that has it, and reports whether one has.
func set(field, value string, parts ...any) (has bool) {
	for _, part := range parts {
		if v := reflect.ValueOf(part).Elem(); v.IsValid() {
			f := v.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, field) })
			has = has || f.IsValid()
			switch {
			case !f.IsValid():
			case f.Kind() == reflect.Bool:
				f.SetBool(true)
			case f.Kind() == reflect.String:
				f.SetString(value)
			case f.CanUint():
				f.SetUint(uint64(number(value)))
			default:
				f.SetInt(number(cmp.Or(value, "1")))
			}
		}
	}
	return has
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
