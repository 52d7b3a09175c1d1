package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"secbox/console/ui"
	"secbox/fault"
)

// oldForm is the error of a form whose token is not one of this browser's.
type oldForm struct{ error }

func (e oldForm) Unwrap() error { return e.error }

// refusedForm is the error of a form; its page has what was typed, and why it was refused.
type refusedForm struct {
	error
	page ui.Page
}

func (e refusedForm) Unwrap() error { return e.error }

// maxForm is the largest body of a form, in bytes.
const maxForm = 64 << 10

// readForm reads the fields of a form, and refuses one that a page of another origin sent, or that
// has other fields.
func (c *Console) readForm(req *request, fields []string) error {
	r := req.Request()
	if err := ownOrigin(r); err != nil {
		return err
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind),
		"application/x-www-form-urlencoded") {
		return fault.New(fault.UnsupportedMedia, "a form is application/x-www-form-urlencoded; use the page's own form")
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return fault.New(fault.UnsupportedMedia, "forms are read without a Content-Encoding; use the page's own form")
	}
	r.Body = http.MaxBytesReader(req.Response(), r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		if known, ok := errors.AsType[*fault.Error](err); ok { // of the body: fault.BodyTooSlow
			return known
		}
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return fault.New(fault.BodyTooLarge, "the form is larger than %d bytes, the most that one may have; shorten what it has",
				maxForm)
		}
		return fault.Wrap(fault.InvalidRequest, err, "the form could not be read; it or its address is not encoded as "+
			"application/x-www-form-urlencoded says: use the page's own form")
	}
	req.form = r.PostForm
	if got := []byte(req.form.Get(ui.CSRFField)); !slices.ContainsFunc(req.keys,
		func(secret string) bool { return hmac.Equal(got, []byte(csrfToken(secret))) }) {
		return oldForm{fault.New(fault.ForeignOrigin,
			"the form is too old or not of this site: go back, reload the page and send it again; cookies must be allowed")}
	}
	for name, values := range req.form {
		switch {
		case len(values) > 1:
			return fault.BadField(ui.Cut(name, 100), "is there %d times; send it once", len(values))
		case name != ui.CSRFField && !slices.ContainsFunc(fields, func(field string) bool {
			prefix, any := strings.CutSuffix(field, "*")
			return name == field || any && strings.HasPrefix(name, prefix)
		}):
			return fault.BadField(ui.Cut(name, 100), "is no field of this form; use the page's own form")
		}
	}
	return nil
}

// withRefusal returns a page that shows the values that an error refuses beside their inputs; any
// other error is the answer itself.
func withRefusal(page ui.Page, err error) (ui.Page, error) {
	if problem := (*fault.Error)(nil); errors.As(err, &problem) && len(problem.Fields) > 0 {
		page.Problem, page.Status = problem, fault.HTTPStatus(problem.Code)
		return page, nil
	}
	return page, err
}

// ownOrigin refuses a request that another site made, by the headers with which browsers say so.
// Browsers send Origin with every form.
func ownOrigin(r *http.Request) error {
	foreign := fault.New(fault.ForeignOrigin, "the form was sent by a page of another site; open the console and use its own forms")
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return foreign
	}
	origin := r.Header.Get("Origin")
	u, err := url.Parse(origin)
	if origin != "" && (err != nil || !strings.EqualFold(u.Host, r.Host)) {
		return foreign
	}
	return nil
}

// csrf returns the token for the forms of an answer: only this server's pages in this browser have
// it. Every node computes the same.
func (req *request) csrf() string {
	if len(req.keys) == 0 {
		return ""
	}
	return csrfToken(req.keys[0])
}

func csrfToken(secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("secbox console form"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
