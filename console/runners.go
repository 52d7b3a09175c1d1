package console

import (
	"slices"

	"secbox/console/ui"
	"secbox/console/view"
	"secbox/fault"
	"secbox/sandbox/remote"
)

const maxRunners = 500 // rows of a page

// runners shows the connected machines of users.
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
	p.Several = slices.ContainsFunc(p.Runners, func(r remote.RunnerInfo) bool { return r.NodeID != p.Runners[0].NodeID })
	p.Curl = req.curl(inAPI(nil, "runners"))
	return ui.Page{Title: "Runners", Actions: view.PauseLink(p.Here, p.Live), Body: view.Runners(p)}, nil
}
