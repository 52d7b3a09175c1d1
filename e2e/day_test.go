package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"secbox/access/tokens"
	"secbox/sandbox/remote/machine"
	"secbox/settings"
)

// dayFiles are the files of the repository in which the agent works.
const dayFiles = 20_000

// TestAgentsDay: with the official client, an agent finds and fixes a bug in a large repository, in
// a container and on the user's own machine (004 l11). In the middle a connection is cut: either
// the connection of the user's machine, whose command and change go on without it, or the
// connection of the client.
func TestAgentsDay(t *testing.T) {
	t.Parallel()
	modules := mcpClients(t)
	s := start(t, noPool, func(s *settings.Settings) { s.Sandboxes.HeartbeatSeconds, s.Sandboxes.RunnerGraceSeconds = 1, 600 })
	_, s.token = s.newToken(tokens.Spec{Role: tokens.Admin})
	for user, cuts := range map[string]string{"ann": "client", "bob": "runner"} {
		t.Run(cuts, func(t *testing.T) {
			t.Parallel()
			d := &day{testServer: s.with(t), user: user, cuts: cuts, cable: newCable(t, s.url), asked: make(chan request)}
			through := d.with(t)
			through.url = d.cable.url
			d.dir, d.backend = d.project("ag~"+user)+"/work", "docker"
			if cuts == "runner" {
				d.dir, d.backend = t.TempDir(), "remote"
				through.dialIn(user, "laptop", d.dir, machine.AllowExec, machine.AllowWrite)
				d.worksIn(user, object{"backend": "remote"})
				through.url = s.url
			}
			id, secret := d.newToken(tokens.Spec{Role: tokens.Worker, Users: []string{user}})
			seen := d.works([]string{
				"NODE_PATH=" + modules, "MCP_URL=" + through.url, "MCP_TOKEN=" + secret, "PROJECT=ag~" + user,
				fmt.Sprint("FILES=", dayFiles),
			})
			d.checkAnswers(seen)
			d.checkRows(seen, id)
			d.checkReport(seen)
		})
	}
}

// day is one agent's.
type day struct {
	*testServer
	user, backend, dir string
	cuts               string // which connection: client or runner
	cable              *cable
	asked              chan request // by the client
}

// request is what the client asks of the test, until done is closed.
type request struct {
	what string
	done chan struct{}
}

// works runs the client, and cuts the cable when the client asks for it.
func (d *day) works(env []string) object {
	d.t.Helper()
	control := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked := request{strings.TrimPrefix(r.URL.Path, "/"), make(chan struct{})}
		select {
		case d.asked <- asked:
		case <-r.Context().Done():
			return
		}
		select {
		case <-asked.done:
		case <-r.Context().Done():
		}
	}))
	defer control.Close()
	defer control.CloseClientConnections() // Close waits for them, also after a failure
	cmd := exec.CommandContext(d.t.Context(), "node", "testdata/mcpclient/day.cjs", d.cuts)
	cmd.Env = append(append(os.Environ(), env...), "CABLE="+control.URL)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	for {
		select {
		case asked := <-d.asked:
			d.cut(asked)
		case err := <-ended:
			seen := object{}
			if err == nil {
				err = json.Unmarshal(out.Bytes(), &seen)
			}
			if err != nil {
				d.t.Fatalf("node: %v\n%s\n%s", err, said.String(), out.String())
			}
			return seen
		}
	}
}

func (d *day) cut(asked request) {
	switch asked.what {
	case "client":
		d.cable.snap()
		close(asked.done)
	case "command": // it ends while the machine cannot be reached
		d.cable.pull()
		if err := os.WriteFile(filepath.Join(d.dir, "shop-repo/.go"), nil, 0o644); err != nil {
			d.t.Error(err)
		}
		eventually(d.t, "the command has ended", func() bool { _, err := os.Stat(filepath.Join(d.dir, "shop-repo/.ended")); return err == nil })
		d.gone()
		close(asked.done)
	case "change":
		pulled := d.cable.pullBehind(`"type":"write_file"`)
		close(asked.done)
		eventually(d.t, "the change is on its way", func() bool {
			select {
			case <-pulled:
				return true
			default:
				return false
			}
		})
		eventually(d.t, "the file has changed", func() bool {
			content, err := os.ReadFile(filepath.Join(d.dir, "shop-repo/shop/cart.py"))
			return err == nil && strings.Contains(string(content), "price * count")
		})
		d.gone()
	}
}

// gone mends the cable after the server has noticed that the machine is away.
func (d *day) gone() {
	d.t.Helper()
	eventually(d.t, "the machine is away", func() bool { return !slices.Contains(d.connected(), d.user+"/laptop") })
	d.cable.mend()
}

func (d *day) checkAnswers(seen object) {
	t := d.t
	for _, name := range []string{"files_cd", "files_glob", "files_grep", "files_read", "files_edit", "files_write", "shell", "skills_read"} {
		if !slices.Contains(seen.at("tools").([]any), any(name)) {
			t.Errorf("%s is not among %v", name, seen.at("tools"))
		}
	}
	for _, c := range []struct {
		key    string
		failed bool
		want   string // exactly, or a part if it begins with …
	}{
		{"checkout", false, fmt.Sprintln(dayFiles)},
		{"cd", false, "/workspace/shop-repo/shop\n  cart.py  114 B\n"},
		{"up", false, "…/workspace/shop-repo\n  .git/\n  .gitignore  30 B\n  docs/\n    logo.png  70 B\n  rules/\n    region000/\n    region001/\n"},
		{"up", false, fmt.Sprintf("…    … %d more\n  shop/\n    cart.py  114 B\n  tests/\n    test_cart.py  158 B\n", dayFiles/100-40)},
		{"broken", true, "…AssertionError: 13 != 17"},
		{"glob", false, "tests/test_cart.py\n"},
		{"grep", false, "shop/cart.py\n1:def total(items):\n--\n4:        result += price + count\n"},
		{"unread", true, "…read it first"},
		{"read", false, "…     4\t        result += price + count\n"},
		{"image", false, "…/workspace/shop-repo/docs/logo.png: image/png, 70 bytes"},
		{"wrong", true, "…     4\t        result += price + count"},
		{"edit", false, "…edited /workspace/shop-repo/shop/cart.py; replacements: 1\nsha256: "},
		{"test", false, "…begun\nonce\nstderr:\n.\n"},
		{"again", false, "…     4\t        result += price * count\n"},
		{"status", false, " M shop/cart.py\n 1 file changed, 1 insertion(+), 1 deletion(-)\n"},
		{"report", false, "…made /workspace/shop-repo/reports/cart.md: 67 bytes"},
		{"skill", false, "…Files of the skill:\nSKILL.md\n"},
		{"outside", true, "…path_refused: /etc/passwd leads out of the workspace"},
	} {
		result, _ := seen.at(c.key).(map[string]any)
		text := textsOf(result)
		if part, ok := strings.CutPrefix(c.want, "…"); ok && !strings.Contains(text, part) || !ok && text != c.want || (result["isError"] == true) != c.failed {
			t.Errorf("%s: %q, failed: %v", c.key, text, result["isError"])
		}
	}
	if image := object(seen.at("image").(map[string]any)).list("content")[1]; image.str("mimeType") != "image/png" ||
		!strings.HasPrefix(image.str("data"), "iVBORw0KGgo") {
		t.Errorf("the image: %v", image)
	}
	if read, edit := meta(seen, "read"), meta(seen, "edit"); read["secbox/sha256"] != edit["secbox/sha256_before"] {
		t.Errorf("the digest that was read: %v, and edited: %v", read, edit)
	}
	if progress := seen.at("progress").([]any); len(progress) == 0 || progress[0] != "begun\n" {
		t.Errorf("progress: %v", progress)
	}
	if d.cuts == "client" && !strings.Contains(seen.str("outcome"), "the connection broke") {
		t.Errorf("a call whose connection broke: %q", seen.str("outcome"))
	}
	t.Logf("milliseconds: %v", seen.at("took"))
}

func meta(seen object, key string) map[string]any {
	of, _ := seen.at(key + "._meta").(map[string]any)
	return of
}

// checkRows: each command and each change is on record once, with its end.
func (d *day) checkRows(seen object, token string) {
	want := []string{
		"bash succeeded", "bash failed", "secbox-search succeeded", "secbox-search succeeded", "files.edit succeeded", "bash succeeded",
		"bash succeeded", "files.write succeeded",
	}
	if d.cuts == "client" {
		want = slices.Insert(want, 6, "files.write succeeded", "bash canceled")
	}
	rows := func() (all []object) {
		for _, row := range slices.Backward(d.get("/sandbox/execs?kind=all&user_id=" + d.user).list("items")) {
			all = append(all, row)
		}
		return all
	}
	eventually(d.t, "all have ended", func() bool {
		return !slices.ContainsFunc(rows(), func(row object) bool { return row.str("ended_at") == "" })
	})
	var got []string
	for _, row := range rows() {
		got = append(got, filepath.Base(row.str("cmd"))+" "+row.str("status"))
		row.wants(d.t, object{"backend": d.backend, "agent_id": "ag", "requested_by": token})
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("on record are %q, want %q", got, want)
	}
	for key, path := range map[string]string{"edit": "shop/cart.py", "report": "reports/cart.md"} {
		told := meta(seen, key)
		before := told["secbox/sha256_before"]
		if key == "report" {
			before = "absent"
		}
		d.get("/sandbox/execs/"+fmt.Sprint(told["secbox/exec_id"])).wants(d.t, object{
			"kind": "change", "args": "[/workspace/shop-repo/" + path + "]", "sha256_before": before, "sha256_after": told["secbox/sha256"],
		})
	}
}

// checkReport downloads the report. Its digest must be the digest in the tool's answer.
func (d *day) checkReport(seen object) {
	a := d.send(http.MethodGet, "/v1/sandbox/"+d.user+"/ag/file?path=shop-repo/reports/cart.md", nil)
	sum := sha256.Sum256(a.Body)
	digest := hex.EncodeToString(sum[:])
	if a.Code != http.StatusOK || !strings.HasPrefix(string(a.Body), "# Cart\n") || meta(seen, "report")["secbox/sha256"] != digest ||
		a.Header.Get("ETag") != `"sha256:`+digest+`"` {
		d.t.Errorf("the report: %d %q, %s, and written %v", a.Code, a.Body, a.Header.Get("ETag"), meta(seen, "report"))
	}
	if d.backend == "remote" {
		if onLaptop, err := os.ReadFile(filepath.Join(d.dir, "shop-repo/reports/cart.md")); err != nil || !bytes.Equal(onLaptop, a.Body) {
			d.t.Errorf("on the laptop: %q, %v", onLaptop, err)
		}
	}
}
