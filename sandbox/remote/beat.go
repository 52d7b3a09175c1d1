package remote

import (
	"context"
	"slices"
	"strconv"
	"time"

	"secbox/sandbox/remote/wire"
)

// beat sends pings, and closes the link when nothing was heard for three heartbeats.
func (l *link) beat() {
	every := l.hub.cfg.Heartbeat
	tick := time.Tick(every)
	l.sendPing() // measures the latency at once
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick:
		}
		last := max(l.heard.Load(), l.busy.Load())
		l.hub.mu.Lock()
		if time.Since(l.start)-time.Duration(last) > 3*every {
			l.end(wire.StatusGoingAway, "nothing was heard for three heartbeats")
			l.hub.mu.Unlock()
			l.cut() // the runner cannot be told
			return
		}
		l.hub.mu.Unlock()
		l.sendPing()
	}
}

func (l *link) sendPing() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.ping++
	l.pingAt = time.Time{}
	if frame, err := wire.Encode(strconv.FormatUint(l.ping, 10), wire.TypePing, nil); err == nil {
		l.send(item{frame: frame, ping: l.ping})
	}
}

// awaitArrival allows the link to be silent for as long as a message may take on the slowest line.
func (l *link) awaitArrival(bytes int) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.longPing = l.ping + 1
	l.busy.Store(int64(time.Since(l.start)) + int64(bytes)*int64(time.Second)/slowestBytes)
}

// pong measures the round trip of the last ping. A late or unexpected pong only shows that the
// runner is alive.
func (l *link) pong(id string) {
	if n, err := strconv.ParseUint(id, 10, 64); err == nil && l.longPing <= n && n <= l.ping {
		l.busy.Store(0)
	}
	if id == strconv.FormatUint(l.ping, 10) && !l.pingAt.IsZero() {
		l.latency = time.Since(l.pingAt)
		l.pingAt = time.Time{}
	}
	for _, echo := range l.echoes {
		close(echo)
	}
	l.echoes = nil
}

// aliveTimeout is how long a runner has to answer a ping when another runner wants its name.
const aliveTimeout = 5 * time.Second

// isAlive reports whether the runner answers a ping. A runner that sends anything counts, since it
// may be too busy for a pong. When the hub closes, isAlive returns false at once.
func (l *link) isAlive() bool {
	echo := make(chan struct{})
	since := time.Since(l.start)
	l.hub.mu.Lock()
	l.echoes = append(l.echoes, echo)
	l.hub.mu.Unlock()
	defer func() {
		l.hub.mu.Lock()
		defer l.hub.mu.Unlock()
		l.echoes = slices.DeleteFunc(l.echoes, func(e chan<- struct{}) bool { return e == echo })
	}()
	l.sendPing()
	select {
	case <-echo:
		return true
	case <-l.readDone:
		return false
	case <-l.hub.ctx.Done():
		return false
	case <-time.After(aliveTimeout):
		return time.Duration(l.heard.Load()) > since
	}
}

// watchToken closes the link when its token is revoked.
func (l *link) watchToken() {
	every := min(time.Second, l.hub.cfg.Heartbeat)
	tick := time.Tick(every)
	failing := false
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick:
		}
		ctx, stop := context.WithTimeout(l.ctx, 10*time.Second)
		err := l.hub.cfg.Valid(ctx, l.caller.TokenID)
		stop()
		switch {
		case err == nil || l.ctx.Err() != nil:
			failing = false
		case isRevoked(err):
			l.hub.mu.Lock()
			l.end(wire.StatusRevoked, "the runner's token was revoked")
			l.hub.mu.Unlock()
			return
		case !failing:
			failing = true
			l.hub.cfg.Log.Warn("check a runner's token", "user", l.caller.UserID, "err", err)
		}
	}
}
