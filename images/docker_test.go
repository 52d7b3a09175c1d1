// Package images has only tests: they check the properties of the images and of docker-compose.yml
// that the other packages rely on.
package images

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// sandboxImage is the image that `make setup` builds and that the tests of all packages use.
const sandboxImage = "secbox-sandbox:latest"

// run starts a program and returns its standard output; a failure ends the test with all that it
// printed.
func run(t *testing.T, environ []string, name string, args ...string) string {
	t.Helper()
	stdout, stderr, err := try(t, environ, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout
}

// try is run for a program that may fail.
func try(t *testing.T, environ []string, name string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	// Clean-ups use it too, after the test's own context has ended.
	_ = os.Getenv("SECBOX_SOURCE") // so that go test repeats this when any file has changed
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Env = append(os.Environ(), environ...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func docker(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSpace(run(t, nil, "docker", args...))
}

// temporaryTag is a tag of this test alone; the image goes with the test.
func temporaryTag(t *testing.T, name string) string {
	t.Helper()
	tag := name + ":test-" + random(t)
	t.Cleanup(func() { _, _, _ = try(t, nil, "docker", "image", "rm", tag) })
	return tag
}

func random(t *testing.T) string {
	t.Helper()
	b := make([]byte, 8)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(b)
}
