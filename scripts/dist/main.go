// Dist makes a release in a directory: for each system an archive with the programs, Debian and RPM
// packages, third-party notices, a bill of materials, checksums, and a signature of them if there
// is a key. One commit and one version of Go give the same bytes again, in any clone.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/internal/buildinfo"
)

// nfpm makes the Debian and RPM packages. It is no requirement of go.mod, as only this program runs
// it.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.48.0"

// targets are the systems of a release.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

type target struct{ system, arch string }

func (t target) String() string { return t.system + "/" + t.arch }

// release is what all files of a release have in common.
type release struct {
	root    string    // of the clone
	out     string    // gets the files
	work    string    // a temporary directory
	commit  string    // as the programs say it
	changed bool      // the clone has changes that are in no commit
	time    time.Time // of the commit; all files have it
	log     io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	key := flag.String("key", "", "minisign `file` with the key that signs the checksums; its password is in DIST_KEY_PASSWORD")
	out := flag.String("out", "dist", "`directory` for the release; what it holds is removed")
	only := flag.String("only", "", "the `systems` to build for, such as linux/amd64,windows/arm64 (default: all)")
	flag.Parse()
	if err := run(ctx, *out, *key, *only, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, keyFile, only string, log io.Writer) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	r, err := newRelease(ctx, out, log)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	var key *signer
	if keyFile != "" {
		if r.changed {
			return fmt.Errorf("the clone has changes that are in no commit; commit them before you sign a release")
		}
		if key, err = readKey(keyFile, os.Getenv("DIST_KEY_PASSWORD")); err != nil {
			return err
		}
	}
	// Licences come first: a module that may not be distributed must not wait for twelve programs.
	parts, err := r.parts(ctx, chosen)
	if err != nil {
		return err
	}
	if err := r.describe(parts); err != nil {
		return err
	}
	if err := r.completions(ctx); err != nil {
		return err
	}
	for _, t := range chosen {
		if err := r.make(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	return r.finish(key)
}

func choose(only string) ([]target, error) {
	if only == "" {
		return targets, nil
	}
	var chosen []target
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(targets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("there are no releases for %q; take some of %v", name, targets)
		}
		chosen = append(chosen, targets[i])
	}
	return chosen, nil
}

// newRelease reads the commit, and empties the directory for the release.
func newRelease(ctx context.Context, out string, log io.Writer) (*release, error) {
	root, err := output(ctx, "", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	r := &release{root: root, log: log}
	if r.commit, err = output(ctx, root, nil, "git", "rev-parse", "--short=12", "HEAD"); err != nil {
		return nil, err
	}
	changes, err := output(ctx, root, nil, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if r.changed = changes != ""; r.changed {
		r.commit += " with changes"
	}
	stamp := os.Getenv("SOURCE_DATE_EPOCH")
	if stamp == "" {
		if stamp, err = output(ctx, root, nil, "git", "log", "-1", "--format=%ct"); err != nil {
			return nil, err
		}
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds", stamp)
	}
	r.time = time.Unix(seconds, 0).UTC()
	if r.out, err = filepath.Abs(out); err != nil {
		return nil, err
	}
	if err := emptied(r.out); err != nil {
		return nil, err
	}
	r.work, err = os.MkdirTemp("", "secbox-dist-")
	return r, err
}

// emptied makes a directory, or removes the files of an earlier release from it. It refuses a
// directory with other files.
func emptied(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "secbox") && !strings.HasPrefix(f.Name(), "SHA256SUMS") {
			return fmt.Errorf("%s holds %s, which is not of a release; name another directory", dir, f.Name())
		}
	}
	for _, f := range files {
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// name is the beginning of the names of a target's files.
func (r *release) name(t target) string {
	return fmt.Sprintf("secbox-%s-%s-%s", buildinfo.Version, t.system, t.arch)
}

// common are the files of the clone that are in every archive, beside programs and notices. With
// sandbox-init they build the sandbox image.
var common = []string{
	"LICENSE", "README.md", "CHANGELOG.md",
	"images/build-sandbox.sh", "images/debian-base.sh", "images/lib.sh", "images/sandbox.Dockerfile", "scripts/lib.sh",
	"images/sandbox-data.yaml", "images/sandbox-node.yaml",
}

// make builds the programs of a target, and packs them.
func (r *release) make(ctx context.Context, t target) error {
	dir := filepath.Join(r.work, r.name(t))
	suffix := ""
	if t.system == "windows" {
		suffix = ".exe"
	}
	for _, program := range []string{"core-api", "secbox"} {
		if err := r.build(ctx, t, program, filepath.Join(dir, "bin", program+suffix)); err != nil {
			return err
		}
	}
	// Containers run Linux on every system.
	if err := r.build(ctx, target{"linux", t.arch}, "sandbox-init", filepath.Join(dir, "bin", "sandbox-init")); err != nil {
		return err
	}
	for _, file := range common {
		if err := copyFile(filepath.Join(r.root, file), filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	for _, file := range []string{noticesFile, "completions"} {
		if err := copyTree(filepath.Join(r.work, file), filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	var err error
	if t.system == "windows" {
		err = r.pack(dir, r.name(t)+".zip", writeZip)
	} else {
		err = r.pack(dir, r.name(t)+".tar.gz", writeTar)
	}
	if err != nil || t.system != "linux" {
		return err
	}
	return r.packages(ctx, t, dir)
}

// build links a program without anything of this machine in it.
func (r *release) build(ctx context.Context, t target, program, file string) error {
	fmt.Fprintf(r.log, "dist: %s for %s\n", program, t)
	_, err := output(ctx, r.root, environ(t), "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X 'secbox/internal/buildinfo.commit="+r.commit+"'", "-o", file, "./cmd/"+program)
	return err
}

// environ chooses a target, and undoes settings of this machine that change programs.
func environ(t target) []string {
	return []string{
		"GOOS=" + t.system, "GOARCH=" + t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GODEBUG=",
		"GOWORK=off", "GOFIPS140=off",
	}
}

// completions writes the scripts that complete command lines in shells.
func (r *release) completions(ctx context.Context) error {
	dir := filepath.Join(r.work, "completions")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, program := range []string{"core-api", "secbox"} {
		file := filepath.Join(r.work, program+"-here")
		if err := r.build(ctx, target{runtime.GOOS, runtime.GOARCH}, program, file); err != nil {
			return err
		}
		for shell, end := range map[string]string{"bash": "bash", "zsh": "zsh", "fish": "fish", "powershell": "ps1"} {
			script, err := output(ctx, r.root, nil, file, "completion", shell)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, program+"."+end), []byte(script+"\n"), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// packages makes the Debian and the RPM package of a target from the files of its archive.
func (r *release) packages(ctx context.Context, t target, dir string) error {
	if err := copyTree(filepath.Join(r.root, "scripts", "dist", "linux"), filepath.Join(dir, "linux")); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(r.out, bomFile), filepath.Join(dir, bomFile)); err != nil {
		return err
	}
	env := append(environ(target{runtime.GOOS, runtime.GOARCH}),
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10), "VERSION="+buildinfo.Version, "ARCH="+t.arch)
	for _, kind := range []string{"deb", "rpm"} {
		fmt.Fprintf(r.log, "dist: %s package for %s\n", kind, t)
		if _, err := output(ctx, dir, env, "go", "run", nfpm, "package", "-f", "linux/nfpm.yaml", "-p", kind,
			"-t", filepath.Join(r.out, r.name(t)+"."+kind)); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the checksums of all files, and signs them if there is a key.
func (r *release) finish(key *signer) error {
	files, err := os.ReadDir(r.out) // sorted by name
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, f := range files {
		sum, err := digest(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, f.Name())
	}
	file := filepath.Join(r.out, sumsFile)
	if err := os.WriteFile(file, sums.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(r.log, "dist: secbox %s, commit %s, is in %s\n%s", buildinfo.Version, r.commit, r.out, sums.String())
	if key == nil {
		fmt.Fprintf(r.log, "dist: %s is not signed; give a key with KEY=file, see docs/releases.md\n", sumsFile)
		return nil
	}
	signature := key.sign(sums.Bytes(), fmt.Sprintf("secbox %s, commit %s", buildinfo.Version, r.commit))
	if err := os.WriteFile(file+".minisig", signature, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(r.log, "dist: %s is signed. Publish the public half of the key where users trust it:\n%s\n", sumsFile, key.public())
	return nil
}

func digest(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return sum.Sum(nil), err
}

// output runs a program and returns what it prints, without the last newline.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{name}, args...), " "), err, stderr.String())
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}
