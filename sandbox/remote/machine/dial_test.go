package machine

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"secbox/fault"
)

// TestCertificateTextIsCleaned: the names in a certificate cannot send control characters to the
// user's terminal.
func TestCertificateTextIsCleaned(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	says := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"evil\x1b[2J\nsecbox: fine"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, says, says, public, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	defer s.Close()
	m := idleMachine(t)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	m.server.Scheme, m.server.Host = "https", net.JoinHostPort("localhost", port)
	if e := m.link(t.Context(), false); !e.final || !strings.Contains(fault.From(e.err).Message, "is not trusted here") {
		t.Errorf("%t %q", e.final, fault.From(e.err).Message)
	}
	// Windows does not say the names.
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	e := m.endOnDialError(&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: certificate, Host: "localhost"}}, false)
	if said := fault.From(e.err).Message; !e.final || !strings.Contains(said, "evil") || strings.ContainsAny(said, "\x1b\n") {
		t.Errorf("%t %q", e.final, said)
	}
}
