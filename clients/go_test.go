//go:build unix

package clients

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	client "secbox/clients/go"
)

// TestNotSent: an error that comes before a server says what to change.
func TestNotSent(t *testing.T) {
	t.Parallel()
	nothing := http.NotFoundHandler()
	plain, encrypted := httptest.NewServer(nothing), httptest.NewTLSServer(nothing)
	t.Cleanup(plain.Close)
	t.Cleanup(encrypted.Close)
	encrypted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	proxy := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})}
	for name, c := range map[string]struct {
		server    string
		transport *http.Transport
		says      string
	}{
		"no server":               {"http://127.0.0.1:1", nil, "core-api serve"},
		"a proxy that is away":    {"http://core-api.example.com", proxy, "NO_PROXY"},
		"the same, with TLS":      {"https://core-api.example.com", proxy, "NO_PROXY"},
		"no TLS":                  {"https" + strings.TrimPrefix(plain.URL, "http"), nil, "http://"},
		"an unknown certificate":  {encrypted.URL, nil, "certificate"},
		"plain where TLS is used": {"http" + strings.TrimPrefix(encrypted.URL, "https"), nil, "is not a core-api"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := client.Config{Server: c.server}
			if c.transport != nil {
				cfg.HTTP = &http.Client{Transport: c.transport}
			}
			api, err := client.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = api.Exec(t.Context(), "0190aaaa-7c1e-7d35-9a52-0f4f3a1b2c3d"); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Error(err)
			}
		})
	}
}

// goClient tries the Go client against a core-api.
func goClient(t *testing.T, coreAPI, webhookPort string) {
	c, err := client.New(client.Config{Server: coreAPI, Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	dir := t.TempDir()
	t.Run("run", func(t *testing.T) {
		t.Parallel()
		name := filepath.Join(dir, "raw.bin")
		if err := os.WriteFile(name, []byte("\xff\x00raw"), 0o700); err != nil { //nolint:gosec // the input is a program
			t.Fatal(err)
		}
		in, err := client.InputFile(name, "")
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Run(ctx, client.Request{
			Project: "go", Inputs: []client.Input{in}, Policy: &client.Policy{TimeoutMS: 20_000},
			Command: client.Command{Script: "cd ..; mkdir artifacts/d; cp inputs/raw.bin artifacts/d/; test -x inputs/raw.bin || exit 1; echo out; echo err >&2; exit 3"},
		})
		if err != nil || res.ExitCode == nil || *res.ExitCode != 3 || res.Status != "failed" || res.Stdout != "out\n" || res.Stderr != "err\n" {
			t.Fatalf("%+v, %v", res, err)
		}
		out := filepath.Join(dir, "out")
		if err := c.SaveArtifacts(ctx, res.ExecID, res.Artifacts, out); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(out, "d/raw.bin")); err != nil || string(got) != "\xff\x00raw" {
			t.Errorf("%q, %v", got, err)
		}
		if err := c.SaveArtifacts(ctx, res.ExecID, []client.Artifact{{Path: "../evil", Size: 1}}, out); err == nil {
			t.Error("an artifact was written out of its directory")
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 2 {
			t.Errorf("%v, %v", left, err)
		}
		rec, err := c.Exec(ctx, res.ExecID)
		if err != nil || rec.Cmd != "bash" || !bytes.Contains(rec.Raw, []byte(`"requested_by"`)) {
			t.Errorf("%+v, %v", rec, err)
		}
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		in, typed := io.Pipe()
		var out bytes.Buffer
		state, err := c.Stream(ctx, client.Request{Project: "go", Command: client.Argv("cat"), Stdin: in}, func(e client.Event) error {
			if e.Type == "status" && e.State.Status == "running" {
				go func() { _, _ = typed.Write([]byte("first\n")) }()
			}
			if out.Write(e.Data); bytes.Equal(e.Data, []byte("first\n")) {
				go func() { _, _ = typed.Write([]byte("\xfe last")); _ = typed.Close() }()
			}
			return nil
		})
		if err != nil || state.Status != "succeeded" || out.String() != "first\n\xfe last" {
			t.Errorf("%+v, %v: %q", state, err, &out)
		}
		if rec, err := c.Exec(ctx, state.ExecID); err != nil || !bytes.Contains(rec.Raw, []byte(`"stdin_bytes":12`)) {
			t.Errorf("%s, %v", rec.Raw, err)
		}
		// A standard input that breaks off cancels the command.
		in, typed = io.Pipe()
		state, err = c.Stream(ctx, client.Request{Project: "go", Command: client.Argv("cat"), Stdin: in}, func(e client.Event) error {
			if e.State == nil {
				_ = typed.CloseWithError(io.ErrUnexpectedEOF)
			} else if e.State.Status == "running" {
				go func() { _, _ = typed.Write([]byte("part")) }()
			}
			return nil
		})
		if state.Status != "canceled" {
			t.Errorf("%+v, %v", state, err)
		}
	})
	t.Run("batch", func(t *testing.T) {
		t.Parallel()
		task := &client.TaskRef{TaskID: "go-batch"}
		reqs := []client.Request{
			{Project: "go", Task: task, Command: client.Argv("true")},
			{Project: "..", Task: task, Command: client.Argv("true")},
			{Project: "go", Task: task, Command: client.Argv("sh", "-c", "exit 4")},
		}
		batch, err := c.StartAll(ctx, "", reqs)
		if err != nil || batch.Accepted != 2 || batch.Items[1].Error == nil || batch.Items[1].Error.Code != "invalid_request" {
			t.Fatalf("%+v, %v", batch, err)
		}
		done, err := c.WaitTask(ctx, "go-batch", time.Minute)
		if err != nil || !done.Ended || done.Statuses["succeeded"] != 1 || done.Statuses["failed"] != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		n := 0
		for rec, err := range c.Execs(ctx, url.Values{"task_id": {"go-batch"}, "limit": {"1"}}) {
			if n++; err != nil || !rec.Ended() {
				t.Errorf("%+v, %v", rec, err)
			}
		}
		if n != 2 {
			t.Errorf("%d execs in the pages of a list", n)
		}
	})
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		rec, err := c.Start(ctx, client.Request{Project: "go", Command: client.Argv("sleep", "600")})
		if err == nil {
			err = c.Cancel(ctx, rec.ExecID)
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec, err = c.Wait(ctx, rec.ExecID); err != nil || rec.Status != "canceled" {
			t.Errorf("%+v, %v", rec, err)
		}
		if err := c.Cancel(ctx, rec.ExecID); client.CodeOf(err) != "exec_ended" {
			t.Error(err)
		}
	})
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		s, err := c.StartSession(ctx, client.SessionRequest{Project: "go-session", IdleMS: 60_000})
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range []string{"x = 20", "x + 1"} {
			res, err := c.Run(ctx, client.Request{SessionID: s.ID, Command: client.Command{Code: code, Context: "main"}})
			if err != nil || code == "x + 1" && !bytes.Contains(res.Results, []byte(`"21"`)) {
				t.Errorf("%+v, %v", res, err)
			}
		}
		files := c.SessionFiles(s.ID)
		if err := files.Write(ctx, "/workspace/work/a.txt", strings.NewReader("a")); err != nil {
			t.Error(err)
		}
		if list, err := files.List(ctx, "/workspace/work"); err != nil || len(list) != 1 || list[0].Name != "a.txt" {
			t.Errorf("%+v, %v", list, err)
		}
		if _, err := c.ExtendSession(ctx, s.ID, time.Hour); err != nil {
			t.Error(err)
		}
		if err := c.EndSession(ctx, s.ID); err != nil {
			t.Error(err)
		}
	})
	t.Run("skill", func(t *testing.T) {
		t.Parallel()
		out, err := c.Invoke(ctx, "shell.run", client.Invocation{Project: "go", Inputs: []byte(`{"script": "echo hi"}`)})
		if err != nil || out.Exec.Stdout != "hi\n" {
			t.Errorf("%+v, %v", out, err)
		}
	})
	t.Run("webhook", func(t *testing.T) {
		t.Parallel()
		var secret struct {
			Secret string `json:"secret"`
		}
		post(t, coreAPI+"/webhooks/secret", &secret)
		got := make(chan client.State, 4)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:"+webhookPort)
		if err != nil {
			t.Fatal(err)
		}
		receiver := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			hook, err := client.VerifyWebhook(secret.Secret, r.Header, body, time.Now())
			if err != nil {
				t.Error(err)
			}
			if _, err := client.VerifyWebhook(secret.Secret, r.Header, append(body, ' '), time.Now()); err == nil {
				t.Error("a changed body was accepted")
			}
			if _, err := client.VerifyWebhook(secret.Secret, r.Header, body, time.Now().Add(time.Hour)); err == nil {
				t.Error("an old webhook was accepted")
			}
			got <- hook.Data
		})}
		go func() { _ = receiver.Serve(l) }()
		defer receiver.Close()
		res, err := c.Run(ctx, client.Request{Project: "go", Command: client.Argv("true"), CallbackURL: "http://127.0.0.1:" + webhookPort + "/"})
		if err != nil {
			t.Fatal(err)
		}
		if hook := <-got; hook.ExecID != res.ExecID || hook.Status != "succeeded" {
			t.Errorf("%+v", hook)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		t.Parallel()
		_, err := c.Run(ctx, client.Request{Project: "go", Command: client.Argv("true"), Policy: &client.Policy{MemoryMB: 1 << 30}})
		if e := new(client.Error); client.CodeOf(err) != "policy_denied" || !asError(err, &e) || e.ExecID == "" || e.Status != 403 {
			t.Errorf("%+v", err)
		}
		gone, stop := context.WithCancel(ctx)
		stop()
		if _, err := c.Run(gone, client.Request{Project: "go", Command: client.Argv("true")}); err == nil {
			t.Error("a canceled request was made")
		}
	})
}

// TestGoTypes compares the fields of the Go client with the contract.
func TestGoTypes(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromFile("../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]any{
		"ExecRequest": client.Request{}, "Command": client.Command{}, "InputFile": client.Input{}, "PolicyOverrides": client.Policy{},
		"TaskRef": client.TaskRef{}, "ExecState": client.State{}, "ExecResult": client.Result{}, "ExecRecord": client.Record{},
		"Artifact": client.Artifact{}, "OmittedArtifact": client.Omitted{}, "ExecBatch": client.Batch{}, "ExecBatchItem": client.BatchItem{},
		"TaskState": client.Task{}, "SessionRequest": client.SessionRequest{}, "Session": client.Session{}, "FileEntry": client.FileEntry{},
		"Skill": client.Skill{}, "InvokeRequest": client.Invocation{}, "InvokeResult": client.Invoked{}, "ProblemDocument": client.Error{},
	} {
		schema := doc.Components.Schemas[name]
		if schema == nil {
			t.Errorf("the contract has no %s", name)
			continue
		}
		for field := range reflect.TypeOf(of).Fields() {
			tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if known := schema.Value.Properties[tag] != nil; tag != "" && tag != "-" && !known && !inAlternatives(schema.Value, tag) {
				t.Errorf("%s has no %q, which the Go client reads or sends", name, tag)
			}
		}
	}
}

func inAlternatives(schema *openapi3.Schema, name string) bool {
	for _, s := range append(schema.AllOf, schema.OneOf...) {
		if s.Value.Properties[name] != nil || inAlternatives(s.Value, name) {
			return true
		}
	}
	return false
}
