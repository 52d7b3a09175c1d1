package server

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"secbox/audit"
	"secbox/cluster/nodes"
	"secbox/cluster/peer"
	"secbox/fault"
	"secbox/internal/buildinfo"
	"secbox/sandbox"
	"secbox/sandbox/remote/relay"
)

// join begins the lease of this node, before it runs anything. shutdown ends it.
func (s *Server) join(ctx context.Context) error {
	name, _ := os.Hostname() // only for people
	s.member = nodes.NewMember(nodes.Config{
		Store: s.db.Nodes(), Lease: time.Duration(s.settings.Node.LeaseSeconds) * time.Second, Fence: s.fence, Drain: s.obeyDrain,
		Retired: s.notifier.Notify, Logger: s.log,
		Node: nodes.Node{
			NodeID: s.state.NodeID(), Name: name, Version: buildinfo.Version, Address: s.nodeAddress(), StartedAt: time.Now(),
			KeyCheck: s.key.Check(),
		},
	})
	return s.member.Join(ctx)
}

// nodeAddress is the address of this node for the others; empty: none.
func (s *Server) nodeAddress() string {
	u, err := url.Parse(s.settings.Node.Address)
	if err != nil || u.Host == "" {
		return ""
	}
	if _, port, _ := net.SplitHostPort(s.Addr()); u.Port() == "0" {
		u.Host = net.JoinHostPort(u.Hostname(), port)
	}
	u.Path = ""
	return u.String()
}

// makePeers makes the channels to other nodes. shutdown closes them.
func (s *Server) makePeers(context.Context) error {
	if s.db.Kind() == "postgres" {
		s.peers = peer.New(peer.Config{
			Self: s.state.NodeID(), Epoch: s.epoch, Key: s.key, Nodes: s.db.Nodes(), Now: time.Now,
			Logger: s.log,
		})
	}
	return nil
}

// epoch returns the epoch of this node's lease; 0 before the node has a lease.
func (s *Server) epoch() int64 {
	if s.member == nil {
		return 0
	}
	return s.member.Epoch()
}

// onRecord refuses a command that another node asks for unless it is open on record as the command
// of that node for that user.
func (s *Server) onRecord(ctx context.Context, execID, nodeID string, user sandbox.User) error {
	r, err := s.db.Audit().Get(ctx, execID)
	switch {
	case fault.Is(err, fault.UnknownExec), err == nil && (r.Status != audit.Running || r.NodeID != nodeID || r.UserID != user.ID):
		s.log.Warn("a node asked for a command on a user's machine that is not on record as its own; it does not run", "node", nodeID,
			"exec", execID, "user", user.ID)
		return fault.New(fault.Forbidden, "exec %q is not on record as a running command of node %s for this user", execID, nodeID)
	}
	return err
}

// withPeers takes the channels of other nodes, answers the requests that they make themselves,
// which are no part of the API, and passes the others on.
func (s *Server) withPeers(next http.Handler) http.Handler {
	if s.peers == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == peer.Path {
			s.peers.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == relay.Prefix || strings.HasPrefix(r.URL.Path, relay.Prefix+"/") {
			s.sandboxes.machines.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fence ends what runs on this node, because another node has retired its lease. New work is
// refused until resume is called.
func (s *Server) fence(ctx context.Context) (resume func()) {
	why := fault.New(fault.ShuttingDown,
		"this node has lost its lease on the database and is ending what it ran; try another one, or again shortly")
	why.RetryAfter = 5 * time.Second
	resumeExecs, resumeCommands := s.runner.Pause(why), s.sandboxes.Pause(why)
	s.runner.Lose()
	s.sandboxes.Lose()
	// Rows that were opened after the retirement, and jobs that were taken after it.
	for {
		lost, err := s.audit.Recover(ctx)
		if err == nil {
			_, err = s.db.Jobs().ReturnAll(ctx, s.state.NodeID(), s.audit.SpooledIDs())
		}
		if err == nil {
			if len(lost) > 0 {
				s.log.Warn("execs of this node that began after it had lost its lease are ended as lost", "execs", len(lost))
			}
			break
		}
		s.log.Warn("the database does not answer; this node waits with its new lease", "error", err)
		if !wait(ctx, time.Second) {
			break
		}
	}
	return func() {
		resumeExecs()
		resumeCommands()
		s.notifier.Notify()
	}
}

// obeyDrain refuses new commands while an operator drains this node. What runs goes on, and so does
// all that is not a command. Sessions end when no exec runs in them.
func (s *Server) obeyDrain(draining bool) {
	if !draining {
		s.undrain()
		s.notifier.Notify()
		s.log.Info("this node is drained no longer: it takes new commands")
		return
	}
	resumeExecs, resumeCommands, resumeSessions := s.runner.Pause(errDraining), s.sandboxes.Pause(errDraining), s.runner.EndSessions()
	s.undrain = func() {
		resumeExecs()
		resumeCommands()
		resumeSessions()
	}
	s.log.Info("this node is drained: it takes no new commands until that is undone, or its next start")
}

var errDraining = func() *fault.Error {
	e := fault.New(fault.Draining, "this node is drained and takes no new commands; send the request to another node")
	e.RetryAfter = 5 * time.Second
	return e
}()

// accepts returns the error with which this node refuses new commands until its end, or as long as
// it is drained.
func (s *Server) accepts() error {
	switch {
	case s.closing.Load():
		return fault.New(fault.ShuttingDown, "this node is shutting down")
	case s.member.Draining():
		return errDraining
	}
	return nil
}

// leave ends the lease of this node, on which nothing runs any longer.
func (s *Server) leave(ctx context.Context) {
	if s.member == nil {
		return
	}
	if err := s.member.Leave(context.WithoutCancel(ctx)); err != nil {
		s.log.Warn("the lease of this node could not be ended; another node retires it", "error", err)
	}
}
