package terminal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"secbox/engine/initproto"
)

func record(t *testing.T, typed bool, limit int64) *Recording {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cast")
	r := Record(path, "exec 1", Size{Cols: 80, Rows: 24}, typed, limit)
	t.Cleanup(func() {
		if err := r.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file stays: %v", err)
		}
	})
	return r
}

// events are the events of a recording, as kind and data, after its header.
func events(t *testing.T, r *Recording) (all []string, cut bool) {
	t.Helper()
	content, cut, err := r.Finish()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, 1<<20)
	lines.Scan()
	var header map[string]any
	if err := json.Unmarshal(lines.Bytes(), &header); err != nil || header["version"] != 2.0 || header["width"] != 80.0 ||
		header["height"] != 24.0 || header["timestamp"].(float64) < 1e9 || header["title"] != "exec 1" {
		t.Errorf("%s, %v", lines.Bytes(), err)
	}
	last := 0.0
	for lines.Scan() {
		var event [3]any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || event[0].(float64) < last {
			t.Errorf("%s, %v", lines.Bytes(), err)
		}
		last = event[0].(float64)
		all = append(all, event[1].(string)+" "+event[2].(string))
	}
	return all, cut
}

func check(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRecording: characters that come in pieces are whole, and other bytes are replaced.
func TestRecording(t *testing.T) {
	t.Parallel()
	r := record(t, true, 1<<20)
	for _, e := range []struct{ kind, data string }{
		{"o", "a\xe2"},
		{"i", "\xf0\x9f"},
		{"o", "\x82"},
		{"o", "\xac<&>"},
		{"i", "\x98\x80"},
		{"r", "100x30"},
		{"o", "\xff\x1b[31m\"\\\u2028"},
		{"o", "\x00\r\n"},
		{"o", ""},
		{"m", "signal: interrupt"},
		{"o", "\xe2\x82"},
	} {
		r.add(e.kind, []byte(e.data))
	}
	got, cut := events(t, r)
	check(t, got, "o a", "o €<&>", "i 😀", "r 100x30", "o \ufffd\x1b[31m\"\\\u2028", "o \x00\r\n", "m signal: interrupt", "o \ufffd\ufffd")
	if cut {
		t.Error("it is cut")
	}
}

// TestRecordingWithoutTyped: what is typed is nowhere in the file.
func TestRecordingWithoutTyped(t *testing.T) {
	t.Parallel()
	r := record(t, false, 1<<20)
	r.add("i", []byte("secret"))
	r.add("o", []byte("password: "))
	got, _ := events(t, r)
	check(t, got, "o password: ")
}

// TestRecordingIsCut: the file is bounded, and says where it ends.
func TestRecordingIsCut(t *testing.T) {
	t.Parallel()
	r := record(t, true, 1000)
	for range 100 {
		r.add("o", []byte("\x1b\x1b\x1b\x1b"))
	}
	got, cut := events(t, r)
	if last := got[len(got)-1]; !cut || len(got) > 30 || !strings.HasPrefix(last, "m the recording is cut here, at its limit of 1000 bytes") {
		t.Errorf("%v, %q", cut, got)
	}
	if r.written > 1200 {
		t.Errorf("%d bytes", r.written)
	}
}

// TestRecordingFails: a recording that cannot be written says so at its end.
func TestRecordingFails(t *testing.T) {
	t.Parallel()
	r := Record(filepath.Join(t.TempDir(), "missing", "cast"), "", Size{}, true, 1000)
	r.add("o", []byte("x"))
	if _, _, err := r.Finish(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
}

// TestInput: the job gets frames in order, and they are recorded when it takes them.
func TestInput(t *testing.T) {
	t.Parallel()
	r := record(t, true, 1<<20)
	term := New(r)
	ctx := t.Context()
	for _, err := range []error{
		term.Type(ctx, []byte("ls\r")), term.Resize(ctx, Size{Cols: 100, Rows: 30}), term.Signal(ctx, syscall.SIGINT), term.Type(ctx, []byte("\x03")),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	full, cancel := context.WithCancel(ctx)
	cancel()
	for range 2 * queued {
		if err := term.Type(full, []byte("x")); errors.Is(err, context.Canceled) {
			break
		}
	}
	frames := initproto.NewReader(io.Reader(smallReader{term}), initproto.ToTerminal)
	for _, want := range []string{"Ils\r", "Z\x00\x64\x00\x1e", "N\x02", "I\x03"} {
		kind, payload, err := frames.Next()
		if err != nil || string(byte(kind))+string(payload) != want {
			t.Errorf("%c %q, %v; want %q", kind, payload, err, want)
		}
	}
	_, _ = term.Write([]byte("out"))
	term.End()
	if err := term.Type(ctx, []byte("late")); err == nil {
		for range queued { // there may be room; it goes nowhere
			err = errors.Join(err, term.Type(ctx, []byte("late")))
		}
		if !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	}
	if _, err := io.Copy(io.Discard, term); err != nil {
		t.Error(err)
	}
	got, _ := events(t, r)
	check(t, got, "i ls\r", "r 100x30", "m signal: interrupt", "i \x03", "o out")
}

// smallReader reads two bytes at a time.
type smallReader struct{ io.Reader }

func (r smallReader) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(2, len(p))]) }

// TestOutput: clients get the output from their offset on, what is kept of it, and its end.
func TestOutput(t *testing.T) {
	t.Parallel()
	term := New(record(t, true, 1<<20))
	buf := make([]byte, 100)
	next := func(at, from int64, want string) {
		t.Helper()
		if f, n, err := term.Next(t.Context(), at, buf); f != from || string(buf[:n]) != want || err != nil {
			t.Errorf("%d %q %v", f, buf[:n], err)
		}
	}
	got := make(chan string)
	go func() {
		_, n, _ := term.Next(t.Context(), 0, make([]byte, 10))
		got <- string(rune('0' + n))
	}()
	_, _ = term.Write([]byte("abc"))
	if n := <-got; n != "3" {
		t.Error(n)
	}
	next(0, 0, "abc")
	next(1, 1, "bc")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := term.Next(gone, 3, buf); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for range 5 {
		_, _ = term.Write([]byte(strings.Repeat("x", Kept)))
	}
	_, _ = term.Write([]byte("end"))
	if at := term.At(); at != 6+5*Kept || len(term.shown) > 2*Kept || len(term.shown) < Kept {
		t.Errorf("%d bytes, %d kept", at, len(term.shown))
	}
	if from, n, err := term.Next(t.Context(), 1, buf); from != term.from || n != len(buf) || err != nil {
		t.Errorf("%d %d %v", from, n, err)
	}
	next(term.At()-3, term.At()-3, "end")
	term.End()
	next(term.At()-3, term.At()-3, "end")
	if _, n, err := term.Next(t.Context(), term.At(), buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d, %v", n, err)
	}
}
