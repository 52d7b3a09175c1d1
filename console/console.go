package console

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/api/inflight"
	"secbox/console/assets"
	"secbox/console/ui"
	"secbox/fault"
	"secbox/follow"
)

// Config is what a Console shows. All fields but SignOn, Logger and Now are required.
type Config struct {
	Execs  Execs
	Events Events
	Runner Runner
	Live   *follow.Execs // those of Runner
	Proofs Proofs

	Replayer Replayer

	Nodes   Nodes
	Health  Health
	Pool    Pool
	Runners Runners

	AdminEvents AdminEvents
	Registry    Registry
	Holds       Holds
	Retention   Retention

	Sessions Sessions
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

// New makes a Console.
func New(cfg Config) (*Console, error) {
	if cfg.Execs == nil || cfg.Events == nil || cfg.Runner == nil || cfg.Live == nil || cfg.Proofs == nil || cfg.Replayer == nil || cfg.Sessions == nil || cfg.Tokens == nil || cfg.Version == "" ||
		cfg.Nodes == nil || cfg.Health == nil || cfg.Pool == nil || cfg.Runners == nil ||
		cfg.AdminEvents == nil || cfg.Registry == nil || cfg.Holds == nil || cfg.Retention == nil {
		return nil, fault.New(fault.Internal, "console.New needs Execs, Events, a Runner, Live, Proofs, a Replayer, Sessions, Tokens, Nodes, Health, a Pool, Runners, AdminEvents, Registry, Holds, Retention and a Version")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Console{cfg: cfg, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), echo: echo.New(), live: newLiveExecs(), checks: inflight.NewChecks()}
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

// csp keeps a page from running and loading anything but our own files, from being framed, and its forms from being sent elsewhere. frame-src is for the
// sandboxed frames that show artifacts.
const csp = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; frame-src 'self'; object-src 'none'"

func (c *Console) asset(e echo.Context) error {
	if !assets.Serve(e.Response(), e.Request(), e.Param("name")) {
		return fault.New(fault.NotFound, "there is no such file; reload the page, which may be of an older version")
	}
	return nil
}

// showError answers with a page that says what to do.
func (c *Console) showError(err error, e echo.Context) {
	v := visitFrom(e)
	problem := translate(err)
	gone := e.Request().Context().Err() != nil
	if !gone && (problem.Err != nil || problem.Code == fault.Internal) {
		c.log.Error("a page failed", "path", e.Request().URL.Path, "error", problem.Error())
	}
	if e.Response().Committed {
		panic(http.ErrAbortHandler) // cuts the connection, so that the answer is visibly incomplete
	}
	if problem.RetryAfter > 0 {
		e.Response().Header().Set("Retry-After", strconv.Itoa(int((problem.RetryAfter+time.Second-1)/time.Second)))
	}
	h := v.Response().Header()
	h.Del("Content-Disposition") // of a file that could not be sent
	h.Set("Content-Security-Policy", csp)
	page := ui.Page{Title: fault.Title(problem.Code), Body: problemBody(problem), Status: fault.HTTPStatus(problem.Code)}
	var shown interface{ page() ui.Page } // a form that was refused, with what was typed
	if errors.As(err, &shown) {
		page = shown.page()
	}
	if err := c.render(v, page); err != nil {
		c.log.Error("a page of an error failed", "error", err)
	}
}

// translate returns the fault in err. Errors of echo concern routes.
func translate(err error) *fault.Error {
	var he *echo.HTTPError
	var fe *fault.Error
	if errors.As(err, &fe) || !errors.As(err, &he) {
		return fault.From(err)
	}
	switch he.Code {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "there is no such page; the navigation has those that there are")
	case http.StatusMethodNotAllowed:
		return fault.New(fault.MethodNotAllowed, "this address takes another method; open the page again and use its buttons")
	}
	return fault.From(err)
}
