package api

import (
	"context"
	"slices"

	"secbox/api/gate"
	"secbox/api/wire"
	"secbox/fault"
	"secbox/sandbox"
)

// GetSandboxBackend reports which sandbox a user has.
func (s *Server) GetSandboxBackend(ctx context.Context, in wire.GetSandboxBackendRequestObject) (wire.GetSandboxBackendResponseObject,
	error,
) {
	if err := gate.CheckUser(callFrom(ctx).caller, in.UserID); err != nil {
		return nil, err
	}
	choice, err := s.cfg.Sandboxes.Chosen(ctx, in.UserID)
	return wire.GetSandboxBackend200JSONResponse(s.backendAnswer(ctx, choice)), err
}

// SetSandboxBackend chooses the sandbox of a user.
func (s *Server) SetSandboxBackend(ctx context.Context, in wire.SetSandboxBackendRequestObject) (wire.SetSandboxBackendResponseObject,
	error,
) {
	caller := callFrom(ctx).caller
	if err := gate.CheckUser(caller, in.UserID); err != nil {
		return nil, err
	}
	if len(caller.Agents) > 0 || len(caller.Projects) > 0 {
		return nil, gate.OutOfScope(fault.Field{
			Field: "userId", Reason: "the choice applies to all agents of the user, and the token is limited to some agents or projects",
		})
	}
	// Choose must also end the commands in the sandbox before, even if the client hangs up.
	choice, err := s.cfg.Sandboxes.Choose(context.WithoutCancel(ctx),
		sandbox.Choice{UserID: in.UserID, Backend: in.Body.Backend, Runner: value(in.Body.Runner)})
	return wire.SetSandboxBackend200JSONResponse(s.backendAnswer(ctx, choice)), err
}

func (s *Server) backendAnswer(ctx context.Context, c sandbox.Choice) wire.V1BackendAnswer {
	return wire.V1BackendAnswer{Status: envelopeSuccess, Data: wire.V1Backend{
		Backend: c.Backend, Runner: c.Runner, Chosen: !c.UpdatedAt.IsZero(), UpdatedAt: timestamp(c.UpdatedAt),
		Connected: s.connected(ctx, c),
		Backends:  s.cfg.Sandboxes.Backends(),
	}}
}

// connected reports whether the chosen machine is connected. A choice without a name means any of
// the user's machines.
func (s *Server) connected(ctx context.Context, c sandbox.Choice) bool {
	if !sandbox.TraitsOf(c.Backend).UserMachine {
		return true
	}
	return s.cfg.Runners != nil && slices.ContainsFunc(s.cfg.Runners.Connected(ctx), func(r wire.ConnectedRunner) bool {
		return r.UserID == c.UserID && (c.Runner == "" || r.Name == c.Runner)
	})
}
