// Package access holds the packages that say who a client is. It has no code of its own. Read in
// this order:
//
//   - tokens: bearer tokens, their roles, and the projects, agents and users in their scope
//   - sessions: browsers that are signed in to the console with a token or as a person
//   - views: views of the history that people save
//   - sso: asks an OIDC provider who signs in, and maps a person's groups to a role
//
// The room must not know routes, pages or SQL: api/contract knows which role may use a route, and
// store keeps tokens, sessions and views.
package access
