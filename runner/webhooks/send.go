package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// Bounds of a request.
const (
	sendTimeout    = 15 * time.Second // in all
	dialTimeout    = 5 * time.Second
	maxAnswer      = 4 << 10 // bytes that are read of an answer
	maxHeaderBytes = 16 << 10
	idleTimeout    = 30 * time.Second
)

// newDialer makes a dialer that checks each address immediately before its connection, after the
// name was resolved.
func newDialer(p Policy) *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, Control: p.control}
}

// newClient makes a client that follows no redirect, uses no proxy, and dials only addresses that
// the policy has.
func newClient(p Policy, roots *tls.Config) *http.Client {
	return &http.Client{
		Timeout:       sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: nil, DialContext: newDialer(p).DialContext, TLSClientConfig: roots, TLSHandshakeTimeout: dialTimeout,
			DisableCompression: true,
			MaxConnsPerHost:    perHost, MaxIdleConns: atOnce, MaxIdleConnsPerHost: 1, IdleConnTimeout: idleTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}
}

// send makes one request. Its errors are for the record of the try: they never have the URL.
func send(ctx context.Context, client *http.Client, to string, header http.Header, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("the callback_url is no URL")
	}
	req.Header = header
	resp, err := client.Do(req)
	if err != nil {
		return 0, inWords(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer) // so that the connection is used again after a short answer
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode <= 299:
		return resp.StatusCode, nil
	case resp.StatusCode >= 300 && resp.StatusCode <= 399:
		return resp.StatusCode, errors.New("redirects are not followed; give the address where it leads to")
	}
	return resp.StatusCode, errors.New("the service did not take it")
}

// inWords returns why a request got no answer, without its address.
func inWords(err error) error {
	var ofURL *url.Error
	if errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	var name *net.DNSError
	var timeout net.Error
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, errNotPublic):
		return errNotPublic
	case errors.As(err, &name):
		return errors.New("the name of the host cannot be resolved")
	case errors.As(err, &certificate):
		return errors.New("the certificate of the service is not valid")
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return errors.New("the service did not answer in time")
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errors.New("no connection, or it was lost: " + errno.Error())
	}
	return errors.New("the service sent no valid answer") // the error could quote it
}
