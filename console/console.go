package console

import (
	"cmp"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/api/inflight"
	"secbox/console/assets"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/runner/follow"
)

// Config is what a Console shows. All fields but SignOn, Logger and Now are required.
type Config struct {
	Execs       Execs
	Events      Events
	Callbacks   Callbacks
	Connections Connections
	Runner      Runner
	Live        *follow.Execs // the execs of Runner
	Proofs      Proofs

	Replayer Replayer

	Nodes   Nodes
	Samples Samples
	Health  Health
	Pool    Pool
	Runners Runners

	AdminEvents AdminEvents
	Reports     Reports
	Registry    Registry
	Holds       Holds
	Images      Images
	Retention   Retention

	Sessions Sessions
	Views    Views
	Tokens   Tokens
	SignOn   SignOn // nil: only tokens sign in

	Version string
	Logger  *slog.Logger     // nil: no log
	Now     func() time.Time // nil: time.Now
}

// Console answers the requests for /console and everything below it. It is safe for concurrent use.
type Console struct {
	cfg    Config
	log    *slog.Logger
	routes []route
	echo   *echo.Echo
	live   *liveExecs
	checks *inflight.Checks // of sessions, while long answers are sent
}

// optional are the fields that a Config may lack.
var optional = []string{"SignOn", "Logger", "Now"}

// check returns an error that names the fields that are missing.
func (cfg Config) check() error {
	var missing []string
	for field, value := range reflect.ValueOf(cfg).Fields() {
		if value.IsZero() && !slices.Contains(optional, field.Name) {
			missing = append(missing, field.Name)
		}
	}
	if len(missing) > 0 {
		return fault.New(fault.Internal, "console.New lacks %s", strings.Join(missing, ", "))
	}
	return nil
}

// New makes a Console.
func New(cfg Config) (*Console, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Console{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), echo: echo.New(), live: newLiveExecs(),
		checks: inflight.NewChecks(),
	}
	c.echo.HideBanner, c.echo.HidePort = true, true
	c.echo.Logger.SetOutput(io.Discard) // this module logs through slog
	c.echo.HTTPErrorHandler = c.showError
	c.routes = c.table()
	for _, r := range c.routes {
		serve := c.serve(r)
		if r.form != nil || r.answer != nil {
			c.echo.POST(ui.Root+r.path, serve)
			continue
		}
		c.echo.GET(ui.Root+r.path, serve)
		c.echo.HEAD(ui.Root+r.path, serve)
		if (r.page != nil || r.path == "") && !strings.HasSuffix(r.path, "*") {
			c.echo.GET(ui.Root+r.path+"/", c.withoutSlash)
			c.echo.HEAD(ui.Root+r.path+"/", c.withoutSlash)
		}
	}
	c.echo.GET(assets.Prefix+":name", c.asset)
	c.echo.HEAD(assets.Prefix+":name", c.asset)
	return c, nil
}

// ServeHTTP answers one request that passed door's server.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request, door Door) {
	h := w.Header()
	h.Set("Content-Security-Policy", csp)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send the Origin "null" with forms
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Cookie")
	c.echo.ServeHTTP(w, r.WithContext(withDoor(r.Context(), door)))
}

// withoutSlash leads from the address of a page with a slash at its end to the page.
func (c *Console) withoutSlash(e echo.Context) error {
	u := e.Request().URL
	page, ok := ui.Parse(u.EscapedPath())
	if !ok {
		return echo.ErrNotFound
	}
	to := page.String()
	if u.RawQuery != "" {
		to += "?" + u.RawQuery
	}
	return e.Redirect(http.StatusPermanentRedirect, to)
}

// csp keeps a page from running and loading anything but our own files, from being framed, and its
// forms from being sent elsewhere. frame-src is for the sandboxed frames that show artifacts.
const csp = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; frame-src 'self'; object-src 'none'"

func (c *Console) asset(e echo.Context) error {
	if !assets.Serve(e.Response(), e.Request(), e.Param("name")) {
		return fault.New(fault.NotFound, "there is no such file; reload the page, which may be of an older version")
	}
	return nil
}
