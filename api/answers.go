package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"secbox/api/content"
	"secbox/api/problem"
	"secbox/api/visible"
	"secbox/api/wire"
)

// A raw answer is not encoded by generated code: a page, a file, an archive, a stream. Its handler
// returns no response, but gives it to call.answer.
type raw func(w http.ResponseWriter) error

// answer makes write the answer to the request, once its handler has returned.
func (c *call) answer(write raw) error {
	c.write = write
	return nil
}

// answerPage makes a page the answer to the request, unless there is an error.
func (c *call) answerPage(p content.Page, err error) error {
	if err != nil {
		return err
	}
	return c.answer(func(w http.ResponseWriter) error { return p.Serve(w, c.request) })
}

// writeRaw sends the raw answers of handlers.
func writeRaw(next wire.StrictHandlerFunc, _ string) wire.StrictHandlerFunc {
	return func(c echo.Context, request any) (any, error) {
		response, err := next(c, request)
		if write := callFrom(c.Request().Context()).write; err == nil && write != nil {
			return nil, write(c.Response())
		}
		return response, err
	}
}

// envelopeSuccess is the status of every successful answer below /v1/.
const envelopeSuccess = "success"

// message is a successful answer below /v1/ with a text.
func message(text string) wire.V1Message { return wire.V1Message{Status: envelopeSuccess, Data: text} }

// timestamp returns nil for the zero time.
func timestamp(t time.Time) *visible.Timestamp {
	if t.IsZero() {
		return nil
	}
	return new(visible.Timestamp(t))
}

// jsonPage is a page whose entity tag is a digest of the encoded answer, so that it differs between
// versions of this server.
func jsonPage(v any) (content.Page, error) {
	body, err := json.Marshal(v)
	return content.NewPage("application/json", append(body, '\n'), problem.CSP), err
}

// notNil makes an empty list encode as [] instead of null.
func notNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// text returns the valid UTF-8 of bytes that a job wrote.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// value returns an optional parameter, "" if it is absent.
func value(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
