package history_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/history"
)

// term returns the events of a term. Its arguments are the times at which Lock was called and
// returned, the promised Until, and the time at which Unlock was called (0: never).
func term(client string, called, held, until, unlock int, token uint64) []history.Event {
	events := []history.Event{
		{At: time.Duration(called), Kind: history.Call, Client: client, Name: "a"},
		{At: time.Duration(held), Kind: history.Held, Client: client, Name: "a", Until: time.Duration(until), Token: token},
	}
	if unlock != 0 {
		events = append(events, history.Event{At: time.Duration(unlock), Kind: history.Unlock, Client: client, Name: "a"})
	}
	return events
}

// several makes events those of a lock that has more names than "a".
func several(events []history.Event, more ...string) []history.Event {
	for i := range events {
		events[i].More = more
	}
	return events
}

// named gives events another name than "a".
func named(name string, events []history.Event) []history.Event {
	for i := range events {
		events[i].Name = name
	}
	return events
}

// sharing makes events those of terms that share the hold of a client.
func sharing(whose string, events []history.Event) []history.Event {
	for i := range events {
		events[i].Shares = history.Event{Client: whose}.ID()
	}
	return events
}

// reading makes events those of a reader.
func reading(events []history.Event) []history.Event {
	for i := range events {
		events[i].Reads = true
	}
	return events
}

// permit makes events those of a client that holds so many of n permits.
func permit(weight, n int, events []history.Event) []history.Event {
	for i := range events {
		events[i].Permits, events[i].Weight = n, weight
	}
	return events
}

// keeping makes events those of a client that keeps the lock for a time from Call on.
func keeping(keeps int, events []history.Event) []history.Event {
	for i := range events {
		events[i].Keeps = time.Duration(keeps)
	}
	return events
}

// leading makes events those of a leader. It leads within a function.
func leading(events []history.Event) []history.Event {
	for i := range events {
		events[i].Leads = true
	}
	return within(events)
}

// within makes events those of a client that holds a lock within a function.
func within(events []history.Event) []history.Event {
	for i := range events {
		events[i].Within = true
	}
	return events
}

func downgraded(client string, at int) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Downgrade, Client: client}}
}

func gave(client string, at int) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Gave, Client: client}}
}

func unlocked(client string, at int, err string) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Unlocked, Client: client, Err: err}}
}

func extended(client string, at, until int) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Extended, Client: client, Until: time.Duration(until)}}
}

func lost(client string, at int, paused bool) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Lost, Client: client, Paused: paused}}
}

func key(name string, at, ttl int) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Key, Name: name, Key: name, TTL: time.Duration(ttl)}}
}

func side(key string, at, ttl int) []history.Event {
	return []history.Event{{At: time.Duration(at), Kind: history.Key, Key: key, TTL: time.Duration(ttl)}}
}

func on(node int, events []history.Event) []history.Event {
	for i := range events {
		events[i].Node = node
	}
	return events
}

// set returns the events of a look at a node that has a value at some names.
func set(at int, value string, names ...string) (events []history.Event) {
	for _, name := range names {
		events = append(events, history.Event{At: time.Duration(at), Kind: history.Key, Name: name, Key: name, Value: value})
	}
	return events
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		logs  [][]history.Event
		rules history.Rules
		want  string // the rules that are broken
	}{
		"nothing":                                                  {},
		"one after the other":                                      {logs: [][]history.Event{term("x", 1, 2, 9, 5, 0), term("y", 1, 5, 9, 0, 0)}},
		"two at once":                                              {logs: [][]history.Event{term("x", 1, 2, 9, 6, 0), term("y", 1, 5, 9, 0, 0)}, want: "exclusion"},
		"after Until":                                              {logs: [][]history.Event{term("x", 1, 2, 9, 20, 0), term("y", 1, 9, 15, 0, 0)}},
		"before Until":                                             {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), term("y", 1, 8, 15, 0, 0)}, want: "exclusion"},
		"of no use from the start":                                 {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), term("y", 1, 8, 7, 0, 0)}},
		"behind a short one":                                       {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), term("y", 1, 3, 4, 0, 0), term("z", 1, 5, 6, 0, 0)}, want: "exclusion exclusion"},
		"extended":                                                 {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), extended("x", 5, 19), term("y", 1, 12, 15, 0, 0)}, want: "exclusion"},
		"extended to less":                                         {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), extended("x", 5, 7), term("y", 1, 8, 15, 0, 0)}},
		"extended too late":                                        {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), extended("x", 10, 19), term("y", 1, 12, 15, 0, 0)}, want: "exclusion"},
		"extended too late, alone":                                 {logs: [][]history.Event{term("x", 1, 2, 9, 0, 7), extended("x", 10, 19)}},
		"extended after Unlock":                                    {logs: [][]history.Event{term("x", 1, 2, 9, 5, 0), extended("x", 6, 19), term("y", 1, 12, 15, 0, 0)}},
		"extended after a loss":                                    {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), lost("x", 5, false), extended("x", 6, 19), term("y", 1, 12, 15, 0, 0)}},
		"lost before":                                              {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), lost("x", 5, false), term("y", 1, 5, 9, 0, 0)}},
		"lost after":                                               {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), lost("x", 12, false), term("y", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}, want: "loss told too late"},
		"lost after, within bounds":                                {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), lost("x", 11, false), term("y", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}},
		"lost after a pause":                                       {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), lost("x", 12, true), term("y", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}},
		"tokens rise":                                              {logs: [][]history.Event{term("x", 1, 2, 3, 0, 7), term("y", 4, 5, 6, 0, 8)}},
		"tokens fall":                                              {logs: [][]history.Event{term("x", 1, 2, 3, 0, 7), term("y", 4, 5, 6, 0, 6)}, want: "token order"},
		"tokens fall, at once":                                     {logs: [][]history.Event{term("x", 1, 3, 4, 0, 7), term("y", 2, 5, 6, 0, 6)}},
		"a token twice":                                            {logs: [][]history.Event{term("x", 1, 3, 4, 0, 7), term("y", 2, 5, 6, 0, 7)}, want: "token used twice"},
		"below one of long before":                                 {logs: [][]history.Event{term("x", 1, 2, 3, 0, 9), term("y", 1, 4, 5, 0, 5), term("z", 6, 7, 8, 0, 7)}, want: "token order"},
		"none beside tokens":                                       {logs: [][]history.Event{term("x", 1, 2, 3, 0, 9), term("y", 4, 5, 6, 0, 0)}},
		"shared":                                                   {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), sharing("x", term("y", 3, 4, 12, 0, 0)), sharing("x", term("z", 3, 5, 8, 0, 0))}},
		"shared, and another":                                      {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), sharing("x", term("y", 3, 4, 12, 0, 0)), term("z", 3, 10, 15, 0, 0)}, want: "exclusion"},
		"shared, between two others":                               {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), term("y", 1, 3, 8, 0, 0), sharing("x", term("z", 1, 4, 5, 0, 0))}, want: "exclusion exclusion"},
		"several names, and the first of them":                     {logs: [][]history.Event{several(term("x", 1, 2, 9, 0, 0), "b", "c"), term("y", 1, 5, 6, 0, 0)}, want: "exclusion"},
		"several names, and the last of them":                      {logs: [][]history.Event{several(term("x", 1, 2, 9, 0, 0), "b", "c"), named("c", term("y", 1, 5, 6, 0, 0))}, want: "exclusion"},
		"several names, and another one":                           {logs: [][]history.Event{several(term("x", 1, 2, 9, 0, 0), "b", "c"), named("d", term("y", 1, 5, 6, 0, 0))}},
		"several names after each other":                           {logs: [][]history.Event{several(term("x", 1, 2, 9, 4, 0), "b"), named("b", term("y", 1, 5, 6, 0, 0)), several(named("b", term("z", 1, 6, 9, 0, 0)), "c")}},
		"several names twice, two in common":                       {logs: [][]history.Event{several(term("x", 1, 2, 9, 0, 0), "b", "c"), several(named("c", term("y", 1, 5, 6, 0, 0)), "b", "d")}, want: "exclusion exclusion"},
		"several names, extended":                                  {logs: [][]history.Event{several(term("x", 1, 2, 9, 0, 0), "b"), extended("x", 5, 19), named("b", term("y", 1, 12, 15, 0, 0))}, want: "exclusion"},
		"several names, unlocked":                                  {logs: [][]history.Event{several(term("x", 1, 2, 9, 5, 0), "b"), unlocked("x", 6, ""), named("b", term("y", 1, 5, 15, 0, 0))}},
		"several names, lost after":                                {logs: [][]history.Event{several(term("x", 1, 2, 9, 0, 0), "b"), lost("x", 12, false), named("b", term("y", 1, 9, 15, 0, 0))}, rules: history.Rules{LostSlop: 2}, want: "loss told too late"},
		"tokens of several names rise":                             {logs: [][]history.Event{term("x", 1, 2, 3, 0, 7), several(term("y", 4, 5, 6, 0, 8), "b"), named("b", term("z", 7, 8, 9, 0, 9))}},
		"tokens of several names fall":                             {logs: [][]history.Event{named("b", term("x", 1, 2, 3, 0, 7)), several(term("y", 4, 5, 6, 0, 6), "b", "c")}, want: "token order"},
		"a token of several names twice":                           {logs: [][]history.Event{several(term("x", 1, 3, 4, 0, 7), "b"), named("b", term("y", 2, 5, 6, 0, 7))}, want: "token used twice"},
		"readers at once":                                          {logs: [][]history.Event{reading(term("x", 1, 2, 9, 0, 0)), reading(term("y", 1, 3, 8, 0, 0)), reading(term("z", 1, 4, 12, 0, 0))}},
		"a reader beside a writer":                                 {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), reading(term("y", 1, 8, 15, 0, 0))}, want: "exclusion"},
		"a writer beside a reader":                                 {logs: [][]history.Event{reading(term("x", 1, 2, 9, 0, 0)), term("y", 1, 8, 15, 0, 0)}, want: "exclusion"},
		"a writer behind a short reader":                           {logs: [][]history.Event{reading(term("x", 1, 2, 9, 0, 0)), reading(term("y", 1, 3, 4, 0, 0)), term("z", 1, 8, 15, 0, 0)}, want: "exclusion"},
		"a reader behind a short reader":                           {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), reading(term("y", 1, 9, 20, 0, 0)), reading(term("z", 1, 10, 15, 0, 0))}},
		"a writer for long, and two readers":                       {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), reading(term("y", 1, 3, 20, 0, 0)), reading(term("z", 1, 8, 15, 0, 0))}, want: "exclusion exclusion"},
		"several names, and a reader of one":                       {logs: [][]history.Event{several(term("x", 1, 2, 9, 0, 0), "b"), named("b", reading(term("y", 1, 3, 20, 0, 0)))}, want: "exclusion"},
		"downgraded, and then a reader":                            {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), downgraded("x", 3), reading(term("y", 1, 3, 20, 0, 0))}},
		"downgraded, and before a reader":                          {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), downgraded("x", 4), reading(term("y", 1, 3, 20, 0, 0))}, want: "exclusion"},
		"downgraded, and a writer":                                 {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), downgraded("x", 4), term("y", 1, 5, 20, 0, 0)}, want: "exclusion"},
		"downgraded, extended, and a writer":                       {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), downgraded("x", 4), extended("x", 5, 19), term("y", 1, 18, 20, 0, 0)}, want: "exclusion"},
		"downgraded and unlocked":                                  {logs: [][]history.Event{term("x", 1, 2, 9, 6, 0), downgraded("x", 4), term("y", 1, 6, 20, 0, 0)}},
		"downgraded after Unlock":                                  {logs: [][]history.Event{term("x", 1, 2, 9, 3, 0), downgraded("x", 4), term("y", 1, 5, 20, 0, 0)}},
		"downgraded too late":                                      {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), downgraded("x", 10), term("y", 1, 11, 13, 0, 0)}},
		"downgraded and extended too late":                         {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), downgraded("x", 10), extended("x", 12, 19), reading(term("y", 1, 11, 14, 0, 0)), term("z", 1, 18, 20, 0, 0)}, want: "exclusion"},
		"tokens of readers, in any order":                          {logs: [][]history.Event{reading(term("x", 1, 2, 3, 0, 7)), reading(term("y", 4, 5, 6, 0, 6)), term("z", 7, 8, 9, 0, 8)}},
		"a reader's below a writer's":                              {logs: [][]history.Event{term("x", 1, 2, 3, 0, 7), reading(term("y", 4, 5, 6, 0, 6))}, want: "token order"},
		"a writer's below a reader's":                              {logs: [][]history.Event{reading(term("x", 1, 2, 3, 0, 7)), term("y", 4, 5, 6, 0, 6)}, want: "token order"},
		"a reader's below one of long before":                      {logs: [][]history.Event{term("x", 1, 2, 3, 0, 7), reading(term("y", 4, 5, 6, 0, 9)), reading(term("z", 7, 8, 9, 0, 6))}, want: "token order"},
		"a reader's token twice":                                   {logs: [][]history.Event{reading(term("x", 1, 3, 4, 0, 7)), reading(term("y", 2, 5, 6, 0, 7))}, want: "token used twice"},
		"a reader lost after the next reader":                      {logs: [][]history.Event{reading(term("x", 1, 2, 9, 0, 0)), lost("x", 12, false), reading(term("y", 1, 9, 15, 0, 0))}, rules: history.Rules{LostSlop: 2}},
		"a reader lost after a writer":                             {logs: [][]history.Event{reading(term("x", 1, 2, 9, 0, 0)), lost("x", 12, false), reading(term("y", 1, 8, 9, 0, 0)), term("z", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}, want: "loss told too late"},
		"as many permits as there are":                             {logs: [][]history.Event{permit(0, 2, term("x", 1, 2, 9, 0, 0)), permit(1, 2, term("y", 1, 3, 8, 0, 0)), permit(1, 2, term("z", 1, 8, 12, 0, 0))}},
		"a permit too many":                                        {logs: [][]history.Event{permit(1, 2, term("x", 1, 2, 9, 0, 0)), permit(1, 2, term("y", 1, 3, 8, 0, 0)), permit(1, 2, term("z", 1, 7, 12, 0, 0))}, want: "more permits held than there are"},
		"a crashed holder's permit":                                {logs: [][]history.Event{permit(1, 1, term("x", 1, 2, 9, 0, 0)), permit(1, 1, term("y", 1, 9, 12, 0, 0))}},
		"a crashed holder's permit, too early":                     {logs: [][]history.Event{permit(1, 1, term("x", 1, 2, 9, 0, 0)), permit(1, 1, term("y", 1, 8, 12, 0, 0))}, want: "more permits held than there are"},
		"an extended permit":                                       {logs: [][]history.Event{permit(1, 1, term("x", 1, 2, 9, 0, 0)), extended("x", 8, 15), permit(1, 1, term("y", 1, 9, 12, 0, 0))}, want: "more permits held than there are"},
		"a permit given back":                                      {logs: [][]history.Event{permit(1, 1, term("x", 1, 2, 9, 5, 0)), permit(1, 1, term("y", 1, 5, 12, 0, 0))}},
		"weights":                                                  {logs: [][]history.Event{permit(3, 5, term("x", 1, 2, 9, 0, 0)), permit(2, 5, term("y", 1, 3, 8, 0, 0))}},
		"weights, a permit too many":                               {logs: [][]history.Event{permit(3, 5, term("x", 1, 2, 9, 0, 0)), permit(3, 5, term("y", 1, 3, 8, 0, 0))}, want: "more permits held than there are"},
		"a weight beyond all permits":                              {logs: [][]history.Event{permit(3, 2, term("x", 1, 2, 9, 0, 0))}, want: "more permits held than there are"},
		"permits, and the lock of the name":                        {logs: [][]history.Event{permit(1, 1, term("x", 1, 2, 9, 0, 0)), term("y", 1, 3, 8, 0, 0)}},
		"permits of two names":                                     {logs: [][]history.Event{permit(1, 1, term("x", 1, 2, 9, 0, 0)), named("b", permit(1, 1, term("y", 1, 3, 8, 0, 0)))}},
		"a permit of two clients":                                  {logs: [][]history.Event{permit(2, 3, term("x", 1, 2, 9, 0, 0)), sharing("x", permit(2, 3, term("y", 3, 4, 12, 0, 0))), permit(1, 3, term("z", 3, 5, 8, 0, 0))}},
		"more of one number, and fewer":                            {logs: [][]history.Event{permit(1, 3, term("x", 1, 2, 9, 0, 0)), permit(1, 1, term("y", 1, 3, 8, 0, 0)), permit(1, 3, term("z", 1, 4, 8, 0, 0))}},
		"more of one number, and too many":                         {logs: [][]history.Event{permit(1, 3, term("x", 1, 2, 9, 0, 0)), permit(1, 1, term("y", 1, 3, 8, 0, 0)), permit(2, 3, term("z", 1, 4, 8, 0, 0))}, want: "more permits held than there are"},
		"too many of those who know of few":                        {logs: [][]history.Event{permit(1, 1, term("x", 1, 2, 9, 0, 0)), permit(1, 4, term("y", 1, 3, 8, 0, 0)), permit(1, 1, term("z", 1, 4, 8, 0, 0))}, want: "more permits held than there are"},
		"too many, found by who knows of most":                     {logs: [][]history.Event{permit(1, 2, term("x", 1, 2, 9, 0, 0)), permit(2, 3, term("y", 1, 3, 8, 0, 0)), permit(1, 1, term("z", 1, 4, 8, 0, 0))}, want: "more permits held than there are"},
		"fewer permits when one has ended":                         {logs: [][]history.Event{permit(1, 2, term("x", 1, 2, 4, 0, 0)), permit(1, 2, term("y", 1, 3, 9, 0, 0)), permit(1, 1, term("z", 1, 4, 8, 0, 0))}},
		"a permit lost after the next":                             {logs: [][]history.Event{permit(1, 1, term("x", 1, 2, 9, 0, 0)), lost("x", 12, false), permit(1, 1, term("y", 1, 9, 15, 0, 0))}, rules: history.Rules{LostSlop: 2}, want: "loss told too late"},
		"a permit lost after others":                               {logs: [][]history.Event{permit(1, 2, term("x", 1, 2, 9, 0, 0)), lost("x", 12, false), permit(1, 2, term("y", 1, 9, 15, 0, 0))}, rules: history.Rules{LostSlop: 2}},
		"a permit lost after the last":                             {logs: [][]history.Event{permit(1, 2, term("x", 1, 2, 9, 0, 0)), lost("x", 13, false), permit(1, 2, term("y", 1, 9, 15, 0, 0)), permit(1, 2, term("z", 1, 10, 15, 0, 0))}, rules: history.Rules{LostSlop: 2}, want: "loss told too late"},
		"a permit lost after the last, within bounds":              {logs: [][]history.Event{permit(1, 2, term("x", 1, 2, 9, 0, 0)), lost("x", 12, false), permit(1, 2, term("y", 1, 9, 15, 0, 0)), permit(1, 2, term("z", 1, 10, 15, 0, 0))}, rules: history.Rules{LostSlop: 2}},
		"given away":                                               {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), gave("x", 3), extended("x", 4, 20), sharing("x", term("y", 3, 4, 7, 0, 0)), term("z", 3, 8, 15, 0, 0)}},
		"given away, and another":                                  {logs: [][]history.Event{term("x", 1, 2, 9, 0, 0), gave("x", 3), sharing("x", term("y", 3, 4, 7, 0, 0)), term("z", 3, 6, 15, 0, 0)}, want: "exclusion"},
		"shared, and unlocked by one":                              {logs: [][]history.Event{term("x", 1, 2, 9, 5, 0), sharing("x", term("y", 3, 4, 12, 0, 0)), extended("y", 6, 20), lost("y", 12, false), term("z", 3, 7, 15, 0, 0)}, rules: history.Rules{LostSlop: 1}},
		"adopted while it is unlocked":                             {logs: [][]history.Event{term("x", 1, 2, 9, 5, 0), unlocked("x", 8, ""), sharing("x", term("y", 6, 7, 12, 0, 0)), term("z", 3, 9, 15, 0, 0)}},
		"adopted, of an Unlock that has failed":                    {logs: [][]history.Event{term("x", 1, 2, 9, 5, 0), unlocked("x", 6, "no quorum"), sharing("x", term("y", 7, 8, 12, 0, 0)), term("z", 3, 9, 15, 0, 0)}},
		"adopted while it is unlocked, before the end of the next": {logs: [][]history.Event{term("x", 1, 2, 9, 5, 0), unlocked("x", 6, ""), sharing("x", term("y", 5, 8, 15, 0, 0)), term("z", 3, 7, 12, 0, 0), lost("z", 12, false)}, rules: history.Rules{LostSlop: 1}},
		"adopted when it was unlocked":                             {logs: [][]history.Event{term("x", 1, 2, 9, 5, 0), unlocked("x", 6, ""), sharing("x", term("y", 7, 8, 12, 0, 0)), term("z", 3, 9, 15, 0, 0)}, want: "exclusion"},
		"kept, and another in time":                                {logs: [][]history.Event{keeping(20, term("x", 1, 2, 9, 5, 0)), term("y", 19, 21, 30, 0, 0)}},
		"kept, and another too soon":                               {logs: [][]history.Event{keeping(20, term("x", 1, 2, 9, 5, 0)), term("y", 12, 20, 30, 0, 0)}, want: "begun too soon"},
		"kept after the expiry, and another too soon":              {logs: [][]history.Event{keeping(20, term("x", 1, 2, 9, 0, 0)), term("y", 12, 20, 30, 0, 0)}, want: "begun too soon"},
		"kept for longer by the one before":                        {logs: [][]history.Event{keeping(20, term("x", 1, 2, 9, 5, 0)), keeping(2, term("y", 21, 22, 30, 23, 0)), term("z", 21, 24, 30, 0, 0)}},
		"kept, and a term that was over when it began":             {logs: [][]history.Event{keeping(20, term("x", 1, 2, 9, 5, 0)), term("y", 12, 20, 20, 0, 0)}},
		"kept, and shared too soon":                                {logs: [][]history.Event{keeping(20, term("x", 1, 2, 9, 0, 0)), sharing("x", term("y", 12, 14, 30, 0, 0))}},
		"kept, and another name":                                   {logs: [][]history.Event{keeping(20, term("x", 1, 2, 9, 5, 0)), named("b", term("y", 12, 14, 30, 0, 0))}},
		"leaders one after the other":                              {logs: [][]history.Event{leading(term("x", 1, 2, 9, 5, 7)), leading(term("y", 1, 5, 9, 0, 8))}, rules: history.Rules{LostSlop: 1}},
		"leaders at once":                                          {logs: [][]history.Event{leading(term("x", 1, 2, 9, 0, 7)), leading(term("y", 1, 5, 9, 0, 8))}, want: "exclusion"},
		"a leader's term that goes back":                           {logs: [][]history.Event{leading(term("x", 1, 2, 4, 0, 7)), leading(term("y", 1, 5, 9, 0, 6))}, want: "leader's term out of order"},
		"a leader's term that repeats":                             {logs: [][]history.Event{leading(term("x", 1, 2, 4, 0, 7)), leading(term("y", 1, 5, 9, 0, 7))}, want: "leader's term out of order token used twice"},
		"leaders without terms":                                    {logs: [][]history.Event{leading(term("x", 1, 2, 4, 0, 0)), leading(term("y", 1, 5, 9, 0, 0))}, want: "leader's term out of order"},
		"a leader, and one that locks":                             {logs: [][]history.Event{leading(term("x", 1, 2, 4, 0, 7)), term("y", 1, 5, 9, 0, 6)}},
		"a leader's term that goes on":                             {logs: [][]history.Event{leading(term("x", 1, 2, 4, 0, 7)), extended("x", 5, 8), leading(term("y", 1, 8, 9, 0, 8))}},
		"a leader's term of no use":                                {logs: [][]history.Event{leading(term("x", 1, 2, 4, 0, 7)), leading(term("y", 1, 5, 5, 0, 6))}},
		"a function that ends after the next hold begins":          {logs: [][]history.Event{within(term("x", 1, 2, 9, 12, 0)), term("y", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}, want: "loss told too late"},
		"a function that ends after a pause":                       {logs: [][]history.Event{within(term("x", 1, 2, 9, 0, 0)), {{At: 12, Kind: history.Unlock, Client: "x", Paused: true}}, term("y", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}},
		"a function that ends in time":                             {logs: [][]history.Event{within(term("x", 1, 2, 9, 11, 0)), term("y", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}},
		"a context that ends before the function":                  {logs: [][]history.Event{within(term("x", 1, 2, 9, 14, 0)), lost("x", 9, false), term("y", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}},
		"a joined function that goes on for too long":              {logs: [][]history.Event{within(term("x", 1, 2, 9, 0, 0)), gave("x", 3), sharing("x", within(term("y", 2, 3, 9, 0, 0))), gave("y", 12), term("z", 1, 9, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}, want: "loss told too late"},
		"a joined function, and another hold":                      {logs: [][]history.Event{within(term("x", 1, 2, 9, 0, 0)), gave("x", 3), sharing("x", within(term("y", 2, 3, 9, 0, 0))), gave("y", 7), term("z", 1, 6, 15, 0, 0)}, rules: history.Rules{LostSlop: 2}, want: "exclusion"},
		"a key for ever":                                           {logs: [][]history.Event{key("", 1, -1)}, want: "key without a TTL"},
		"a key for long":                                           {logs: [][]history.Event{key("a", 1, 8)}, rules: history.Rules{MaxTTL: 7}, want: "key with too long a TTL"},
		"a key for as long as it may":                              {logs: [][]history.Event{key("a", 1, 7), key("", 1, 100)}, rules: history.Rules{MaxTTL: 7}},
		"a key beside a lock for long": {logs: [][]history.Event{side("{a}:queue", 1, 8), side("{a}:fence", 2, 9)}, rules: history.Rules{
			MaxTTL: 1, MaxSideTTL: map[string]time.Duration{":queue": 7, ":fence": 9},
		}, want: "key with too long a TTL"},
		"a key whose node's clock was set back": {logs: [][]history.Event{key("a", 1, 8), on(1, key("a", 1, 8)), on(1, key("a", 2, 9))}, rules: history.Rules{
			MaxTTL: 7, SetBack: map[int]time.Duration{1: 1},
		}, want: "key with too long a TTL key with too long a TTL"},
		"a promise that the client saw broken": {logs: [][]history.Event{{{At: 1, Kind: history.Broken, Client: "x", Name: "a"}}}, want: "promise to a client"},
		"a key left behind":                    {logs: [][]history.Event{key("a", 5, 7), key("a", 9, 3)}, rules: history.Rules{Settled: 8}, want: "key left behind"},
		"a ticket left behind": {logs: [][]history.Event{side("{a}:queue", 5, 7), side("{a}:queue", 9, 3), side("{a}:fence", 9, 3)}, rules: history.Rules{
			Settled: 8, Gone: []string{":queue"},
		}, want: "key left behind"},
		"left behind on a node that clients have left": {logs: [][]history.Event{
			on(1, key("a", 5, 7)), on(2, key("a", 6, 7)), on(1, key("a", 6, 7)), on(1, side("{a}:queue", 7, 2)),
		}, rules: history.Rules{
			Settled: 8, SettledOn: map[int]time.Duration{1: 5}, Gone: []string{":queue"},
		}, want: "key left behind key left behind"},
		"set on two names":                          {logs: [][]history.Event{set(1, "v", "a", "b"), on(1, set(1, "v", "a", "b")), set(2, "v", "b", "a"), set(3, "w", "a")}},
		"set on one of two names":                   {logs: [][]history.Event{set(1, "v", "a", "b"), on(1, set(1, "v", "b"))}, want: "lock set in part"},
		"set on one of two names, and then on both": {logs: [][]history.Event{set(1, "v", "a"), set(2, "v", "a", "b")}, want: "lock set in part"},
		"set on one of two names for a while":       {logs: [][]history.Event{set(1, "v", "a", "b"), set(2, "v", "a"), set(3, "v", "a", "b")}, want: "lock set in part"},
		"keys of which nobody knows the values":     {logs: [][]history.Event{set(1, "", "a", "b"), set(2, "", "b")}},
	} {
		t.Run(name, func(t *testing.T) {
			var broken []string
			for _, v := range history.Check(history.Merge(c.logs...), c.rules) {
				broken = append(broken, v.Rule)
			}
			assert.Equal(t, c.want, strings.Join(broken, " "))
		})
	}
}

func TestOtherNamesAndTermsDoNotMeet(t *testing.T) {
	other := term("y", 1, 5, 9, 0, 3)
	for i := range other {
		other[i].Name = "b"
	}
	again := term("x", 10, 11, 15, 0, 5)
	for i := range again {
		again[i].Term = 1
	}
	events := history.Merge(term("x", 1, 2, 9, 0, 4), other, again)
	assert.Empty(t, history.Check(events, history.Rules{}))
	assert.Len(t, history.Terms(events), 3)
}

func TestSeveralNamesAreOneTerm(t *testing.T) {
	terms := history.Terms(several(term("x", 1, 2, 9, 5, 7), "b", "c"))
	require.Len(t, terms, 1)
	for _, name := range []string{"a", "b", "c"} {
		assert.True(t, terms[0].Of(name), name)
	}
	assert.False(t, terms[0].Of("d"))
}

func TestLogIsReadAsItWasWritten(t *testing.T) {
	var b bytes.Buffer
	log, kept := history.NewLog(&b), &history.Log{}
	want := append(several(term("x", 1, 2, 9, 5, 7), "b"), key("a", 3, -1)...)
	want = append(want, permit(2, 3, term("y", 4, 5, 9, 6, 0))...)
	for _, e := range want {
		log.Note(e)
		kept.Note(e)
	}
	looked := set(10, "v", "a", "b")
	for _, e := range looked {
		log.Note(e)
		kept.Note(e)
	}
	want = append(want, looked...)
	looker := saw(11, 12, "held", history.Holder{ID: "v", Owner: "x", Since: 3, Reads: true})[0]
	log.Note(looker)
	kept.Note(looker)
	want = append(want, looker)
	require.NoError(t, log.Err())
	got, err := history.Read(strings.NewReader(b.String() + `{"at":`))
	require.NoError(t, err)
	assert.Equal(t, want, got)
	assert.Equal(t, history.Merge(want), kept.Events())
	_, err = history.Read(strings.NewReader("{}\nno\n{}\n"))
	require.ErrorContains(t, err, "line 2")
}
