package wire

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"
)

// This file tells at which command a connection ended: some proxies end it at a command that they do not know.

// A cutOff is the end of a connection in place of the answer to a command.
type cutOff struct {
	command string // in upper case
	hint    string
	error
}

func (e *cutOff) Error() string {
	return "the node ended the connection in place of an answer to " + e.command + e.hint + ": " + e.error.Error()
}

func (e *cutOff) Unwrap() error { return e.error }

const alwaysHello = ", which go-redis always sends"

func cutOffAt(command string, err error) error {
	if command == "" || !isEnd(err) || isCutOffAt(err, "") {
		return err
	}
	return &cutOff{command, cutHint(command), err}
}

func cutHint(command string) string {
	switch command {
	case "HELLO":
		return alwaysHello
	case "INFO":
		return " (pool.WithoutIdentity leaves INFO out)"
	case "CLIENT SETINFO":
		return " (Options.DisableIdentity leaves CLIENT SETINFO out)"
	case "CLIENT MAINT_NOTIFICATIONS":
		return " (Options.MaintNotificationsConfig can leave it out)"
	}
	return ""
}

// isCutOffAt reports whether err is a cutOff at command, "" for any.
func isCutOffAt(err error, command string) bool {
	var cut *cutOff
	return err != nil && errors.As(err, &cut) && (command == "" || cut.command == command)
}

func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func commandName(args []any) string {
	name := func(i int) string {
		if i >= len(args) {
			return ""
		}
		s, _ := args[i].(string)
		return strings.ToUpper(s)
	}
	first := name(0)
	if first == "CLIENT" || first == "SCRIPT" {
		return first + " " + name(1)
	}
	return first
}

// A commandNames reads the names of the commands that are written on a connection. Commands may hold passwords, so it
// keeps nothing else.
type commandNames struct {
	names []string

	line    []byte // incomplete
	words   []any  // the first words of the command
	left    int    // words still to come
	reading int    // missing bytes of a word and its end
	word    []byte
}

func (c *commandNames) write(p []byte) {
	for len(p) > 0 {
		if c.reading > 0 {
			n := min(c.reading, len(p))
			if len(c.words) < 2 {
				c.word = append(c.word, p[:n]...)
			}
			if c.reading -= n; c.reading == 0 {
				c.wordEnds()
			}
			p = p[n:]
			continue
		}
		at := bytes.IndexByte(p, '\n')
		if at < 0 {
			c.line = append(c.line, p...)
			return
		}
		c.line = append(c.line, p[:at]...)
		c.lineEnds(strings.TrimSuffix(string(c.line), "\r"))
		c.line, p = c.line[:0], p[at+1:]
	}
}

func (c *commandNames) lineEnds(line string) {
	if line == "" {
		return
	}
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil || n < 0:
	case line[0] == '*':
		c.words, c.left = nil, n
	case line[0] == '$':
		c.reading, c.word = n+len(crlf), c.word[:0]
	}
}

func (c *commandNames) wordEnds() {
	if len(c.words) < 2 {
		c.words = append(c.words, string(c.word[:max(0, len(c.word)-len(crlf))]))
	}
	if c.left--; c.left == 0 {
		c.names = append(c.names, commandName(c.words))
	}
}
