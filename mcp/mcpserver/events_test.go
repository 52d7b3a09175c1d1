package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestStreamResumes: a client whose connection breaks during a call gets the rest with
// Last-Event-ID, once the call has ended and before.
func TestStreamResumes(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			session := f.open("worker")
			for n, endFirst := range []bool{true, false} {
				ctx, breakOff := context.WithCancel(t.Context())
				resp := f.stream(ctx, http.MethodPost, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"skill_test_echo",
					"arguments":{"text":"wait"},"_meta":{"progressToken":"p"}}}`, n+10), "Mcp-Protocol-Version", version)
				lines := bufio.NewScanner(resp.Body)
				last := ""
				for lines.Scan() && !strings.Contains(lines.Text(), "notifications/progress") {
					if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
						last = id
					}
				}
				breakOff()
				_ = resp.Body.Close()
				if last == "" {
					t.Fatal("the first event has no id")
				}
				eventually(t, "the request has left", func() bool { return f.server.sessions.busyOf(session) == 1 }) // the call
				cancel := func() { _ = f.execs.Cancel(t.Context(), f.execs.running()[0]) }
				if endFirst {
					cancel()
					eventually(t, "the call has ended", func() bool { return f.server.sessions.busyOf(session) == 0 })
				}
				resumed := f.stream(t.Context(), http.MethodGet, session, "", "Mcp-Protocol-Version", version, "Last-Event-ID", last)
				if resumed.StatusCode != http.StatusOK {
					t.Fatal(resumed.Status)
				}
				if !endFirst {
					cancel()
				}
				answered := false
				for lines := bufio.NewScanner(resumed.Body); lines.Scan(); {
					answered = answered || strings.Contains(lines.Text(), fmt.Sprintf(`"id":%d`, n+10)) && strings.Contains(lines.Text(), "ended as canceled")
				}
				_ = resumed.Body.Close()
				if !answered {
					t.Errorf("end first: %v: the answer is missing", endFirst)
				}
			}
			if resp, body := f.send(http.MethodGet, "worker", session, "", "Last-Event-ID", "NOSUCH_1"); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("an unknown event: %d %s", resp.StatusCode, body)
			}
		})
	}
}

// stream sends one request and returns its answer unread.
func (f *fixture) stream(ctx context.Context, method, session, body string, header ...string) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, f.url, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i, all := 0, append([]string{
		"Authorization", "Bearer worker", "Content-Type", "application/json", "Accept", "application/json, text/event-stream", sessionHeader, session,
	}, header...); i < len(all); i += 2 {
		req.Header.Set(all[i], all[i+1])
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (s *sessions) busyOf(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.byID[id]; one != nil {
		return one.busy
	}
	return -1
}

func TestEvents(t *testing.T) {
	t.Parallel()
	e := &events{sessions: map[string]*sessionEvents{}}
	ctx := t.Context()
	open := func(stream string) {
		if err := e.Open(ctx, "s", stream); err != nil {
			t.Fatal(err)
		}
	}
	add := func(stream, data string) {
		if err := e.Append(ctx, "s", stream, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	after := func(stream string, index int) string {
		var all []string
		for data, err := range e.After(ctx, "s", stream, index) {
			if err != nil {
				if !errors.Is(err, mcp.ErrEventsPurged) {
					t.Error(err)
				}
				return "purged"
			}
			all = append(all, string(data))
		}
		return strings.Join(all, " ")
	}
	wants := func(stream string, index int, want string) {
		t.Helper()
		if got := after(stream, index); got != want {
			t.Errorf("%q after %d: %.100q, want %q", stream, index, got, want)
		}
	}
	open("late") // there is no session yet
	wants("late", 0, "purged")
	open(ownStream)
	wants(ownStream, -1, "")
	for _, data := range []string{"changed 1", "changed 2", "changed 3"} {
		add(ownStream, data)
	}
	wants(ownStream, -1, "changed 3")
	wants(ownStream, 1, "changed 3")
	wants(ownStream, 2, "")
	wants(ownStream, 99, "")

	open("a")
	open("b")
	add("a", "")
	add("a", "a1")
	add("b", "b0")
	add("a", "a2")
	wants("a", 0, "a1 a2")
	wants("a", 2, "")
	wants("b", -1, "b0")
	add("b", strings.Repeat("x", maxEventBytes-2*eventOverhead-len("a2"))) // leaves room for one
	wants("a", 0, "purged")
	wants("a", 1, "a2")
	wants("b", -1, "purged")
	add("b", strings.Repeat("y", maxEventBytes)) // is too long itself
	wants("a", 1, "purged")
	wants("a", 2, "")
	wants("b", 1, "purged")
	if s := e.sessions["s"]; s.bytes != 0 || len(s.kept) != 0 {
		t.Errorf("%d bytes, %d events", s.bytes, len(s.kept))
	}
	add("a", "a3")
	wants("a", 2, "a3")

	for n := range maxEventStreams {
		open(fmt.Sprint(n))
	}
	wants("a", 2, "purged")
	add("a", "a4")
	wants("b", 2, "purged")
	wants(ownStream, -1, "changed 3")
	if s := e.sessions["s"]; s.bytes != 0 || len(s.kept) != 0 || len(s.streams) != maxEventStreams+1 {
		t.Errorf("%d bytes, %d events, %d streams", s.bytes, len(s.kept), len(s.streams))
	}
	if err := e.SessionClosed(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	open("c")
	add("c", "c0")
	if len(e.sessions) != 0 {
		t.Error("a session that has ended is there again")
	}
}
