package remote

import (
	"secbox/fault"
	"secbox/sandbox"
)

// Close cancels all requests, waits briefly for the runners to answer, and ends the links.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	h.stop()
	var waiting []*request
	for _, m := range h.machines {
		m.permits.refuse(anyUser, errShuttingDown())
		for _, req := range m.requests() {
			req.stop(errShuttingDown())
			waiting = append(waiting, req)
		}
	}
	h.mu.Unlock()
	for _, req := range waiting {
		<-req.done
	}
	h.mu.Lock()
	for _, m := range h.machines {
		if m.link != nil {
			m.link.end(goingAway.status, goingAway.reason)
		}
		h.drop(m)
	}
	h.mu.Unlock()
	h.work.Wait()
	return nil
}

// CloseForUser cancels the user's requests and waits briefly for the runners to answer. The runners stay connected.
func (h *Hub) CloseForUser(user sandbox.User) error {
	closed := fault.New(fault.ShuttingDown, "the user's sandbox was closed, and its requests were canceled")
	var waiting []*request
	h.mu.Lock()
	for k, m := range h.machines {
		if k.user != user.ID || user.Runner != "" && user.Runner != k.name {
			continue
		}
		m.permits.refuse(user.Holds, closed)
		for _, req := range m.requests() {
			if user.Holds(req.user) {
				req.stop(closed)
				waiting = append(waiting, req)
			}
		}
	}
	h.mu.Unlock()
	for _, req := range waiting {
		<-req.done
	}
	return nil
}
