package script

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// This file tests how the answers of nodes are read. A test writes an answer in JSON.

// replyOf returns the answer that a text in JSON stands for: integers, texts, arrays and null.
func replyOf(t *testing.T, text string) any {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal([]byte(text), &value), text)
	var read func(value any) any
	read = func(value any) any {
		switch v := value.(type) {
		case float64:
			return int64(v)
		case []any:
			for i := range v {
				v[i] = read(v[i])
			}
		}
		return value
	}
	return read(value)
}

// parses checks what parse makes of answers. The others are odd: each is an error that describes the answer.
func parses[T any](t *testing.T, parse func(reply any) (T, error), answers map[string]T, odd ...string) {
	t.Helper()
	for text, want := range answers {
		got, err := parse(replyOf(t, text))
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range odd {
		got, err := parse(replyOf(t, text))
		require.ErrorContains(t, err, Describe(replyOf(t, text)), text)
		assert.Zero(t, got, text)
	}
}

func TestParseEntered(t *testing.T) {
	parses(t, ParseEntered, map[string]Entered{
		`0`:                              {},
		`12`:                             {Wait: 12},
		`-1`:                             {Wait: -1},
		`[0, "7", 1]`:                    {Register: 7, Stored: true},
		`[0, "7", 2]`:                    {Register: 7, WasThere: true},
		`[0, "18446744073709551615", 3]`: {Register: math.MaxUint64, Stored: true, WasThere: true},
		`[9, "0", 0]`:                    {Wait: 9},
	}, `[0, "18446744073709551616", 0]`, `[0, "abc", 0]`, `[0, "-1", 0]`, `[0, "", 0]`, `[0, 7, 0]`, `[null, "7", 0]`, `[0, "7", null]`, `[0, "7"]`, `[0, "7", 1, 1]`, `"7"`, `null`)
}

func TestParseEnteredShared(t *testing.T) {
	parses(t, ParseEnteredShared, map[string]Entered{
		`0`:           {},
		`12`:          {Wait: 12},
		`-1`:          {Wait: -1},
		`-2`:          {WasThere: true},
		`-3`:          {Blind: true},
		`[0, "7", 1]`: {Register: 7, Stored: true},
		`[0, "7", 5]`: {Register: 7, Stored: true, Blind: true},
		`[0, "7", 2]`: {Register: 7, WasThere: true},
		`[9, "0", 0]`: {Wait: 9},
	}, `-4`, `[0, "abc", 0]`, `[0, "7"]`, `"7"`, `null`)
}

func TestParseEnteredNames(t *testing.T) {
	parses(t, ParseEnteredNames, map[string]Entered{
		`0`:                   {},
		`[0, "0", 0, []]`:     {},
		`[-1, "0", 0, [64]]`:  {Wait: -1, By: 1 << 63},
		`[0, "7", 1, []]`:     {Register: 7, Stored: true},
		`[0, "7", 2, []]`:     {Register: 7, WasThere: true},
		`[9, "7", 0, [3, 1]]`: {Wait: 9, Register: 7, By: 0b101},
	}, `1`, `[12, "0", 0, ["1"]]`, `["12", "0", 0, [1]]`, `[9, "7", 0, []]`, `[9, "7", 0, [65]]`, `[0, "7", 1, [1]]`, `[9, "7", 0, 3]`, `[0, "7", 1, null]`, `[0, "abc", 1, []]`,
		`[0, "7", null, []]`, `[0, "7", 1]`, `[0, "7", 1, 0, []]`, `[9]`, `"7"`, `null`, `[9, "0", 0, [-9223372036854775808]]`)
}

func TestParseReleasedNames(t *testing.T) {
	parses(t, ParseReleasedNames, map[string]Released{
		`0`:                 {},
		`1`:                 {Found: Mine},
		`2`:                 {Found: Other},
		`[2, [1, 64], [2]]`: {Found: Other, First: 1 | 1<<63, Others: 2},
		`[1, [], []]`:       {Found: Mine},
	}, `3`, `-1`, `[1, [0], []]`, `[1, [], [65]]`, `[1, [], ["1"]]`, `[1, "1", []]`, `[1, [], null]`, `["1", [], []]`, `[3, [], []]`, `[1, []]`, `[1, [], [], []]`, `"1"`, `null`, `[[1], [], []]`)
}

func TestParseEnteredPermits(t *testing.T) {
	by := func(e Entering) func(reply any) (EnteredPermits, error) {
		return func(reply any) (EnteredPermits, error) { return e.Parse(reply, 4) }
	}
	parses(t, by(wants(1, 2)), map[string]EnteredPermits{
		`0`:               granted(2),
		`3`:               granted(1),
		`[0, 7, [], [1]]`: refused(7, 3),
		`[0, -1, [], []]`: refused(-1),
		`[2, 0, [1], []]`: wasThere(3),
	}, `4`, `-1`, `[1, 5, [0], []]`, `[1, 0, [], [0]]`, `[0, 7, [0], []]`, `[0, 0, [], []]`, `[0, -2, [], []]`, `[2, 0, [], []]`, `[2, 0, [1], [2]]`, `[3, 0, [1], []]`, `[1, 0, [4], []]`,
		`[0, -1, [], [4]]`, `[1, 0, ["0"], []]`, `[1, 0, 0, []]`, `[1, 0, [0], null]`, `["1", 0, [0], []]`, `[1, "0", [0], []]`, `[1, 0, [0]]`, `[1, 0, [0], [], []]`, `"0"`, `"OK"`, `null`)
	parses(t, by(wants(1, 2, 0)), map[string]EnteredPermits{`0`: granted(0), `1`: granted(2)})
	parses(t, by(wants(2, 2, 0)), map[string]EnteredPermits{
		`[1, 0, [0, 1], []]`:  granted(0, 2),
		`[1, 0, [0, 1], [3]]`: alsoFree(granted(0, 2), 1),
		`[2, 0, [1], []]`:     wasThere(2),
	}, `0`, `[1, 0, [0], []]`, `[1, 0, [0, 0], []]`, `[1, 0, [0, 1, 2], []]`, `[1, 0, [0, 1], [1]]`)
}
