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
	h.mu.Unlock()
	h.cancelAll(func(key) bool { return true }, anyUser, errShuttingDown())
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

// CloseForUser cancels the user's requests and waits briefly for the runners to answer. The runners
// stay connected.
func (h *Hub) CloseForUser(user sandbox.User) error {
	closed := fault.New(fault.ShuttingDown, "the user's sandbox was closed, and its requests were canceled")
	h.cancelAll(func(k key) bool { return k.user == user.ID && (user.Runner == "" || user.Runner == k.name) }, user.Holds, closed)
	return nil
}

// cancelAll cancels the requests of some users to some machines, and waits for them.
func (h *Hub) cancelAll(machines func(key) bool, users func(sandbox.User) bool, cause error) {
	var waiting []*request
	h.mu.Lock()
	for k, m := range h.machines {
		if !machines(k) {
			continue
		}
		m.permits.refuse(users, cause)
		for _, req := range m.requests() {
			if users(req.user) {
				req.stop(cause)
				waiting = append(waiting, req)
			}
		}
	}
	h.mu.Unlock()
	for _, req := range waiting {
		<-req.done
	}
}
