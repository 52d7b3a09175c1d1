package console

import (
	"cmp"
	"slices"
	"time"

	"secbox/cluster/nodes"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/sandbox/remote"
)

const (
	maxRunners  = 500 // rows of a page
	nodesWithin = 7 * 24 * time.Hour
)

// runners shows the connected machines of users, the nodes of the installation and the state of
// this one.
func (c *Console) runners(req *request) (ui.Page, error) {
	p := view.RunnersPage{User: req.query.Get("user_id")}
	var bad fault.Fields
	p.Live, p.Here = req.isLive(&bad), ui.Link("runners").With("user_id", p.User)
	if err := bad.Err(); err != nil {
		return ui.Page{}, err
	}
	p.Runners = slices.DeleteFunc(c.cfg.Runners.Runners(req.ctx()),
		func(r remote.RunnerInfo) bool { return p.User != "" && r.UserID != p.User })
	if p.More = len(p.Runners) - maxRunners; p.More > 0 {
		p.Runners = p.Runners[:maxRunners]
	}
	var err error
	if p.Nodes, err = c.cfg.Nodes.List(req.ctx(), nodesWithin); err != nil {
		return ui.Page{}, err
	}
	slices.SortStableFunc(p.Nodes, func(a, b nodes.Node) int { return cmp.Compare(b.SeenAt.Unix(), a.SeenAt.Unix()) })
	p.Curl = req.curl(inAPI(nil, "runners"), inAPI(nil, "sandbox", "health"), inAPI(nil, "sandbox", "pool"))
	p.Node, p.Pool = c.cfg.Health.Latest(req.ctx()), c.cfg.Pool.Stats()
	return ui.Page{Title: "Runners and nodes", Actions: view.PauseLink(p.Here, p.Live), Body: view.Runners(p)}, nil
}
