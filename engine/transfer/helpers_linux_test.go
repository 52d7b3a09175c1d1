package transfer_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"secbox/engine/transfer"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var wide = transfer.Bounds{Bytes: 1 << 40, Entries: 1 << 20}

// ends are the two ends of transfers: a project's directories here, and a container's.
type ends struct {
	t         testing.TB
	here      string // has inputs, work and .staging
	container string // has inputs and work
	dirs      []transfer.Dir
}

func newEnds(t testing.TB) *ends {
	t.Helper()
	return newEndsIn(t, t.TempDir())
}

func newEndsIn(t testing.TB, here string) *ends {
	t.Helper()
	e := &ends{t: t, here: here, container: filepath.Join(t.TempDir(), "workspace")}
	open := func(name string) *os.Root {
		must(t, os.MkdirAll(filepath.Join(e.here, name), 0o755))
		root, err := os.OpenRoot(filepath.Join(e.here, name))
		must(t, err)
		t.Cleanup(func() { root.Close() })
		return root
	}
	staging := open(".staging")
	e.dirs = []transfer.Dir{
		{Target: filepath.Join(e.container, "inputs"), ReadOnly: true, Root: open("inputs")},
		{Target: filepath.Join(e.container, "work"), Root: open("work"), Staging: staging},
	}
	return e
}

// put writes a file here; in writes it in the container.
func (e *ends) put(path, content string) { e.write(filepath.Join(e.here, path), content) }
func (e *ends) in(path, content string)  { e.write(filepath.Join(e.container, path), content) }

func (e *ends) write(path, content string) {
	e.t.Helper()
	must(e.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(e.t, os.WriteFile(path, []byte(content), 0o644))
}

// send fills the container.
func (e *ends) send() *transfer.Unpacked {
	e.t.Helper()
	var stream bytes.Buffer
	_, err := transfer.Send(&stream, e.dirs, wide)
	must(e.t, err)
	u, err := transfer.Unpack(&stream)
	must(e.t, err)
	return u
}

// changes is the stream of changes.
func (e *ends) changes(u *transfer.Unpacked) []byte {
	e.t.Helper()
	var stream bytes.Buffer
	must(e.t, u.Changes(&stream, wide))
	return stream.Bytes()
}

// receive applies a stream here.
func (e *ends) receive(stream []byte) (transfer.Report, error) {
	e.t.Helper()
	return transfer.Receive(bytes.NewReader(stream), e.dirs, wide, transfer.Owner{UID: -1})
}

// back brings back what changed.
func (e *ends) back(u *transfer.Unpacked) transfer.Report {
	e.t.Helper()
	report, err := e.receive(e.changes(u))
	must(e.t, err)
	e.noTemps()
	return report
}

// noTemps checks that no temporary name is left here.
func (e *ends) noTemps() {
	e.t.Helper()
	left, err := os.ReadDir(filepath.Join(e.here, ".staging"))
	must(e.t, err)
	if len(left) > 0 {
		e.t.Errorf("a temporary file is left: %v", left)
	}
}

// has checks the content of a file here; "" means that there is none.
func (e *ends) has(path, content string) {
	e.t.Helper()
	got, err := os.ReadFile(filepath.Join(e.here, path))
	if content == "" && !os.IsNotExist(err) || content != "" && string(got) != content {
		e.t.Errorf("%s: %q %v, want %q", path, got, err, content)
	}
}

// The records of a stream, for streams that no sender of ours writes.
type record = map[string]any

func rec(kind byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	return append(b, payload...)
}

func recJSON(kind byte, v any) []byte {
	payload, _ := json.Marshal(v)
	return rec(kind, payload)
}

func block(at uint64, data string) []byte {
	return rec('B', append(binary.BigEndian.AppendUint64(nil, at), data...))
}

func size(n uint64) []byte { return rec('Z', binary.BigEndian.AppendUint64(nil, n)) }

// file is a whole file of work/, with a last record of its own.
func file(path, content string) []byte {
	b := recJSON('F', record{"d": 1, "p": []byte(path), "m": 0o644})
	if content != "" {
		b = append(b, block(0, content)...)
	}
	return append(b, size(uint64(len(content)))...)
}

func link(path, to string) []byte {
	return recJSON('L', record{"d": 1, "p": []byte(path), "l": []byte(to)})
}

var end = recJSON('E', record{})

func stream(records ...[]byte) []byte { return bytes.Join(append(records, end), nil) }

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

var _ io.Reader = zeros{}
