//go:build linux

package main

import (
	"io"
	"os"
)

// authorities are files with certificate authorities for a job. The job can change them, which only
// changes what its own programs trust.
type authorities struct {
	bundle string // the image's own and core-api's
	own    string // core-api's alone
}

// bundles are where images have their authorities: Debian and Alpine, Fedora, SUSE, and others.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// maxBundle is how many bytes of the image's authorities are read; usual ones have 220 KiB.
const maxBundle = 2 << 20

// writeAuthorities writes the files into /tmp. The caller must call remove.
func writeAuthorities(ca string) (a authorities, err error) {
	if a.own, err = writeAuthority(ca); err == nil {
		a.bundle, err = writeAuthority(imageAuthorities() + ca)
	}
	if err != nil {
		a.remove()
	}
	return a, err
}

func writeAuthority(pem string) (string, error) {
	f, err := os.CreateTemp("/tmp", ".secbox-ca-*.pem")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(pem)
	if err == nil {
		err = f.Chmod(0o444)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// imageAuthorities returns the image's own authorities; empty if it has none.
func imageAuthorities() string {
	for _, name := range bundles {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
		_ = f.Close()
		if err == nil && len(text) > 0 && len(text) <= maxBundle {
			return string(text) + "\n"
		}
	}
	return ""
}

func (a authorities) remove() {
	for _, name := range []string{a.own, a.bundle} {
		if name != "" {
			_ = os.Remove(name)
		}
	}
}
