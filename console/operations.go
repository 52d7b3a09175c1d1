package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/a-h/templ"

	"secbox/cluster/nodes"
	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
)

const (
	maxNodes    = 100 // rows of a page
	maxNodeID   = 200 // bytes
	nodesWithin = 7 * 24 * time.Hour
)

// operations shows the nodes of the installation, the last day of one, and the state of this one.
func (c *Console) operations(req *request) (ui.Page, error) {
	p := view.OperationsPage{Of: req.query.Get("node"), Now: c.cfg.Now(), Here: ui.Link("operations").With("node", req.query.Get("node"))}
	var bad fault.Fields
	if p.Live = req.isLive(&bad); len(p.Of) > maxNodeID {
		bad.Add("node", "must be at most %d bytes", maxNodeID)
	}
	err := bad.Err()
	if err != nil {
		return ui.Page{}, err
	}
	p.Node, p.Pool = c.cfg.Health.Latest(req.ctx()), c.cfg.Pool.Stats()
	p.Of = cmp.Or(p.Of, p.Node.NodeID)
	if p.Nodes, err = c.cfg.Nodes.List(req.ctx(), nodesWithin); err != nil {
		return ui.Page{}, err
	}
	slices.SortStableFunc(p.Nodes, func(a, b nodes.Node) int { return cmp.Compare(b.SeenAt.Unix(), a.SeenAt.Unix()) })
	if p.More = len(p.Nodes) - maxNodes; p.More > 0 {
		p.Nodes = p.Nodes[:maxNodes]
	}
	if p.Latest, err = c.cfg.Samples.Latest(req.ctx()); err != nil {
		return ui.Page{}, err
	}
	if p.Day, err = c.cfg.Samples.Day(req.ctx(), p.Of); err != nil {
		return ui.Page{}, err
	}
	p.Curl = req.curl(inAPI(nil, "sandbox", "health"), inAPI(nil, "sandbox", "pool"))
	return ui.Page{Title: "Operations", Actions: view.PauseLink(p.Here, p.Live), Body: view.Operations(p)}, nil
}

// banner returns what is wrong with this node, for callers who may read its health; nil: nothing
// that is known.
func (c *Console) banner(req *request) templ.Component {
	if !req.may(healthReaders) {
		return nil
	}
	report := c.cfg.Health.Known(req.ctx())
	if len(report.Problems) == 0 {
		return nil
	}
	return view.Banner(report, req.may(auditors))
}
