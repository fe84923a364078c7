package wire

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
)

// This file adds hints to errors of connections that cannot be opened.

// A knownRefusal is an error with which a node may answer a greeting. ends: then it ends the connection.
type knownRefusal struct {
	words, hint string
	ends        bool
}

var refusals = []knownRefusal{
	{words: "DENIED ", hint: "the node is in protected mode: it has no password, and lets in its own machine alone", ends: true},
	{words: "max number of clients reached", hint: "the node has no room for another connection (maxclients)", ends: true},
	{words: "WRONGPASS ", hint: "the client's user name or password is wrong"},
	{words: "invalid password", hint: "the client's password is wrong"},
	{words: "NOAUTH ", hint: "the node asks for a password, and the client has none"},
	{words: "called without any password configured", hint: "the client has a password, and the node has none"},
}

func refusalIn(err error) knownRefusal {
	for _, r := range refusals {
		if isAnswer(err) && strings.Contains(err.Error(), r.words) {
			return r
		}
	}
	return knownRefusal{}
}

func hinted(err error) error {
	if r := refusalIn(err); r.hint != "" {
		return fmt.Errorf("%s: %w", r.hint, err)
	}
	return err
}

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

var errPlain = errors.New("the client speaks TLS, and the node does not on this port: it answers plain Redis " +
	"(use redis://, or the node's TLS port)")

// tlsAlert begins the answer of a TLS server to anything else.
var tlsAlert = []byte{0x15, 0x03}

// plainHint adds a hint to the error of a greeting without TLS if the node seems to speak TLS.
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
