package main

import (
	"net"
	"testing"

	"github.com/seed14bd9ef4/redsync/internal/testkit/realredis"
)

// startTLS is the command tls of scripts. The node demands a certificate of its clients.
func startTLS(t *testing.T, ts *scripted) {
	c := realredis.NewCertificates(t, ts.MkAbs("."))
	addr, err := realredis.FreeAddr()
	ts.Check(err)
	_, port, err := net.SplitHostPort(addr)
	ts.Check(err)
	s, err := realredis.Launch(t.TempDir(), "--tls-port", port, "--tls-cert-file", c.Cert, "--tls-key-file", c.Key, "--tls-ca-cert-file", c.Authority)
	ts.Check(err)
	ts.Defer(s.Kill)
	ts.Setenv("TLSNODE", addr)
}
