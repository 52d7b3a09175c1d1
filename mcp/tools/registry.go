package tools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/packages/catalog"
	"secbox/packages/registry"
	"secbox/sandbox"
)

// Registry has the skills and agents that users publish for each other; see registry.Registry.
type Registry interface {
	Search(ctx context.Context, kind catalog.Kind, text string, by registry.Owner, after string, limit int) ([]registry.Entry, error)
	Publish(ctx context.Context, req registry.Request) (registry.Entry, error)
	Install(ctx context.Context, req registry.Request) (registry.Entry, error)
	Uninstall(ctx context.Context, req registry.Request) error
}

// Catalog lists the skills and agents that a user can use; see catalog.Store.
type Catalog interface {
	Of(ctx context.Context, user sandbox.User) (*catalog.Catalog, error)
}

// WithRegistry adds a registry and the catalogs of users to a new session, which has none
// otherwise, and returns it.
func (s *Session) WithRegistry(r Registry, c Catalog) *Session {
	s.registry, s.catalog = r, c
	return s
}

const (
	maxListed    = 50  // entries in one answer
	maxDescribed = 200 // runes of a description in a list
)

const (
	registrySearchDescription = `Searches the registry of skills and agents that users have published for each other. All words must occur in the name or description; without a query it lists all. ` +
		`Install one with registry_install.`
	registryListDescription      = `Lists the skills and agents that this user can use: those of the installation, and those in /workspace/skills and /workspace/agents. Read a skill with skills_read.`
	registryInstallDescription   = `Installs a published skill or agent into this user's workspace: /workspace/skills/<name>/, or /workspace/agents/<name>.md. It never replaces existing files.`
	registryPublishDescription   = `Publishes a skill or agent of this user for all users: /workspace/skills/<name>/ with its SKILL.md, or /workspace/agents/<name>.md. Publishing it again after a change makes the next version. A name belongs to the user who published it first.`
	registryUninstallDescription = `Removes a skill or agent that was installed from the registry, with all changes made to it. It does not remove a user's own files.`
)

// RegistrySearchParams are the arguments of RegistrySearch.
type RegistrySearchParams struct {
	Query string       `json:"query,omitempty" jsonschema:"words to look for, at most 8"`
	Kind  catalog.Kind `json:"kind,omitempty" jsonschema:"skill, the default, or agent"`
	After string       `json:"after,omitempty" jsonschema:"the last name of the page before"`
}

// RegistryListParams are the arguments of RegistryList.
type RegistryListParams struct {
	Kind catalog.Kind `json:"kind,omitempty" jsonschema:"only skill or only agent; both if left out"`
}

// RegistryParams are the arguments of RegistryInstall, RegistryPublish and RegistryUninstall.
type RegistryParams struct {
	Name string       `json:"name" jsonschema:"the name: of the skill's folder, or of the agent's file without .md"`
	Kind catalog.Kind `json:"kind,omitempty" jsonschema:"skill, the default, or agent"`
}

// RegistrySearch lists published skills or agents.
func (s *Session) RegistrySearch(ctx context.Context, p RegistrySearchParams) (*Result, error) {
	if s.registry == nil {
		return nil, errNoRegistry
	}
	found, err := s.registry.Search(ctx, cmp.Or(p.Kind, catalog.Skill), p.Query, registry.Owner{}, p.After, maxListed)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, e := range found {
		fmt.Fprintf(&b, "%s (version %d, %d files, by %s): %s\n", quote(e.Name), e.Version, e.Files, visible(e.Author.UserID),
			brief(e.Description))
	}
	switch len(found) {
	case 0:
		b.WriteString("nothing found\n")
	case maxListed:
		fmt.Fprintf(&b, "There may be more: repeat the call with after=%s\n", quote(found[maxListed-1].Name))
	}
	return &Result{Text: b.String()}, nil
}

// RegistryList lists the skills and agents that the user can use.
func (s *Session) RegistryList(ctx context.Context, p RegistryListParams) (*Result, error) {
	if s.catalog == nil {
		return nil, errNoRegistry
	}
	c, err := s.catalog.Of(ctx, s.user)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	entries := slices.DeleteFunc(slices.Clone(c.Entries), func(e catalog.Entry) bool { return p.Kind != "" && e.Kind != p.Kind })
	for n, e := range entries {
		if n == 4*maxListed {
			fmt.Fprintf(&b, "… %d more\n", len(entries)-n)
			break
		}
		where := "of the installation"
		switch {
		case e.Global:
		case e.Path == "":
			where = "kept by core-api"
		default:
			where = visible(e.Path)
		}
		fmt.Fprintf(&b, "%s %s, %s: %s", e.Kind, quote(e.Name), where, brief(e.Description))
		if e.Role != "" {
			fmt.Fprintf(&b, " Role: %s", brief(e.Role))
		}
		if e.Warning != "" {
			fmt.Fprintf(&b, " Warning: %s", brief(e.Warning))
		}
		b.WriteByte('\n')
	}
	if len(entries) == 0 {
		b.WriteString("there are none\n")
	}
	for _, problem := range c.Problems {
		fmt.Fprintf(&b, "not listed: %s: %s\n", quote(problem.Path), visible(problem.Reason))
	}
	return &Result{Text: b.String()}, nil
}

// RegistryInstall installs a published skill or agent.
func (s *Session) RegistryInstall(ctx context.Context, p RegistryParams) (*Result, error) {
	if s.registry == nil {
		return nil, errNoRegistry
	}
	req := s.request(ctx, p)
	e, err := s.registry.Install(ctx, req)
	if err != nil {
		return nil, err
	}
	return &Result{Text: fmt.Sprintf("%s %s, version %d, is installed at %s", req.Kind, quote(req.Name), e.Version,
		visible(req.Kind.Path(req.Name))), Meta: entryMeta(e)}, nil
}

// RegistryPublish publishes a skill or agent of the user.
func (s *Session) RegistryPublish(ctx context.Context, p RegistryParams) (*Result, error) {
	if s.registry == nil {
		return nil, errNoRegistry
	}
	req := s.request(ctx, p)
	e, err := s.registry.Publish(ctx, req)
	if err != nil {
		return nil, err
	}
	return &Result{Text: fmt.Sprintf("%s %s is published: version %d, %d files, %d bytes", req.Kind, quote(req.Name), e.Version, e.Files,
		e.Bytes), Meta: entryMeta(e)}, nil
}

// RegistryUninstall removes an installed skill or agent.
func (s *Session) RegistryUninstall(ctx context.Context, p RegistryParams) (*Result, error) {
	if s.registry == nil {
		return nil, errNoRegistry
	}
	req := s.request(ctx, p)
	if err := s.registry.Uninstall(ctx, req); err != nil {
		return nil, err
	}
	return &Result{Text: fmt.Sprintf("%s %s is uninstalled", req.Kind, quote(req.Name))}, nil
}

var errNoRegistry = fault.New(fault.Unsupported, "this session has no registry of skills")

func (s *Session) request(ctx context.Context, p RegistryParams) registry.Request {
	return registry.Request{
		Owner: registry.Owner{AgentID: s.user.AgentID, UserID: s.user.ID}, Kind: cmp.Or(p.Kind, catalog.Skill), Name: p.Name,
		RequestedBy: cmp.Or(sandbox.RequestOf(ctx).RequestedBy, sandbox.Tokenless),
	}
}

func entryMeta(e registry.Entry) map[string]any {
	return map[string]any{"version": e.Version, "digest": e.Digest}
}

// brief cuts a description, which is one line without control characters.
func brief(text string) string {
	if runes := []rune(text); len(runes) > maxDescribed {
		return string(runes[:maxDescribed-1]) + "…"
	}
	return text
}
