package api

import (
	"bytes"
	"io"
	"mime/multipart"
	"os"
	"path/filepath"
	"testing"

	"secbox/fault"
)

// FuzzForm: any bytes are a form with one file, which then lies on the disk as it was sent, or a refusal after which nothing does.
func FuzzForm(f *testing.F) {
	const head = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.zip\"\r\nContent-Type: application/zip\r\n\r\n"
	for _, seed := range []string{
		"", "--b--\r\n", head + "PK\r\n--b--\r\n", head + "PK", head + "PK\r\n--b\r\n", head + "1\r\n" + head + "2\r\n--b--\r\n", head + "\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"scope\"\r\n\r\nbaseline\r\n" + head + "PK\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename*=UTF-8''%E6%8A%80.zip\r\n\r\nPK\r\n--b--\r\n",
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../../\xc4\xe3.zip\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n=41\r\n--b--\r\n",
		"--b\r\nX: " + string(bytes.Repeat([]byte("a"), 5000)) + "\r\n\r\n\r\n--b--\r\n", "--b\r\n\r\n\r\n--b--", head + string(bytes.Repeat([]byte("x"), 2000)) + "\r\n--b--",
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, body []byte) {
		u, err := openUploads(filepath.Join(dir, "u"), 1000, Bounds{}.withDefaults(0))
		if err != nil {
			t.Fatal(err)
		}
		taken, err := u.take(multipart.NewReader(bytes.NewReader(body), "b"), "", -1)
		if err != nil {
			refused(t, err, fault.InvalidRequest, fault.ArchiveTooLarge)
		} else {
			content, err := io.ReadAll(taken)
			if at, _ := taken.Seek(0, io.SeekCurrent); err != nil || at != taken.size || taken.size > 1000 {
				t.Errorf("%d bytes, at %d: %v", taken.size, at, err)
			}
			whole := make([]byte, taken.size)
			if _, err := taken.ReadAt(whole, 0); err != nil && taken.size > 0 || !bytes.Contains(body, whole) {
				t.Errorf("%q is not what was sent (%v), read on %q", whole, err, content)
			}
			if filepath.Base(taken.name) != taken.name && taken.name != "" {
				t.Errorf("the name is %q", taken.name)
			}
			if err := taken.Close(); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(u.dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v %v", left, err)
		}
	})
}
