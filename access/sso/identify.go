package sso

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"secbox/access/sessions"
	"secbox/fault"
)

// claims are what a provider says about a person.
type claims map[string]json.RawMessage

func (c claims) text(name string) string {
	var s string
	if json.Unmarshal(c[name], &s) != nil {
		return ""
	}
	return s
}

// texts returns a claim that is a list of texts, or one text; false if the claim is missing.
func (c claims) texts(name string) (list []string, ok bool) {
	raw, ok := c[name]
	var items []any
	if json.Unmarshal(raw, &items) != nil {
		if one := c.text(name); one != "" {
			return []string{one}, ok
		}
	}
	for _, item := range items {
		if s, is := item.(string); is {
			list = append(list, s)
		}
	}
	return list, ok
}

// identify verifies the ID token of a sign-in, and returns its person. Groups that are not in the
// token are asked for at the userinfo endpoint.
func (p *Provider) identify(ctx context.Context, at *endpoints, token *oauth2.Token, nonce string) (sessions.Person, error) {
	raw, _ := token.Extra("id_token").(string)
	if raw == "" {
		return sessions.Person{}, p.badAnswer("sent no ID token; the client must be one of OpenID Connect, with the scope openid")
	}
	id, err := at.provider.Verifier(&oidc.Config{ClientID: p.cfg.ClientID, Now: p.lenient}).Verify(ctx, raw)
	if err != nil {
		return sessions.Person{}, p.badAnswer("sent an ID token that cannot be trusted, or its keys cannot be read: %s",
			cut(err.Error(), 300))
	}
	if !equal(id.Nonce, nonce) {
		return sessions.Person{}, fault.New(fault.Unauthenticated, "The answer of %s is to the sign-in of another browser. Begin again.",
			p.Name())
	}
	var of claims
	if err := id.Claims(&of); err != nil {
		return sessions.Person{}, p.badAnswer("sent an ID token whose claims cannot be read")
	}
	if azp := of.text("azp"); azp != "" && azp != p.cfg.ClientID || azp == "" && len(id.Audience) > 1 {
		return sessions.Person{}, p.badAnswer("sent an ID token that was issued to another client, %s", cut(azp, 100))
	}
	person := sessions.Person{ID: sessions.PersonID(p.cfg.Issuer, id.Subject)}
	if id.Subject == "" || len(person.ID) > maxID || strings.ContainsFunc(id.Subject, func(r rune) bool { return r < ' ' || r > '~' }) {
		return sessions.Person{}, p.badAnswer("sent a subject that is empty, longer than %d characters with the issuer, or not of ASCII",
			maxID)
	}
	groups, known := of.texts(p.cfg.GroupsClaim)
	if !known && at.provider.UserInfoEndpoint() != "" {
		if of, err = p.userinfo(ctx, at, token, id.Subject, of); err != nil {
			return sessions.Person{}, err
		}
		groups, known = of.texts(p.cfg.GroupsClaim)
	}
	person.Name, person.Role = displayName(of, id.Subject), p.role(groups)
	if person.Role == "" {
		p.log.Info("a person has no role", "person", person.ID, "claim", p.cfg.GroupsClaim, "claim_sent", known, "groups", len(groups))
	}
	return person, nil
}

// userinfo adds the claims of the userinfo endpoint to the claims of the ID token.
func (p *Provider) userinfo(ctx context.Context, at *endpoints, token *oauth2.Token, subject string, of claims) (claims, error) {
	info, err := at.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return nil, p.noAnswer(err)
	}
	if info.Subject != subject { // OpenID Connect Core 5.3.2
		return nil, p.badAnswer("answered about another person than the one who signed in")
	}
	var more claims
	if err := info.Claims(&more); err != nil {
		return nil, p.badAnswer("sent claims that cannot be read")
	}
	for name, value := range of {
		more[name] = value
	}
	return more, nil
}

// lenient is the time by which an ID token has to be valid.
func (p *Provider) lenient() time.Time { return p.cfg.Now().Add(-skew) }

// displayName is a name with the e-mail address, for people: one line of visible text. Only the id
// of a person is unique. An address that the provider has not verified is left out: it could be
// anyone's.
func displayName(of claims, subject string) string {
	email := of.text("email")
	if verified := strings.Trim(string(of["email_verified"]), `"`); verified == "false" {
		email = ""
	}
	name := cmp.Or(of.text("name"), of.text("preferred_username"), email, subject)
	if email != "" && email != name {
		name += " (" + email + ")"
	}
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, cut(name, maxName))
	return name
}
