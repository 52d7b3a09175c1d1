package tokens

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"secbox/fault"
)

// recorded is a store that records its arguments. Real stores are tested in store/storetest.
type recorded struct {
	Store
	made   []Token
	hashes []Hash
	found  func(Hash) (Token, Hash, error)
}

func (r *recorded) Create(_ context.Context, t Token, h Hash) error {
	r.made, r.hashes = append(r.made, t), append(r.hashes, h)
	return nil
}

func (r *recorded) Seed(ctx context.Context, t Token, h Hash) (bool, error) {
	return true, r.Create(ctx, t, h)
}

func (r *recorded) ByHash(_ context.Context, h Hash) (Token, Hash, error) { return r.found(h) }

func now() time.Time { return time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.FixedZone("x", 3600)) }

func TestCreate(t *testing.T) {
	t.Parallel()
	store := &recorded{}
	s := NewService(store, now)
	s.random = func(b []byte) {
		for i := range b {
			b[i] = 0xff
		}
	}
	made, secret, err := s.Create(t.Context(), Spec{Name: "ci", Role: Worker, Projects: []string{"b", "a~u", "b"}, Users: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if want := "sbx_" + strings.Repeat("_", 42) + "8"; secret != want {
		t.Errorf("secret %q, want %q", secret, want)
	}
	want := Token{ID: made.ID, Name: "ci", Role: Worker, Projects: []string{"a~u", "b"}, CreatedAt: time.Date(2026, 5, 6, 6, 8, 9, 123456000, time.UTC)}
	if !reflect.DeepEqual(made, want) || len(made.ID) != 36 || made.ID[14] != '7' {
		t.Errorf("made %+v, want %+v", made, want)
	}
	if store.hashes[0] != hashOf(secret) || !reflect.DeepEqual(store.made[0], made) {
		t.Errorf("stored %+v", store)
	}
}

func TestSecretsDiffer(t *testing.T) {
	t.Parallel()
	s := NewService(&recorded{}, now)
	seen := map[string]bool{}
	for range 100 {
		tok, secret, err := s.Create(t.Context(), Spec{Name: "x", Role: Admin})
		if err != nil {
			t.Fatal(err)
		}
		if len(secret) != 47 || seen[secret] || seen[tok.ID] {
			t.Fatalf("secret %q of %s was seen or is short", secret, tok.ID)
		}
		seen[secret], seen[tok.ID] = true, true
	}
}

func TestSpecsThatAreWrong(t *testing.T) {
	t.Parallel()
	many := make([]string, MaxScope+1)
	for i := range many {
		many[i] = "p"
	}
	for name, c := range map[string]struct {
		spec   Spec
		fields []string
	}{
		"nothing":                      {Spec{}, []string{"name", "role"}},
		"no name":                      {Spec{Role: Worker}, []string{"name"}},
		"a long name":                  {Spec{Name: strings.Repeat("ü", MaxName+1), Role: Worker}, []string{"name"}},
		"a name of two lines":          {Spec{Name: "a\nb", Role: Worker}, []string{"name"}},
		"a name with a NUL":            {Spec{Name: "a\x00", Role: Worker}, []string{"name"}},
		"a name that moves the cursor": {Spec{Name: "a\x1b[2J", Role: Worker}, []string{"name"}},
		"a name that turns round":      {Spec{Name: "a\u202eb", Role: Worker}, []string{"name"}},
		"a name that is no UTF-8":      {Spec{Name: "a\xff", Role: Worker}, []string{"name"}},
		"a name with a space around":   {Spec{Name: " a", Role: Worker}, []string{"name"}},
		"an odd role":                  {Spec{Name: "a", Role: "root", UserID: "u", Projects: []string{"p"}}, []string{"role"}},
		"a role in other case":         {Spec{Name: "a", Role: "Admin"}, []string{"role"}},
		"an admin with a scope": {
			Spec{Name: "a", Role: Admin, Projects: []string{"p"}, Agents: []string{"a"}, Users: []string{"u"}},
			[]string{"projects", "agents", "users"},
		},
		"an auditor with a scope":    {Spec{Name: "a", Role: Auditor, Projects: []string{"p"}}, []string{"projects"}},
		"a runner with a scope":      {Spec{Name: "a", Role: Runner, UserID: "u", Users: []string{"u"}}, []string{"users"}},
		"a runner without a user":    {Spec{Name: "a", Role: Runner}, []string{"user_id"}},
		"a runner of an odd user":    {Spec{Name: "a", Role: Runner, UserID: "../u"}, []string{"user_id"}},
		"an id that is no UUID":      {Spec{Name: "a", Role: Admin, ID: "../1"}, []string{"id"}},
		"a worker of a user":         {Spec{Name: "a", Role: Worker, UserID: "u"}, []string{"user_id"}},
		"an agent-admin of no agent": {Spec{Name: "a", Role: AgentAdmin}, []string{"agents"}},
		"an agent-admin of projects": {Spec{Name: "a", Role: AgentAdmin, Agents: []string{"a"}, Projects: []string{"p"}}, []string{"projects"}},
		"odd ids": {
			Spec{
				Name: "a", Role: Worker, Projects: []string{"ok", "a/b", "..", "a~b~c", "~u", "a~", ""}, Agents: []string{"a~b"},
				Users: []string{"ok", strings.Repeat("u", 64)},
			},
			[]string{"projects[1]", "projects[2]", "projects[3]", "projects[4]", "projects[5]", "projects[6]", "agents[0]", "users[1]"},
		},
		"too many": {Spec{Name: "a", Role: Worker, Projects: many}, []string{"projects"}},
	} {
		store := &recorded{}
		_, secret, err := NewService(store, now).Create(t.Context(), c.spec)
		if !fault.Is(err, fault.InvalidRequest) || secret != "" || len(store.made) != 0 {
			t.Errorf("%s: %v, made %v", name, err, store.made)
			continue
		}
		var fields []string
		for _, f := range fault.From(err).Fields {
			fields = append(fields, f.Field)
		}
		if !reflect.DeepEqual(fields, c.fields) {
			t.Errorf("%s: fields %v, want %v", name, fields, c.fields)
		}
	}
}

func TestSpecsThatAreRight(t *testing.T) {
	t.Parallel()
	for _, spec := range []Spec{
		{Name: "ci – Bürö 漢 😀", Role: Worker},
		{Name: strings.Repeat("漢", MaxName), Role: Auditor},
		{Name: "a", Role: Admin, Projects: []string{}, Agents: []string{}},
		{Name: "a", Role: AgentAdmin, Agents: []string{"a"}, Users: []string{"u"}},
		{Name: "a", Role: Runner, UserID: "u.1-2_3"},
		{Name: "a", Role: Worker, Projects: []string{"p", strings.Repeat("p", 128), "A.b-c_d~u.1"}, Agents: []string{strings.Repeat("a", 63)}},
	} {
		if _, _, err := NewService(&recorded{}, now).Create(t.Context(), spec); err != nil {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	secret := "sbx_something-that-is-known"
	known := Token{ID: "1", Role: Worker}
	revoked := Token{ID: "1", Role: Worker, RevokedAt: now()}
	down := fault.New(fault.DatabaseUnavailable, "down")
	for name, c := range map[string]struct {
		secret string
		token  Token
		stored Hash
		err    error
		want   fault.Code
	}{
		"known":                    {secret, known, hashOf(secret), nil, ""},
		"revoked":                  {secret, revoked, hashOf(secret), nil, fault.TokenRevoked},
		"unknown":                  {secret, Token{}, Hash{}, fault.New(fault.UnknownToken, "x"), fault.Unauthenticated},
		"another's hash came back": {secret, known, hashOf("x"), nil, fault.Unauthenticated},
		"the database is down":     {secret, Token{}, Hash{}, down, fault.DatabaseUnavailable},
		"empty":                    {"", known, hashOf(""), nil, fault.Unauthenticated},
		"endless":                  {strings.Repeat("x", maxSecret+1), known, hashOf(strings.Repeat("x", maxSecret+1)), nil, fault.Unauthenticated},
	} {
		s := NewService(&recorded{found: func(Hash) (Token, Hash, error) { return c.token, c.stored, c.err }}, now)
		got, err := s.Verify(t.Context(), c.secret)
		if fault.CodeOf(err) != c.want || err == nil && !reflect.DeepEqual(got, known) || err != nil && got.ID != "" {
			t.Errorf("%s: %+v, %v; want %q", name, got, err, c.want)
		}
		if err != nil && c.secret != "" && strings.Contains(err.Error(), c.secret) {
			t.Errorf("%s: the secret is in the error: %v", name, err)
		}
	}
}

func TestSeedRefusesGuessableTokens(t *testing.T) {
	t.Parallel()
	for secret, ok := range map[string]bool{
		"": false, "short": false, strings.Repeat("x", 15): false, strings.Repeat("x", 16): true, strings.Repeat("x", maxSecret): true,
		strings.Repeat("x", maxSecret+1): false,
	} {
		store := &recorded{}
		err := NewService(store, now).Seed(t.Context(), secret)
		if ok != (err == nil) || ok != (len(store.made) == 1) || !ok && !fault.Is(err, fault.InvalidSettings) {
			t.Errorf("%d bytes: %v", len(secret), err)
		}
		if secret != "" && err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the secret is in the error: %v", err)
		}
		if ok && (store.made[0].Name != SeedName || store.made[0].Role != Admin || store.hashes[0] != hashOf(secret)) {
			t.Errorf("made %+v", store.made[0])
		}
	}
}

// FuzzSpec: a spec is either refused with fields, or every id in it names a project, agent or user
// and could not be a path, and the name is one line of text.
func FuzzSpec(f *testing.F) {
	f.Add("ci", "worker", "demo", "a", "u", "")
	f.Add("ci", "worker", "a~u", "", "", "")
	f.Add("x\u202e", "runner", "", "", "", "../u")
	f.Add("a", "agent-admin", "..", "a/b", "\x00", "u")
	f.Fuzz(func(t *testing.T, name, role, project, agent, user, userID string) {
		spec := Spec{Name: name, Role: Role(role), UserID: userID}
		for _, list := range []struct {
			dest  *[]string
			value string
		}{{&spec.Projects, project}, {&spec.Agents, agent}, {&spec.Users, user}} {
			if list.value != "" {
				*list.dest = []string{list.value}
			}
		}
		made, _, err := NewService(&recorded{}, now).Create(t.Context(), spec)
		if err != nil {
			var e *fault.Error
			if !errors.As(err, &e) || e.Code != fault.InvalidRequest || len(e.Fields) == 0 {
				t.Fatalf("refused without fields: %v", err)
			}
			return
		}
		for _, id := range append(append(append([]string{userID}, made.Projects...), made.Agents...), made.Users...) {
			if strings.ContainsAny(id, "/\\:\x00 \n") || id == "." || id == ".." || strings.HasPrefix(id, ".") || strings.Count(id, "~") > 1 {
				t.Errorf("took the id %q", id)
			}
		}
		if strings.ContainsAny(made.Name, "\n\r\x00\x1b") || made.Name == "" {
			t.Errorf("took the name %q", made.Name)
		}
	})
}
