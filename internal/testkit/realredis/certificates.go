package realredis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates are a certificate for 127.0.0.1, for servers and for clients, that is signed by an authority of its own. The
// files are in the PEM format.
type Certificates struct {
	Authority, Cert, Key string // files
	Server, Client       *tls.Config
}

// NewCertificates makes certificates that are valid for a day. It writes ca.pem, cert.pem and key.pem in a folder.
func NewCertificates(tb testing.TB, dir string) Certificates {
	tb.Helper()
	c, err := newCertificates(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func newCertificates(dir string) (Certificates, error) {
	c := Certificates{
		Authority: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"),
	}
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	node := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		return c, err
	}
	authorityBytes, err1 := x509.CreateCertificate(rand.Reader, authority, authority, &signer.PublicKey, signer)
	nodeBytes, err2 := x509.CreateCertificate(rand.Reader, node, authority, &key.PublicKey, signer)
	keyBytes, err3 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2, err3); err != nil {
		return c, err
	}
	authorityText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityBytes})
	nodeText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: nodeBytes})
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes})
	pair, err := tls.X509KeyPair(nodeText, keyText)
	if err != nil {
		return c, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorityText) {
		return c, errors.New("the certificate of the authority cannot be read")
	}
	c.Server = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	c.Client = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return c, errors.Join(
		os.WriteFile(c.Authority, authorityText, 0o600), os.WriteFile(c.Cert, nodeText, 0o600), os.WriteFile(c.Key, keyText, 0o600))
}
