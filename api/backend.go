package api

import (
	"context"

	"secbox/fault"
	"secbox/sandbox"
)

// GetSandboxBackend says where a user works.
func (s *Server) GetSandboxBackend(ctx context.Context, in GetSandboxBackendRequestObject) (GetSandboxBackendResponseObject, error) {
	if err := s.mayKnow(ctx, in.UserID); err != nil {
		return nil, err
	}
	choice, err := s.cfg.Sandboxes.Chosen(ctx, in.UserID)
	if err != nil {
		return nil, err
	}
	return GetSandboxBackend200JSONResponse(s.backendAnswer(choice)), nil
}

// SetSandboxBackend chooses where a user works.
func (s *Server) SetSandboxBackend(ctx context.Context, in SetSandboxBackendRequestObject) (SetSandboxBackendResponseObject, error) {
	if err := s.mayKnow(ctx, in.UserID); err != nil {
		return nil, err
	}
	if caller := callFrom(ctx).caller; len(caller.Agents) > 0 || len(caller.Projects) > 0 {
		return nil, outOfScope([]fault.Field{{
			Field: "userId", Reason: "the choice holds for all agents of the user, and the token is limited to some agents or projects",
		}})
	}
	// A client that hangs up must not leave the choice made and the commands before it alive.
	choice, err := s.cfg.Sandboxes.Choose(context.WithoutCancel(ctx), sandbox.Choice{UserID: in.UserID, Backend: in.Body.Backend, Runner: value(in.Body.Runner)})
	if err != nil {
		return nil, err
	}
	return SetSandboxBackend200JSONResponse(s.backendAnswer(choice)), nil
}

// mayKnow refuses what is no user, or none of the caller's.
func (s *Server) mayKnow(ctx context.Context, userID string) error {
	if !ownerPart.MatchString(userID) {
		return fault.BadField("userId", "must be a letter or digit, then up to 62 letters, digits, dots, underscores or dashes")
	}
	if !userInScope(callFrom(ctx).caller, userID) {
		return outOfScope([]fault.Field{{Field: "userId", Reason: "the user is not in the token's scope"}})
	}
	return nil
}

func (s *Server) backendAnswer(c sandbox.Choice) V1BackendAnswer {
	return V1BackendAnswer{Status: saysSuccess, Data: V1Backend{
		Backend: c.Backend, Runner: c.Runner, Chosen: !c.UpdatedAt.IsZero(), UpdatedAt: stamp(c.UpdatedAt), Connected: s.connected(c), Backends: s.cfg.Sandboxes.Backends(),
	}}
}

// connected reports whether the machine that was chosen is there; without a name, any of the user's will do.
func (s *Server) connected(c sandbox.Choice) bool {
	if !sandbox.TraitsOf(c.Backend).UserMachine {
		return true
	}
	if s.cfg.Runners == nil {
		return false
	}
	for _, r := range s.cfg.Runners.Connected() {
		if r.UserID == c.UserID && (c.Runner == "" || r.Name == c.Runner) {
			return true
		}
	}
	return false
}
