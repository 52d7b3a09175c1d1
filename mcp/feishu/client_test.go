package feishu

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"secbox/fault"
)

// TestTokenIsSharedAndRenewed: one request for all callers, again before the end of the token, and
// once more after it was refused.
func TestTokenIsSharedAndRenewed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	now := time.Now()
	f.client.now = func() time.Time { return now }
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := f.client.accessToken(t.Context(), ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	issued := func(want int, when string) {
		t.Helper()
		if _, err := f.client.Send(t.Context(), Uploaded{Key: "file_v3_0", messageType: "file"}, "open_id", "ou_1"); err != nil {
			t.Error(when, err)
		}
		if n := f.count("/internal"); n != want {
			t.Errorf("%s: %d tokens, want %d", when, n, want)
		}
	}
	f.files["file_v3_0"] = []byte("x")
	issued(1, "20 callers")
	now = now.Add(109 * time.Minute)
	issued(1, "11 minutes before the end")
	now = now.Add(2 * time.Minute)
	issued(2, "9 minutes before the end")
	f.revoke()
	issued(3, "after it was refused")
	f.expire = 60
	f.revoke()
	issued(4, "a short one")
	now = now.Add(29 * time.Second)
	issued(4, "half of a short one")
	now = now.Add(2 * time.Second)
	issued(5, "after half of a short one")

	f.mu.Lock()
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		refuse := !strings.HasSuffix(r.URL.Path, "/internal")
		if refuse {
			f.reply(w, 400, codeInvalidToken, "Invalid access token", nil)
		}
		return refuse
	}
	f.mu.Unlock()
	if _, err := f.client.Send(t.Context(), Uploaded{Key: "file_v3_0", messageType: "file"}, "open_id", "ou_1"); !fault.Is(err, fault.UpstreamFailed) ||
		f.count("/internal") != 6 {
		t.Errorf("always refused: %v after %d tokens", err, f.count("/internal"))
	}
}

// TestTooFrequentRequestsWait: as long as Feishu says, and not for ever. A message is sent once.
func TestTooFrequentRequestsWait(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	waited := f.waits()
	box, dir := workspace(t)
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	write(t, dir, "a", content)
	refusals := 0
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if refusals == 0 || strings.HasSuffix(r.URL.Path, "/internal") {
			return false
		}
		refusals--
		w.Header().Set("x-ogw-ratelimit-reset", "52")
		f.reply(w, http.StatusTooManyRequests, codeTooFrequent, "request trigger frequency limit", nil)
		return true
	}
	refusals = 2
	file, err := f.client.Upload(t.Context(), Upload{Path: "/workspace/a"}, box, ann)
	if err != nil || !bytes.Equal(f.files[file.Key], content) {
		t.Errorf("%+v %v", file, err)
	}
	refusals = 1
	if _, err := f.client.Send(t.Context(), file, "email", "a@b.c"); err != nil || len(f.messages) != 1 {
		t.Errorf("%v, %d messages", err, len(f.messages))
	}
	if want := []time.Duration{52 * time.Second, 52 * time.Second, 52 * time.Second}; !slices.Equal(*waited, want) {
		t.Errorf("waited %v", *waited)
	}
	refusals = 100
	if _, err := f.client.Send(t.Context(), file, "email", "a@b.c"); !fault.Is(err, fault.UpstreamFailed) || fault.From(err).RetryAfter != 52*time.Second ||
		refusals != 100-maxTries {
		t.Errorf("%v, %d refusals", err, 100-refusals)
	}
	for _, c := range []struct {
		status, code int
		header       string
		waits        bool
	}{
		{400, codeTooFrequent, "3", true},
		{400, codeMessageLimit, "", true},
		{400, codeChatLimit, "1", true},
		{200, codeDriveRetry, "", true},
		{429, 0, "61", false},
		{429, 0, "999999999", false},
		{429, 0, "-1", true},
		{400, 230001, "3", false},
	} {
		first := true
		f.mu.Lock()
		f.before = func(w http.ResponseWriter, r *http.Request) bool {
			defer func() { first = false }()
			if first {
				w.Header().Set("Retry-After", c.header)
				f.reply(w, c.status, c.code, "no", nil)
			}
			return first
		}
		f.mu.Unlock()
		*waited = nil
		_, err := f.client.Send(t.Context(), file, "email", "a@b.c")
		if (err == nil) != c.waits || (len(*waited) == 1) != c.waits {
			t.Errorf("%+v: %v, waited %v", c, err, *waited)
		}
	}
}

// TestErrorsShowNoSecrets: neither the token nor the app's secret, whatever Feishu's answer
// contains; and a bounded part of it.
func TestErrorsShowNoSecrets(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.client.appSecret = "wrong-secret-0123456789"
	if _, err := f.client.accessToken(t.Context(), ""); err == nil || strings.Contains(err.Error(), "wrong-secret") ||
		!strings.Contains(err.Error(), "code 10014") {
		t.Errorf("%v", err)
	}
	f.client.appSecret = testSecret
	var token string
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/internal") {
			return false
		}
		token = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		f.reply(w, 400, 230001, "bad \x1b[31m\u202e "+token+" "+testSecret+strings.Repeat(" long", 1000), nil)
		return true
	}
	_, err := f.client.Send(t.Context(), Uploaded{Key: "x", messageType: "file"}, "open_id", "ou_1")
	text := fault.From(err).Message
	if token == "" || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), testSecret) || strings.ContainsAny(text, "\x1b\u202e") ||
		len(text) > 400 || !strings.Contains(text, "code 230001") {
		t.Errorf("%q", text)
	}
}

// TestLostAnswerOfAMessage: it is unknown whether it was sent.
func TestLostAnswerOfAMessage(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/messages") {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	if _, err := f.client.Send(t.Context(), Uploaded{Key: "x", messageType: "file"}, "open_id", "ou_1"); !fault.Is(err, fault.OutcomeUnknown) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.client.Send(ctx, Uploaded{Key: "x", messageType: "file"}, "open_id", "ou_1"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestUploadsToDriveAtOnce: the fake fails the test if two calls of the drive overlap.
func TestUploadsToDriveAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				var got struct{}
				if err := f.client.callDrive(t.Context(), &got, f.client.post("/open-apis/drive/v1/files/upload_prepare", map[string]any{
					"file_name": "a", "parent_type": "explorer", "parent_node": "fldcn1", "size": 1,
				})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

func TestNewChecksTheAddress(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://open.feishu.cn": true, "https://open.larksuite.com/": true, "http://127.0.0.1:8080": true, "http://localhost": true, "http://[::1]:1": true,
		"http://open.feishu.cn": false, "ftp://localhost": false, "open.feishu.cn": false, "https://u:p@open.feishu.cn": false,
		"https://open.feishu.cn/x":   false,
		"https://open.feishu.cn?a=b": false, "": false, "https://": false, "http://127.0.0.1.evil.example": false, "http://localhost.evil.example": false,
	} {
		if _, err := New(Config{BaseURL: address, AppID: "x", AppSecret: "y"}); (err == nil) != ok || err != nil && !fault.Is(err, fault.InvalidSettings) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := New(Config{BaseURL: "https://open.feishu.cn", AppID: "x"}); !fault.Is(err, fault.InvalidSettings) {
		t.Errorf("without a secret: %v", err)
	}
}
