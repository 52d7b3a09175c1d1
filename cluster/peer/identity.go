package peer

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"

	"secbox/cluster/nodes"
	"secbox/fault"
)

const (
	purpose    = "channels of nodes 1"  // of the key; the number is the version of the certificates
	protocol   = "secbox-node/1"        // of a channel: the token of the upgrade, and what TLS negotiates
	serverName = "node.secbox.internal" // in every certificate
)

// identity is a node under one of its leases.
type identity struct {
	nodeID string
	epoch  int64
}

// authority signs the certificates of an installation's nodes. Every node derives the same from the
// key.
type authority struct {
	key   ed25519.PrivateKey
	cert  *x509.Certificate
	roots *x509.CertPool
	err   error
}

// Certificates end with their lease, not at a time, so that clocks do not matter.
var (
	validFrom  = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	validUntil = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

func always() time.Time { return validFrom.AddDate(1, 0, 0) }

func newAuthority(key Key) authority {
	seed, err := hex.DecodeString(key.Sign(purpose, "authority"))
	if err != nil || len(seed) < ed25519.SeedSize {
		return authority{err: errors.New("the installation's key signs with too few bytes")}
	}
	a := authority{key: ed25519.NewKeyFromSeed(seed[:ed25519.SeedSize]), roots: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "secbox installation"}, NotBefore: validFrom, NotAfter: validUntil,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return authority{err: err}
	}
	a.roots.AddCert(a.cert)
	return a
}

// certify makes a certificate with a new key for a node.
func (a authority) certify(id identity) (*tls.Certificate, error) {
	if a.err != nil {
		return nil, a.err
	}
	if id.epoch <= 0 {
		return nil, fmt.Errorf("node %s has no lease", id.nodeID)
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(id.epoch), Subject: pkix.Name{CommonName: id.nodeID}, DNSNames: []string{serverName}, NotBefore: validFrom,
		NotAfter: validUntil,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, nil
}

// ownCertificate is this node's, for the epoch of its present lease.
type ownCertificate struct {
	id   identity
	cert *tls.Certificate
}

func (p *Peers) certificate() (*tls.Certificate, error) {
	id := identity{p.cfg.Self, p.cfg.Epoch()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own.cert == nil || p.own.id != id {
		cert, err := p.authority.certify(id)
		if err != nil {
			return nil, err
		}
		p.own = ownCertificate{id, cert}
	}
	return p.own.cert, nil
}

// tlsConfig has what both sides of a channel ask for.
func (p *Peers) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, ServerName: serverName, SessionTicketsDisabled: true,
		DynamicRecordSizingDisabled: true, Time: always,
		RootCAs: p.authority.roots, ClientCAs: p.authority.roots, ClientAuth: tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.certificate() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return p.certificate() },
	}
}

// errOther is the error of a channel that leads to another node than the one it was dialled for, or
// to the same under another lease.
var errOther = errors.New("another node listens at its node.address, or it has started again meanwhile; give each node a node.address of its own")

// peerOf returns the node that has proven itself on the other side.
func peerOf(s tls.ConnectionState) (identity, error) {
	if len(s.PeerCertificates) == 0 || s.NegotiatedProtocol != protocol {
		return identity{}, errors.New("no node of this version")
	}
	leaf := s.PeerCertificates[0]
	if !leaf.SerialNumber.IsInt64() {
		return identity{}, errors.New("no epoch")
	}
	return identity{leaf.Subject.CommonName, leaf.SerialNumber.Int64()}, nil
}

// checkLease returns fault.NodeUnreachable if a node does not have the lease under which it has
// proven itself.
func (p *Peers) checkLease(ctx context.Context, id identity) error {
	holds := func(n nodes.Node) bool {
		s := n.State()
		return n.Epoch == id.epoch && (s == nodes.StateLive || s == nodes.StateDraining)
	}
	n, err := p.lookup(ctx, id.nodeID, p.freshFor)
	if err != nil || !holds(n) { // it may just have joined
		n, err = p.lookup(ctx, id.nodeID, 0)
	}
	if err != nil {
		return err
	}
	if !holds(n) {
		return fault.New(fault.NodeUnreachable, "node %s has lost the lease under which it has proven itself", id.nodeID)
	}
	return nil
}
