package remote_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/sandbox/remote/wire"
)

// onlyReader hides the other methods of a reader.
type onlyReader struct{ io.Reader }

// fetched is the result of a GET.
type fetched struct {
	status int
	data   []byte
	size   string
	digest string
}

// get fetches content from an offset; at most so many bytes if most is not 0.
func (r *raw) get(transfer string, from, most int64) (fetched, error) {
	header := http.Header{}
	if from > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	resp, err := r.transfer(http.MethodGet, transfer, nil, header)
	if err != nil {
		return fetched{}, err
	}
	defer resp.Body.Close()
	f := fetched{status: resp.StatusCode}
	var body io.Reader = resp.Body
	if most > 0 {
		body = io.LimitReader(body, most)
	}
	f.data, err = io.ReadAll(body)
	f.size, f.digest = resp.Trailer.Get(wire.SizeTrailer), resp.Trailer.Get(wire.DigestTrailer)
	return f, err
}

func TestWriteLargeFile(t *testing.T) {
	t.Parallel()
	data := content(20 << 20)
	for name, source := range map[string]func() io.Reader{
		"that can be read again": func() io.Reader { return bytes.NewReader(data) },
		"that cannot":            func() io.Reader { return onlyReader{bytes.NewReader(data)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			r := s.laptop()
			write := begin(func() (int64, error) { return s.WriteFileFrom(t.Context(), "/workspace/a", source(), 0o640, user) })
			m := r.expect(wire.TypeWriteFile)
			p := m.Body.(*wire.Path)
			if p.Data != nil || p.Perm != 0o640 {
				t.Fatalf("%+v", p)
			}
			var have []byte
			for _, most := range []int64{3 << 20, 9<<20 + 7, 0} { // two breaks
				f, err := r.get(p.Transfer, int64(len(have)), most)
				if err != nil || len(have) > 0 && f.status != http.StatusPartialContent {
					t.Fatal(f.status, err)
				}
				have = append(have, f.data...)
				if most == 0 && (f.size != strconv.Itoa(len(data)) || f.digest != sumOf(data)) {
					t.Fatalf("%s %s", f.size, f.digest)
				}
			}
			if !bytes.Equal(have, data) {
				t.Fatal("other bytes have come")
			}
			r.send(m.ID, wire.TypeOK, nil)
			if got := <-write; got.err != nil || got.value != int64(len(data)) {
				t.Fatal(got)
			}
		})
	}
}

// TestReplayBeyondWindow: a call fails, and the file is unchanged, if the runner needs content that
// is no longer kept.
func TestReplayBeyondWindow(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	write := begin(func() (int64, error) {
		return s.WriteFileFrom(t.Context(), "/workspace/a", onlyReader{bytes.NewReader(content(24 << 20))}, 0o644, user)
	})
	m := r.expect(wire.TypeWriteFile)
	transfer := m.Body.(*wire.Path).Transfer
	if _, err := r.get(transfer, 0, 20<<20); err != nil {
		t.Fatal(err)
	}
	f, err := r.get(transfer, 1<<20, 0)
	if err != nil || f.status != http.StatusRequestedRangeNotSatisfiable {
		t.Fatal(f.status, err)
	}
	if got := <-write; !fault.Is(got.err, fault.RunnerOffline) {
		t.Fatal(got.err)
	}
	r.expect(wire.TypeCancel)
}

func TestFailingReaderLeavesFile(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	short := io.MultiReader(bytes.NewReader(content(100)), failing{})
	if _, err := s.WriteFileFrom(t.Context(), "/workspace/a", short, 0o644, user); !errors.Is(err, errTest) {
		t.Fatal(err)
	}
	write := begin(func() (int64, error) {
		return s.WriteFileFrom(t.Context(), "/workspace/a", io.MultiReader(bytes.NewReader(content(8<<20)), failing{}), 0o644, user)
	})
	m := r.expect(wire.TypeWriteFile)
	f, err := r.get(m.Body.(*wire.Path).Transfer, 0, 0)
	if err == nil || f.digest != "" {
		t.Fatal("a part was given as the whole:", f.size, f.digest)
	}
	if got := <-write; !errors.Is(got.err, errTest) {
		t.Fatal(got.err)
	}
	r.expect(wire.TypeCancel)
}

func TestRunnerSkipsContent(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	write := doing(func() error { return s.WriteFile(t.Context(), "/workspace/a", content(5<<20), 0o644, user) })
	m := r.expect(wire.TypeWriteFile)
	r.send(m.ID, wire.TypeOK, nil)
	if got := <-write; !fault.Is(got.err, fault.RunnerProtocol) {
		t.Fatal(got.err)
	}
	r.expectClosed(wire.StatusProtocol)
}

// TestOlderRunnerCannotReplace: a runner without CanCompare gets no if_sha256, and one without
// CanCreate no if_absent, because an unknown field would end its link.
func TestOlderRunnerCannotReplace(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := s.laptop()
	for _, was := range []string{strings.Repeat("0", 64), sandbox.Absent} {
		if _, err := s.ReplaceFile(t.Context(), "/workspace/a", strings.NewReader("x"), was, user); !fault.Is(err, fault.Unsupported) {
			t.Errorf("%s: %v", was, err)
		}
	}
	write := doing(func() error { return s.WriteFile(t.Context(), "/workspace/a", []byte("y"), 0o600, user) })
	m := r.expect(wire.TypeWriteFile) // the first message
	if p := m.Body.(*wire.Path); string(p.Data) != "y" || p.IfSHA256 != "" || p.IfAbsent {
		t.Errorf("asked for %+v", p)
	}
	r.send(m.ID, wire.TypeOK, nil)
	if res := <-write; res.err != nil {
		t.Error(res.err)
	}
}
