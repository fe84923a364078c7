package script

import (
	"crypto/rand"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	random  = "ABCDEFGHIJKLMNOPQRSTUVWX27"
	process = "0123456789012345"
)

func TestOwnedValueHasThisForm(t *testing.T) {
	for at, digits := range map[int64]string{
		1764237542123: "1764237542123", 946684800000: "0946684800000", 7: "0000000000007", 0: "0000000000000",
		9999999999999: "9999999999999",
		-1:            "0000000000000", 10000000000000: "9999999999999", // the form cannot say these
	} {
		value := OwnedValue(random, ProcessOf(process), time.UnixMilli(at), "worker-7@host")
		assert.Equal(t, random+"~"+process+" "+digits+" worker-7@host", value)
		owner, ok := OwnerOf(value)
		require.True(t, ok)
		assert.Equal(t, Owner{Label: "worker-7@host", Process: process, Since: time.UnixMilli(min(max(at, 0), 9999999999999))}, owner)
	}
}

func TestOwnedValueAllocatesOnce(t *testing.T) {
	p, label := NewProcess(), strings.Repeat("x", MaxLabel)
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = OwnedValue(random, p, time.UnixMilli(5), label) }), 1.0)
}

func TestValuesThatHaveNoOwner(t *testing.T) {
	_, ok := OwnerOf("ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123 x")
	require.True(t, ok, "what the others resemble")
	for name, value := range map[string]string{
		"empty":                          "",
		"of this library":                rand.Text(),
		"a random part of 25 characters": "BCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123 x",
		"a random part in lower case":    "abcdefghijklmnopqrstuvwx27~0123456789012345 1764237542123 x",
		"another separator":              "ABCDEFGHIJKLMNOPQRSTUVWX27-0123456789012345 1764237542123 x",
		"a process of 15 digits":         "ABCDEFGHIJKLMNOPQRSTUVWX27~123456789012345 1764237542123 x",
		"a process that is no number":    "ABCDEFGHIJKLMNOPQRSTUVWX27~123456789012345a 1764237542123 x",
		"a time of 12 digits":            "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 764237542123 x",
		"a time with a sign":             "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 -764237542123 x",
		"a line feed after the time":     "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123\nx",
		"no label":                       "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123",
		"two spaces before the label":    "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123  x",
		"a space after the label":        "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123 x ",
		"a control character":            "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123 x\x1b[2J",
		"a label of 129 bytes":           "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123 " + strings.Repeat("x", 129),
		"a label that is not UTF-8":      "ABCDEFGHIJKLMNOPQRSTUVWX27~0123456789012345 1764237542123 x\xff",
	} {
		_, ok := OwnerOf(value)
		assert.False(t, ok, name)
	}
}

func TestLabels(t *testing.T) {
	for _, label := range []string{
		"x", "worker-7@host", "a b  c", "~", "0123456789012345 1764237542123 x", "%d.*", "größer", "北京", "🙂", "e\u0301",
		"a\u00a0b", "\ufffd", strings.Repeat("x", 128), strings.Repeat("ü", 64), "readers",
	} {
		assert.NoError(t, CheckLabel(label), "%q", label)
	}
	for label, why := range map[string]string{
		"":                       "it is empty",
		strings.Repeat("x", 129): "it has 129 bytes",
		strings.Repeat("ü", 65):  "it has 130 bytes",
		"a\xff":                  "it is not UTF-8",
		"\xed\xa0\x80":           "it is not UTF-8", // a surrogate
		"a\n":                    "it has the character U+000A",
		"readers\nx":             "it has the character U+000A",
		"\x1b[31mred":            "it has the character U+001B",
		"a\x00b":                 "it has the character U+0000",
		"a\x7f":                  "it has the character U+007F",
		"a\u009bb":               "it has the character U+009B", // as ESC [
		"a\u2028b":               "it has the character U+2028",
		"a\u2029b":               "it has the character U+2029",
		"a\u202eb":               "it has the character U+202E", // what follows stands from right to left
		"a\u2066b":               "it has the character U+2066",
		"a\u200bb":               "it has the character U+200B",
		"a\u3164b":               "it has the character U+3164",
		"a\ufe0fb":               "it has the character U+FE0F",
		"\ufeffa":                "it has the character U+FEFF",
		"a\u00adb":               "it has the character U+00AD",
		"a\U000e0041":            "it has the character U+E0041",
		" a":                     "it has a space at an end",
		"a\u00a0":                "it has a space at an end",
		" ":                      "it has a space at an end",
	} {
		assert.EqualError(t, CheckLabel(label), why, "%q", label)
	}
	assert.True(t, strings.HasPrefix(LabelRange, fmt.Sprintf("1 to %d bytes", MaxLabel)))
}

func FuzzOwnedValue(f *testing.F) {
	for _, label := range []string{"worker-7@host", "", " x", "a\nb", "a\x00", "北京", "\xff", strings.Repeat("x", 129), "a\u202eb"} {
		f.Add(label, int64(1764237542123), uint64(42))
	}
	f.Add("x", int64(math.MinInt64), uint64(math.MaxUint64))
	f.Add("x", int64(math.MaxInt64), uint64(0))
	f.Fuzz(func(t *testing.T, label string, millis int64, number uint64) {
		of := fmt.Sprintf("%016d", number%1e16)
		value := OwnedValue(rand.Text(), ProcessOf(of), time.UnixMilli(millis), label)
		owner, ok := OwnerOf(value)
		if require.Equal(t, CheckLabel(label) == nil, ok); !ok {
			return
		}
		require.Equal(t, label, owner.Label)
		require.Equal(t, of, owner.Process)
		require.Equal(t, min(max(millis, 0), 9999999999999), owner.Since.UnixMilli())
		require.Equal(t, value, OwnedValue(value[:26], ProcessOf(owner.Process), owner.Since, owner.Label))
		for reader := range 2 {
			require.True(t, MayBeValue(value, reader == 1))
		}
	})
}

// A value that has an owner is exactly what OwnedValue writes of that owner.
func FuzzOwnerOf(f *testing.F) {
	for _, rest := range []string{"", "~0123456789012345 1764237542123 x", "~0123456789012345 0000000000000 a b", "~0123456789012345 1764237542123  x"} {
		f.Add(random + rest)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if owner, ok := OwnerOf(value); ok {
			require.Equal(t, value, OwnedValue(value[:26], ProcessOf(owner.Process), owner.Since, owner.Label))
		}
	})
}
