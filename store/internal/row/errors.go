package row

import (
	"context"
	"errors"

	"secbox/fault"
)

// Interpret turns an error of a driver into the codes that callers know. A fault passes as it is; a
// caller that gave up gets its own context.Canceled back. unavailable says what to do about a
// database that cannot serve now; "" for other errors.
func Interpret(err error, unavailable func(error) string) error {
	if known := (*fault.Error)(nil); err == nil || errors.Is(err, context.Canceled) || errors.As(err, &known) {
		return err
	}
	if message := unavailable(err); message != "" {
		return fault.Wrap(fault.DatabaseUnavailable, err, "%s", message)
	}
	return fault.Wrap(fault.Internal, err, "the database refused a statement; the server's log has the cause")
}
