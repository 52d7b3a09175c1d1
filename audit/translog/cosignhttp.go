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

	"secbox/audit/translog/checkpoint"
	"secbox/fault"
)

// newWitnessClient returns a client that follows no redirect: the settings say where a witness is.
func newWitnessClient() *http.Client {
	return &http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// otherSize is the answer of a witness that has cosigned a checkpoint of another size than the
// request said.
type otherSize struct{ size int64 }

func (o *otherSize) Error() string { return fmt.Sprintf("the witness has %d entries", o.size) }

// disagreement is the answer of a witness that knows another log than the request's.
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
		if err != nil || has < 0 || has > checkpoint.MaxSize {
			return "", p.failure("it does not say how many entries of the log it has", nil)
		}
		return "", &otherSize{has}
	case status == http.StatusNotFound || status == http.StatusForbidden:
		return "",
			&disagreement{p.failure(fmt.Sprintf("it does not know the log %s, or knows another key of it; give it the key that `core-api audit key` prints", newest.Origin), nil)}
	case status == http.StatusUnprocessableEntity:
		return "", &disagreement{p.failure("it says that the log does not extend the checkpoint that it has", nil)}
	case status != http.StatusOK:
		return "", p.failure(fmt.Sprintf("it answered %d", status), nil)
	}
	// The answer may have signatures of keys that nothing here knows. A wrong signature of the
	// known key is an error.
	n, err := note.Open([]byte(newest.Text()+"\n"+string(answer)), note.VerifierList(p.Key))
	if err != nil {
		return "", p.failure("its answer has no valid cosignature of its key", err)
	}
	line, err := note.Sign(&note.Note{Text: newest.Text(), Sigs: n.Sigs})
	return strings.TrimPrefix(string(line), newest.Text()+"\n"), err
}

// otherKey is the answer of a witness that has cosigned a checkpoint of the log under another key.
type otherKey struct{ checkpoint.Claim }

func (o *otherKey) Error() string { return "the witness has a checkpoint under the key " + o.KeyID }

// latest returns the newest checkpoint of the log with this key that the witness has cosigned; nil
// if it has none, or serves none, which C2SP allows. It fails with an *otherKey if the witness has
// cosigned one of this origin under another key; a nil key is no key.
func (p *peer) latest(ctx context.Context, origin string, key note.Verifier) (*checkpoint.Checkpoint, error) {
	status, _, answer, err := p.send(ctx, http.MethodGet, latestPath(origin), nil)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound:
		return nil, nil
	case status != http.StatusOK:
		return nil, p.failure(fmt.Sprintf("it answered %d when asked for its checkpoint", status), nil)
	}
	if claim, ok := checkpoint.OfOther(answer, origin, checkpoint.IDOf(key)); ok {
		if _, err := note.Open(answer, note.VerifierList(p.Key)); err != nil {
			return nil, p.failure("the checkpoint that it has is none of this log's key, and has no cosignature of the witness", err)
		}
		return nil, &otherKey{claim}
	}
	if key == nil {
		return nil, p.failure("the checkpoint that it has is none of this log", nil)
	}
	c, err := checkpoint.Open(answer, key)
	if err != nil {
		return nil, p.failure("the checkpoint that it has is none of this log", err)
	}
	return &c, nil
}

func latestPath(origin string) string {
	return fmt.Sprintf("%x/checkpoint", sha256.Sum256([]byte(origin)))
}

// latestURL is where the witness serves its checkpoint.
func (p *peer) latestURL(origin string) string { return p.URL.JoinPath(latestPath(origin)).String() }

// send makes a request to the witness. The answer is bounded, and so is the time by ctx.
func (p *peer) send(ctx context.Context, method, path string, body io.Reader) (status int, kind string, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, p.URL.JoinPath(path).String(), body)
	if err != nil {
		return 0, "", nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return 0, "", nil, p.failure("it does not answer in time", err)
		}
		return 0, "", nil, p.failure("it does not answer", err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, checkpoint.MaxBytes+1))
	if err != nil || len(answer) > checkpoint.MaxBytes {
		return 0, "", nil, p.failure("its answer broke off or is too long", err)
	}
	kind, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return resp.StatusCode, kind, answer, nil
}

func (p *peer) failure(what string, cause error) error {
	return fault.Wrap(fault.UpstreamFailed, cause, "the witness %s at %s: %s", p.Key.Name(), p.URL, what)
}
