package wire_test

import (
	"io/fs"
	"testing"

	"secbox/sandbox/remote/wire"
)

// TestShortMessages decodes messages without their optional fields.
func TestShortMessages(t *testing.T) {
	t.Parallel()
	for _, request := range []string{
		`{"id":"req_001","type":"exec","command":"ls","args":["-la"],"shell":true,"dir":"/workspace","env":[],"stdin":"","timeout":30,"user_id":"ou_xxx"}`,
		`{"id":"req_002","type":"read_file","path":"/workspace/src/main.go","user_id":"ou_xxx"}`,
		`{"id":"req_003","type":"write_file","path":"/workspace/src/main.go","data":"aGk=","perm":384,"user_id":"ou_xxx"}`,
		`{"id":"req_004","type":"stat","path":"/workspace/src/main.go","user_id":"ou_xxx"}`,
		`{"id":"req_005","type":"read_dir","path":"/workspace/skills","user_id":"ou_xxx"}`,
		`{"id":"req_006","type":"mkdir_all","path":"/workspace/skills/new","perm":493,"user_id":"ou_xxx"}`,
		`{"id":"req_007","type":"remove","path":"/workspace/skills/old","user_id":"ou_xxx"}`,
		`{"id":"req_008","type":"remove_all","path":"/workspace/skills/old-dir","user_id":"ou_xxx"}`,
	} {
		if _, err := wire.FromServer([]byte(request)); err != nil {
			t.Errorf("%s: %v", request, err)
		}
	}
	answer := func(frame string) any {
		t.Helper()
		m, err := wire.FromRunner([]byte(frame))
		if err != nil {
			t.Fatalf("%s: %v", frame, err)
		}
		return m.Body
	}
	r := answer(`{"id":"req_001","type":"exec_result","stdout":"four","stderr":"no","exit_code":0,"timed_out":false}`).(*wire.ExecResult)
	if r.StdoutBytes != 4 || r.StderrBytes != 2 {
		t.Errorf("of a command that printed 4 and 2 bytes: %+v", r)
	}
	if c := answer(`{"id":"req_002","type":"file_content","data":"aGk="}`).(*wire.FileContent); c.Size != 2 || string(c.Data) != "hi" {
		t.Errorf("of a file with 2 bytes: %+v", c)
	}
	if e := answer(`{"id":"req_002","type":"error","message":"file not found","code":"ENOENT"}`).(*wire.Error); e.Code != wire.CodeNotExist {
		t.Errorf("of a file that is not there: %+v", e)
	}
	i := answer(`{"id":"req_004","type":"file_info","name":"main.go","size":1234,"mode":420,"mod_time":"2026-03-26T00:00:00Z","is_dir":false}`).(*wire.FileInfo)
	if i.Mode != 0o644 || i.Size != 1234 || i.ModTime.Day() != 26 {
		t.Errorf("of a file: %+v", i)
	}
	if d := answer(`{"id":"req_004","type":"file_info","name":"src","size":4096,"mode":493,"mod_time":"2026-03-26T00:00:00Z","is_dir":true}`).(*wire.FileInfo); fs.FileMode(d.Mode) != fs.ModeDir|0o755 {
		t.Errorf("of a directory: %+v", d)
	}
	list := answer(`{"id":"req_005","type":"dir_entries","entries":[{"name":"my-skill","is_dir":true,"size":4096},{"name":"readme.md","is_dir":false,"size":256}]}`).(*wire.DirEntries)
	if e := list.Entries; len(e) != 2 || fs.FileMode(e[0].Mode) != fs.ModeDir || e[0].Size != 0 || e[1].Mode != 0 || e[1].Size != 256 {
		t.Errorf("of a directory: %+v", list)
	}
}
