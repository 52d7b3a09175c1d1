package relay

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"secbox/fault"
)

// failure is an error of a call.
type failure struct {
	Code       fault.Code // empty: it is no fault
	Message    string
	Fields     []field
	RetryAfter time.Duration
	Path       *path // of an fs.PathError
	File       int   // the index in files of the error, and 1
	Ended      bool  // it wraps the end of the call's context
}

type path struct{ Op, Path string }

type field struct{ Field, Reason string }

var files = []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid}

// failureOf describes an error for another node.
func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Ended: errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		f.Path = &path{p.Op, p.Path}
	}
	for i, file := range files {
		if errors.Is(err, file) {
			f.File = i + 1
		}
	}
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case ok:
		f.Code, f.Message, f.RetryAfter = e.Code, e.Message, e.RetryAfter
		for _, one := range e.Fields {
			f.Fields = append(f.Fields, field{one.Field, one.Reason})
		}
	case f.File == 0 && !f.Ended:
		f.Code, f.Message = fault.Internal, fault.From(err).Message
	}
	return f
}

// err returns the error of a call whose context is ctx.
func (f *failure) err(ctx context.Context) error {
	var err error
	switch {
	case f.Code != "":
		e := fault.New(f.Code, "%s", f.Message)
		e.RetryAfter = f.RetryAfter
		for _, one := range f.Fields {
			e.Fields = append(e.Fields, fault.Field{Field: one.Field, Reason: one.Reason})
		}
		if f.Ended {
			e.Err = ctx.Err()
		}
		err = e
	case f.File > 0 && f.File <= len(files):
		err = files[f.File-1]
	case ctx.Err() != nil:
		return ctx.Err()
	default: // the other node gave up without being asked to
		return fault.New(fault.OutcomeUnknown,
			"the node that the user's machine is connected to gave the request up; check there before you try again")
	}
	if f.Path != nil {
		return &fs.PathError{Op: f.Path.Op, Path: f.Path.Path, Err: err}
	}
	return err
}
