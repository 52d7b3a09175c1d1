package tools_test

import (
	"encoding/base64"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"secbox/fault"
	"secbox/sandbox"
)

// downloadGivesFiles: small ones in the answer, and all with the request that downloads them (004
// l125-l145, l277).
func downloadGivesFiles(b *bench) {
	content := "\x00\xffbytes\n"
	b.plant("ü b.bin", content)
	r := b.do("files.download", object{"path": "ü b.bin"})
	at := strings.TrimPrefix(b.dir, sandbox.Root+"/") + "/ü b.bin"
	where, err := url.Parse(r.Meta["http_path"].(string))
	if err != nil || where.Query().Get("path") != at || where.Path != "/v1/sandbox/"+b.p.user.ID+"/"+b.p.user.AgentID+"/file" {
		b.Errorf("%v %v", r.Meta, err)
	}
	if r.File == nil || string(r.File.Content) != content || r.File.Path != b.dir+"/ü b.bin" || r.Meta["size"] != int64(len(content)) ||
		r.Meta["mime"] != "application/octet-stream" {
		b.Errorf("%+v %v", r.File, r.Meta)
	}
	if digest := b.do("files.read", object{"path": "ü b.bin"}).Meta["sha256"]; r.Meta["sha256"] != digest {
		b.Errorf("%v, not %v", r.Meta["sha256"], digest)
	}
	b.plant("empty", "")
	if r := b.do("files.download", object{"path": "empty"}); r.File == nil || len(r.File.Content) > 0 {
		b.Errorf("%+v", r.File)
	}
	b.plant("large", strings.Repeat("x", 1<<20+1))
	if r := b.do("files.download", object{"path": "large"}); r.File != nil || r.Meta["sha256"] == nil || r.Meta["mime"] != "text/plain; charset=utf-8" ||
		r.Meta["size"] != int64(1<<20+1) {
		b.Errorf("%+v %v", r.File, r.Meta)
	}
	b.must(os.Truncate(filepath.Join(b.host, "large"), 65<<20))
	if r := b.do("files.download", object{"path": "large"}); r.File != nil || r.Meta["sha256"] != nil || r.Meta["size"] != int64(65<<20) ||
		!strings.Contains(r.Text, "Want-Repr-Digest") {
		b.Errorf("%+v %v", r.File, r.Meta)
	}
	b.must(os.Truncate(filepath.Join(b.host, "large"), sandbox.MaxFileBytes+1))
	b.refuses("files.download", object{"path": "large"}, fault.FileTooLarge, "524288001 bytes")
	b.refuses("files.download", object{"path": "none"}, fault.UnknownFile, "there is no")
	b.refuses("files.download", object{"path": "."}, fault.InvalidInputs, "is a directory")
	b.refuses("files.download", object{"path": "/etc/passwd"}, fault.PathRefused, "is not in /workspace")
}

// uploadWritesBytes: any bytes, whole or not at all, and only over what the agent has seen.
func uploadWritesBytes(b *bench) {
	content := "\x00\xffbytes\n"
	data := base64.StdEncoding.EncodeToString([]byte(content))
	r := b.do("files.upload", object{"path": "new/f", "data": data})
	if got, err := os.ReadFile(filepath.Join(b.host, "new/f")); err != nil || string(got) != content || r.Meta["size"] != len(content) {
		b.Errorf("%q %v %v", got, err, r.Meta)
	}
	b.do("files.upload", object{"path": "new/f", "data": "", "sha256": "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"})
	b.refuses("files.upload", object{"path": "new/f", "data": data, "sha256": strings.Repeat("0", 64)}, fault.InvalidInputs, "sha256", "nothing was written")
	b.refuses("files.upload", object{"path": "new/f", "data": "*"}, fault.InvalidInputs, "base64")
	b.refuses("files.upload", object{"path": "large", "data": strings.Repeat("AAAA", 1<<19)}, fault.FileTooLarge, "PUT /v1/sandbox/")
	b.plant("theirs", "x")
	b.refuses("files.upload", object{"path": "theirs", "data": data}, fault.FileChanged, "read it first")
	b.do("files.download", object{"path": "theirs"})
	b.do("files.upload", object{"path": "theirs", "data": data})
	if r := b.do("files.upload", object{"path": "large"}); !strings.Contains(r.Text, "PUT "+r.Meta["http_path"].(string)) {
		b.Errorf("%q %v", r.Text, r.Meta)
	}
	if _, err := os.Stat(filepath.Join(b.host, "large")); err == nil {
		b.Error("an upload without content made a file")
	}
}
