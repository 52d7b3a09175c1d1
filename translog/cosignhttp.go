package translog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/fault"
	"secbox/translog/checkpoint"
)

// newWitnessClient returns a client that follows no redirect: the settings say where a witness is.
func newWitnessClient() *http.Client {
	return &http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// otherSize is the answer of a witness that has cosigned a checkpoint of another size than the request said.
type otherSize struct{ size int64 }

func (o *otherSize) Error() string { return fmt.Sprintf("the witness has %d entries", o.size) }

// disagreement is the answer of a witness whose log is not the one of the request.
type disagreement struct{ error }

func (d *disagreement) Unwrap() error { return d.error }

// add sends a checkpoint to the witness, and returns the line of its verified cosignature.
func (p *peer) add(ctx context.Context, newest checkpoint.Checkpoint, size int64, proof tlog.TreeProof) (string, error) {
	var body bytes.Buffer
	fmt.Fprintf(&body, "old %d\n", size)
	for _, h := range proof {
		fmt.Fprintln(&body, base64.StdEncoding.EncodeToString(h[:]))
	}
	fmt.Fprintf(&body, "\n%s", newest.Signed)
	status, kind, answer, err := p.send(ctx, http.MethodPost, "add-checkpoint", &body)
	if err != nil {
		return "", err
	}
	switch {
	case status == http.StatusConflict && kind == "text/x.tlog.size":
		has, err := strconv.ParseInt(strings.TrimSuffix(string(answer), "\n"), 10, 64)
		if err != nil || has < 0 {
			return "", p.wrong("its size is no number", nil)
		}
		return "", &otherSize{has}
	case status == http.StatusNotFound || status == http.StatusForbidden:
		return "", p.wrong(fmt.Sprintf("it does not know the log %s, or knows another key of it; give it the key that `core-api audit key` prints", newest.Origin), nil)
	case status == http.StatusUnprocessableEntity:
		return "", &disagreement{p.wrong("it says that the log does not extend the checkpoint that it has", nil)}
	case status != http.StatusOK:
		return "", p.wrong(fmt.Sprintf("it answered %d", status), nil)
	}
	// The answer may have signatures of keys that nothing here knows. A wrong signature of the known key is an error.
	n, err := note.Open([]byte(newest.Text()+"\n"+string(answer)), note.VerifierList(p.Key))
	if err != nil {
		return "", p.wrong("its answer has no valid cosignature of its key", err)
	}
	line, err := note.Sign(&note.Note{Text: newest.Text(), Sigs: n.Sigs})
	return strings.TrimPrefix(string(line), newest.Text()+"\n"), err
}

// latest returns the newest checkpoint of the log with this key that the witness has cosigned; found is false if it has none, or serves
// none, which C2SP allows.
func (p *peer) latest(ctx context.Context, key note.Verifier) (c checkpoint.Checkpoint, found bool, err error) {
	hash := sha256.Sum256([]byte(key.Name()))
	status, _, answer, err := p.send(ctx, http.MethodGet, fmt.Sprintf("%x/checkpoint", hash), nil)
	switch {
	case err != nil:
		return c, false, err
	case status == http.StatusNotFound:
		return c, false, nil
	case status != http.StatusOK:
		return c, false, p.wrong(fmt.Sprintf("it answered %d when asked for its checkpoint", status), nil)
	}
	c, err = checkpoint.Open(answer, key)
	if err != nil {
		return c, false, p.wrong("the checkpoint that it has is none of this log", err)
	}
	return c, true, nil
}

// send makes a request to the witness. The answer is bounded, and so is the time by ctx.
func (p *peer) send(ctx context.Context, method, path string, body io.Reader) (status int, kind string, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL.JoinPath(path).String(), body)
	if err != nil {
		return 0, "", nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return 0, "", nil, p.wrong("it does not answer in time", err)
		}
		return 0, "", nil, p.wrong("it does not answer", err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, checkpoint.MaxBytes+1))
	if err != nil || len(answer) > checkpoint.MaxBytes {
		return 0, "", nil, p.wrong("its answer broke off or is too long", err)
	}
	kind, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return resp.StatusCode, kind, answer, nil
}

func (p *peer) wrong(what string, cause error) error {
	return fault.Wrap(fault.UpstreamFailed, cause, "the witness %s at %s: %s", p.Key.Name(), p.URL, what)
}
