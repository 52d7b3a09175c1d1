package server

import (
	"context"
	"log/slog"
	"math/rand/v2"

	"secbox/packages/archive"
	"secbox/packages/catalog"
	"secbox/packages/library"
	"secbox/packages/metadata"
	"secbox/packages/registry"
	"secbox/sandbox"
	"secbox/skills"
)

// refreshCatalog shows a change of skills in the catalog of the owner at once, and a change of a
// baseline in the catalogs of all users.
func (s *Server) refreshCatalog(o library.Owner, scope library.Scope) {
	user := sandbox.User{AgentID: o.AgentID, ID: o.UserID}
	if scope == library.Baseline {
		user = sandbox.User{}
	}
	s.catalog.InvalidateCache(user)
}

// openRegistry opens the registry of skills and agents, and the catalogs of users. Nothing to undo.
func (s *Server) openRegistry(context.Context) (err error) {
	creator := catalog.Entry{Kind: catalog.Skill, Name: archive.ReservedID}
	about := metadata.Describe(s.creator, creator.Name)
	creator.Title, creator.Description = about.Name, about.Description
	s.catalog = catalog.New(catalog.Config{
		Sandboxes: s.sandboxes, Log: s.log, Kept: s.keptSkills,
		Global: func() []catalog.Entry { return append(globalEntries(s.deps.skills.Now()), creator) },
		Partial: func(ctx context.Context, user sandbox.User, name string) (bool, error) {
			return s.published.Partial(ctx, user, name)
		},
	})
	s.published, err = registry.New(registry.Config{
		Store: s.db.Registry(), Versions: s.deps.versions, Sandboxes: s.sandboxes, NewID: NewID, Changed: s.catalog.InvalidateCache,
		Room: s.disk.Room, Log: s.log,
		Global: func(kind catalog.Kind) (names []string) {
			for _, own := range append(globalEntries(s.deps.skills.Now()), creator) {
				if own.Kind == kind {
					names = append(names, own.Name)
				}
			}
			return names
		},
	})
	return err
}

// keptSkills returns a user's packages as entries of a catalog, for users on whose machines they
// are not.
func (s *Server) keptSkills(ctx context.Context, user sandbox.User) (all []catalog.Entry, err error) {
	list, err := s.library.List(ctx, library.Owner{AgentID: user.AgentID, UserID: user.ID})
	for _, one := range list {
		if one.SkillID != archive.ReservedID { // it is the service's
			all = append(all, catalog.Entry{
				Kind: catalog.Skill, Name: one.SkillID, Title: one.Name, Description: one.Description,
				Warning: one.Warning,
			})
		}
	}
	return all, err
}

// globalEntries returns the skills of the service as entries of a catalog.
func globalEntries(now *skills.Snapshot) []catalog.Entry {
	var all []catalog.Entry
	for _, skill := range now.Skills() {
		all = append(all, catalog.Entry{
			Kind: catalog.Skill, Name: skill.ID(), Title: skill.Manifest.Name,
			Description: skill.Manifest.Description,
		})
	}
	return all
}

// collectPublished collects unused versions of the registry until ctx ends, as collectVersions
// does.
func collectPublished(ctx context.Context, r *registry.Registry, log *slog.Logger) {
	for interval := firstCollect; wait(ctx, interval+rand.N(interval/10)); interval = collectInterval {
		if err := r.Collect(ctx); err != nil && ctx.Err() == nil {
			log.Warn("a collection of unused versions in the registry is incomplete; the next one continues", "error", err)
		}
	}
}
