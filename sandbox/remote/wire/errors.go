package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
)

// MaxErrorMessage is how much of Error.Message is passed on, in bytes.
const MaxErrorMessage = 1000

// codes are the faults that a runner answers with, and back.
var codes = []struct {
	code  string
	fault fault.Code
}{
	{CodeTooLarge, fault.FileTooLarge},
	{CodeTooMany, fault.TreeTooLarge},
	{CodeNoSpace, fault.DiskFull},
	{CodeChanged, fault.FileChanged},
	{CodeNotAllowed, fault.RunnerRefused},
	{CodeBusy, fault.SandboxBusy},
}

// files are the errors that an *fs.PathError of a sandbox wraps.
var files = []struct {
	code string
	err  error
}{
	{CodeNotExist, fs.ErrNotExist},
	{CodePermission, fs.ErrPermission},
	{CodeExist, fs.ErrExist},
	{CodeInvalid, fs.ErrInvalid},
}

// ErrorOf is what a runner answers for an error of its own. The message is what the user may see: a fault's sentence, or what the system
// says, without the path, which is known where the message arrives and means nothing there as it is spelled here.
func ErrorOf(err error) Error {
	var f *fault.Error
	if errors.As(err, &f) {
		for _, c := range codes {
			if f.Code == c.fault {
				return Error{Code: c.code, Message: Cleaned(f.Message)}
			}
		}
	}
	for _, c := range files {
		if errors.Is(err, c.err) {
			return Error{Code: c.code, Message: c.err.Error()}
		}
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Error{Code: CodeCanceled, Message: "the request was canceled"}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return Error{Code: CodeNoSpace, Message: "there is no room on the runner's disk"}
	case f != nil:
		return Error{Code: CodeFailed, Message: Cleaned(f.Message)}
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return Error{Code: CodeFailed, Message: Cleaned(err.Error())}
}

// Err is the error of a sandbox that a runner's answer stands for. op and path are those of the request; a code that this side does not
// know is CodeFailed.
func (e Error) Err(op, path string) error {
	message := Cleaned(e.Message)
	for _, c := range files {
		if e.Code == c.code {
			return &fs.PathError{Op: op, Path: path, Err: c.err}
		}
	}
	for _, c := range codes {
		if e.Code == c.code {
			if message == "" {
				message = fault.Title(c.fault)
			}
			return fault.New(c.fault, "%s", message)
		}
	}
	switch e.Code {
	case CodeTransfer:
		return fault.New(fault.RunnerOffline, "the content of %s did not arrive whole (%s); nothing was changed, try again", shown(path), message)
	case CodeCanceled:
		return fault.New(fault.RunnerOffline, "the user's machine has ended the request: %s", message)
	case CodeIDReused:
		return fault.New(fault.RunnerProtocol, "the user's machine knows the request's id from another one; restart the runner")
	}
	err := fault.New(fault.Internal, "the user's machine could not do it: %s", message)
	if path == "" || op == string(TypeExec) { // of a command, the path is only where it was to start
		return err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Cleaned is a stranger's sentence as it may be shown: valid UTF-8 in one line, without what steers a terminal, at most MaxErrorMessage
// bytes.
func Cleaned(s string) string {
	if len(s) > 4*MaxErrorMessage {
		s = s[:4*MaxErrorMessage]
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		if unicode.IsSpace(r) {
			r = ' '
		}
		if !unicode.IsPrint(r) {
			r = '\uFFFD'
		}
		if b.Len()+utf8.RuneLen(r) > MaxErrorMessage {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

func shown(path string) string {
	if len(path) > sandbox.MaxNameBytes {
		path = path[:sandbox.MaxNameBytes] + "…"
	}
	return fmt.Sprintf("%q", path)
}
