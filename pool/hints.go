package pool

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// This file puts into words what is wrong where a connection cannot be opened, as far as
// that can be known. The cause stands behind the hint, and is found by errors.Is and As.

// refusals are what nodes answer to a greeting, and what it means for who runs them.
var refusals = []struct{ words, hint string }{
	{"DENIED ", "the node is in protected mode: it has no password, and lets in its own machine alone"},
	{"max number of clients reached", "the node has no room for another connection (maxclients)"},
	{"WRONGPASS ", "the client's user name or password is wrong"},
	{"invalid password", "the client's password is wrong"},
	{"NOAUTH ", "the node asks for a password, and the client has none"},
	{"called without any password configured", "the client has a password, and the node has none"},
}

// hinted adds to why a greeting failed what that means.
func hinted(err error) error {
	for _, r := range refusals {
		if isAnswer(err) && strings.Contains(err.Error(), r.words) {
			return fmt.Errorf("%s: %w", r.hint, err)
		}
	}
	return err
}

// hintedDial adds to why a dial failed that the port may not speak TLS, where the client
// does and the handshake came to nothing.
func hintedDial(err error, user *redis.Options) error {
	var record tls.RecordHeaderError
	var untrusted *tls.CertificateVerificationError
	var dial *net.OpError
	switch {
	case user.TLSConfig == nil, errors.As(err, &untrusted):
		return err
	case errors.As(err, &record):
		return fmt.Errorf("the client speaks TLS, and the node does not on this port: %w", err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return err
	}
	return fmt.Errorf("the TLS handshake failed (does the node speak TLS on this port?): %w", err)
}

// tlsAlert is how a server of TLS begins its answer to what is none.
var tlsAlert = []byte{0x15, 0x03}

// plainHint adds to why a greeting without TLS failed that the node speaks TLS, where that
// shows: in what has arrived and was not understood, or because nothing was ever heard.
func plainHint(err error, arrived []byte, heard bool) error {
	switch {
	case bytes.HasPrefix(arrived, tlsAlert):
		return fmt.Errorf("the node speaks TLS on this port, and the client does not (rediss://, or Options.TLSConfig): %w", err)
	case !heard && errors.Is(err, io.EOF):
		return fmt.Errorf("the node has ended the connection without a word (does it speak TLS on this port?): %w", err)
	}
	return err
}
