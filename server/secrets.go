package server

import (
	"context"
	"time"

	"secbox/fault"
	"secbox/network/secrets"
)

// openSecrets makes the secrets of the settings, and takes their variables from the environment, so
// that no command inherits them. Nothing to undo.
func (s *Server) openSecrets() error {
	sources := map[string]secrets.Source{}
	for name, one := range s.settings.Sandbox.Secrets {
		sources[name] = secrets.Source{File: one.File, Env: one.Env, Command: one.Command, Hosts: one.Hosts, Tokens: one.Tokens}
	}
	s.secrets = secrets.New(sources, s.environ, time.Now, s.log)
	s.environ = s.secrets.Without(s.environ)
	if len(sources) == 0 {
		return nil
	}
	if err := secrets.NoCoreDumps(); err != nil {
		return fault.Wrap(fault.Internal, err, "core dumps of core-api, which would have the values of sandbox.secrets, could not be turned off")
	}
	return nil
}

// secretAllowed reports whether a token may use a secret.
func (s *Server) secretAllowed(ctx context.Context, secret, token string) (bool, error) {
	if s.secrets.Allows(secret, token, "") {
		return true, nil
	}
	names, err := s.tokens.Names(ctx, []string{token})
	if err != nil {
		return false, err
	}
	return s.secrets.Allows(secret, token, names[token]), nil
}
