//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"secbox/internal/buildinfo"
)

// admin runs a sub-command without the settings of this process's environment.
func coreAPI(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, &out, &errs)
	return code, out.String(), errs.String()
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if code, stdout, stderr := coreAPI(t, "version"); code != 0 || !strings.HasPrefix(stdout, "core-api "+buildinfo.Version+" (go1.") || stderr != "" {
		t.Errorf("%d %q %q", code, stdout, stderr)
	}
}

// A typo in --state-dir must neither make a database nor answer from an empty one.
func TestAdminCommandsCreateNoStateDir(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	typo := filepath.Join(root, "typo")
	for _, args := range [][]string{
		{"token", "list"},
		{"token", "revoke", "tok_1"},
		{"people", "list"},
		{"people", "block", "oidc:x"},
		{"people", "unblock", "oidc:x"},
		{"node", "list"},
		{"node", "drain", "n"},
		{"node", "forget", "n"},
		{"audit", "key"},
		{"skills", "repair"},
		{"skills", "repair", "--dry-run"},
	} {
		code, stdout, stderr := coreAPI(t, append(args, "--state-dir", typo, "--workspace-root", filepath.Join(root, "workspace"))...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, typo) || !strings.Contains(stderr, "--config") {
			t.Errorf("%v: %d %q %q", args, code, stdout, stderr)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("made %v %v", left, err)
	}

	// The first token may come before the first start.
	code, secret, stderr := coreAPI(t, "token", "create", "--role", "admin", "--state-dir", typo)
	if code != 0 || len(secret) < 16 || !strings.Contains(stderr, "new database in the state dir "+typo) {
		t.Fatalf("%d %q", code, stderr)
	}
	if code, _, stderr := coreAPI(t, "token", "create", "--role", "auditor", "--state-dir", typo); code != 0 || strings.Contains(stderr, "new database") {
		t.Errorf("%d %q", code, stderr)
	}
	if code, list, stderr := coreAPI(t, "token", "list", "--state-dir", typo); code != 0 || strings.Count(list, "\n") != 3 {
		t.Errorf("%d %q %q", code, list, stderr)
	}
}

// TestWrongSettingsAreListedOnce: the message contains the list already.
func TestWrongSettingsAreListedOnce(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	environ := []string{"CORE_API_POOL_MAX=x", "CORE_API_POOL_MAX_PER_KEY=y"}
	if code := run(t.Context(), []string{"settings"}, environ, io.Discard, &stderr); code != 2 || strings.Count(stderr.String(), "CORE_API_POOL_MAX:") != 1 {
		t.Errorf("%d %s", code, stderr.String())
	}
}

// TestRevokingTheLastTokenWarns: requests need a token still, and the warning says how to make one.
// After the token of a runner they need none.
func TestRevokingTheLastTokenWarns(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	var ids []string
	for _, role := range []string{"runner --user ann", "worker", "worker"} {
		create := append([]string{"token", "create", "--state-dir", state, "--role"}, strings.Fields(role)...)
		if len(ids) == 1 {
			if _, _, stderr := coreAPI(t, "token", "revoke", ids[0], "--state-dir", state); strings.Contains(stderr, "Warning") {
				t.Errorf("the runner's: %s", stderr)
			}
		}
		_, _, said := coreAPI(t, create...)
		ids = append(ids, regexp.MustCompile(`[0-9a-f-]{36}`).FindString(said))
	}
	for i, id := range ids[1:] {
		code, stdout, stderr := coreAPI(t, "token", "revoke", id, "--state-dir", state)
		warned := strings.Contains(stderr, "no valid token is left") && strings.Contains(stderr, "token create --role admin") && strings.Contains(stderr, state)
		if code != 0 || !strings.Contains(stdout, id) || warned != (i == 1) {
			t.Errorf("token %d: %d %q %q", i+1, code, stdout, stderr)
		}
	}
}

// TestMessagesNameTheFlag: wrong arguments are answered with the flag that is missing, or the
// command whose help has it.
func TestMessagesNameTheFlag(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	for args, want := range map[string]string{
		"token create --role runner": "(--user)",
		"token create":               "core-api: role: must be one of ",
		"node drain":                 "Try `core-api node drain --help`.",
		"nodes":                      "Try `core-api --help`.",
	} {
		code, _, stderr := coreAPI(t, append(strings.Fields(args), "--state-dir", state)...)
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d %s", args, code, stderr)
		}
	}
}
