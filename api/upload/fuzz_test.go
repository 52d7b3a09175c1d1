package upload

import (
	"bytes"
	"io"
	"mime/multipart"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"secbox/api/inflight"
	"secbox/fault"
)

// FuzzForm checks that any bytes are either a form whose one file is on disk as sent, or refused
// without leaving a file.
func FuzzForm(f *testing.F) {
	const head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.zip\"\r\nContent-Type: application/zip\r\n\r\n"
	for _, seed := range []string{
		"", "--b--\r\n", head + "PK\r\n--b--\r\n", head + "PK", head + "PK\r\n--b\r\n", head + "1\r\n" + head + "2\r\n--b--\r\n", head + "\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"scope\"\r\n\r\nbaseline\r\n" + head + "PK\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename*=UTF-8''%E6%8A%80.zip\r\n\r\nPK\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../../\xc4\xe3.zip\"\r\nContent-Transfer-Encoding: " +
			"quoted-printable\r\n\r\n=41\r\n--b--\r\n",
		"--b\r\nX: " + string(bytes.Repeat([]byte("a"), 5000)) + "\r\n\r\n\r\n--b--\r\n", "--b\r\n\r\n\r\n--b--",
		head + string(bytes.Repeat([]byte("x"), 2000)) + "\r\n--b--",
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, body []byte) {
		u, err := Open(Config{
			Dir: filepath.Join(dir, "u"), MaxBytes: 1000,
			Quota: inflight.NewQuota("uploads", inflight.Share{Requests: 9, Bytes: 1 << 20}, inflight.Share{Requests: 9, Bytes: 1 << 20}),
		})
		if err != nil {
			t.Fatal(err)
		}
		archive, err := u.Receive(multipart.NewReader(bytes.NewReader(body), "b"), "", -1)
		if err != nil {
			if e := fault.From(err); e.Code != fault.InvalidRequest && e.Code != fault.ArchiveTooLarge || len(e.Message) > 2000 ||
				!utf8.ValidString(e.Message) {
				t.Fatalf("refused with %v", e)
			}
		} else {
			content, err := io.ReadAll(archive)
			if at, _ := archive.Seek(0, io.SeekCurrent); err != nil || at != archive.Size || archive.Size > 1000 {
				t.Errorf("%d bytes, at %d: %v", archive.Size, at, err)
			}
			whole := make([]byte, archive.Size)
			if _, err := archive.ReadAt(whole, 0); err != nil && archive.Size > 0 || !bytes.Contains(body, whole) {
				t.Errorf("%q was not sent (%v), read on %q", whole, err, content)
			}
			if filepath.Base(archive.ClientName) != archive.ClientName && archive.ClientName != "" {
				t.Errorf("the name is %q", archive.ClientName)
			}
			if err := archive.Close(); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(u.cfg.Dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v %v", left, err)
		}
	})
}
