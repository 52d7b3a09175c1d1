package tokens

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"secbox/fault"
)

// Spec describes a new token.
type Spec struct {
	Name     string
	Role     Role
	Projects []string // worker only; empty: all
	Agents   []string // worker, and agent-admin, which needs at least one
	Users    []string // worker and agent-admin; empty: all
	UserID   string   // runner only, which needs it

	ID string // a new UUID, with which a repeated request makes no second token; empty: one is chosen
}

// Bounds of a Spec.
const (
	MaxName  = 100  // characters
	MaxScope = 1000 // entries of one list
)

var (
	projectID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	agentID   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`) // also of a user
)

// check refuses an invalid spec, also one with a scope that its role does not have. It names every
// wrong field.
func (s Spec) check() error {
	var wrong []fault.Field
	refuse := func(field, format string, args ...any) {
		wrong = append(wrong, fault.Field{Field: field, Reason: fmt.Sprintf(format, args...)})
	}

	if reason := badName(s.Name); reason != "" {
		refuse("name", "%s", reason)
	}
	if !s.Role.Valid() {
		refuse("role", "must be one of %s", roleNames())
	}

	if id, err := uuid.Parse(s.ID); s.ID != "" && (err != nil || id.String() != s.ID) {
		refuse("id", "must be a UUID")
	}
	scoped := s.Role == Worker || s.Role == AgentAdmin
	for _, list := range []struct {
		field   string
		values  []string
		allowed bool
		valid   func(string) bool
	}{
		{"projects", s.Projects, s.Role == Worker, validProject},
		{"agents", s.Agents, scoped, agentID.MatchString},
		{"users", s.Users, scoped, agentID.MatchString},
	} {
		if len(list.values) > 0 && s.Role.Valid() && !list.allowed {
			refuse(list.field, "a token with the role %s is not limited by %s", s.Role, list.field)
			continue
		}
		if len(list.values) > MaxScope {
			refuse(list.field, "has more than %d entries", MaxScope)
			continue
		}
		for i, value := range list.values {
			if !list.valid(value) {
				refuse(fmt.Sprintf("%s[%d]", list.field, i), "is not a valid id")
			}
		}
	}
	if s.Role == AgentAdmin && len(s.Agents) == 0 {
		refuse("agents", "an agent-admin needs at least one agent (--agent)")
	}

	switch {
	case s.Role == Runner && s.UserID == "":
		refuse("user_id", "a runner needs the user whose machine it is (--user)")
	case s.Role.Valid() && s.Role != Runner && s.UserID != "":
		refuse("user_id", "only a runner has one (--user); limit a worker to users with --for-user")
	case s.UserID != "" && !agentID.MatchString(s.UserID):
		refuse("user_id", "is not a valid id")
	}

	if len(wrong) == 0 {
		return nil
	}
	reasons := make([]string, len(wrong))
	for i, f := range wrong {
		reasons[i] = f.Field + ": " + f.Reason
	}
	return &fault.Error{Code: fault.InvalidRequest, Message: strings.Join(reasons, "; "), Fields: wrong}
}

// badName returns why a token's name is invalid. Lists and logs print it, so it must be one line of
// visible text.
func badName(name string) string {
	switch {
	case name == "":
		return "is missing"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case utf8.RuneCountInString(name) > MaxName:
		return fmt.Sprintf("is longer than %d characters", MaxName)
	case strings.TrimSpace(name) != name:
		return "begins or ends with a space"
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "has a character that cannot be printed"
	}
	return ""
}

// validProject accepts the id of a plain project or of a workspace. It checks the characters only;
// names that a file system refuses are refused where directories are created.
func validProject(id string) bool {
	if agent, user, ok := strings.Cut(id, "~"); ok {
		return agentID.MatchString(agent) && agentID.MatchString(user)
	}
	return projectID.MatchString(id)
}

func roleNames() string {
	names := make([]string, 0, len(Roles()))
	for _, r := range Roles() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// scope sorts a list and removes duplicates; an empty one is nil.
func scope(values []string) []string {
	if len(values) == 0 {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(values)))
}
