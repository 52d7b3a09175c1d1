package network

import "crypto/x509"

// SignedFor verifies a certificate that the authority has made for a name.
func SignedFor(n *Network, name string, roots *x509.CertPool) error {
	a, err := n.authority()
	if err != nil {
		return err
	}
	leaf, err := a.certificate(name)
	if err != nil {
		return err
	}
	_, err = leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
	return err
}
