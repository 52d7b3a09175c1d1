package network

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// authority signs the certificates with which core-api ends the TLS connections of jobs to hosts of
// credentials. Its key is made for this process and is in memory only. It can sign for no other
// hosts: certificates of names outside its name constraints are refused by the job's programs.
type authority struct {
	key  *ecdsa.PrivateKey // of the authority and of its certificates
	cert *x509.Certificate
	pem  string
	now  func() time.Time

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

const (
	authorityLife = 10 * 365 * 24 * time.Hour // longer than any process
	leafLife      = 24 * time.Hour
	leafLeft      = time.Hour // a certificate is replaced before so little is left
	skew          = time.Hour // that clocks may differ
	maxLeaves     = 1024
)

// newAuthority makes an authority for the hosts of rules.
func newAuthority(rules []string, now func() time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // it does not fail
	var names []string
	for _, rule := range rules {
		name, _, _ := strings.Cut(strings.TrimPrefix(rule, "*."), ":")
		names = append(names, strings.ToLower(strings.TrimSuffix(name, ".")))
	}
	slices.Sort(names)
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "secbox " + hex.EncodeToString(id)},
		NotBefore: now().Add(-skew), NotAfter: now().Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: slices.Compact(names),
		ExcludedIPRanges: []*net.IPNet{
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &authority{key: key, cert: cert, pem: string(text), now: now, leaves: map[string]*tls.Certificate{}}, nil
}

// certificate returns a certificate of a name.
func (a *authority) certificate(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if leaf := a.leaves[name]; leaf != nil && now.Add(leafLeft).Before(leaf.Leaf.NotAfter) {
		return leaf, nil
	}
	template := &x509.Certificate{
		NotBefore: now.Add(-skew), NotAfter: now.Add(leafLife), DNSNames: []string{name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[name] = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key, Leaf: leaf}
	return a.leaves[name], nil
}
