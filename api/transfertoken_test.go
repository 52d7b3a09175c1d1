package api_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

func alwaysVerified(c *api.Config) { c.TokenInterval = time.Nanosecond }

// onFirstRead calls first before the first read.
type onFirstRead struct {
	io.Reader
	first func()
}

func (r *onFirstRead) Read(p []byte) (int, error) {
	if r.first != nil {
		r.first()
		r.first = nil
	}
	return r.Reader.Read(p)
}

// TestTransfersEndWithTheirToken: an upload leaves the file as it was, and a download is cut off.
func TestTransfersEndWithTheirToken(t *testing.T) {
	t.Parallel()
	bothWith(t, alwaysVerified, func(t *testing.T, f *fixture, dir string) {
		_, stays := f.token(tokens.Spec{Role: tokens.Admin})
		old := noise(16 << 20) // more than the buffers of a connection hold
		data[wire.V1Written](t, f.do(request{method: "PUT", path: transfer + "f", body: old, token: stays}))
		begin := func(method string, content []byte, length int64) (*http.Response, func()) {
			id, secret := f.token(tokens.Spec{Role: tokens.Worker})
			revoke := func() {
				if _, err := f.tokens.Revoke(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
			var body io.Reader
			if content != nil {
				body = &onFirstRead{bytes.NewReader(content), revoke}
			}
			req, err := http.NewRequestWithContext(t.Context(), method, f.url+transfer+"f", body)
			if err != nil {
				t.Fatal(err)
			}
			req.ContentLength = length
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("Expect", "100-continue") // the body is sent when the server reads it
			transport := &http.Transport{ExpectContinueTimeout: time.Hour}
			t.Cleanup(transport.CloseIdleConnections)
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { resp.Body.Close() })
			return resp, revoke
		}

		// In one piece, which may come late, and in several. The buffers of a connection hold both,
		// so the client gets the answer.
		for size, length := range map[int]int64{1: 1, 32 << 10: 0} {
			resp, _ := begin("PUT", noise(size), length)
			answer, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			reply{resp, answer}.refused(t, fault.TokenRevoked)
			if row := f.changes()[0]; row.Status != audit.Canceled || !strings.Contains(row.Detail, "revoked") {
				t.Errorf("the row of the upload: %+v", row)
			}
			onDisk(t, dir, "f", old)
		}

		resp, revoke := begin("GET", nil, 0)
		revoke()
		if n, err := io.Copy(io.Discard, resp.Body); resp.StatusCode != http.StatusOK || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("status %d, %d bytes, %v", resp.StatusCode, n, err)
		}
	})
}

// TestUploadTakesTooLong: the time of an upload is bounded in total, wherever the file is.
func TestUploadTakesTooLong(t *testing.T) {
	t.Parallel()
	bothWith(t, func(c *api.Config) { c.Bounds.Download = time.Second }, func(t *testing.T, f *fixture, dir string) {
		for _, part := range []string{"small", string(noise(5 << 20))} {
			r := f.stall("", "PUT", transfer+"f", part).answer()
			if r.refused(t, fault.BodyTooSlow); !strings.Contains(string(r.body), "longer than") {
				t.Errorf("%s", r.body)
			}
			noRemains(t, dir)
		}
	})
}
