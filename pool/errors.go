package pool

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file tells errors apart, those that a node has answered with and all others, and
// makes errors of what go-redis and functions of the user's come to.

// IsNoScript reports whether err is a node's answer that it does not have the
// script of an EVALSHA. The script was not run.
func IsNoScript(err error) bool {
	if !answers(err, "NOSCRIPT") {
		return false
	}
	var answer redis.Error // answers passes over a leading ERR, which no NOSCRIPT has
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "NOSCRIPT")
}

// IsDenied reports whether err is a node's answer that its user may not do what was
// asked: then the command was not run; or that a script of its may not do what it
// does: then it ended there.
func IsDenied(err error) bool {
	return answers(err, "NOPERM") || answers(err, "The user executing the script can't") // ERR, before Redis 7.2
}

// IsCrossSlot reports whether err is the answer of a cluster's node that it does not have
// all keys of a command: they are not in one slot (CROSSSLOT), or the slot is moving and
// the keys may be on different nodes (TRYAGAIN). The command was not run. A command with a
// single key is never refused for these reasons.
func IsCrossSlot(err error) bool { return answers(err, "CROSSSLOT") || answers(err, "TRYAGAIN") }

// answers reports whether err is a node's answer to a request and begins like that. What
// the node said to the greeting says nothing of the request.
func answers(err error, prefix string) bool {
	if err == nil || !redis.HasErrorPrefix(err, prefix) {
		return false
	}
	var other *unanswered
	return !errors.As(err, &other)
}

// isAnswer reports whether err is an error that the node answered with. To go-redis
// a null is one too.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !errors.Is(err, redis.Nil)
}

// unanswered is an error in whose place no request was answered, although it may hold
// what a node has said: to the greeting, say.
type unanswered struct {
	text string
	error
}

// noAnswer returns err as one that can be compared and whose text is short, whatever a
// function of the user's has made of it.
func noAnswer(step string, err error) error {
	return &unanswered{cut(step + fmt.Sprint(err)), err} // fmt bears an Error that panics
}

func (e *unanswered) Error() string { return e.text }

func (e *unanswered) Unwrap() error { return e.error }

// recovered makes an error of a panic in go-redis, or in a function of the user's that
// it calls.
func recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case error:
		*err = r
	default:
		*err = fmt.Errorf("%v", r)
	}
}

// errUnasked is the end of a connection: its replies cannot be told apart any more.
var errUnasked = errors.New("the node sent a reply that was not asked for")

// maxErrorText is how much of an error's text is kept, whoever wrote it.
const maxErrorText = 300

// cut returns a text that is no longer than an error's may be.
func cut(text string) string {
	if len(text) <= maxErrorText {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:maxErrorText], len(text))
}

// shortened returns err with a text that is no longer than an error's may be.
func shortened(err error) error {
	if err == nil || len(err.Error()) <= maxErrorText {
		return err
	}
	return &shortError{err}
}

// A shortError tells the beginning of an error's text.
type shortError struct{ error }

func (e *shortError) Error() string { return cut(e.error.Error()) }

func (e *shortError) Unwrap() error { return e.error }
