package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"

	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/content"
	"secbox/packages/registry"
	"secbox/sandbox"
)

// entryOverhead is about the size of an entry in an answer without its texts, in bytes.
const entryOverhead = 400

// GetCatalog lists the skills and agents that a user can use.
func (s *Server) GetCatalog(ctx context.Context, in wire.GetCatalogRequestObject) (wire.GetCatalogResponseObject, error) {
	o, err := owner(ctx, in.UserID, in.AgentID)
	if err != nil {
		return nil, err
	}
	found, err := s.cfg.Catalog.Of(sandbox.WithRequest(ctx, sandbox.Request{RequestedBy: callFrom(ctx).caller.ID}),
		sandbox.User{AgentID: o.AgentID, ID: o.UserID})
	if err != nil {
		return nil, err
	}
	size := 0
	for _, e := range found.Entries {
		size += len(e.Name) + len(e.Title) + len(e.Description) + len(e.Role) + len(e.Path) + len(e.Warning) + entryOverhead
	}
	if err := callFrom(ctx).reserve(int64(2 * size)); err != nil {
		return nil, err
	}
	out := wire.V1CatalogData{
		Entries:  make([]wire.V1CatalogEntry, len(found.Entries)),
		Problems: make([]wire.V1CatalogProblem, len(found.Problems)), ReadAt: visible.Timestamp(found.ReadAt),
	}
	for i, e := range found.Entries {
		out.Entries[i] = wire.V1CatalogEntry{
			Kind: string(e.Kind), Name: e.Name, Title: e.Title, Description: e.Description, Role: e.Role, Global: e.Global, Path: e.Path,
			Warning: e.Warning,
		}
	}
	for i, p := range found.Problems {
		out.Problems[i] = wire.V1CatalogProblem{Path: content.Legible(p.Path), Code: wire.ErrorCode(p.Code), Reason: p.Reason}
	}
	return wire.GetCatalog200JSONResponse{Status: envelopeSuccess, Data: out}, nil
}

// SearchRegistry lists the published skills or agents.
func (s *Server) SearchRegistry(ctx context.Context, in wire.SearchRegistryRequestObject) (wire.SearchRegistryResponseObject, error) {
	limit, err := pageLimit(in.Params.Limit)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.Strict().DecodeString(value(in.Params.Cursor))
	if err != nil {
		return nil, fault.New(fault.InvalidCursor, "cursor: was not made by this server; pass next_cursor of the page before, unchanged")
	}
	found, err := s.cfg.Registry.Search(ctx, kindOf(in.Kind), value(in.Params.Query), registry.Owner{}, string(after), limit)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, e := range found {
		size += len(e.Name) + len(e.Description) + entryOverhead
	}
	if err := callFrom(ctx).reserve(int64(2 * size)); err != nil {
		return nil, err
	}
	out := wire.V1RegistryPageData{Items: make([]wire.V1RegistryEntry, len(found))}
	for i, e := range found {
		out.Items[i] = registryEntry(e)
	}
	if len(found) == limit {
		out.NextCursor = new(base64.RawURLEncoding.EncodeToString([]byte(found[limit-1].Name)))
	}
	return wire.SearchRegistry200JSONResponse{Status: envelopeSuccess, Data: out}, nil
}

// GetRegistryEntry describes a published skill or agent.
func (s *Server) GetRegistryEntry(ctx context.Context, in wire.GetRegistryEntryRequestObject) (wire.GetRegistryEntryResponseObject, error) {
	e, err := s.cfg.Registry.Entry(ctx, kindOf(in.Kind), in.Name)
	return wire.GetRegistryEntry200JSONResponse{Status: envelopeSuccess, Data: registryEntry(e)}, err
}

// ListRegistryEvents lists who has published, installed and uninstalled a skill or an agent.
func (s *Server) ListRegistryEvents(ctx context.Context, in wire.ListRegistryEventsRequestObject) (wire.ListRegistryEventsResponseObject,
	error,
) {
	limit, err := pageLimit(in.Params.Limit)
	if err != nil {
		return nil, err
	}
	var after *registry.Cursor
	if text := value(in.Params.Cursor); text != "" {
		last, err := visible.DecodeCursor(text, "")
		if err != nil {
			return nil, err
		}
		after = &registry.Cursor{At: last.CreatedAt, ID: last.ExecID}
	}
	found, err := s.cfg.Registry.Events(ctx, kindOf(in.Kind), in.Name, after, limit)
	if err != nil {
		return nil, err
	}
	out := wire.V1RegistryEventsData{Items: make([]wire.V1RegistryEvent, len(found))}
	for i, e := range found {
		out.Items[i] = wire.V1RegistryEvent{
			ID: e.ID, Action: string(e.Action), Version: e.Version, Digest: e.Digest, UserID: e.By.UserID, AgentID: e.By.AgentID,
			RequestedBy: e.RequestedBy, At: visible.Timestamp(e.At),
		}
	}
	if len(found) == limit {
		last := found[limit-1]
		out.NextCursor = new(visible.EncodeCursor(audit.Cursor{CreatedAt: last.At, ExecID: last.ID}, ""))
	}
	return wire.ListRegistryEvents200JSONResponse{Status: envelopeSuccess, Data: out}, nil
}

// PublishToRegistry publishes a user's skill or agent.
func (s *Server) PublishToRegistry(ctx context.Context, in wire.PublishToRegistryRequestObject) (wire.PublishToRegistryResponseObject,
	error,
) {
	e, err := inRegistry(ctx, in.UserID, in.AgentID, in.Kind, in.Name, s.cfg.Registry.Publish)
	return wire.PublishToRegistry200JSONResponse{Status: envelopeSuccess, Data: registryEntry(e)}, err
}

// InstallFromRegistry installs a published skill or agent for a user.
func (s *Server) InstallFromRegistry(ctx context.Context, in wire.InstallFromRegistryRequestObject) (wire.InstallFromRegistryResponseObject,
	error,
) {
	e, err := inRegistry(ctx, in.UserID, in.AgentID, in.Kind, in.Name, s.cfg.Registry.Install)
	return wire.InstallFromRegistry200JSONResponse{Status: envelopeSuccess, Data: registryEntry(e)}, err
}

// WithdrawFromRegistry removes an entry of its author.
func (s *Server) WithdrawFromRegistry(ctx context.Context,
	in wire.WithdrawFromRegistryRequestObject,
) (wire.WithdrawFromRegistryResponseObject, error) {
	_, err := inRegistry(ctx, in.UserID, in.AgentID, in.Kind, in.Name, func(ctx context.Context, req registry.Request) (struct{}, error) {
		return struct{}{}, s.cfg.Registry.Withdraw(ctx, req)
	})
	return wire.WithdrawFromRegistry200JSONResponse(message(fmt.Sprintf("%s '%s' withdrawn from the registry", kindOf(in.Kind), in.Name))),
		err
}

// Uninstall removes an installed skill or agent of a user.
func (s *Server) Uninstall(ctx context.Context, in wire.UninstallRequestObject) (wire.UninstallResponseObject, error) {
	_, err := inRegistry(ctx, in.UserID, in.AgentID, in.Kind, in.Name, func(ctx context.Context, req registry.Request) (struct{}, error) {
		return struct{}{}, s.cfg.Registry.Uninstall(ctx, req)
	})
	return wire.Uninstall200JSONResponse(message(fmt.Sprintf("%s '%s' uninstalled", kindOf(in.Kind), in.Name))), err
}

// inRegistry calls f for a user in the caller's scope.
func inRegistry[T any](ctx context.Context, userID, agentID, kind, name string, f func(context.Context, registry.Request) (T, error)) (T,
	error,
) {
	o, err := owner(ctx, userID, agentID)
	if err != nil {
		var none T
		return none, err
	}
	caller := callFrom(ctx).caller.ID
	return f(sandbox.WithRequest(ctx, sandbox.Request{RequestedBy: caller}), registry.Request{
		Owner: registry.Owner{AgentID: o.AgentID, UserID: o.UserID}, Kind: kindOf(kind), Name: name, RequestedBy: caller,
	})
}

// kindOf returns the kind of a path: skills or agents.
func kindOf(segment string) catalog.Kind {
	switch segment {
	case "skills":
		return catalog.Skill
	case "agents":
		return catalog.Agent
	}
	return catalog.Kind(segment) // is refused
}

func registryEntry(e registry.Entry) wire.V1RegistryEntry {
	return wire.V1RegistryEntry{
		Kind: string(e.Kind), Name: e.Name, Version: e.Version, Digest: e.Digest, Description: e.Description, Files: e.Files,
		Bytes:        e.Bytes,
		AuthorUserID: e.Author.UserID, AuthorAgentID: e.Author.AgentID, FirstPublishedAt: visible.Timestamp(e.FirstPublishedAt),
		PublishedAt: visible.Timestamp(e.PublishedAt),
	}
}

// pageLimit parses limit.
func pageLimit(param *string) (int, error) {
	if value(param) == "" {
		return defaultLimit, nil
	}
	n, err := strconv.ParseUint(*param, 10, 32)
	if err != nil || n < 1 || n > maxLimit {
		return 0, fault.BadField("limit", "must be a whole number from 1 to %d", maxLimit)
	}
	return int(n), nil
}
