package remote

import (
	"secbox/fault"
	"secbox/sandbox"
)

// Close cancels what is under way, waits for the runners' word on it, though not for long, and ends the links.
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	h.end()
	var waiting []*request
	for _, m := range h.machines {
		m.places.refuse(anybody, errShuttingDown())
		for _, req := range m.all() {
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

// CloseForUser cancels what runs for one user, and waits for the runner's word on it. Their runners stay connected.
func (h *Hub) CloseForUser(user sandbox.User) error {
	closed := fault.New(fault.ShuttingDown, "the user's sandbox was closed; what was asked of it before is canceled")
	var waiting []*request
	h.mu.Lock()
	for k, m := range h.machines {
		if k.user != user.ID || user.Runner != "" && user.Runner != k.name {
			continue
		}
		m.places.refuse(user.Holds, closed)
		for _, req := range m.all() {
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
