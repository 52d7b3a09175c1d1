package server

import (
	"context"
	"strings"
	"time"

	"secbox/audit"
	"secbox/audit/admin"
	"secbox/runner"
	"secbox/runner/jobs"
	"secbox/skills/invoke"
)

// How often a node polls for asynchronous execs that wait. On a single node, the notifier reports
// all of them; other nodes cannot notify this one.
const (
	pollAlone = 5 * time.Second
	pollNodes = time.Second
)

// async configures the runner's asynchronous execs.
func (s *Server) async() runner.Async {
	cfg := s.settings.Sandbox
	perToken := cfg.MaxQueuedPerToken
	if perToken == 0 {
		perToken = (cfg.MaxQueuedAsync + 1) / 2
	}
	reserved := cfg.ReservedExecs
	if reserved < 0 {
		reserved = min((cfg.MaxConcurrentExecs+3)/4, cfg.MaxConcurrentExecs-1)
	}
	bytes := int64(cfg.MaxQueuedAsyncMB) << 20
	return runner.Async{
		Limits: audit.JobLimits{Waiting: cfg.MaxQueuedAsync, WaitingPerToken: perToken, Bytes: bytes, BytesPerToken: bytes / 2},
		Places: cfg.MaxConcurrentExecs - reserved, Notifier: s.notifier,
		Skill: func(ctx context.Context, projectID, skillID, digest string) (*runner.Skill, error) {
			skill, err := skillVersions{userPackages{s.library, s.deps.skills}}.Version(ctx, projectID, skillID, digest)
			if err != nil {
				return nil, err
			}
			return invoke.RunnerSkill(skill, nil), nil
		},
		Valid: func(ctx context.Context, requestedBy string) error {
			if requestedBy == runner.Tokenless || strings.HasPrefix(requestedBy, admin.PersonPrefix) {
				return nil
			}
			return s.tokens.Valid(ctx, requestedBy)
		},
	}
}

// makeDispatcher makes the dispatcher of asynchronous execs.
func (s *Server) makeDispatcher() {
	poll := pollAlone
	if s.db.Kind() == "postgres" {
		poll = pollNodes
	}
	s.dispatcher = jobs.New(jobs.Config{
		Store: s.db.Jobs(), Runner: s.runner, Node: s.state.NodeID(), Notifier: s.notifier, Poll: poll, Logger: s.log,
		Ended: s.audit.SpooledIDs,
	})
	gauge(s.registry, "secbox_async_execs_waiting",
		"Asynchronous execs that wait in the database, for all nodes; -1 if it does not answer.", s.waitingJobs)
	gauge(s.registry, "secbox_async_execs_running", "Asynchronous execs that run on this node now.", s.dispatcher.Running)
}

func (s *Server) waitingJobs() int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	n, _, err := s.db.Jobs().Waiting(ctx)
	if err != nil {
		return -1
	}
	return n
}
