package testlength

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	before := flag.Lookup("test.short").Value.String()
	t.Cleanup(func() { require.NoError(t, flag.Set("test.short", before)) })
	for _, test := range []struct {
		name, short, env string
		want             int
	}{
		{"short", "true", "", 1},
		{"normal", "false", "", 2},
		{"gate", "false", "gate", 3},
		{"sample", "false", "sample", 4},
		{"nightly", "false", "nightly", 40},
		{"short wins over nightly", "true", "nightly", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, flag.Set("test.short", test.short))
			t.Setenv(env, test.env)
			assert.Equal(t, test.want, InGate(1, 2, 3, 40))
			if test.env == "gate" {
				assert.Equal(t, 2, Of(1, 2, 40))
			}
		})
	}
}

func TestASampleIsNoShorterThanTheGate(t *testing.T) {
	NotShort(t)
	t.Setenv(env, sample)
	assert.Equal(t, 20, InGate(1, 2, 20, 30))
}

func TestOfAnUnknownLength(t *testing.T) {
	t.Setenv(env, "nightlY")
	assert.PanicsWithValue(t, "REDSYNC_TEST_LENGTH=nightlY: it must be gate, sample, nightly or empty", func() { Of(1, 2, 3) })
}

func TestNotShort(t *testing.T) {
	before := flag.Lookup("test.short").Value.String()
	t.Cleanup(func() { require.NoError(t, flag.Set("test.short", before)) })
	for short, want := range map[string]bool{"true": false, "false": true} {
		require.NoError(t, flag.Set("test.short", short))
		runs := false
		t.Run("short="+short, func(t *testing.T) {
			NotShort(t)
			runs = true
		})
		assert.Equal(t, want, runs)
	}
}
