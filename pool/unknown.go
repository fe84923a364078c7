package pool

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file recognises the answer of a server, or of a proxy in front of it, that does not have a command or lets nobody
// use it. Each server says that in words of its own. The words count only where the server writes them, at the beginning:
// further on, a text may have the names of locks.

// IsUnknown reports whether err is a node's answer that it does not have a command, or lets nobody use it: the node is an
// old or another kind of server, the command was renamed, or a proxy does not pass it on. Either the request was such a
// command, and did not run. Or a script used one, and ended there.
func IsUnknown(err error) bool {
	_, is := unknownIn(err)
	return is
}

// OfScript returns err, a node's answer to an EVALSHA, as an error of which IsNoScript reports true if the node does not
// have EVALSHA. Such a node has no script by its SHA1, and EVAL may do. Otherwise OfScript returns err.
func OfScript(err error) error {
	if name, is := unknownIn(err); is && (name == "" && !isOfScript(err) || strings.EqualFold(name, "evalsha")) {
		return &withoutSHA{err}
	}
	return err
}

// LacksSHA reports whether err is one that OfScript has made: the node does not have EVALSHA.
func LacksSHA(err error) bool {
	if err == nil {
		return false
	}
	var lacks *withoutSHA
	return errors.As(err, &lacks)
}

// A withoutSHA is the answer to an EVALSHA of a node that does not have this command.
type withoutSHA struct{ error }

func (e *withoutSHA) Unwrap() error { return e.error }

// unknownIn reports whether err says that the node does not have a command, and returns the name of the command if the text
// has it where the server writes it.
func unknownIn(err error) (name string, is bool) {
	if err == nil || !IsRefusal(err) || LacksSHA(err) {
		return "", false
	}
	text := withoutPlace(err)
	if strings.EqualFold(text, "invalid request") { // all that Envoy says
		return "", true
	}
	for _, words := range unknownWords {
		if rest, found := cutWords(text, words); found {
			name, _ = leadingName(rest)
			return name, true
		}
	}
	rest, found := cutWords(text, "command")
	if !found {
		return "", false
	}
	if named, after := leadingName(rest); named != "" && named != "is" && named != "not" {
		name, rest = named, after
	}
	rest = strings.TrimPrefix(strings.TrimLeft(rest, " "), "is ")
	for _, words := range refusingWords {
		if end, found := cutWords(rest, words); found && (end == "" || end[0] == '.' || end[0] == ':') {
			return name, true
		}
	}
	return "", false
}

// unknownWords begin the texts of servers and proxies, after the ERR of any error and the place in a script. The name of
// the command may follow, in quotes of some kind.
var unknownWords = []string{
	"unknown command", "unknown or unsupported command", "unsupported command", "unknown subcommand",
	"unknown redis command called from", "this redis command is not allowed from",
}

// refusingWords are what texts say that begin with "command", perhaps a name, and perhaps "is".
var refusingWords = []string{"not allowed", "not supported", "not available"}

// cutWords cuts words, which are in lower case, from the beginning of text. No letter may follow them.
func cutWords(text, words string) (rest string, found bool) {
	n := len(words)
	if len(text) < n || !strings.EqualFold(text[:n], words) {
		return "", false
	}
	if rest = text[n:]; rest != "" && isLetter(rest[0]) {
		return "", false
	}
	return rest, true
}

// leadingName returns the name of a command that text begins with, and what follows. The name may be in quotes.
func leadingName(text string) (name, rest string) {
	text = strings.TrimLeft(text, " :'`\"")
	n := 0
	for n < len(text) && (isLetter(text[n]) || n > 0 && (text[n] == '_' || text[n] == '|' || text[n] == '.')) {
		n++
	}
	return strings.ToLower(text[:n]), strings.TrimLeft(text[n:], "'`\"")
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// isOfScript reports whether err tells a place in a script. Redis 7.0 and later tell it at the end.
func isOfScript(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := answer.Error()
	return strings.Contains(text, scriptPlace) || strings.Contains(text, " from script") || strings.Contains(text, " from Lua")
}
