package testlength

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// at calls f with -short and this length.
func at(t *testing.T, short, length string, f func()) {
	before := flag.Lookup("test.short").Value.String()
	defer func() { require.NoError(t, flag.Set("test.short", before)) }()
	require.NoError(t, flag.Set("test.short", short))
	t.Setenv(env, length)
	f()
}

func TestOf(t *testing.T) {
	for want, lengths := range map[int][]string{
		1: {"true", ""}, 2: {"false", ""}, 3: {"false", "gate"}, 4: {"false", "sample"}, 40: {"false", "nightly"},
	} {
		at(t, lengths[0], lengths[1], func() { assert.Equal(t, want, InGate(1, 2, 3, 40)) })
	}
	at(t, "true", "nightly", func() { assert.Equal(t, 1, InGate(1, 2, 3, 40)) })
	at(t, "false", "gate", func() { assert.Equal(t, 2, Of(1, 2, 40)) })
	at(t, "false", "sample", func() { assert.Equal(t, 20, InGate(1, 2, 20, 30), "no shorter than the gate") })
	at(t, "false", "nightlY", func() {
		assert.PanicsWithValue(t, "REDSYNC_TEST_LENGTH=nightlY: it must be gate, sample, nightly or empty", func() { Of(1, 2, 3) })
	})
}

func TestNotShort(t *testing.T) {
	for short, want := range map[string]bool{"true": false, "false": true} {
		runs := false
		t.Run("short="+short, func(t *testing.T) {
			at(t, short, "", func() { NotShort(t); runs = true })
		})
		assert.Equal(t, want, runs)
	}
}
