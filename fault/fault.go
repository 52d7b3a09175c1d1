package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"time"
)

// Code is a stable, machine-readable reason for a refusal or a failure; codes.go has them all.
type Code string

// Field is one field that was refused and why. Asked, Ceiling and Layer are set by policy refusals
// only.
type Field struct {
	Field   string `json:"field"`
	Reason  string `json:"reason"`
	Asked   any    `json:"asked,omitempty"`
	Ceiling any    `json:"ceiling,omitempty"`
	Layer   string `json:"layer,omitempty"`
}

// Removal is a removal by retention, as its tombstone tells it.
type Removal struct {
	Part   string    `json:"part"`   // "record" or "artifacts"
	At     time.Time `json:"at"`     // in UTC
	Rule   string    `json:"rule"`   // the setting
	Days   int64     `json:"days"`   // its value
	Events int64     `json:"events"` // that were removed; their entries are in the transparency log
}

// Error is a failure with a stable code, a sentence for the user and, for the log only, its cause.
type Error struct {
	Code       Code
	Message    string        // the problem and its remedy; may be shown to any caller
	Fields     []Field       // the fields at fault, in the order of the request
	MoreFields int           // wrong fields that Fields leaves out
	ExecID     string        // the exec that was audited for this refusal, if any
	Removed    *Removal      // of RemovedByRetention: what was removed
	RetryAfter time.Duration // when to try again; 0: no hint
	Err        error         // the cause, for the log; never shown to a caller
}

// New returns an Error with a formatted message.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap returns an Error with a cause for the log.
func Wrap(code Code, err error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// BadField returns the Error of one wrong field of a request.
func BadField(field, format string, args ...any) *Error {
	reason := fmt.Sprintf(format, args...)
	return &Error{Code: InvalidRequest, Message: field + ": " + reason, Fields: []Field{{Field: field, Reason: reason}}}
}

// Error returns the code, the message and the cause: for logs, not for callers.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// From finds the Error in a chain; any other error becomes Internal with itself as the cause, so
// that its text is not shown.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Message: "an internal error; the server's log has the details", Err: err}
}

// CodeOf returns the code of an error: "" for nil, Internal for an error without a code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}

// Reason returns the system's description of an error, such as "permission denied", without the
// path.
func Reason(err error) string {
	var errno syscall.Errno
	var path *fs.PathError
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &path):
		return path.Err.Error()
	}
	return err.Error()
}

// Is reports whether err carries the code.
func Is(err error, code Code) bool { return err != nil && CodeOf(err) == code }
