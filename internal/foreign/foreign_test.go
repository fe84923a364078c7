package foreign_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"":              "",
		"ERR no":        "ERR no",
		"Größe 7 \\x1b": "Größe 7 \\x1b",
		"\x1b[31mRED\x1b[0m\x1b]0;title\a\x00\x7f\t\r": `\x1b[31mRED\x1b[0m\x1b]0;title\a\x00\x7f\t\r`,
		"a\nb\r\nc":                          `a b\r c`,
		"\u009b31m \u202e\u2028\u200b\ufeff": `\u009b31m \u202e\u2028\u200b\ufeff`,
		"\x9b31m\xff":                        `\x9b31m\xff`,
		"\U000e0041":                         `\U000e0041`,
		strings.Repeat("x", 60):              strings.Repeat("x", 60),
		strings.Repeat("x", 61):              strings.Repeat("x", 60-len("... (61 bytes)")) + "... (61 bytes)",
		strings.Repeat("ä", 31):              strings.Repeat("ä", 23) + "... (62 bytes)",
		strings.Repeat("\x1b", 16):           strings.Repeat(`\x1b`, 11) + "... (16 bytes)",
	} {
		require.Equal(t, want, foreign.Text(s, 60), "%q", s)
	}
	require.Equal(t, "a\\x1b\n\\rb", foreign.Lines("a\x1b\n\rb"))
}

// Whatever others write, no byte of it acts in a terminal, and no text is longer than its limit.
func FuzzText(f *testing.F) {
	for _, s := range []string{"ERR x", "\x1b]0;title\a", "\x9b31m", "\u202etxt.exe", "a\nb", strings.Repeat("\x00", 400), strings.Repeat("é", 200), `\x1b`} {
		f.Add(s, uint16(300))
	}
	f.Fuzz(func(t *testing.T, s string, most uint16) {
		limit := 40 + int(most)
		text := foreign.Text(s, limit)
		require.LessOrEqual(t, len(text), limit)
		require.Equal(t, text, foreign.Text(text, limit))
		lines := foreign.Lines(s)
		require.Equal(t, lines, foreign.Lines(lines))
		require.Equal(t, strings.Count(s, "\n"), strings.Count(lines, "\n"))
		for _, r := range text + strings.ReplaceAll(lines, "\n", "") {
			require.True(t, unicode.IsPrint(r), "%q", r)
		}
		require.True(t, utf8.ValidString(text+lines))
		if len(lines) <= limit {
			require.Equal(t, strings.ReplaceAll(lines, "\n", " "), text)
		}
	})
}
