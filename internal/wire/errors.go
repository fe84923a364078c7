package wire

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

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

// patterns are made when they are first needed, or every program that imports the library would pay for them.
var patterns struct {
	sync.Once
	before  *regexp.Regexp   // what stands before the error, and the sign of one that is the server's own, not a command's
	unknown []*regexp.Regexp // see makePatterns
}

func withoutPlace(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	patterns.Do(makePatterns)
	text := strings.TrimPrefix(answer.Error(), "ERR ")
	return text[len(patterns.before.FindString(text)):]
}

// answers reports whether err is a node's answer to a request, not to the greeting, and begins with prefix.
func answers(err error, prefix string) bool {
	if err == nil || !redis.HasErrorPrefix(err, prefix) {
		return false
	}
	var other *unanswered
	return !errors.As(err, &other)
}

func beginsWith(err error, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// isAnswer reports whether a node answered with err. redis.Nil is no error, but a null.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !errors.Is(err, redis.Nil)
}

// wrapped is the base of errors that say more of another one.
type wrapped struct{ error }

func (w wrapped) Unwrap() error { return w.error }

// A reworded is an error with another text.
type reworded struct {
	text string
	wrapped
}

func (e *reworded) Error() string { return e.text }

// Reworded returns err with another text. An answer of a node is not wrapped: nothing leads back to the former text.
func Reworded(err error, text string) error {
	if IsRefusal(err) {
		return refusal(text)
	}
	return &reworded{text, wrapped{err}}
}

// unanswered is the error of a request without an answer. It may wrap an answer to the greeting.
type unanswered struct{ reworded }

// noAnswer wraps err in a comparable error with a short text.
func noAnswer(step string, err error) error {
	return &unanswered{reworded{said(step + fmt.Sprint(err)), wrapped{err}}} // fmt survives an Error method that panics
}

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
	if said(err.Error()) == err.Error() {
		return err
	}
	return &reworded{said(err.Error()), wrapped{err}}
}

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
		return &withoutSHA{wrapped{err}}
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
type withoutSHA struct{ wrapped }

// unknownIn reports whether err says that a command is unknown, and returns its name if the text has it.
func unknownIn(err error) (name string, is bool) {
	if !IsRefusal(err) || LacksSHA(err) {
		return "", false
	}
	text := withoutPlace(err)
	for _, says := range patterns.unknown {
		if names := says.FindStringSubmatch(text); names != nil {
			return strings.ToLower(cmp.Or(names[1:]...)), true
		}
	}
	return "", false
}

// makePatterns makes the patterns. Those of unknown match what follows ERR and the place in a script if the node does not
// have a command. Their groups are where its name may stand.
func makePatterns() {
	patterns.before = regexp.MustCompile(`^(?:Error running script \(call to .*?\): )?(?:@user_script:.*?: )*-?`)
	const (
		quote   = `['"\x60]`
		name    = `[ :'"\x60]*([a-z][a-z_|.]*)?`
		refused = ` *(?:is\b *)?(?:not (?:allowed|support(?:ed)?|available|permitted|implemented)|disabled)\b`
		ends    = `(?:$|[.,;(]|:` + name + `| *(?:for|by|in|on|here|your|through)\b)` // and no condition follows
	)
	for _, text := range []string{
		`invalid request$`, // all that Envoy says
		// A script has called it. Some servers put their own name before the word command.
		`unknown (?:[^ ]* )?command called from\b`,
		`this (?:[^ ]* )?command is not allowed from\b`,
		`(?:unknown|unsupported|unknown or unsupported) (?:sub)?command(?: or wrong number of arguments for)?\b` + name,
		`(?:handle request, *)?(?:the\b *)?(?:this\b *)?(?:redis\b *)?(?:` + quote + name + quote + `* *)?command\b` +
			`(?:` + name + quote + `*)??` + refused + ends,
	} {
		patterns.unknown = append(patterns.unknown, regexp.MustCompile(`(?i)^`+text))
	}
}

// isOfScript reports whether err tells a place in a script. Redis 7.0 and later tell it at the end.
func isOfScript(err error) bool {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return false
	}
	text := answer.Error()
	return strings.Contains(text, scriptPlace) || strings.Contains(text, " from script") || strings.Contains(text, " from Lua")
}
