// Package foreign turns text that others wrote into text of ours. A node, another client of it, or a program in the middle
// chooses the text. People read it in a terminal or in a log, so the text must not act there, and must not fill them.
package foreign

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// MaxError is how many bytes of the text of an error are shown, if no smaller limit applies.
const MaxError = 1 << 10

// Text returns s as one line of at most most bytes that a terminal shows and does not obey. A newline becomes a space. Any
// other character that is not printable becomes an escape sequence of Go, such as \x1b: controls, characters that do not
// show or that change the order of others, and bytes that are no UTF-8. If the text is too long, it ends with "..." and the
// length of s. most must be at least 40. Text of its own result returns that unchanged.
func Text(s string, most int) string {
	if len(s) <= most && isPlain(s) {
		return s
	}
	note := fmt.Sprintf("... (%d bytes)", len(s))
	var b []byte
	end := 0 // so much of b leaves room for the note
	for rest := s; rest != ""; {
		if rest[0] == '\n' {
			b, rest = append(b, ' '), rest[1:]
		} else {
			b, rest = appendNext(b, rest)
		}
		if len(b) > most {
			return string(b[:end]) + note
		}
		if len(b) <= most-len(note) {
			end = len(b)
		}
	}
	return string(b)
}

// Lines returns s without what a terminal would obey, as Text does, but keeps its newlines and its length.
func Lines(s string) string {
	if isPlain(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	for rest := s; rest != ""; {
		if rest[0] == '\n' {
			b, rest = append(b, '\n'), rest[1:]
		} else {
			b, rest = appendNext(b, rest)
		}
	}
	return string(b)
}

// appendNext appends the first character of s, as a terminal may show it, and returns what follows.
func appendNext(b []byte, s string) (longer []byte, rest string) {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && size == 1:
		b = fmt.Appendf(b, `\x%02x`, s[0])
	case unicode.IsPrint(r):
		b = utf8.AppendRune(b, r)
	default:
		at := len(b)
		b = strconv.AppendQuoteRune(b, r)
		b = append(b[:at], b[at+1:len(b)-1]...) // without the quotes
	}
	return b, s[size:]
}

// isPlain reports whether s has printable ASCII alone, as nearly every text.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
