package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/seed14bd9ef4/redsync/internal/realredis"
)

// startTLS is the command tls of scripts. The node demands a certificate of its clients.
func startTLS(t *testing.T, ts *testscript.TestScript) {
	t.Helper()
	ca, cert, key := ts.MkAbs("ca.pem"), ts.MkAbs("cert.pem"), ts.MkAbs("key.pem")
	ts.Check(writeCertificates(ca, cert, key))
	addr, err := realredis.FreeAddr()
	ts.Check(err)
	_, port, err := net.SplitHostPort(addr)
	ts.Check(err)
	s, err := realredis.Launch(t.TempDir(), "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
	ts.Check(err)
	ts.Defer(s.Kill)
	ts.Setenv("TLSNODE", addr)
}

// writeCertificates makes an authority, and one certificate for node and client, in files in PEM format.
func writeCertificates(caFile, certFile, keyFile string) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caText, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	node := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	text, err := x509.CreateCertificate(rand.Reader, node, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	keyText, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for path, block := range map[string]*pem.Block{
		caFile:   {Type: "CERTIFICATE", Bytes: caText},
		certFile: {Type: "CERTIFICATE", Bytes: text},
		keyFile:  {Type: "EC PRIVATE KEY", Bytes: keyText},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}
