package replay_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"secbox/audit"
	"secbox/fault"
	"secbox/replay"
	"secbox/runner"
)

// opens checks what is in the copy of an input.
func (f *fixture) opens(record audit.Record, path, want string) {
	f.t.Helper()
	in, item, err := f.OpenInput(f.t.Context(), record, path, plenty)
	f.must(err)
	defer in.Close()
	content, err := io.ReadAll(in)
	if err != nil || string(content) != want || item.Path != path || item.Size != int64(len(want)) {
		f.t.Errorf("%q: %q, %+v, %v", path, content, item, err)
	}
}

func (f *fixture) notOpened(record audit.Record, path string, code fault.Code, says string) {
	f.t.Helper()
	if _, _, err := f.OpenInput(f.t.Context(), record, path, plenty); !fault.Is(err, code) || !strings.Contains(err.Error(), says) {
		f.t.Errorf("%q: %v, want %s with %q", path, err, code, says)
	}
}

func (f *fixture) list(record audit.Record, from, limit int) replay.InputList {
	f.t.Helper()
	list, err := f.Inputs(f.t.Context(), record, from, limit, plenty)
	f.must(err)
	return list
}

// TestInputs: inputs are listed and opened while their contents are kept, by the token that has
// brought them.
func TestInputs(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	first := f.exec(shell("true", input("d/in.txt", "content"), input("empty", ""), input("same", "content")))
	list := f.list(first, 0, 10)
	if len(list.Items) != 3 || list.All != 3 || list.TotalBytes != 14 || list.Truncated || list.Items[1] != (replay.Input{Input: first.Inputs[1], Kept: true}) {
		t.Errorf("%+v", list)
	}
	if list := f.list(first, 1, 1); len(list.Items) != 1 || list.Items[0].Path != first.Inputs[1].Path || list.All != 3 || list.TotalBytes != 14 {
		t.Errorf("%+v", list)
	}
	if list := f.list(first, 5, 1); len(list.Items) != 0 || list.All != 3 {
		t.Errorf("%+v", list)
	}
	f.opens(first, "d/in.txt", "content")
	f.opens(first, "empty", "")
	f.opens(first, "same", "content")
	for _, path := range []string{"", "d", "in.txt", "../d/in.txt", "/d/in.txt", "d/in.txt/", "D/IN.TXT", strings.Repeat("x", 5000)} {
		f.notOpened(first, path, fault.UnknownInput, "see its list of inputs")
	}
	stranger := first
	stranger.RequestedBy = "token-2"
	f.notOpened(stranger, "empty", fault.InputNotKept, "")

	full := func(int64) error { return fault.New(fault.ServerBusy, "no room") }
	if _, _, err := f.OpenInput(t.Context(), first, "empty", full); !fault.Is(err, fault.ServerBusy) {
		t.Errorf("without room: %v", err)
	}
	if _, err := f.Inputs(t.Context(), first, 0, 10, full); !fault.Is(err, fault.ServerBusy) {
		t.Errorf("a list without room: %v", err)
	}

	kept := filepath.Join(f.dir, "workspace", "kept-inputs")
	var file string
	f.must(filepath.WalkDir(kept, func(path string, d os.DirEntry, err error) error {
		if d.Name() == first.Inputs[0].SHA256 {
			file = path
		}
		return err
	}))
	f.must(os.WriteFile(file, []byte("tnetnoc"), 0o600))
	f.notOpened(first, "d/in.txt", fault.ArtifactAltered, `"d/in.txt"`)
	f.must(os.Remove(file))
	f.notOpened(first, "d/in.txt", fault.InputNotKept, "the copy was removed; compare a copy of your own with its SHA-256, "+first.Inputs[0].SHA256)
	if list := f.list(first, 0, 10); list.Items[0].Kept || !list.Items[1].Kept || list.Items[2].Kept {
		t.Errorf("%+v", list)
	}
	for kept, why := range map[audit.InputsKept]string{
		audit.KeptOff: "audit.inputs_max_mb", audit.KeptShare: "audit.inputs_max_mb_per_token",
		"": "no copy was made",
	} {
		first.InputsKept = kept
		f.notOpened(first, "d/in.txt", fault.InputNotKept, why)
	}
}

// TestInputsOfCutRecords: what a record leaves out is in meta.json; while that is not there, the
// list says that it is not whole.
func TestInputsOfCutRecords(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	const many = 1000
	name := func(i int) string { return fmt.Sprintf("directory-%03d/%s", i, strings.Repeat("n", 50)) }
	first := f.exec(shell("true", func(r *runner.Request) {
		for i := range many {
			r.Inputs = append(r.Inputs, runner.Input{Path: name(i), Content: fmt.Append(nil, i%10)})
		}
	}))
	recorded := len(first.Inputs)
	if recorded >= many {
		t.Fatal("the record is whole")
	}
	list := f.list(first, many-100, 200)
	if len(list.Items) != 100 || list.All != many || list.Truncated || !list.Items[99].Kept || list.Items[99].Path != name(many-1) {
		t.Errorf("%d of %d, truncated %v", len(list.Items), list.All, list.Truncated)
	}
	f.opens(first, name(many-1), "9")

	running := first
	running.Status = audit.Running
	if list := f.list(running, 0, many); !list.Truncated || list.All != recorded {
		t.Errorf("while it runs: %d, truncated %v", list.All, list.Truncated)
	}
	f.opens(running, name(0), "0")
	f.notOpened(running, name(many-1), fault.UnknownInput, "which was cut")

	meta := filepath.Join(f.dir, "workspace", first.ArtifactsPath, runner.MetaFile)
	f.must(os.Chmod(filepath.Dir(meta), 0o755))
	f.must(os.Remove(meta))
	f.must(os.WriteFile(meta, []byte("{}"), 0o644))
	f.notOpened(first, name(0), fault.ArtifactAltered, "meta.json")
	if _, err := f.Inputs(t.Context(), first, 0, many, plenty); !fault.Is(err, fault.ArtifactAltered) {
		t.Errorf("an altered list: %v", err)
	}
	first.ManifestDigest = "" // as of an exec whose end is not known
	if list := f.list(first, 0, many); !list.Truncated || list.All != recorded {
		t.Errorf("without files: %d, truncated %v", list.All, list.Truncated)
	}
	damaged := f.exec(shell("true"))
	damaged.Unreadable = map[string]string{"inputs": "x"}
	if list := f.list(damaged, 0, many); !list.Truncated || list.All != 0 {
		t.Errorf("damaged: %+v", list)
	}
}
