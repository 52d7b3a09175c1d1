//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/engine/initproto"
	"secbox/engine/transfer"
)

// TestFiles: a job finds its files, and what it changed comes after its last process is dead and
// before its exit.
func TestFiles(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("making a PID namespace needs root; run the tests as root")
	}
	program := build(t)
	bounds := &initproto.Files{Bytes: 1 << 20, Entries: 100}
	for name, c := range map[string]struct {
		script string
		files  *initproto.Files
		before string // what is at work's place in the container
		lost   string // part of the error of the stream
		start  string // part of StartError
		result string // what is here then
	}{
		"changes":         {"cat old; echo new >new; rm removed", bounds, "", "", "", "new\nold\n"},
		"without changes": {"cat old", bounds, "", "", "", "old\nremoved\n"},
		"late writers": {
			"cat old; (setsid sh -c 'trap \"\" TERM; while :; do echo x >>late; done' &) ; while [ ! -s late ]; do :; done; rm removed",
			bounds, "", "", "", "late\nold\n",
		},
		"too much":           {"cat old; head -c 2000000 /dev/urandom >big", bounds, "", "too large", "", "old\nremoved\n"},
		"too many":           {"cat old; for i in $(seq 200); do : >$i; done", bounds, "", "too large", "", "old\nremoved\n"},
		"work is a link":     {"cat old; cd /; rm -r $OLDPWD; ln -s /etc $OLDPWD", bounds, "", "replaced", "", "old\nremoved\n"},
		"no descriptors":     {"cat old; prlimit --pid 1 --nofile=3:3; rm removed", bounds, "", "too many open files", "", "old\nremoved\n"},
		"not unpacked":       {"cat old", bounds, "file", "", "cannot be written", "old\nremoved\n"},
		"nothing comes back": {"cat old", nil, "", "", "missing", "old\nremoved\n"},
		"no such program":    {"", bounds, "", "", "executable file not found", "old\nremoved\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there := t.TempDir(), filepath.Join(t.TempDir(), "work")
			for _, name := range []string{"old", "removed"} {
				if err := os.WriteFile(filepath.Join(here, name), []byte(name), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.before != "" {
				if err := os.WriteFile(there, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			root, err := os.OpenRoot(here)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			dirs := []transfer.Dir{{Target: there, Root: root}}
			cmd, stdin, _, frames := greeted(t, initproto.FromInit, initproto.MagicFiles, program, initproto.FilesArg)
			send := func(kind initproto.Type, payload []byte) error {
				_, err := stdin.Write(initproto.Append(nil, kind, payload))
				return err
			}
			_, err = transfer.Send(initproto.ChunkWriter(func(chunk []byte) error { return send(initproto.TypeFiles, chunk) }), dirs,
				transfer.Bounds{Bytes: 1 << 20, Entries: 100})
			if err != nil {
				t.Fatal(err)
			}
			_ = send(initproto.TypeFilesEnd, nil)
			spec := initproto.Job{Argv: []string{"sh", "-c", c.script}, Cwd: there, MaxStdout: 100, Files: c.files}
			if c.script == "" {
				spec.Argv = []string{"no-such-program"}
			}
			job, err := initproto.AppendJSON(nil, initproto.TypeJob, spec)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = stdin.Write(job)
			var out, back []byte
			chunks := 0
			var exit initproto.Exit
			for exited := false; !exited; {
				kind, payload, err := frames.Next()
				if err != nil {
					t.Fatal(err)
				}
				switch kind {
				case initproto.TypeStdout:
					out = append(out, payload...)
				case initproto.TypeChanges:
					if chunks++; (chunks == 1) != (len(payload) == 0) {
						t.Errorf("the chunk %d has %d bytes", chunks, len(payload))
					}
					back = append(back, payload...)
				case initproto.TypeExit:
					exit, err = initproto.DecodeExit(payload)
					exited = err == nil
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !strings.Contains(exit.StartError, c.start) || (exit.StartError == "") != (c.start == "") || (c.start == "") != (chunks > 0) ||
				c.start == "" && string(out) != "old" {
				t.Errorf("%+v, %d chunks, %q", exit, chunks, out)
			}
			if chunks > 0 {
				_, err := transfer.Receive(bytes.NewReader(back), dirs, transfer.Bounds{Bytes: 4 << 20, Entries: 100}, transfer.Owner{UID: -1})
				if (err == nil) != (c.lost == "") || err != nil && !strings.Contains(err.Error(), c.lost) {
					t.Errorf("%v, want %q", err, c.lost)
				}
			}
			if got := names(t, here); c.lost == "" && got != c.result {
				t.Errorf("here is %q", got)
			}
			_ = stdin.Close()
			_ = cmd.Wait()
		})
	}
}

func names(t *testing.T, dir string) (all string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		all += e.Name() + "\n"
	}
	return all
}

// TestFilesAreRefused: frames of files in a wrong place end init, and an init that was not asked to
// takes none.
func TestFilesAreRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("making a PID namespace needs root; run the tests as root")
	}
	program := build(t)
	files, filesEnd := initproto.Append(nil, initproto.TypeFiles, []byte("T")), initproto.Append(nil, initproto.TypeFilesEnd, nil)
	kill := initproto.Append(nil, initproto.TypeKill, nil)
	job, err := initproto.AppendJSON(nil, initproto.TypeJob, initproto.Job{Argv: []string{"sleep", "1000"}, Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		magic string
		args  []string
		send  []byte
		code  int
	}{
		"not asked to":       {initproto.Magic, nil, files, exitProtocol},
		"end first":          {initproto.MagicFiles, []string{initproto.FilesArg}, filesEnd, exitProtocol},
		"job in the middle":  {initproto.MagicFiles, []string{initproto.FilesArg}, slices.Concat(files, job), exitLease},
		"after the job":      {initproto.MagicFiles, []string{initproto.FilesArg}, slices.Concat(job, files), exitProtocol},
		"twice":              {initproto.MagicFiles, []string{initproto.FilesArg}, slices.Concat(files, filesEnd, files), exitProtocol},
		"lease ends":         {initproto.MagicFiles, []string{initproto.FilesArg}, files, exitLease},
		"kill in the middle": {initproto.MagicFiles, []string{initproto.FilesArg}, slices.Concat(files, kill), exitLease},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, stdin, _, _ := greeted(t, initproto.FromInit, c.magic, append([]string{program}, c.args...)...)
			_, _ = stdin.Write(c.send)
			if c.code == exitLease {
				_ = stdin.Close()
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}
