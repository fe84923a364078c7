package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
)

// This file adds hints to errors of connections that cannot be opened. Each hint wraps the cause, so
// errors.Is and errors.As still find it.

// refusals holds errors with which a node may answer a greeting. For each there is a hint for the
// operator of the node. ends says that the node ends the connection then, whatever the command is.
var refusals = []struct {
	words, hint string
	ends        bool
}{
	{"DENIED ", "the node is in protected mode: it has no password, and lets in its own machine alone", true},
	{"max number of clients reached", "the node has no room for another connection (maxclients)", true},
	{"WRONGPASS ", "the client's user name or password is wrong", false},
	{"invalid password", "the client's password is wrong", false},
	{"NOAUTH ", "the node asks for a password, and the client has none", false},
	{"called without any password configured", "the client has a password, and the node has none", false},
}

// hinted adds a hint to the error of a greeting if refusals has one.
func hinted(err error) error {
	for _, r := range refusals {
		if isAnswer(err) && strings.Contains(err.Error(), r.words) {
			return fmt.Errorf("%s: %w", r.hint, err)
		}
	}
	return err
}

// endsAll reports whether a node that has answered with err, which may be nil, ends the connection, whatever the command is.
func endsAll(err error) bool {
	for _, r := range refusals {
		if r.ends && err != nil && strings.Contains(err.Error(), r.words) {
			return true
		}
	}
	return false
}

// hintedDial adds a hint to the error of a dial with TLS if the handshake failed: the port may not speak TLS.
func hintedDial(err error) error {
	var record tls.RecordHeaderError
	var untrusted *tls.CertificateVerificationError
	var dial *net.OpError
	switch {
	case err == nil, errors.As(err, &untrusted):
		return err
	case errors.As(err, &record):
		return fmt.Errorf("the client speaks TLS, and the node does not on this port: %w", err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return err
	}
	return fmt.Errorf("the TLS handshake failed (does the node speak TLS on this port?): %w", err)
}

// errPlain is the error of a dial with TLS to a port that speaks plain Redis.
var errPlain = errors.New("the client speaks TLS, and the node does not on this port: it answers plain Redis " +
	"(use redis://, or the node's TLS port)")

// tlsAlert is how a TLS server begins its answer to anything that is not TLS.
var tlsAlert = []byte{0x15, 0x03}

// plainHint adds a hint to the error of a greeting without TLS if the node seems to speak TLS: it
// answered with a TLS alert, or ended the connection without sending anything.
func plainHint(err error, arrived []byte, heard bool) error {
	switch {
	case bytes.HasPrefix(arrived, tlsAlert):
		return fmt.Errorf("the node speaks TLS on this port, and the client does not (rediss://, or Options.TLSConfig): %w", err)
	case !heard && isEnd(err):
		return fmt.Errorf("the node has ended the connection without a word (does it speak TLS on this port?) "+
			"in place of an answer to HELLO%s: %w", alwaysHello, err)
	}
	return err
}
