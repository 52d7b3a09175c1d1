package server

import (
	"context"

	"secbox/access/sso"
	"secbox/console"
)

// makeSignOn makes the client of the OIDC provider if the settings have one. It sends nothing yet.
// shutdown closes it.
func (s *Server) makeSignOn(context.Context) (err error) {
	o := s.settings.Console.OIDC
	if o.Issuer == "" && o.ClientID == "" && o.ClientSecret == "" && o.RedirectURL == "" && len(o.AdminGroups)+len(o.AuditorGroups)+
		len(o.WorkerGroups) == 0 {
		return nil
	}
	s.provider, err = sso.New(sso.Config{
		Issuer: o.Issuer, ClientID: o.ClientID, ClientSecret: o.ClientSecret.Reveal(), RedirectURL: o.RedirectURL, Scopes: o.Scopes,
		GroupsClaim: o.GroupsClaim,
		AdminGroups: o.AdminGroups, AuditorGroups: o.AuditorGroups, WorkerGroups: o.WorkerGroups, Logger: s.log,
	})
	return err
}

// signOn is the provider for the console; nil without one.
func (s *Server) signOn() console.SignOn {
	if s.provider == nil {
		return nil
	}
	return s.provider
}
