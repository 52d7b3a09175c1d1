package none

import (
	"context"

	"secbox/sandbox"
	"secbox/sandbox/files"
)

// in runs f on a user's files.
func (s *Sandbox) in(ctx context.Context, user sandbox.User, f func(context.Context, *files.Files) error) error {
	return s.do(ctx, user, s.calls, func(ctx context.Context, place *sandbox.Place) error { return f(ctx, s.files(place)) })
}
