package network_test

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"sync"
	"testing"
	"time"
)

type authority struct {
	key  *ecdsa.PrivateKey
	leaf *x509.Certificate
}

var once = sync.OnceValues(func() (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return authority{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return authority{key, leaf}, err
})

func testCA(t *testing.T) authority {
	t.Helper()
	a, err := once()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// certificate is valid for all names of the fixture.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	ca := testCA(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"good.example.org", "api.good.example.org", "evil.example.net", "mixed.example.org"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.leaf, &ca.key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: ca.key}
}

// echConfig is the configuration of an encrypted ClientHello (RFC 9849) with a public name.
func echConfig(t *testing.T, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	content := []byte{1, 0, 0x20, 0, 32} // id, DHKEM(X25519)
	content = append(content, key.PublicKey().Bytes()...)
	content = append(content, 0, 4, 0, 1, 0, 1, 64, byte(len(public))) // HKDF-SHA256, AES-128-GCM
	content = append(content, public...)
	content = append(content, 0, 0)
	config := append([]byte{0xfe, 0x0d, 0, byte(len(content))}, content...)
	return append([]byte{0, byte(len(config))}, config...)
}
