package wire

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed14bd9ef4/redsync/internal/foreign"
)

// This file separates the answers of a node from all other errors, and turns panics into errors.

// ErrClosed is the error of Send and of Subscribe after Close.
var ErrClosed = errors.New("pool: closed")

// IsNoScript reports whether err is a node's answer that it does not have the script of an EVALSHA, or one that
// OfScript has made.
func IsNoScript(err error) bool {
	if !answers(err, "NOSCRIPT") {
		return LacksSHA(err)
	}
	var answer redis.Error // answers skips a leading ERR, but a real NOSCRIPT has none
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOSCRIPT")
}

// IsDenied reports whether err is a node's answer that the client's user lacks a permission. The command did not run,
// or a script ended there.
func IsDenied(err error) bool {
	return answers(err, "NOPERM") || scriptEndedWith(err, deniedInOldScript) || scriptEndedWith(err, deniedInScript)
}

// WasNotRun reports whether err is a node's answer that it has not run the command: it lacks the script, the command or
// the key, or the user lacks a permission. A denial within a script does not count.
func WasNotRun(err error) bool {
	if IsNoScript(err) || errors.Is(err, errPartial) || answers(err, "NOPERM") && !strings.Contains(err.Error(), "in script") {
		return true
	}
	name, _ := unknownIn(err)
	return name == "eval" || name == "evalsha"
}

// IsCrossSlot reports whether err is a node's answer that the keys of a command are not in one slot (CROSSSLOT), or
// that the slot is moving (TRYAGAIN). It was not run. A command with one key never gets this.
func IsCrossSlot(err error) bool { return answers(err, "CROSSSLOT") || answers(err, "TRYAGAIN") }

// IsWrongType reports whether err is a node's answer that a key has another type than the request needs. A single
// command was not run. A script ended there.
func IsWrongType(err error) bool { return scriptEndedWith(err, "WRONGTYPE") }

var errForgotten = errors.New("no reply while a second connection was opened")

// IsSilence reports whether err is the end of a connection that was silent for too long. The node may be frozen, and
// answer no other request sooner.
func IsSilence(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errForgotten)
}

// IsPermanent reports whether err says that every repetition will fail until somebody changes the node or the client:
// the user lacks a permission or is not let in (NOPERM, NOAUTH, WRONGPASS, DENIED), a command (IsUnknown) or the
// database is missing, a key has another type, the keys are not in one slot, a restart guard cannot learn the uptime,
// the node serves only a part of a Cluster, or the pool or the client is closed. Answers to a greeting count, too.
func IsPermanent(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, ErrClosed) || errors.Is(err, redis.ErrClosed) {
		return true
	}
	return errors.Is(err, errPartial) || errors.Is(err, ErrUnknownServer) || IsUnknown(err) || slices.ContainsFunc(permanent, func(prefix string) bool {
		return redis.HasErrorPrefix(err, prefix) || scriptEndedWith(err, prefix)
	})
}

// ErrUnknownServer is why the votes of a guarded node without a Server do not count.
var ErrUnknownServer = errors.New("it is not known how long the server has been running: INFO is refused, or has no uptime_in_seconds")

var permanent = []string{
	"NOPERM", "NOAUTH", "WRONGPASS", "DENIED", "WRONGTYPE", "CROSSSLOT", deniedInOldScript, deniedInScript,
	"DB index is out of range", "invalid DB index", "SELECT is not allowed in cluster mode",
}

// These begin the error of a script that used a denied command, before Redis 7.2 and since.
const (
	deniedInOldScript = "The user executing the script can't"
	deniedInScript    = "ACL failure in script: "
)

// IsRefusal reports whether err is a node's answer to a request.
func IsRefusal(err error) bool {
	if err == nil {
		return false
	}
	var other *unanswered
	return isAnswer(err) && !errors.As(err, &other)
}

// IsOutOfMemory reports whether err is a node's answer that it lacks memory (OOM). It still prolongs and deletes keys.
func IsOutOfMemory(err error) bool { return scriptEndedWith(err, "OOM") }

// scriptEndedWith is answers, also for scripts on a Redis before 7.0.
func scriptEndedWith(err error, prefix string) bool {
	return answers(err, prefix) ||
		(answers(err, scriptFailed) || answers(err, scriptPlace)) && strings.HasPrefix(withoutPlace(err), prefix)
}

// Redis before 7.0 tells where a script ended, before the error:
//
//	ERR Error running script (call to f_SHA): @user_script:57: @user_script: 57: ERROR
//	@user_script: 57: ERROR
const (
	scriptFailed = "Error running script (call to "
	scriptPlace  = "@user_script:"
)

func withoutPlace(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	text := strings.TrimPrefix(answer.Error(), "ERR ")
	if rest, ok := strings.CutPrefix(text, scriptFailed); ok {
		_, text, _ = strings.Cut(rest, "): ")
	}
	for strings.HasPrefix(text, scriptPlace) {
		_, text, _ = strings.Cut(text[len(scriptPlace):], ": ")
	}
	return strings.TrimPrefix(text, "-") // a server's own error, not a command's, keeps its sign
}

// answers reports whether err is a node's answer to a request, not to the greeting, and begins with prefix.
func answers(err error, prefix string) bool {
	if err == nil || !redis.HasErrorPrefix(err, prefix) {
		return false
	}
	var other *unanswered
	return !errors.As(err, &other)
}

// isAnswer reports whether a node answered with err. redis.Nil is no error, but a null.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !errors.Is(err, redis.Nil)
}

// unanswered is the error of a request without an answer. It may wrap an answer to the greeting.
type unanswered struct {
	text string
	error
}

// noAnswer wraps err in a comparable error with a short text.
func noAnswer(step string, err error) error {
	return &unanswered{said(step + fmt.Sprint(err)), err} // fmt survives an Error method that panics
}

func (e *unanswered) Error() string { return e.text }

func (e *unanswered) Unwrap() error { return e.error }

// recovered turns a panic in go-redis or in a user's function into an error.
func recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case error:
		*err = r
	default:
		*err = fmt.Errorf("%v", r)
	}
}

// errUnsolicited ends a connection whose replies no longer match requests.
var errUnsolicited = errors.New("the node sent a reply that was not asked for")

const maxErrorText = 300

// Cut shortens a text to 300 bytes.
func Cut(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:maxErrorText], len(text))
}

// said returns a text of a node or go-redis as errors show it: one short line that a terminal does not obey, without
// the arguments of an unknown command, which may be secret.
func said(text string) string {
	text, _, _ = strings.Cut(text, ", with args beginning with:")
	return foreign.Text(text, maxErrorText)
}

func shortened(err error) error {
	if err == nil || said(err.Error()) == err.Error() {
		return err
	}
	return &shortError{err}
}

// A shortError shows what said leaves of an error.
type shortError struct{ error }

func (e *shortError) Error() string { return said(e.error.Error()) }

func (e *shortError) Unwrap() error { return e.error }

var errPartial = errors.New("the node belongs to a Redis Cluster, and serves only some of the names " +
	"(use redis.NewClusterClient: the whole Cluster is one node of a lock)")

var errMoved = errors.New("the client has moved to another node")

// What follows recognises the answer of a server or a proxy that does not have a command or lets nobody use it. Each
// has its own words. They count only at the beginning: names of locks may follow.

// IsUnknown reports whether err is a node's answer that it does not have a command, or lets nobody use it. The command
// did not run, or a script ended there.
func IsUnknown(err error) bool {
	_, is := unknownIn(err)
	return is
}

// OfScript returns err, a node's answer to an EVALSHA, as one of which IsNoScript is true if the node does not have
// EVALSHA.
func OfScript(err error) error {
	if name, is := unknownIn(err); is && (name == "" && !isOfScript(err) || strings.EqualFold(name, "evalsha")) {
		return &withoutSHA{err}
	}
	return err
}

// LacksSHA reports whether OfScript has found that the node does not have EVALSHA.
func LacksSHA(err error) bool {
	if err == nil {
		return false
	}
	var lacks *withoutSHA
	return errors.As(err, &lacks)
}

// A withoutSHA is the answer of a node without EVALSHA.
type withoutSHA struct{ error }

func (e *withoutSHA) Unwrap() error { return e.error }

// unknownIn reports whether err says that a command is unknown, and returns its name if the text has it.
func unknownIn(err error) (name string, is bool) {
	if err == nil || !IsRefusal(err) || LacksSHA(err) {
		return "", false
	}
	text := withoutPlace(err)
	if strings.EqualFold(text, "invalid request") { // all that Envoy says
		return "", true
	}
	if isFromScript(text) {
		return "", true
	}
	for _, words := range unknownWords {
		if rest, found := cutWords(text, words); found {
			name, _ = leadingName(rest)
			return name, true
		}
	}
	for _, words := range []string{"handle request,", "the", "this", "redis"} {
		if rest, found := cutWords(text, words); found {
			text = strings.TrimLeft(rest, " ")
		}
	}
	if text != "" && strings.IndexByte("'`\"", text[0]) >= 0 { // 'X' command ...
		name, text = leadingName(text)
		text = strings.TrimLeft(text, " ")
	}
	rest, found := cutWords(text, "command")
	if !found {
		return "", false
	}
	if named, after := leadingName(rest); named != "" && named != "is" && named != "not" {
		name, rest = named, after
	}
	rest = strings.TrimLeft(rest, " ")
	if after, found := cutWords(rest, "is"); found {
		rest = strings.TrimLeft(after, " ")
	}
	for _, words := range refusingWords {
		if end, found := cutWords(rest, words); found && endsThere(end) {
			if name == "" && strings.HasPrefix(end, ":") {
				name, _ = leadingName(end)
			}
			return name, true
		}
	}
	return "", false
}

// endsThere reports whether a refusal does not depend on what end, which follows it, may name.
func endsThere(end string) bool {
	if end == "" || strings.IndexByte(".:,;(", end[0]) >= 0 {
		return true
	}
	for _, words := range []string{"for", "by", "in", "on", "here", "your", "through"} {
		if _, found := cutWords(strings.TrimLeft(end, " "), words); found {
			return true
		}
	}
	return false
}

// unknownWords begin texts, after ERR and the place in a script. The name of the command may follow.
var unknownWords = []string{
	"unknown subcommand or wrong number of arguments for", "unknown command or wrong number of arguments for",
	"unknown command", "unknown or unsupported command", "unsupported command", "unknown subcommand", "unsupported subcommand",
}

// isFromScript reports whether text says that a script called a command that is unknown or not allowed there. Some
// servers put their own name before the word command.
func isFromScript(text string) bool {
	words := strings.SplitN(strings.ToLower(text), " ", 8)
	if len(words) > 2 && words[1] != "command" {
		words = slices.Delete(words, 1, 2)
	}
	said := strings.Join(words[:min(len(words), 6)], " ") + " "
	return strings.HasPrefix(said, "unknown command called from ") || strings.HasPrefix(said, "this command is not allowed from ")
}

// refusingWords follow the word command, perhaps after a name and "is". Or the name comes last, behind a colon.
var refusingWords = []string{"not allowed", "not supported", "not support", "not available", "not permitted", "not implemented", "disabled"}

// cutWords cuts words from the beginning of text, unless a letter follows.
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

// leadingName cuts the name of a command, perhaps in quotes.
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
