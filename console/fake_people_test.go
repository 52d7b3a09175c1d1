package console_test

import (
	"context"
	"net/url"
	"slices"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/fault"
)

// fakeSignOn is a provider whose answer "code" is the id of a person.
type fakeSignOn struct {
	app    *fakeApp
	begin  error
	end    string // the address that ends sessions; empty: none
	secret string // of the last sign-in
	asked  int    // answers that it was asked about
}

func (*fakeSignOn) Name() string   { return "idp.example" }
func (*fakeSignOn) Origin() string { return "https://core.example" }

func (f *fakeSignOn) Begin(_ context.Context, secret string) (string, error) {
	f.secret = secret
	return "https://idp.example/auth?state=s", f.begin
}

func (f *fakeSignOn) EndAddress(context.Context) (string, error) { return f.end, f.begin }

func (f *fakeSignOn) Finish(_ context.Context, secret string, answer url.Values) (sessions.Person, error) {
	f.asked++
	if secret != f.secret || answer.Get("state") != "s" {
		return sessions.Person{}, fault.New(fault.Unauthenticated, "not the last sign-in")
	}
	if code := answer.Get("error"); code != "" {
		return sessions.Person{}, fault.New(fault.Unauthenticated, "idp.example refused the sign-in: %s", code)
	}
	i := slices.IndexFunc(f.app.people, func(p sessions.Person) bool { return p.ID == answer.Get("code") })
	if i < 0 {
		return sessions.Person{}, fault.New(fault.Unauthenticated, "no such code")
	}
	return f.app.people[i], nil
}

func (f *fakeSessions) BeginPerson(ctx context.Context, _ string, identify func(context.Context) (sessions.Person, error)) (string, tokens.Token, error) {
	p, err := identify(ctx)
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.failed++
		return "", tokens.Token{}, err
	}
	if !p.BlockedAt.IsZero() {
		return "", tokens.Token{}, fault.New(fault.Forbidden, "blocked")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	session := sessions.Secret()
	f.open[session] = p.Caller()
	return session, p.Caller(), nil
}

func (f *fakeSessions) People(_ context.Context, after string, limit int) ([]sessions.Person, error) {
	rows := f.app.people
	if after != "" {
		rows = rows[1+slices.IndexFunc(rows, func(p sessions.Person) bool { return p.ID == after }):]
	}
	return rows[:min(len(rows), limit)], nil
}

func (f *fakeSessions) Block(_ context.Context, id string) error {
	f.app.blocked = append(f.app.blocked, id)
	return nil
}

func (f *fakeSessions) Unblock(_ context.Context, id string) error {
	f.app.blocked = append(f.app.blocked, "not "+id)
	return nil
}

// fillPeople adds people and a provider.
func (f *fakeApp) fillPeople(name string) *fakeApp {
	f.people = []sessions.Person{
		{ID: sessions.PersonID("idp.example", "1"), Name: name, Role: tokens.Admin, FirstAt: clock, SeenAt: clock, Sessions: 2},
		{ID: sessions.PersonID("idp.example", "2"), Name: "Grace (grace@idp.example)", Role: tokens.Auditor, FirstAt: clock, SeenAt: clock, BlockedAt: clock},
		{ID: "t", Name: "Ada", Role: tokens.Admin, FirstAt: clock, SeenAt: clock},
	}
	f.signOn = &fakeSignOn{app: f, end: "https://idp.example/logout"}
	return f
}
