package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

const remedy = "; run make setup"

// TestMain ends the browser and the validator that the tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if browser.end != nil {
		browser.end()
	}
	if validator.end != nil {
		validator.end()
	}
	os.Exit(code)
}

// browser is one Chromium for all tests of the package.
var browser struct {
	once sync.Once
	ctx  context.Context
	end  func()
	err  error
}

func startBrowser() {
	path, err := exec.LookPath("chromium")
	if err != nil {
		browser.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute))
	all, endAll := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(all)
	browser.ctx, browser.end = ctx, func() { end(); endAll() }
	browser.err = chromedp.Do(ctx) // no timeout: this context is the browser's
}

// tab is a page of the shared browser with its own cookies. It fails its test for each message of
// the console and each exception, such as a script that the Content-Security-Policy refused.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string // of the server
	mu  sync.Mutex
	bad []string
}

// open opens a tab for a server; its addresses begin at the server's root.
func open(t *testing.T, serverURL string) *tab {
	t.Helper()
	browser.once.Do(startBrowser)
	if browser.err != nil {
		t.Fatalf("chromium: %v%s", browser.err, remedy)
	}
	ctx, end := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx, url: serverURL}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.complain("exception: " + e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.Source == log.EntrySourceNetwork || e.Entry.Source == log.EntrySourceRecommendation { // a status such as 404; advice
				return
			}
			b.complain(string(e.Entry.Source) + ": " + e.Entry.Text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	b.do(chromedp.EmulateViewport(1280, 900))
	t.Cleanup(func() {
		for _, text := range b.complaints() {
			t.Errorf("the browser's console: %s", text)
		}
	})
	return b
}

func (b *tab) complain(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bad = append(b.bad, text)
}

// complaints returns what the browser's console has said since the last call.
func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	bad := b.bad
	b.bad = nil
	return bad
}

// do runs actions, for at most a minute.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(actions...))
}

// run runs an action, for at most a minute, and returns its value.
func run[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	out, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatalf("%v; the page is: %.600s", err, b.text())
	}
	return out
}

// call runs a command of the protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return run(b, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) })
}

// text is the text of the page, empty if there is none.
func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body ? document.body.innerText : ""`))
	return text
}

// visit opens an address and waits until the page's scripts have run.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url+path), chromedp.WaitReady("main"))
}

// heading waits for the page of an address, and returns its heading. A query of chromedp would wait
// in vain for a node of a page that led there and is gone.
func (b *tab) heading(address string) string {
	b.t.Helper()
	at := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
		found, err := chromedp.Run(ctx, chromedp.Evaluate[[2]string](`new Promise(shown => setTimeout(() =>
			shown([document.readyState === "complete" ? location.href : "", document.querySelector("h1")?.textContent ?? ""]), 50))`, chromedp.EvalAwaitPromise))
		cancel()
		if at = found[0]; err == nil && at == address && found[1] != "One moment" {
			return found[1]
		}
	}
	b.t.Fatalf("the page is %s, not %s: %.600s", at, address, b.text())
	return ""
}

// scheme chooses the colour scheme that the page sees: light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// eval returns the value of an expression of JavaScript; a promise is awaited.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// modules is where make setup installs the packages that check pages.
var modules = sync.OnceValues(func() (string, error) {
	lock, err := os.ReadFile("testdata/browser/package-lock.json")
	if err != nil {
		return "", err
	}
	installed, err := os.ReadFile("../.cache/consoletest/installed.json")
	if err != nil || string(installed) != string(lock) {
		return "", errNotInstalled
	}
	return filepath.Abs("../.cache/consoletest")
})

type notInstalled struct{}

var errNotInstalled error = notInstalled{}

func (notInstalled) Error() string {
	return "the packages of testdata/browser are not installed" + remedy
}

var axeSource = sync.OnceValues(func() (string, error) {
	dir, err := modules()
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	return string(source), err
})

// accessible fails for each violation of WCAG 2.2 AA on the page, in light and in dark.
func (b *tab) accessible(name string) {
	b.t.Helper()
	source, err := axeSource()
	if err != nil {
		b.t.Fatal(err)
	}
	type violation struct {
		Rule  string   `json:"rule"`
		Help  string   `json:"help"`
		Nodes []string `json:"nodes"`
	}
	b.do(chromedp.Evaluate[chromedp.Void](source))
	// Only colours differ in the dark.
	for scheme, only := range map[string]string{
		"light": `{type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}`,
		"dark":  `{type: "rule", values: ["color-contrast"]}`,
	} {
		b.scheme(scheme)
		for _, v := range eval[[]violation](b, `axe.run(document, {runOnly: `+only+`, resultTypes: ["violations"]}).then(r => r.violations.map(v =>
			({rule: v.id, help: v.help, nodes: v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + n.any.map(a => a.message).join("; "))})))`) {
			b.t.Errorf("%s, %s: %s: %s: %s", name, scheme, v.Rule, v.Help, strings.Join(v.Nodes, " | "))
		}
	}
	b.scheme("light")
}

// document is a page as it was sent.
type document struct {
	Name string `json:"name"`
	HTML string `json:"html"`
}

// validator is one process with html-validate for all tests of the package, because loading it
// takes most of the time. It answers each list of documents with the list of their problems.
var validator struct {
	sync.Mutex
	once sync.Once
	in   *json.Encoder
	out  *json.Decoder
	end  func()
	err  error
}

func startValidator() error {
	dir, err := modules()
	if err != nil {
		return err
	}
	cmd := exec.Command("node", "testdata/browser/validate.cjs", dir)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return err
	}
	validator.in, validator.out = json.NewEncoder(in), json.NewDecoder(out)
	validator.end = func() { _, _ = in.Close(), cmd.Wait() }
	return nil
}

// valid fails for each error of html-validate in the documents.
func valid(t *testing.T, documents []document) {
	t.Helper()
	validator.once.Do(func() { validator.err = startValidator() })
	if validator.err != nil {
		t.Fatal(validator.err)
	}
	validator.Lock()
	defer validator.Unlock()
	var problems []string
	if err := errors.Join(validator.in.Encode(documents), validator.out.Decode(&problems)); err != nil {
		t.Fatalf("html-validate: %v", err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}
