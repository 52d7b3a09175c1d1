package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func secretive(t *testing.T, databaseURL, token string) Settings {
	t.Helper()
	s, err := Load("", here("DATABASE_URL="+databaseURL, "CORE_API_ADMIN_TOKEN="+token), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSecretsDoNotShow(t *testing.T) {
	t.Parallel()
	s := secretive(t, "postgres://bob:hunter2-db@h:5432/db?password=hunter2-q&sslpassword=hunter2-s&sslmode=disable", "hunter2-token-hunter2")
	if !strings.Contains(s.DatabaseURL.Reveal(), "hunter2-db") || s.AdminToken.Reveal() != "hunter2-token-hunter2" {
		t.Fatal("the secrets themselves are gone")
	}
	var logged bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&logged, nil), slog.NewJSONHandler(&logged, nil)} {
		slog.New(h).Info("settings", "all", s, "token", s.AdminToken, "db", s.DatabaseURL, "pointer", &s)
	}
	asJSON, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	redacted, _ := json.Marshal(s.Redacted())
	for what, text := range map[string]string{
		"log": logged.String(), "JSON": string(asJSON), "redacted": string(redacted),
		//nolint:staticcheck // each verb formats a value differently
		"%v": fmt.Sprintf("%v", s), "%+v": fmt.Sprintf("%+v", s), "%#v": fmt.Sprintf("%#v", s), "%s": fmt.Sprintf("%s", s.AdminToken),
		"%q": fmt.Sprintf("%q", s.DatabaseURL),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s shows a secret: %s", what, text)
		}
	}
	if got := s.Redacted()["database_url"]; got != "postgres://bob@h:5432/db?sslmode=disable" {
		t.Errorf("redacted URL %v: the rest of it should be there", got)
	}
	if got := s.Redacted()["admin_token"]; got != "(secret)" {
		t.Errorf("redacted token %v", got)
	}
	if !strings.Contains(logged.String(), "sandbox.max_concurrent_execs=4") {
		t.Errorf("the log does not show the settings: %s", logged.String())
	}
}

// A URL that cannot be taken apart is not shown in parts.
func TestMalformedURLIsHidden(t *testing.T) {
	t.Parallel()
	for _, url := range []Secret{
		"host=h password=hunter2", "postgres://u:hunter2%zz@h", "postgres:hunter2", "postgres://h/db?password=hunter2;x=%zz",
		"hunter2", "//u:hunter2@h",
	} {
		if got := withoutPassword(url); strings.Contains(got, "hunter2") {
			t.Errorf("%s is shown as %s", string(url), got)
		}
	}
}

func TestDigestWithoutSecrets(t *testing.T) {
	t.Parallel()
	a := secretive(t, "postgres://bob:one@h/db", "0123456789abcdef").Digest()
	b := secretive(t, "postgres://bob:two@h/db", "another-token-entirely").Digest()
	c := secretive(t, "postgres://eve:one@h/db", "0123456789abcdef").Digest()
	if a != b {
		t.Error("a new password or token changed the digest")
	}
	if a == c {
		t.Error("another database user did not change the digest")
	}
}

// Silence, an empty list and a list are three different things to fs, and two to every other list.
func TestListDigest(t *testing.T) {
	t.Parallel()
	digest := func(text string) string {
		s, err := Load(write(t, text), here(), Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest()
	}
	silent, empty, all := digest(""), digest("sandbox.policy.fs.write: []"), digest("sandbox.policy.fs.write: [work/**, artifacts/**]")
	if silent == empty || silent == all || empty == all {
		t.Error("two policies have one digest")
	}
	if digest("sandbox.images: []") != silent {
		t.Error("an empty list of images is no change")
	}
}
