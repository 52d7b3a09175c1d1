package console

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

// retryAfter is the Retry-After of an answer 503 whose error has none, such as when the database is
// away.
const retryAfter = 5 * time.Second

// showError answers with a page that says what to do.
func (c *Console) showError(err error, e echo.Context) {
	req := requestFrom(e)
	if status := noRoute(err); status != 0 {
		_, leave, full := c.enter(req, "/*") // for the navigation, which only those who are signed in get
		if full != nil {
			err = full
		} else {
			defer leave()
			err = c.noPage(req, status)
		}
	}
	c.showProblem(err, req)
}

// showProblem sends the page of an error.
func (c *Console) showProblem(err error, req *request) {
	problem := problemOf(err)
	gone := req.ctx().Err() != nil
	if !gone && (problem.Err != nil || problem.Code == fault.Internal) {
		c.log.Error("a page failed", "path", req.Request().URL.Path, "error", problem.Error())
	}
	if req.Response().Committed {
		panic(http.ErrAbortHandler) // cuts the connection, so that the answer is visibly incomplete
	}
	h := req.Response().Header()
	wait := problem.RetryAfter
	if wait <= 0 && fault.HTTPStatus(problem.Code) == http.StatusServiceUnavailable {
		wait = retryAfter
	}
	if wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	}
	for _, name := range []string{"Content-Disposition", "ETag", "Last-Modified", "Accept-Ranges"} { // of a file that could not be sent
		h.Del(name)
	}
	h.Set("Content-Security-Policy", csp)
	h.Set("Cache-Control", "no-store")
	title := titleOf(problem.Code)
	if errors.As(err, new(oldForm)) {
		title = "The form is too old"
	}
	page := ui.Page{
		Title: title, Body: view.Problem(problem, c.withoutQuery(req, problem), c.section(req)),
		Status: fault.HTTPStatus(problem.Code),
	}
	if refused, ok := errors.AsType[refusedForm](err); ok {
		page = refused.page
	}
	if err := c.render(req, page); err != nil {
		c.log.Error("a page of an error failed", "error", err)
	}
}

// section returns the part of the navigation to which the address belongs, else the first page.
func (c *Console) section(req *request) ui.NavItem {
	parts := c.navigation(req)
	if at := slices.IndexFunc(parts, func(part ui.NavItem) bool { return part.Current }); at >= 0 {
		return parts[at]
	}
	return ui.NavItem{Label: "the first page", To: ui.Link()}
}

// withoutQuery returns the address of a page that refused a parameter, without its parameters; nil
// if it is no page, or refused something else.
func (c *Console) withoutQuery(req *request, problem *fault.Error) *ui.Address {
	asked := req.Request()
	isPage := slices.ContainsFunc(c.routes, func(r route) bool { return ui.Root+r.path == req.Path() && r.page != nil })
	page, ok := ui.Parse(asked.URL.EscapedPath())
	if !ok || !isPage || asked.Method != http.MethodGet || problem.Code != fault.InvalidRequest || asked.URL.RawQuery == "" {
		return nil
	}
	return &page
}

// noRoute returns the status of an error of echo's router: 404, 405, or 0 for any other error.
func noRoute(err error) int {
	var he *echo.HTTPError
	var fe *fault.Error
	if errors.As(err, &fe) || !errors.As(err, &he) || he.Code != http.StatusNotFound && he.Code != http.StatusMethodNotAllowed {
		return 0
	}
	return he.Code
}

// noPage is the error of an address without a page, or of a method that an address does not take.
// It names what the page has.
func (c *Console) noPage(req *request, status int) error {
	where := "go to the first page"
	if len(c.navigation(req)) > 0 {
		where = "choose a page in the navigation"
	}
	if status == http.StatusMethodNotAllowed {
		return fault.New(fault.MethodNotAllowed, "this address takes no request with the method %s; %s, and use its links and forms",
			ui.Cut(req.Request().Method, 20), where)
	}
	return fault.New(fault.NotFound, "there is no such page; %s", where)
}

// titles are the headings of errors that mean something else to the reader of a page than to a
// client of the API.
var titles = map[fault.Code]string{
	fault.InvalidCursor:      "There is no such page of the list",
	fault.Forbidden:          "Your role or scope does not allow this",
	fault.ForeignOrigin:      "Another site asked for this",
	fault.NotFound:           "There is no such page",
	fault.MethodNotAllowed:   "This is no address of a page",
	fault.RangeUnsatisfiable: "The file has no such part",
}

func titleOf(code fault.Code) string { return cmp.Or(titles[code], fault.Title(code)) }

// problemOf returns the fault in err. Remedies of the API are replaced by those that a page has.
func problemOf(err error) *fault.Error {
	problem := *fault.From(err)
	switch problem.Code {
	case fault.InvalidCursor:
		problem.Message,
			problem.Fields = "the address is of a page of another list, or was cut; open the list again, and use its own buttons", nil
	case fault.UnknownExec:
		problem.Message = "no exec has this id, or it is not one that you may see; the history has those that you may see"
	case fault.RangeUnsatisfiable:
		problem.Message = "the part of the file that was asked for is malformed, or begins after the end; download the whole file"
	}
	return &problem
}
