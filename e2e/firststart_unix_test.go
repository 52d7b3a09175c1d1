//go:build unix

package e2e

import (
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"secbox/api/contracttest"
	"secbox/server"
	"secbox/settings"
)

// TestFirstStart boots a server with an image that the engine does not hold and without a token:
// health names the image, and the command in the log makes a token of this server.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "with a blank")
	var log words
	app, err := server.Start(t.Context(), settingsIn(t, dir, func(s *settings.Settings) {
		s.Sandbox.Policy.Image, s.Sandbox.Images = new("nope:1"), []string{"nope:1", "nope:2"}
	}), os.Environ(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	s := &testServer{t: t, app: app, client: contracttest.New(t), url: "http://" + app.Addr(), dir: dir, environ: os.Environ()}

	health := s.send(http.MethodGet, "/sandbox/health", nil)
	if health.Code != 503 || health.json(t).at("image_present") != false {
		t.Errorf("%d %s", health.Code, health.Body)
	}
	said := map[string]string{}
	for _, p := range health.json(t).list("problems") {
		said[p.str("check")] += p.str("reason") + "\n"
	}
	if !strings.Contains(said["image"], "nope:1") || !strings.Contains(said["images"], "nope:2") || strings.Contains(said["images"], "nope:1") {
		t.Errorf("%v", said)
	}
	s.refused(422, "image_missing", shell("demo", "true"))

	hint := regexp.MustCompile(`command="core-api (token create --role admin) --state-dir '([^']+)'"`).FindStringSubmatch(log.String())
	if hint == nil {
		t.Fatalf("the log has no command:\n%s", log.String())
	}
	if code, _, stderr := cli(t, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()},
		append(strings.Fields(hint[1]), "--state-dir", hint[2])...); code != 0 {
		t.Fatalf("%d %s", code, stderr)
	}
	if a := s.send(http.MethodGet, "/sandbox/execs", nil); a.Code != http.StatusUnauthorized {
		t.Errorf("after the token was made: %d %s", a.Code, a.Body)
	}
}
