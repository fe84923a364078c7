package history

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTriesAreJudged(t *testing.T) {
	const ms = time.Millisecond
	held := func(reads bool, permits int) []Event {
		return []Event{
			{At: time.Second, Kind: Held, Client: "0 holder", Term: 1, Name: "a", More: []string{"b"}, Until: 2 * time.Second, Reads: reads, Permits: permits},
			{At: 1500 * ms, Kind: Extended, Client: "0 holder", Term: 1, Until: 4 * time.Second},
			{At: 3 * time.Second, Kind: Unlock, Client: "0 holder", Term: 1},
		}
	}
	for name, c := range map[string]struct {
		events  []Event
		n       int // attempts, one each time every has passed, from the time from on
		from    time.Duration
		every   time.Duration
		waiters int // that take turns
		process string
		of      string
		found   int
	}{
		"as many as may be":                {n: 40, every: ms, waiters: 1},
		"one more":                         {n: 41, every: ms, waiters: 1, found: 1},
		"one more, slowly":                 {n: 41, every: 3 * ms, waiters: 1},
		"of two waiters":                   {n: 80, every: ms, waiters: 2},
		"two hasty waiters":                {n: 82, every: ms, waiters: 2, found: 2},
		"while somebody holds":             {events: held(false, 0), n: 60, from: time.Second, every: 33 * ms, waiters: 2, found: 1},
		"more slowly":                      {events: held(false, 0), n: 40, from: time.Second, every: 50 * ms, waiters: 2},
		"the first of each call":           {events: held(false, 0), n: 60, from: time.Second, every: 33 * ms, waiters: 60},
		"another of the held names":        {events: held(false, 0), n: 60, from: time.Second, every: 33 * ms, waiters: 1, of: "b", found: 1},
		"another name":                     {events: held(false, 0), n: 60, from: time.Second, every: 33 * ms, waiters: 1, of: "c"},
		"before and after":                 {events: held(false, 0), n: 19, from: 3 * time.Second, every: 33 * ms, waiters: 1},
		"of the process that holds":        {events: held(false, 0), n: 60, from: time.Second, every: 33 * ms, waiters: 1, process: "0"},
		"while readers hold":               {events: held(true, 0), n: 60, from: time.Second, every: 33 * ms, waiters: 1},
		"while somebody holds some permit": {events: held(false, 2), n: 60, from: time.Second, every: 33 * ms, waiters: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var tries Tries
			if c.process == "" {
				c.process = "1"
			}
			if c.of == "" {
				c.of = "a"
			}
			for i := range c.n {
				tries.Note(c.from+time.Duration(i)*c.every, c.process, strconv.Itoa(i%c.waiters), c.of)
			}
			assert.Equal(t, c.n, tries.Len())
			assert.Len(t, tries.Judge(c.events), c.found)
		})
	}
	var tries Tries
	for i := range 101 {
		assert.Equal(t, i == 100, tries.Note(0, "", "a", ""), "attempt %d", i)
		assert.False(t, i < 100 && tries.Note(0, "", "b", ""))
	}
	assert.False(t, tries.Note(1, "", "a", ""), "time has passed")
}
