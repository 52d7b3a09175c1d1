package remote

import (
	"io"
	"syscall"

	"secbox/sandbox/remote/wire"
)

// input is the standard input and the signals of a command: what the runner has not acknowledged,
// to be sent again on another link. Guarded by Hub.mu.
type input struct {
	acked   int64  // bytes that the runner has passed on
	data    []byte // sent after them, at most wire.StdinWindow
	ended   bool   // standard input ends after data
	taken   int64  // signals that the runner has
	signals []string
	room    chan struct{} // closed and replaced by an acknowledgment
}

func newInput() *input { return &input{room: make(chan struct{})} }

// feed starts to send what r returns, and the signals, until they end or the request is over. A
// Read may go on after that.
func (h *Hub) feed(req *request, r io.Reader, signals <-chan syscall.Signal) {
	if signals != nil {
		go h.passSignals(req, signals)
	}
	go func() {
		buf := make([]byte, wire.MaxOutput)
		for {
			n, err := r.Read(buf)
			if n == 0 && err == nil {
				continue
			}
			if !h.sendStdin(req, buf[:n], err != nil) || err != nil {
				return
			}
		}
	}()
}

// sendStdin waits for room, and sends a piece; false when the request is over.
func (h *Hub) sendStdin(req *request, data []byte, end bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	in := req.input
	if !h.awaitRoom(req, func() bool { return len(in.data)+len(data) <= wire.StdinWindow }) {
		return false
	}
	at := in.acked + int64(len(in.data))
	in.data, in.ended = append(in.data, data...), end
	if l := req.m.link; l != nil {
		l.sendInput(req, wire.TypeStdin, &wire.Stdin{Offset: at, Data: data, End: end})
	}
	return true
}

func (h *Hub) passSignals(req *request, signals <-chan syscall.Signal) {
	for {
		select {
		case s, ok := <-signals:
			if !ok {
				return
			}
			for name, number := range wire.SignalNames {
				if number == s && !h.sendSignal(req, name) {
					return
				}
			}
		case <-req.done:
			return
		}
	}
}

func (h *Hub) sendSignal(req *request, name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	in := req.input
	if !h.awaitRoom(req, func() bool { return len(in.signals) < wire.MaxSignals }) {
		return false
	}
	in.signals = append(in.signals, name)
	if l := req.m.link; l != nil {
		l.sendInput(req, wire.TypeSignal, &wire.Signal{Number: in.taken + int64(len(in.signals)), Signal: name})
	}
	return true
}

// awaitRoom waits until there is room in the window; false when the request is over. h.mu is held,
// and unlocked while it waits.
func (h *Hub) awaitRoom(req *request, enough func() bool) bool {
	for !req.over && !enough() {
		room := req.input.room
		h.mu.Unlock()
		select {
		case <-room:
		case <-req.done:
		}
		h.mu.Lock()
	}
	return !req.over
}

// sendAgain sends the input that the runner has not acknowledged, on a new link. Hub.mu is held.
func (l *link) sendAgain(req *request) {
	in := req.input
	for at := 0; at < len(in.data) || at == 0 && in.ended; at += wire.MaxOutput {
		to := min(len(in.data), at+wire.MaxOutput)
		l.sendInput(req, wire.TypeStdin, &wire.Stdin{
			Offset: in.acked + int64(at), Data: in.data[at:to],
			End: in.ended && to == len(in.data),
		})
	}
	for i, name := range in.signals {
		l.sendInput(req, wire.TypeSignal, &wire.Signal{Number: in.taken + int64(i) + 1, Signal: name})
	}
}

// inputAck takes an acknowledgment. Hub.mu is held.
func (l *link) inputAck(id string, a *wire.InputAck) error {
	req := l.machine.pending[id]
	switch {
	case req == nil && l.machine.hasID(id):
		return nil // its caller has left
	case req == nil || req.input == nil || !req.sent:
		return protocolError("input of an unknown command was acknowledged")
	}
	in := req.input
	bytes, signals := a.Stdin-in.acked, a.Signals-in.taken
	if bytes < 0 || bytes > int64(len(in.data)) || signals < 0 || signals > int64(len(in.signals)) {
		return protocolError("input was acknowledged that was not sent, or again")
	}
	req.began = true
	in.acked, in.taken = a.Stdin, a.Signals
	in.data, in.signals = append(in.data[:0], in.data[bytes:]...), append(in.signals[:0], in.signals[signals:]...)
	close(in.room)
	in.room = make(chan struct{})
	return nil
}
