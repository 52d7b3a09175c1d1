package remote

import (
	"context"
	"errors"
	"time"

	"github.com/coder/websocket"

	"secbox/sandbox/remote/wire"
)

// relayStall is how long a message may take through a relay, beyond what slowestBytes allows.
const relayStall = 30 * time.Second

// relay passes messages between a runner and the node that has its machine, until one side ends the
// link. That node sends the pings, checks the token and judges the messages. The ends of a link
// pass through, too, so that a runner sees one server.
func (l *link) relay(home *websocket.Conn, hello []byte) {
	home.SetReadLimit(wire.MaxMessage)
	l.conn.SetReadLimit(wire.MaxMessage)
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	defer context.AfterFunc(l.hub.ctx, cancel)()
	defer func() { _ = home.CloseNow() }()
	if err := pass(ctx, home, websocket.MessageText, hello); err != nil {
		l.close(closing{websocket.StatusGoingAway, "the node that has this runner's commands does not answer; dial again"})
		return
	}
	ended := make(chan struct{}) // by the runner, or cut
	l.hub.work.Go(func() {
		defer cancel()
		err := pump(ctx, home, l.conn)
		close(ended)
		if c, ok := errors.AsType[websocket.CloseError](err); ok {
			_ = home.Close(c.Code, c.Reason)
		}
	})
	err := pump(ctx, l.conn, home)
	select {
	case <-ended:
		return
	default:
	}
	end := closing{websocket.StatusGoingAway, "the link to the node that has this runner's commands ended; dial again"}
	if c, ok := errors.AsType[websocket.CloseError](err); ok {
		end = closing{c.Code, c.Reason}
	}
	if l.hub.ctx.Err() != nil {
		end = *goingAway
	}
	l.close(end)
}

// pump passes messages on until a connection ends.
func pump(ctx context.Context, to, from *websocket.Conn) error {
	for {
		kind, message, err := from.Read(ctx)
		if err == nil {
			err = pass(ctx, to, kind, message)
		}
		if err != nil {
			return err
		}
	}
}

// pass writes a message within the time that a slow runner may take for it.
func pass(ctx context.Context, to *websocket.Conn, kind websocket.MessageType, message []byte) error {
	ctx, cancel := context.WithTimeout(ctx, relayStall+time.Duration(len(message))*time.Second/slowestBytes)
	defer cancel()
	return to.Write(ctx, kind, message)
}
