package engine_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"secbox/engine"
	"secbox/engine/enginetest"
)

// TestHostileJobs: jobs attack their mounts.
func TestHostileJobs(t *testing.T) {
	t.Parallel()
	p := newAnyPooled(t)
	spec := p.of("one", nil)
	must(t, os.WriteFile(filepath.Join(p.dir("one"), "inputs/given"), []byte("given\n"), 0o644))

	t.Run("directories", func(t *testing.T) {
		defer p.in(t)()
		slot := p.take(spec)
		var out bytes.Buffer
		exit, errs, err := p.runs(t.Context(), slot, `cd /workspace
			for d in work inputs artifacts; do
				mv $d $d-moved && echo moved $d
				mv $d /tmp/ && echo moved $d out
				rm -rf $d; rmdir $d && echo removed $d
				ln -sfnT /etc $d && echo linked $d
				umount $d && echo unmounted $d
				umount -l $d && echo unmounted $d
				mount --bind /tmp $d && echo mounted $d
				mount -o remount,rw $d && echo remounted $d
			done
			umount -l /workspace && echo unmounted
			unshare -m true && echo unshared; unshare -rm true && echo unshared
			python3 -c 'import os
for a in ("work", "inputs"), ("work", "/tmp/work"):
    try: os.rename(*a); print("renamed")
    except OSError: pass'
			mkdir new && echo made
			echo kept >work/kept; echo kept >artifacts/kept; chmod 0 work
			exit 7`, &out)
		if err != nil || exit.Code != 7 || out.String() != "" {
			t.Errorf("%+v %v\n%s\n%s", exit, err, &out, errs)
		}
		for _, name := range []string{"inputs/given", "work/kept", "artifacts/" + slot.ExecID() + "/kept"} {
			if _, err := os.Lstat(filepath.Join(p.dir("one"), name)); err != nil {
				t.Error(err)
			}
		}
		must(t, os.Chmod(filepath.Join(p.dir("one"), "work"), 0o755))
	})

	t.Run("processes that stay", func(t *testing.T) {
		defer p.in(t)()
		slot := p.take(spec)
		var out bytes.Buffer
		_, errs, err := p.runs(t.Context(), slot, `cd /workspace; id=$(cat /proc/sys/kernel/random/uuid)
			seq 10000 >work/mapped
			for d in work artifacts inputs; do
				(cd $d; exec 9<.; trap '' TERM; exec -a $id-stays setsid sleep 1000 </dev/null >/dev/null 2>&1 &)
			done
			exec 8>work/open
			setsid python3 -c 'import mmap, sys, time
with open("/workspace/work/mapped", "r+b") as f:
    m = mmap.mmap(f.fileno(), 0)
while True: m[0] = m[0] ^ 1' $id-stays </dev/null >/dev/null 2>&1 &
			until [ "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c -- -stays)" -ge 4 ]; do sleep 0.01; done
			echo $id`, &out)
		id := strings.TrimSpace(out.String())
		if err != nil || len(id) != 36 {
			t.Fatalf("%v %q %s", err, &out, errs)
		}
		commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
		must(t, err)
		for _, path := range commands {
			if line, _ := os.ReadFile(path); bytes.Contains(line, []byte(id+"-stays")) {
				t.Errorf("alive: %q", line)
			}
		}
		slot = p.take(p.of("two", nil))
		out.Reset()
		if _, errs,
			err = p.runs(t.Context(), slot, `ls -A /workspace/*; grep -c /projects/one /proc/self/mountinfo; find / -name given -o -name kept 2>/dev/null`,
			&out); err != nil {
			t.Fatal(err)
		}
		if want := "/workspace/artifacts:\n\n/workspace/inputs:\n\n/workspace/work:\n0\n"; out.String() != want {
			t.Errorf("the next project sees %q %s", &out, errs)
		}
	})

	t.Run("a full disk", func(t *testing.T) {
		defer p.in(t)()
		work := filepath.Join(p.dir("full"), "work")
		spec := p.of("full", nil)
		must(t, syscall.Mount("full", work, "tmpfs", 0, "size=256k,uid=1000,mode=755"))
		defer func() { must(t, syscall.Unmount(work, 0)) }() // not busy any more
		var out bytes.Buffer
		if _, errs, err := p.runs(t.Context(), p.take(spec),
			`head -c 1M /dev/zero >full; mkdir -p made; for n in $(seq 100); do echo x >made/$n; done; ls full`, &out); err != nil || out.String() != "full\n" {
			t.Errorf("%v %q %s", err, &out, errs)
		}
		out.Reset()
		if _, errs, err := p.runs(t.Context(), p.take(spec), `rm -r full made; echo room >room; cat room`, &out); err != nil || out.String() != "room\n" {
			t.Errorf("the next exec: %v %q %s", err, &out, errs)
		}
	})

	t.Run("root in the container", func(t *testing.T) {
		defer p.in(t)()
		spec := p.of("one", nil)
		spec.User = "0:0"
		p.pool.Use(spec) // none waits for this user yet
		var slot engine.Slot
		eventually(t, "a container of root", func() bool {
			var err error
			slot, err = p.pool.Acquire(t.Context(), spec)
			must(t, err)
			if !slot.Warm() {
				slot.Discard()
			}
			return slot.Warm()
		})
		var out bytes.Buffer
		if _, errs,
			err := p.runs(t.Context(), slot,
			`cd /workspace; id -u; touch inputs/new; chmod 777 inputs; mount -o remount,rw inputs; mknod work/null c 1 3; rm -f inputs/given; ls inputs work/null`, &out); err != nil || !strings.HasPrefix(out.String(), "0\n") || strings.Contains(out.String(), "new") || strings.Contains(out.String(), "null") || !strings.Contains(out.String(), "given") {
			t.Errorf("%v %q %s", err, &out, errs)
		}
	})

	t.Run("one project twice", func(t *testing.T) {
		defer p.in(t)()
		first, second := p.take(spec), p.take(spec)
		began, done := enginetest.NewSignal("began"), make(chan error, 1)
		go func() {
			_, err := first.Run(t.Context(), enginetest.Shell(`echo of the first >of; echo first >/workspace/artifacts/a; echo began
				until [ -e go ]; do sleep 0.01; done; cat of; ls /workspace/artifacts; touch /workspace/artifacts/late`), began, io.Discard)
			done <- err
		}()
		select {
		case <-began.Seen:
		case err := <-done:
			t.Fatalf("ended early: %v", err)
		}
		var out bytes.Buffer
		if _, err := second.Run(t.Context(), enginetest.Shell(`cat of; echo of both >of; ls -A /workspace/artifacts; touch /workspace/artifacts/b`), &out,
			io.Discard); err != nil || out.String() != "of the first\n" {
			t.Errorf("the second: %v %q", err, &out)
		}
		if p.mounted() == "" {
			t.Error("the end of the second detached the first")
		}
		must(t, os.WriteFile(filepath.Join(p.dir("one"), "work/go"), nil, 0o644))
		if err := <-done; err != nil || began.String() != "began\nof both\na\n" {
			t.Errorf("the first: %v %q", err, began.String())
		}
		p.notMounted()
		for slot, names := range map[engine.Slot]string{first: "a late", second: "b"} {
			entries, err := os.ReadDir(filepath.Join(p.dir("one"), "artifacts", slot.ExecID()))
			var found []string
			for _, entry := range entries {
				found = append(found, entry.Name())
			}
			if err != nil || strings.Join(found, " ") != names {
				t.Errorf("artifacts %v, want %s: %v", found, names, err)
			}
		}
	})
}
