package tools_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"secbox/mcp/offload"
	"secbox/sandbox"
	"secbox/sandbox/remote/machine"
	"secbox/sandbox/remote/wire"
)

// big is content that comes from a runner in a transfer of its own, and is a long result too.
func big(name string) []byte {
	return bytes.Repeat([]byte(name+" is a line of a long file\n"), wire.InlineBytes/20)
}

// TestKeptResultsEverywhere: in every kind of sandbox, long results are read in parts, and the
// files that were read are compared with what the sandbox has now: small ones, large ones, links,
// and paths that are something else now.
func TestKeptResultsEverywhere(t *testing.T) {
	t.Parallel()
	for name, open := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t)
			session := keepingIn(t, p.sandbox)
			at := func(name string) string { return filepath.Join(p.dir, name) }
			write := func(name string, content []byte) error {
				return errors.Join(os.WriteFile(at(name), content, 0o666), os.Chmod(at(name), 0o666))
			}
			var lines []byte
			for n := range 3000 {
				lines = fmt.Appendf(lines, "line %d of a file\n", n)
			}
			ids := map[string]any{}
			for _, file := range []string{"same", "touched", "changed", "removed", "a directory", "a fifo", "leads out", "grown"} {
				if err := write(file, append([]byte(file+"\n"), lines...)); err != nil {
					t.Fatal(err)
				}
				ids[file] = mustCall(t, session, "files.read", map[string]any{"path": file}).Meta["offload_id"]
			}
			for _, file := range []string{"big", "big changed", "big removed"} {
				if err := write(file, big(file)); err != nil {
					t.Fatal(err)
				}
				mustCall(t, session, "files.read", map[string]any{"path": file})
			}
			read := mustCall(t, session, "files.read", map[string]any{"path": "changed"})
			id, size := read.Meta["offload_id"], read.Meta["offload_bytes"].(int64)
			var whole strings.Builder
			for offset := int64(0); offset < size; {
				part := mustCall(t, session, "offload.read", map[string]any{"id": id, "offset": offset})
				to := part.Meta["to"].(int64)
				whole.WriteString(part.Text[:to-offset])
				offset = to
			}
			if n := strings.Count(whole.String(), " of a file\n"); int64(whole.Len()) != size || n == 0 {
				t.Errorf("%d of %d bytes, %d lines", whole.Len(), size, n)
			}
			if got := mustCall(t, session, "offload.stale", nil); len(got.Meta) > 0 {
				t.Errorf("nothing has changed, and still %q", got.Text)
			}

			changed := append([]byte("changed\n"), lines...)
			changed[100] ^= 1 // of the same size
			bigger := big("big changed")
			bigger[len(bigger)-2] ^= 1
			for _, err := range []error{
				write("changed", changed), os.Chtimes(at("touched"), time.Unix(1, 0), time.Unix(1, 0)), os.Remove(at("removed")),
				os.Remove(at("a directory")), os.Mkdir(at("a directory"), 0o755),
				os.Remove(at("a fifo")), syscall.Mkfifo(at("a fifo"), 0o666),
				os.Remove(at("leads out")), os.Symlink("/etc/hostname", at("leads out")),
				write("grown", append([]byte("grown\n"), append(lines, "one more\n"...)...)),
				write("big changed", bigger), os.Remove(at("big removed")),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			for file, says := range map[string]string{
				"changed": "has changed since it was read", "removed": "was removed since it was read",
				"a fifo": "cannot be compared with what was read; perhaps it has changed",
			} {
				// before offload.stale is asked
				if r := mustCall(t, session, "offload.read", map[string]any{"id": ids[file]}); !strings.HasSuffix(r.Text,
					"\n(/workspace/"+file+" "+says+")\n") {
					t.Errorf("%q", r.Text[len(r.Text)-200:])
				}
			}
			if r := mustCall(t, session, "offload.read", map[string]any{"id": ids["touched"]}); !strings.HasSuffix(r.Text, "; go on with offset 24576)\n") {
				t.Errorf("%q", r.Text[len(r.Text)-200:])
			}
			for range 2 {
				got := mustCall(t, session, "offload.stale", nil)
				for list, want := range map[string][]string{
					"changed": {"big changed", "changed", "grown"},
					"removed": {"big removed", "removed"},
					"unknown": {"a directory", "a fifo", "leads out"},
				} {
					var names []string
					for _, full := range got.Meta[list].([]string) {
						names = append(names, strings.TrimPrefix(full, sandbox.Root+"/"))
					}
					slices.Sort(names)
					if !slices.Equal(names, want) {
						t.Errorf("%s: %q, not %q", list, names, want)
					}
				}
			}
		})
	}
}

// damage is a body with one byte changed.
type damage struct {
	io.ReadCloser
	at int
}

func (d *damage) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if 0 <= d.at && d.at < n {
		p[d.at] ^= 1
	}
	d.at -= n
	return n, err
}

// TestStaleOverBadRunners: a file that comes from a runner in part, or with another digest than the
// runner says, is never called unchanged, also if the same bytes are what was read before; nor
// changed or removed.
func TestStaleOverBadRunners(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]network{
		"goes away before": {transfer: func(stop func(), _ http.HandlerFunc) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) {
				stop()
				panic(http.ErrAbortHandler)
			}
		}},
		"goes away in the middle": {transfer: func(stop func(), serve http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				r.Body = &cutOff{r.Body, 1 << 20, stop}
				serve(w, r)
			}
		}},
		"sends other bytes": {transfer: func(_ func(), serve http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				r.Body = &damage{r.Body, 3 << 20}
				serve(w, r)
			}
		}},
		"says that there is less": {transfer: func(_ func(), serve http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", 1<<20-1, 1<<20))
				serve(w, r)
			}
		}},
		"says that there is more": {transfer: func(_ func(), serve http.HandlerFunc) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", 1<<40-1, 1<<40))
				serve(w, r)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			between.grace = 100 * time.Millisecond
			p := connectOver(t, t.TempDir(), between, machine.AllowWrite)
			content := big("a")
			if err := os.WriteFile(filepath.Join(p.dir, "a"), content, 0o644); err != nil {
				t.Fatal(err)
			}
			store, err := offload.Open(offload.Config{Dir: filepath.Join(t.TempDir(), "offload")})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			for _, said := range [][]byte{content, content[:1<<20]} {
				seen := []offload.File{{Path: "/workspace/a", SHA256: fmt.Sprintf("%x", sha256.Sum256(said))}}
				found, err := store.Begin(p.user).InvalidateStaleReads(t.Context(), seen, p.sandbox)
				if err != nil || len(found.Changed)+len(found.Removed) > 0 || len(found.Unknown) != 1 {
					t.Errorf("%+v %v", found, err)
				}
			}
		})
	}
}

// cutOff is a body that ends its runner after some bytes.
type cutOff struct {
	io.ReadCloser
	left int
	stop func()
}

func (c *cutOff) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.stop()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}
