package witness_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/translog/witness"
)

// request makes the body of add-checkpoint.
func (l *fakeLog) request(t testing.TB, old int64, proved int64, signed []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "old %d\n", old)
	if proved > 0 && proved < l.size {
		proof, err := tlog.ProveTree(l.size, proved, l)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range proof {
			fmt.Fprintln(&b, base64.StdEncoding.EncodeToString(h[:]))
		}
	}
	fmt.Fprintf(&b, "\n%s", signed)
	return b.Bytes()
}

func post(t testing.TB, w *witness.Witness, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/add-checkpoint", bytes.NewReader(body))
	answer := httptest.NewRecorder()
	w.Handler().ServeHTTP(answer, r)
	return answer
}

// TestAddCheckpoint takes the rules of C2SP tlog-witness one by one.
func TestAddCheckpoint(t *testing.T) {
	t.Parallel()
	l := newLog(t, "secbox/a").grow(t, 5, "e")
	w := open(t, t.TempDir(), l)
	key, err := formats.NewVerifierForCosignatureV1(w.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	latest := fmt.Sprintf("/%x/checkpoint", sha256.Sum256([]byte(l.origin)))
	get := func() *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		w.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, latest, nil))
		return answer
	}
	cosigned := func(what string, text []byte, answer *httptest.ResponseRecorder) {
		t.Helper()
		text, _, _ = bytes.Cut(text, []byte("\n\n"))
		n, err := note.Open([]byte(string(text)+"\n\n"+answer.Body.String()), note.VerifierList(key))
		if err != nil || answer.Code != http.StatusOK || len(n.Sigs) != 1 {
			t.Fatalf("%s: %d %s: %v", what, answer.Code, answer.Body, err)
		}
		if at, err := formats.CoSigV1Timestamp(n.Sigs[0]); err != nil || at.IsZero() {
			t.Errorf("%s: %s, %v", what, at, err)
		}
	}
	if a := get(); a.Code != http.StatusNotFound {
		t.Errorf("before the first: %d", a.Code)
	}
	five := l.at(t, 5)
	if a := post(t, w, l.request(t, 3, 3, five)); a.Code != http.StatusConflict || a.Body.String() != "0\n" {
		t.Errorf("the wrong size: %d %s", a.Code, a.Body)
	}
	cosigned("the first", five, post(t, w, l.request(t, 0, 0, five)))
	cosigned("the same again", five, post(t, w, l.request(t, 5, 0, five)))
	l.grow(t, 4, "e")
	nine := l.at(t, 9)
	cosigned("a larger one", nine, post(t, w, l.request(t, 5, 5, nine)))
	if a := get(); !strings.HasPrefix(a.Body.String(), string(nine)) || !strings.Contains(a.Body.String(), "— test/w ") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	l.grow(t, 3, "e")
	twelve := l.at(t, 12)
	foreign, other := newLog(t, "secbox/b").grow(t, 12, "e"), newLog(t, "secbox/a").grow(t, 12, "e")
	for name, tc := range map[string]struct {
		body   []byte
		status int
	}{
		"another size":         {l.request(t, 5, 5, twelve), http.StatusConflict},
		"an old one":           {l.request(t, 5, 0, five), http.StatusConflict},
		"old beyond new":       {l.request(t, 9, 0, five), http.StatusBadRequest},
		"another log":          {foreign.request(t, 9, 9, foreign.at(t, 12)), http.StatusNotFound},
		"another key":          {other.request(t, 9, 9, other.at(t, 12)), http.StatusForbidden},
		"a changed bit":        {l.request(t, 9, 9, bytes.Replace(twelve, []byte("\n12\n"), []byte("\n13\n"), 1)), http.StatusForbidden},
		"no proof":             {l.request(t, 9, 0, twelve), http.StatusUnprocessableEntity},
		"a wrong proof":        {l.request(t, 9, 7, twelve), http.StatusUnprocessableEntity},
		"a needless proof":     {l.request(t, 9, 7, nine), http.StatusUnprocessableEntity},
		"another root":         {l.request(t, 9, 0, l.again().grow(t, 9, "x").at(t, 9)), http.StatusUnprocessableEntity},
		"no old size":          {append([]byte("new 9\n\n"), twelve...), http.StatusBadRequest},
		"leading zeroes":       {append([]byte("old 09\n\n"), twelve...), http.StatusBadRequest},
		"no hash":              {append([]byte("old 9\nAAAA\n\n"), twelve...), http.StatusBadRequest},
		"too many hashes":      {append([]byte("old 9\n"+strings.Repeat(strings.Repeat("A", 43)+"=\n", 64)+"\n"), twelve...), http.StatusBadRequest},
		"no checkpoint":        {[]byte("old 9\n\nhello\n"), http.StatusBadRequest},
		"nothing":              {nil, http.StatusBadRequest},
		"more than is allowed": {bytes.Repeat([]byte("old 9\n"), 1<<20), http.StatusBadRequest},
	} {
		if a := post(t, w, tc.body); a.Code != tc.status {
			t.Errorf("%s: %d %s", name, a.Code, a.Body)
		}
	}
	cosigned("after all these", twelve, post(t, w, l.request(t, 9, 9, twelve)))
}

// TestManyCheckpoints: requests cannot fill the disk at once.
func TestManyCheckpoints(t *testing.T) {
	t.Parallel()
	l := newLog(t, "secbox/a").grow(t, 1, "e")
	cfg := config(t, t.TempDir(), l)
	now := time.Now()
	cfg.Now = func() time.Time { return now }
	w, err := witness.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	send := func() int {
		old := w.Latest().Tree.N
		l.grow(t, 1, "e")
		return post(t, w, l.request(t, old, old, l.at(t, l.size))).Code
	}
	n := 0
	for ; send() == http.StatusOK; n++ {
	}
	if n != 20 || send() != http.StatusTooManyRequests {
		t.Errorf("%d checkpoints at once", n)
	}
	now = now.Add(time.Second)
	if send() != http.StatusOK {
		t.Error("a second later")
	}
}

// TestSplitView: core-api shows the witness one log, and asks for a cosignature of another.
func TestSplitView(t *testing.T) {
	t.Parallel()
	l := newLog(t, "secbox/a").grow(t, 9, "e")
	w := open(t, t.TempDir(), l)
	ended := make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l.asked = make(chan string, 1000)
	go func() { ended <- w.Follow(ctx, time.Hour) }()
	<-l.asked
	old := int64(9)
	for w.Latest().Tree.N != old { // Follow keeps it right after it has asked
		if answer := post(t, w, l.request(t, 0, 0, l.at(t, 9))); answer.Code == http.StatusOK {
			break
		}
	}
	l.grow(t, 3, "e")
	if a := post(t, w, l.request(t, old, 0, l.at(t, 12))); a.Code != http.StatusUnprocessableEntity { // any client can send this
		t.Errorf("%d %s", a.Code, a.Body)
	}
	for w.Latest().Tree.N != 12 { // Follow looks into it, and finds nothing wrong
		<-time.After(time.Millisecond)
	}
	l.grow(t, 30, "e") // so that there are tiles for 20
	split := l.again().grow(t, 20, "x")
	if a := post(t, w, split.request(t, 12, 12, split.at(t, 20))); a.Code != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	finding := (*witness.Finding)(nil)
	if err := <-ended; !errors.As(err, &finding) || !strings.Contains(finding.Shown, "\n20\n") {
		t.Fatalf("%v", err)
	}
	if a := post(t, w, l.request(t, 12, 12, l.at(t, l.size))); a.Code != http.StatusInternalServerError {
		t.Errorf("after a finding: %d %s", a.Code, a.Body)
	}
}

func FuzzAddCheckpoint(f *testing.F) {
	l := newLog(f, "secbox/a").grow(f, 9, "e")
	w := open(f, f.TempDir(), l)
	f.Add(l.request(f, 0, 0, l.at(f, 9)))
	f.Add([]byte("old 9\n\nsecbox/a\n9\nAAAA\n\n— secbox/a AAAAAAAA\n"))
	f.Add([]byte("old 99999999999999999999\n\n\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if a := post(t, w, body); a.Code == http.StatusOK && w.Latest().Tree.N != 9 {
			t.Errorf("%q: %s", body, a.Body)
		}
	})
}
