package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"secbox/cluster/nodes"
	"secbox/console/ui"
	"secbox/engine"
	"secbox/fault"
	"secbox/health"
	"secbox/sandbox/remote"
	"secbox/workspace/diskspace"
)

const (
	maxRunners  = 500 // rows of a page
	nodesWithin = 7 * 24 * time.Hour
)

// runnersPage is the users' machines and the nodes.
type runnersPage struct {
	user    string // filter; empty: all
	live    bool
	at      ui.Address // of the page, live
	runners []remote.RunnerInfo
	more    int // beyond maxRunners
	nodes   []nodes.Node
	here    health.Report
	pool    engine.PoolStats
	curl    string // gets the same from the API
}

// runners shows the connected machines of users, the nodes of the installation and the state of this one.
func (c *Console) runners(v *visit) (ui.Page, error) {
	p := runnersPage{user: v.query.Get("user_id")}
	var bad fault.Fields
	p.live, p.at = v.isLive(&bad), ui.Link("runners").With("user_id", p.user)
	if err := bad.Err(); err != nil {
		return ui.Page{}, err
	}
	p.runners = slices.DeleteFunc(c.cfg.Runners.Runners(v.ctx()), func(r remote.RunnerInfo) bool { return p.user != "" && r.UserID != p.user })
	if p.more = len(p.runners) - maxRunners; p.more > 0 {
		p.runners = p.runners[:maxRunners]
	}
	var err error
	if p.nodes, err = c.cfg.Nodes.List(v.ctx(), nodesWithin); err != nil {
		return ui.Page{}, err
	}
	slices.SortStableFunc(p.nodes, func(a, b nodes.Node) int { return cmp.Compare(b.SeenAt.Unix(), a.SeenAt.Unix()) })
	p.curl = v.curl(inAPI(nil, "runners"), inAPI(nil, "sandbox", "health"), inAPI(nil, "sandbox", "pool"))
	p.here, p.pool = c.cfg.Health.Latest(v.ctx()), c.cfg.Pool.Stats()
	return ui.Page{Title: "Runners and nodes", Actions: pause(p.at, p.live), Body: runnersBody(p)}, nil
}

// linkID is the id of the link of a machine, which keeps the focus when the table is replaced.
func linkID(r remote.RunnerInfo) string {
	sum := sha256.Sum256([]byte(r.UserID + "\x00" + r.Name))
	return "runner-" + hex.EncodeToString(sum[:8])
}

// stateTone is the class of the colour of a node's state.
func stateTone(s nodes.State) string {
	switch s {
	case nodes.StateLive:
		return "good"
	case nodes.StateRetired:
		return ""
	}
	return "warn"
}

// statusTone is the class of the colour of a node's health.
func statusTone(s health.Status) string {
	switch s {
	case health.OK:
		return "good"
	case health.Unavailable:
		return "bad"
	}
	return "warn"
}

func freeSpace(s *diskspace.Space) string {
	if s == nil {
		return "not known"
	}
	return ui.Bytes(int64(min(s.Bytes, 1<<62))) + " free"
}
