package console_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pages "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"secbox/audit"
	"secbox/health"
	"secbox/runner"
)

var takeScreenshots = flag.Bool("screenshots", false, "write the pictures of README (make screenshots)")

const (
	maxPicture = 150 << 10 // bytes
	blockSize  = 16        // pixels; pictures are compared by the mean of each block
	blockDiff  = 24        // of 255, from which on blocks differ
	// maxDiffer is the share of blocks that may differ: a word, or another version of a font; not a
	// part of the page that moved, is new or has other colours.
	maxDiffer = 0.06
)

// screenshots are the pictures that README shows.
var screenshots = []struct{ file, path string }{
	{"console-overview.png", "/console/overview"},
	{"console-exec.png", "/console/execs/" + execID(2)},
}

// TestScreenshots checks that the pictures of README show the pages as they are.
func TestScreenshots(t *testing.T) {
	app := pictureApp(t)
	b := open(t, "")
	b.do(chromedp.EmulateViewport(1280, 820))
	at, err := json.Marshal(app.now().UnixMilli())
	must(t, err)
	call(b, pages.AddScriptToEvaluateOnNewDocument, pages.AddScriptToEvaluateOnNewDocumentParams{Source: `{
		const at = ` + string(at) + `, Real = Date;
		globalThis.Date = class extends Real { constructor(...args) { args.length ? super(...args) : super(at); } static now() { return at; } };
	}`})
	for _, s := range screenshots {
		app := pictureApp(t)
		if s.path == "/console/overview" { // of a list with a filter, the application returns all records
			app.records = nil
			for i, script := range []string{"python3 forecast.py --quarter 4", "pytest -q", "make -j2 report.pdf"} {
				r := record(20 - i)
				r.Status, r.ExitCode, r.EndedAt, r.DurationMS = audit.Running, nil, time.Time{}, 0
				r.ProjectID, r.Args = []string{"sales", "api", "reports"}[i], []string{"-lc", script}
				app.records = append(app.records, r)
			}
		}
		b.url = app.serve(t)
		b.visit(s.path)
		eval[bool](b, `document.fonts.ready.then(() => true)`)
		taken := run(b, chromedp.CaptureScreenshot())
		file := filepath.Join("../docs/images", s.file)
		if *takeScreenshots {
			must(t, os.WriteFile(file, recoded(t, taken), 0o644))
		}
		kept, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; run make screenshots", err)
		}
		if len(kept) > maxPicture {
			t.Errorf("%s has %d bytes, more than %d", s.file, len(kept), maxPicture)
		}
		if share := differ(t, decoded(t, kept), decoded(t, taken)); share > maxDiffer {
			failed := filepath.Join(os.TempDir(), "now-"+s.file)
			must(t, os.WriteFile(failed, taken, 0o644))
			t.Errorf("%.0f%% of %s are not as %s is now, see %s; run make screenshots", 100*share, s.file, s.path, failed)
		}
	}
}

// TestScreenshotsCanDiffer: a picture of another page, of the dark, or of a page whose parts have
// moved is not the same.
func TestScreenshotsCanDiffer(t *testing.T) {
	b := open(t, pictureApp(t).serve(t))
	b.do(chromedp.EmulateViewport(1280, 820))
	b.visit(screenshots[1].path)
	first := decoded(t, run(b, chromedp.CaptureScreenshot()))
	if share := differ(t, first, decoded(t, run(b, chromedp.CaptureScreenshot()))); share > 0.01 {
		t.Errorf("the same page differs by %v", share)
	}
	b.scheme("dark")
	if share := differ(t, first, decoded(t, run(b, chromedp.CaptureScreenshot()))); share < 0.5 {
		t.Errorf("the dark page differs by %v", share)
	}
	b.scheme("light")
	eval[bool](b,
		`document.querySelector("main section, main .panel, main > *:nth-child(2)").before(Object.assign(document.createElement("h2"), {className: "panel", textContent: "New"})) ?? true`)
	if share := differ(t, first, decoded(t, run(b, chromedp.CaptureScreenshot()))); share < maxDiffer {
		t.Errorf("a page with another panel differs by %v", share)
	}
}

// recoded returns a picture in as few bytes as PNG takes.
func recoded(t *testing.T, picture []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, decoded(t, picture)))
	return b.Bytes()
}

func decoded(t *testing.T, picture []byte) image.Image {
	t.Helper()
	m, err := png.Decode(bytes.NewReader(picture))
	must(t, err)
	return m
}

// differ returns the share of blocks that differ; all of pictures of different sizes.
func differ(t *testing.T, a, b image.Image) float64 {
	t.Helper()
	if a.Bounds() != b.Bounds() {
		return 1
	}
	different, blocks := 0, 0
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y += blockSize {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x += blockSize {
			blocks++
			block := image.Rect(x, y, x+blockSize, y+blockSize).Intersect(a.Bounds())
			one, other := mean(a, block), mean(b, block)
			for c := range one {
				if d := one[c] - other[c]; d > blockDiff || d < -blockDiff {
					different++
					break
				}
			}
		}
	}
	return float64(different) / float64(blocks)
}

// mean is the mean colour of a part of a picture.
func mean(m image.Image, part image.Rectangle) (sum [3]int) {
	for y := part.Min.Y; y < part.Max.Y; y++ {
		for x := part.Min.X; x < part.Max.X; x++ {
			r, g, b, _ := m.At(x, y).RGBA()
			sum[0], sum[1], sum[2] = sum[0]+int(r>>8), sum[1]+int(g>>8), sum[2]+int(b>>8)
		}
	}
	for c := range sum {
		sum[c] /= part.Dx() * part.Dy()
	}
	return sum
}

// pictureApp returns an application as it is after a quiet day: always the same one.
func pictureApp(t *testing.T) *fakeApp {
	t.Helper()
	f := fullApp()
	now := clock.Add(2 * time.Minute)
	f.now = func() time.Time { return now }
	f.caller.Name = "ada"
	recent := audit.Recent{Complete: true}
	for ago := range 31 * 24 {
		day := 12 - (now.Hour()-ago%24+24)%24 // hours from noon
		busy := int64(max(2, 60-day*day/2+(ago*37)%11))
		for _, c := range []audit.HourCount{
			{Status: audit.Succeeded, Execs: busy * 4},
			{Status: audit.Failed, ErrorReason: audit.NonzeroExit, Execs: busy / 6},
			{Status: audit.Timeout, ErrorReason: audit.ReasonTimeout, Execs: busy / 25},
			{Status: audit.OOMKilled, ErrorReason: audit.OOM, Execs: int64(ago%5) / 4},
			{Status: audit.Rejected, ErrorReason: audit.PolicyDenied, Execs: busy / 16},
			{Status: audit.Rejected, ErrorReason: audit.Forbidden, Execs: int64(ago%7) / 5},
		} {
			if c.Hour = now.Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour); c.Execs > 0 {
				recent.Hours = append(recent.Hours, c)
			}
		}
	}
	for i, skill := range []string{"report.quarterly", "data.clean", "report.quarterly", "", "shell.run"} {
		recent.Slowest = append(recent.Slowest, audit.SlowExec{
			ExecID: execID(10 + i), CreatedAt: now.Add(-time.Duration(i*i+1) * time.Hour),
			Status: audit.Succeeded, SkillID: skill, DurationMS: int64(512_300 / (i + 1)), Cmd: "bash", Args: []string{"-lc", "python train.py --epochs 40"},
		})
	}
	f.recent = func(int) audit.Recent { return recent }

	code := "import csv, json\nrows = list(csv.DictReader(open(\"/workspace/inputs/sales.csv\")))\ntotal = sum(int(row[\"amount\"]) for row in " +
		"rows)\nprint(f\"{len(rows)} rows, total {total}\")"
	shown := &f.records[58]
	*shown = record(2)
	shown.CreatedAt = now.Add(-90 * time.Second)
	shown.StartedAt, shown.EndedAt, shown.DurationMS = shown.CreatedAt.Add(2*time.Millisecond), shown.CreatedAt.Add(431*time.Millisecond), 429
	shown.ProjectID, shown.TaskID, shown.AgentID, shown.UserID, shown.SkillID = "sales", "q3-report", "analyst", "ada", "report.quarterly"
	shown.Cmd, shown.Args = "python", []string{"-c", code}
	shown.Image, shown.ImageID = "secbox-sandbox:latest", "sha256:"+strings.Repeat("4f1d", 16)
	shown.Inputs, shown.InputsKept = []audit.Input{{Path: "sales.csv", Size: 48_213, SHA256: strings.Repeat("c3a9", 16)}}, audit.Kept
	shown.ManifestDigest, shown.Warm = "sha256:"+strings.Repeat("91be", 16), true
	shown.StdoutBytes, shown.ArtifactsBytes = 24, 312
	shown.PolicySnapshot, shown.ArtifactsPath = defaultPolicy(), "projects/sales/artifacts/x"
	f.output["stdout"], f.output["stderr"] = []byte("1204 rows, total 981223\n"), nil
	f.files, f.content, f.notKept = nil, nil, runner.ArtifactList{}
	f.addFile("summary.json", `{"rows": 1204, "total": 981223}`)
	f.events = []audit.Event{
		{Kind: audit.EventCreated, At: shown.CreatedAt, NodeID: "node"},
		{Kind: audit.EventStarted, At: shown.StartedAt, NodeID: "node"},
		{Kind: audit.EventEnded, At: shown.EndedAt, NodeID: "node"},
	}
	f.report.Status, f.report.Problems = health.OK, nil
	f.report.AuditLog.SignedAt = now.Add(-12 * time.Second)
	f.pool.MemoryLow, f.pool.NotShared, f.pool.Shared = false, "", true
	return f
}
