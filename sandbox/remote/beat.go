package remote

import (
	"context"
	"slices"
	"strconv"
	"time"

	"secbox/sandbox/remote/wire"
)

// beat sends pings and gives the link up when nothing is heard.
func (l *link) beat() {
	every := l.hub.cfg.Heartbeat
	t := time.NewTicker(every)
	defer t.Stop()
	l.sendPing() // so that the latency is known from the beginning
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
		}
		last := max(l.heard.Load(), l.busy.Load())
		l.hub.mu.Lock()
		if time.Since(l.start)-time.Duration(last) > 3*every {
			l.end(wire.StatusGoingAway, "nothing was heard for three heartbeats")
			l.hub.mu.Unlock()
			l.cut() // there is nobody to say goodbye to
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

// awaitArrival lets the link be silent for as long as a message may take on the slowest line.
func (l *link) awaitArrival(bytes int) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.behind = l.ping + 1
	l.busy.Store(int64(time.Since(l.start)) + int64(bytes)*int64(time.Second)/slowestBytes)
}

// pong takes the time that a ping took. One that is late, or that was not asked for, says only that the runner is there.
func (l *link) pong(id string) {
	if n, err := strconv.ParseUint(id, 10, 64); err == nil && l.behind <= n && n <= l.ping {
		l.busy.Store(0)
	}
	if id == strconv.FormatUint(l.ping, 10) && !l.pingAt.IsZero() {
		l.latency = time.Since(l.pingAt)
		l.pingAt = time.Time{}
	}
	for _, echo := range l.asked {
		close(echo)
	}
	l.asked = nil
}

// answerWithin is how long a runner whose name another one wants may take to show that it is there.
const answerWithin = 5 * time.Second

// answers asks whether the runner is there. One that sends anything is, though it may be too busy for a pong. It does not wait when the hub is
// closed.
func (l *link) answers() bool {
	echo := make(chan struct{})
	since := time.Since(l.start)
	l.hub.mu.Lock()
	l.asked = append(l.asked, echo)
	l.hub.mu.Unlock()
	defer func() {
		l.hub.mu.Lock()
		defer l.hub.mu.Unlock()
		l.asked = slices.DeleteFunc(l.asked, func(e chan<- struct{}) bool { return e == echo })
	}()
	l.sendPing()
	timer := time.NewTimer(answerWithin)
	defer timer.Stop()
	select {
	case <-echo:
		return true
	case <-l.gone:
		return false
	case <-l.hub.life.Done():
		return false
	case <-timer.C:
		return time.Duration(l.heard.Load()) > since
	}
}

// watchToken closes the link when its token is taken back.
func (l *link) watchToken() {
	every := min(time.Second, l.hub.cfg.Heartbeat)
	t := time.NewTicker(every)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
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
			l.hub.cfg.Log.Warn("a runner's token could not be checked again", "user", l.caller.UserID, "err", err)
		}
	}
}
