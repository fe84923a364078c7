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
	wrapped
}

func (e *cutOff) Error() string {
	return "the node ended the connection in place of an answer to " + e.command + e.hint + ": " + e.error.Error()
}

const alwaysHello = ", which go-redis always sends"

func cutOffAt(command string, err error) error {
	if command == "" || !isEnd(err) || isCutOffAt(err, "") {
		return err
	}
	return &cutOff{command, cutHint(command), wrapped{err}}
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

// commandName returns the name of the command that begins with words.
func commandName(words ...string) string {
	name, rest, _ := strings.Cut(strings.ToUpper(strings.Join(words, " ")), " ")
	if name == "CLIENT" || name == "SCRIPT" {
		return name + " " + rest
	}
	return name
}

// A commandNames reads the names of the commands that are written on a connection. Commands may hold passwords, so it
// keeps only the names, and a command that is not complete.
type commandNames struct {
	names []string
	rest  []byte // of a command that is not complete
}

func (c *commandNames) write(p []byte) {
	if len(c.rest) > 0 {
		p = append(c.rest, p...)
	}
	for {
		words, size := firstCommand(p)
		if size == 0 {
			break
		}
		c.names = append(c.names, commandName(words...))
		p = p[size:]
	}
	c.rest = bytes.Clone(p)
}

// firstCommand returns the first two words of the first command in b, and its size; 0 if it is not complete.
func firstCommand(b []byte) (words []string, size int) {
	rest := b
	header := func() int {
		line, after, complete := bytes.Cut(rest, []byte(crlf))
		if !complete {
			return -1
		}
		rest = after
		n, _ := strconv.Atoi(string(line[1:]))
		return n
	}
	for range header() {
		n := header()
		if n < 0 || len(rest) < n+len(crlf) {
			return nil, 0
		}
		if len(words) < 2 {
			words = append(words, string(rest[:n]))
		}
		rest = rest[n+len(crlf):]
	}
	return words, len(b) - len(rest)
}
