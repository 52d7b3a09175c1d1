package api

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"secbox/fault"
)

// plainText reads a body that is the text itself. What it is called does not matter, and curl -d calls everything a form; but a form with
// parts is one for certain, and its boundaries are nobody's text.
func (s *Server) plainText(ctx context.Context) ([]byte, error) {
	r := callFrom(ctx).request
	if header := r.Header.Get("Content-Type"); header != "" {
		media, params, err := mime.ParseMediaType(header)
		charset := params["charset"]
		if err != nil || strings.HasPrefix(media, "multipart/") ||
			charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
			return nil, fault.New(fault.UnsupportedMedia, "the Content-Type is %q; send the text itself as text/plain in UTF-8: curl --data-binary @FILE", clip(header))
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, fault.New(fault.UnsupportedMedia, "the Content-Encoding is %q; send the body as it is", clip(coding))
	}
	limit := bodyBinder{maxBytes: s.cfg.MaxBodyBytes}
	if r.ContentLength > limit.maxBytes {
		return nil, limit.tooLarge()
	}
	content, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit.maxBytes))
	if tooMuch := (*http.MaxBytesError)(nil); errors.As(err, &tooMuch) {
		return nil, limit.tooLarge()
	}
	if err != nil {
		return nil, fault.New(fault.InvalidRequest, "the body was cut off: send it again, completely")
	}
	if !utf8.Valid(content) {
		return nil, fault.New(fault.InvalidRequest, "the body is no UTF-8 text; convert it: iconv -t UTF-8")
	}
	return content, nil
}
