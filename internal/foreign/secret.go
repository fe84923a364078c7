package foreign

import (
	"strconv"
	"strings"
)

// This file keeps what a program has sent out of the texts with which others answer: servers and proxies repeat the
// arguments of a command in their errors.

const (
	// piece is how many bytes of a secret in a text show it. A server cuts long arguments, and a proxy may quote them.
	piece = 8

	// leastSecret is the length of the shortest secret. A shorter one is found in too many texts, and hides nothing.
	leastSecret = 4
)

// ordinary are the words of servers' texts. A secret, or a piece of one, that is made of them hides nothing, and the library
// reads texts.
const ordinary = " running script call user_script user executing failure access permissions keys channels unknown unsupported " +
	"command subcommand called from with args beginning without invalid request redis this allowed supported available " +
	"string list hash stream zset queue fencing register that long type another " +
	"acl error no run can t not matching use using operation against holding wrong kind of value the is a an to or one at least " +
	"err noperm noscript wrongtype crossslot tryagain readonly loading busy oom misconf noauth wrongpass denied eval evalsha "

// place stands before the number of a line in a script.
const place = "user_script:"

// Before returns text, which a server wrote, as it is before the first argument that it repeats, and "..." if it repeats one. A
// piece of a secret is found, too, also in quotes or with escape sequences. What is in shown is no secret. The text must not be
// cut before: less than a piece could be left.
func Before(text string, secrets, shown []string) string {
	at := len(text)
	for _, s := range secrets {
		switch {
		case len(s) < leastSecret:
		case len(s) < piece:
			at = min(at, wordIn(text[:at], s, shown))
		default:
			for _, form := range forms(s) {
				at = min(at, pieceIn(text, at, form, shown))
			}
		}
	}
	if at == len(text) {
		return text
	}
	return strings.TrimRight(text[:at], "'\"`\\") + "..."
}

// forms returns the ways to write s in a text.
func forms(s string) []string {
	if isPlain(s) && !strings.ContainsAny(s, `"\`) {
		return []string{s}
	}
	var bytes strings.Builder // as Redis writes them
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c >= ' ' && c <= '~':
			bytes.WriteByte(c)
		default:
			bytes.WriteString(`\x` + strconv.FormatUint(uint64(c)|0x100, 16)[1:])
		}
	}
	quoted := strconv.Quote(s)
	return []string{s, Lines(s), bytes.String(), quoted[1 : len(quoted)-1]}
}

// pieceIn returns where a piece of s begins in text before at, otherwise at. A piece of ordinary words is none.
func pieceIn(text string, at int, s string, shown []string) int {
	if strings.ContainsFunc(s, func(r rune) bool { return r != ' ' && (r > '~' || !isWord(byte(r))) }) { //nolint:gosec // an ASCII letter; no words of a server alone
		if whole := strings.Index(text[:at], s); whole >= 0 {
			at = whole
		}
	}
	for i := 0; i < at && i+piece <= len(text); i++ {
		part := text[i : i+piece]
		where := strings.Index(s, part)
		if where < 0 || isIn(part, shown) || IsOrdinary(text, i, i+piece) {
			continue
		}
		for i > 0 && where > 0 && text[i-1] == s[where-1] { // what is before it in s was ordinary
			i, where = i-1, where-1
		}
		return i
	}
	return at
}

// IsOrdinary reports whether text has nothing but ordinary words between two places. It looks at whole words.
func IsOrdinary(text string, begin, end int) bool {
	for begin > 0 && isWord(text[begin-1]) && isWord(text[begin]) {
		begin--
	}
	for end < len(text) && isWord(text[end]) && isWord(text[end-1]) {
		end++
	}
	some := false
	for at := begin; at < end; at++ {
		from := at
		for at < end && isWord(text[at]) {
			at++
		}
		if from == at {
			continue
		}
		if word := text[from:at]; !strings.Contains(ordinary, " "+strings.ToLower(word)+" ") &&
			(strings.Trim(word, "0123456789") != "" || !strings.HasSuffix(strings.TrimRight(text[:from], " "), place)) {
			return false
		}
		some = true
	}
	return some
}

// wordIn returns where s stands in text, not as a part of another word. If it does not, wordIn returns the length of text.
func wordIn(text, s string, shown []string) int {
	if isIn(s, shown) || IsOrdinary(s, 0, len(s)) {
		return len(text)
	}
	for from := 0; ; {
		i := strings.Index(text[from:], s)
		if i < 0 {
			return len(text)
		}
		begin, end := from+i, from+i+len(s)
		if (begin == 0 || !isWord(text[begin-1])) && (end == len(text) || !isWord(text[end])) {
			return begin
		}
		from = begin + 1
	}
}

func isIn(s string, all []string) bool {
	for _, one := range all {
		if strings.Contains(one, s) {
			return true
		}
	}
	return false
}

func isWord(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' }
