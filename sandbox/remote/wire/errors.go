package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"secbox/fault"
	"secbox/sandbox"
	"secbox/workspace/diskspace"
)

// MaxErrorMessage is how much of Error.Message is used, in bytes.
const MaxErrorMessage = 1000

// codes maps a runner's codes to faults.
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

// files maps a runner's codes to the errors in an *fs.PathError.
var files = []struct {
	code string
	err  error
}{
	{CodeNotExist, fs.ErrNotExist},
	{CodePermission, fs.ErrPermission},
	{CodeExist, fs.ErrExist},
	{CodeInvalid, fs.ErrInvalid},
}

// ErrorOf returns the message for a runner's error. Its text is for the user: a fault's sentence,
// or the system's error without the path, which core-api knows and the runner spells differently.
func ErrorOf(err error) Error {
	f, isFault := errors.AsType[*fault.Error](err)
	if isFault {
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
	case diskspace.IsFull(err):
		return Error{Code: CodeNoSpace, Message: "no space left on the runner's disk"}
	case isFault:
		return Error{Code: CodeFailed, Message: Cleaned(f.Message)}
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return Error{Code: CodeFailed, Message: Cleaned(err.Error())}
}

// Err converts a runner's answer to the error of a sandbox. op and path are the request's. An
// unknown code counts as CodeFailed.
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
		return fault.New(fault.RunnerOffline, "the content of %s did not arrive whole (%s); nothing was changed, try again", shown(path),
			message)
	case CodeCanceled:
		return fault.New(fault.RunnerOffline, "the user's machine ended the request: %s", message)
	case CodeIDReused:
		return fault.New(fault.RunnerProtocol, "the user's machine has seen the request's id before; restart the runner")
	}
	err := fault.New(fault.UpstreamFailed, "the user's machine could not do it: %s", message)
	if path == "" || op == string(TypeExec) { // the path of a command is only where it starts
		return err
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// Cleaned makes untrusted text safe to show: valid UTF-8 in one line, without control characters,
// at most MaxErrorMessage bytes.
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
