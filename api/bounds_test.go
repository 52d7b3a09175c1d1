package api_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api"
	"secbox/fault"
	"secbox/packages/archive"
	"secbox/packages/library"
)

// gated is a library whose uploads and downloads say that they have begun, and go on when they may.
type gated struct {
	api.Library
	began chan string
	goOn  chan struct{}
}

func (g gated) pass(what string) {
	g.began <- what
	<-g.goOn
}

func (g gated) UploadSome(ctx context.Context, o library.Owner, scope library.Scope, name string, pick archive.Pick, zip io.ReaderAt,
	size int64,
) ([]library.Uploaded, error) {
	g.pass(o.UserID)
	return g.Library.UploadSome(ctx, o, scope, name, pick, zip, size)
}

func (g gated) Download(ctx context.Context, o library.Owner, skillID string, w io.Writer) error {
	g.pass(o.UserID)
	return g.Library.Download(ctx, o, skillID, w)
}

// startGated is a server with bounds and a gated library.
func startGated(t *testing.T, b api.Bounds) (*fixture, gated) {
	g := gated{began: make(chan string, 100), goOn: make(chan struct{})}
	f := start(t, func(cfg *api.Config) {
		g.Library = cfg.Library
		cfg.Library, cfg.Bounds = g, b
	})
	return f, g
}

// busy fails unless the answer is 503 with the advice when to come again.
func busy(t *testing.T, r reply) string {
	t.Helper()
	if r.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	return r.refused(t, fault.SkillsBusy)
}

func TestUnpackingIsQueued(t *testing.T) {
	t.Parallel()
	f, g := startGated(t, api.Bounds{ConcurrentWork: 1, QueuedWork: 1})
	archive := weather(t)
	answers := make(chan reply, 4)
	upload := func(owner string) { answers <- f.upload(owner, "", "x.zip", archive) }
	go upload("first/ag")
	if who := <-g.began; who != "first" {
		t.Fatal(who)
	}
	for range 3 { // one of them waits
		go upload("other/ag")
	}
	for range 2 {
		busy(t, <-answers)
	}
	close(g.goOn)
	for range 2 {
		data[string](t, <-answers)
	}
	f.nothingWaits()
	data[string](t, f.upload("later/ag", "", "x.zip", archive))
}

// slow is a client that sends a part of its body and goes on when it is told to.
type slow struct {
	goOn   chan struct{}
	answer chan reply
}

func (f *fixture) slowUpload(owner, archive string, more ...func(*request)) slow {
	f.t.Helper()
	body, contentType := form(f.t, [3]string{"file", "x.zip", archive})
	s := slow{make(chan struct{}), make(chan reply, 1)}
	reader, writer := io.Pipe()
	go func() {
		io.WriteString(writer, body[:len(body)/2])
		<-s.goOn
		io.WriteString(writer, body[len(body)/2:])
		writer.Close()
	}()
	r := request{method: "POST", path: "/v1/skills/" + owner + "/upload", body: reader, header: map[string]string{"Content-Type": contentType}}
	for _, change := range more {
		change(&r)
	}
	before := f.waiting()
	plain := &fixture{t: f.t, url: f.url, client: &http.Client{Transport: &http.Transport{}}} // the other one reads a body before it sends it
	f.t.Cleanup(plain.client.CloseIdleConnections)
	go func() { s.answer <- plain.do(r) }()
	for f.waiting() == before { // until it has a file
		time.Sleep(time.Millisecond)
	}
	return s
}

func (f *fixture) waiting() int {
	f.t.Helper()
	list, err := os.ReadDir(f.uploads)
	if err != nil {
		f.t.Error(err)
	}
	return len(list)
}

// TestSlowUploadsDoNotBlockOthers: an upload needs a place in the queue only after all of it has
// arrived.
func TestSlowUploadsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *api.Config) {
		cfg.Bounds = api.Bounds{ConcurrentWork: 1, QueuedWork: -1, Uploads: 4, UploadsPerToken: 4}
	})
	archive := weather(t)
	slows := []slow{f.slowUpload("one/ag", archive), f.slowUpload("two/ag", archive), f.slowUpload("three/ag", archive)}
	data[string](t, f.upload("quick/ag", "", "x.zip", archive))
	for _, s := range slows {
		close(s.goOn)
		data[string](t, <-s.answer)
	}
	f.nothingWaits()
}

// TestNumberOfUploadsIsLimited: per token and in total.
func TestNumberOfUploadsIsLimited(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *api.Config) { cfg.Bounds = api.Bounds{Uploads: 3, UploadsPerToken: 2} })
	_, one := f.token(tokens.Spec{Role: tokens.Worker})
	_, two := f.token(tokens.Spec{Role: tokens.Worker})
	archive := weather(t)
	slows := []slow{f.slowUpload("a/ag", archive, as(one)), f.slowUpload("b/ag", archive, as(one))}
	if says := busy(t, f.upload("c/ag", "", "x.zip", archive, as(one))); !strings.Contains(says, "token limit") {
		t.Error(says)
	}
	data[string](t, f.upload("d/ag", "", "x.zip", archive, as(two)))
	slows = append(slows, f.slowUpload("e/ag", archive, as(two)))
	if says := busy(t, f.upload("f/ag", "", "x.zip", archive, as(two))); strings.Contains(says, "token limit") {
		t.Error(says)
	}
	for _, s := range slows {
		close(s.goOn)
		data[string](t, <-s.answer)
	}
	f.nothingWaits()
	data[string](t, f.upload("c/ag", "", "x.zip", archive, as(one)))
}

// TestBytesOfUploadsAreLimited: announced bytes are checked before the first one arrives, others as
// they arrive.
func TestBytesOfUploadsAreLimited(t *testing.T) {
	t.Parallel()
	const most = 100_000
	f := start(t, func(cfg *api.Config) { cfg.Bounds = api.Bounds{UploadBytes: most, UploadBytesPerToken: most} })
	large := strings.Repeat("no archive ", most/10)
	busy(t, f.upload("u/ag", "", "x.zip", large))
	body, contentType := form(t, [3]string{"file", "x.zip", large})
	busy(t, f.do(request{
		method: "POST", path: "/v1/skills/u/ag/upload", body: io.MultiReader(strings.NewReader(body)), // sent without a length
		header: map[string]string{"Content-Type": contentType},
	}))
	f.nothingWaits()
	data[string](t, f.upload("u/ag", "", "x.zip", weather(t)))
}

func TestNumberOfDownloadsIsLimited(t *testing.T) {
	t.Parallel()
	f, g := startGated(t, api.Bounds{Downloads: 2, DownloadsPerToken: 1})
	_, one := f.token(tokens.Spec{Role: tokens.Worker})
	_, two := f.token(tokens.Spec{Role: tokens.Worker})
	_, three := f.token(tokens.Spec{Role: tokens.Worker})
	answers := make(chan reply, 2)
	download := func(secret string) reply {
		return f.do(request{path: "/v1/skills/u/ag/weather_skill/download", token: secret})
	}
	go func() { answers <- f.upload("u/ag", "", "x.zip", weather(t), as(one)) }()
	<-g.began
	g.goOn <- struct{}{}
	data[string](t, <-answers)

	for _, secret := range []string{one, two} {
		go func() { answers <- download(secret) }()
		<-g.began
	}
	if says := busy(t, download(one)); !strings.Contains(says, "token limit") {
		t.Error(says)
	}
	if says := busy(t, download(three)); strings.Contains(says, "token limit") {
		t.Error(says)
	}
	close(g.goOn)
	for range 2 {
		if r := <-answers; r.StatusCode != 200 || !strings.HasPrefix(string(r.body), "PK") {
			t.Errorf("%d %.200s", r.StatusCode, r.body)
		}
	}
	if r := download(one); r.StatusCode != 200 {
		t.Errorf("%d %.200s", r.StatusCode, r.body)
	}
}

// endless is a library whose downloads end with their context.
type endless struct{ api.Library }

func (endless) Download(ctx context.Context, _ library.Owner, _ string, _ io.Writer) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestDownloadTimeout: even a client that reads fast enough cannot keep its place.
func TestDownloadTimeout(t *testing.T) {
	t.Parallel()
	f := start(t, func(cfg *api.Config) {
		cfg.Library, cfg.Bounds = endless{cfg.Library}, api.Bounds{Downloads: 1, Download: time.Millisecond}
	})
	for range 2 {
		if says := f.get("/v1/skills/u/ag/weather_skill/download").refused(t, fault.SkillsBusy); !strings.Contains(says, "took longer than 1ms") {
			t.Error(says)
		}
	}
}

// TestUploadOnFullDisk: an upload that does not fit is refused before it is received.
func TestUploadOnFullDisk(t *testing.T) {
	t.Parallel()
	free := uint64(16 << 20)
	f := start(t, func(cfg *api.Config) { cfg.UploadRoom = func() (uint64, error) { return free, nil } })
	if says := f.upload("u/ag", "", "x.zip", weather(t)).refused(t, fault.DiskFull); !strings.Contains(says, "free some space") {
		t.Error(says)
	}
	f.nothingWaits()
	free += 1 << 20
	data[string](t, f.upload("u/ag", "", "x.zip", weather(t)))
}
