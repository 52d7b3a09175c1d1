// Package decode reads what clients send: JSON bodies and plain text. It refuses every unknown,
// repeated or null field of a JSON body, and names the field's path. It must not know routes or
// what a field means.
package decode

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"secbox/api/problem"
	"secbox/fault"
)

// Binder implements echo.Binder for JSON bodies of at most MaxBytes.
type Binder struct{ MaxBytes int64 }

// Bind reads the body into target.
func (b Binder) Bind(target any, c echo.Context) error {
	r := c.Request()
	if r.ContentLength == 0 {
		return errEmpty
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset, declared := params["charset"]
	if err != nil || media != "application/json" || declared && !strings.EqualFold(charset, "utf-8") {
		return fault.New(fault.UnsupportedMedia, "the Content-Type is %q; send application/json, in UTF-8",
			problem.Clip(r.Header.Get("Content-Type")))
	}
	if err := checkEncoding(r); err != nil {
		return err
	}
	if r.ContentLength > b.MaxBytes {
		return TooLarge(b.MaxBytes)
	}
	r.Body = http.MaxBytesReader(c.Response(), r.Body, b.MaxBytes)
	err = c.Echo().JSONSerializer.Deserialize(c, target)
	if limit := (*http.MaxBytesError)(nil); errors.As(err, &limit) {
		return TooLarge(b.MaxBytes)
	}
	return err
}

// Text reads a body that is the text itself. The declared media type does not matter, because curl
// -d declares everything a form. But a multipart form is refused: its boundaries are not part of
// the text.
func Text(r *http.Request, maxBytes int64) ([]byte, error) {
	if header := r.Header.Get("Content-Type"); header != "" {
		media, params, err := mime.ParseMediaType(header)
		charset := params["charset"]
		if err != nil || strings.HasPrefix(media, "multipart/") ||
			charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
			return nil, fault.New(fault.UnsupportedMedia,
				"the Content-Type is %q; send the text itself as text/plain in UTF-8: curl --data-binary @FILE", problem.Clip(header))
		}
	}
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	if r.ContentLength > maxBytes {
		return nil, TooLarge(maxBytes)
	}
	content, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBytes))
	if limit := (*http.MaxBytesError)(nil); errors.As(err, &limit) {
		return nil, TooLarge(maxBytes)
	}
	if err != nil {
		return nil, fault.New(fault.InvalidRequest, "the body was cut off: send all of it again")
	}
	if !utf8.Valid(content) {
		return nil, fault.New(fault.InvalidRequest, "the body is not UTF-8 text; convert it: iconv -t UTF-8")
	}
	return content, nil
}

// CheckBytes checks that the body is the content of a file, as a whole. The declared media type
// does not matter, because curl --data-binary declares everything a form. But a multipart form is
// refused: its boundaries are not part of the file.
func CheckBytes(r *http.Request) error {
	if header := r.Header.Get("Content-Type"); strings.HasPrefix(strings.ToLower(header), "multipart/") {
		return fault.New(fault.UnsupportedMedia, "the Content-Type is %q; send the file itself: curl -T FILE", problem.Clip(header))
	}
	if r.Header.Get("Content-Range") != "" { // RFC 9110, 14.5
		return fault.BadField("Content-Range", "is not supported; send the whole file")
	}
	return checkEncoding(r)
}

// TooLarge returns the fault of a body with more than maxBytes.
func TooLarge(maxBytes int64) error {
	return fault.New(fault.BodyTooLarge, "the body has more than %d bytes; the setting http.max_body_bytes raises the limit", maxBytes)
}

func checkEncoding(r *http.Request) error {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return fault.New(fault.UnsupportedMedia, "the Content-Encoding is %q; send the body without one", problem.Clip(coding))
	}
	return nil
}
