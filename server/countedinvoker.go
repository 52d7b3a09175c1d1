package server

import (
	"context"

	"secbox/fault"
	"secbox/skills"
	"secbox/skills/invoke"
)

// countedInvoker counts the outcomes of invokes over HTTP and MCP.
type countedInvoker struct {
	next    *invoke.Invoker
	catalog *skills.Catalog
	metrics *metrics
}

// Invoke does not label unknown names: clients could create any number of labels.
func (c countedInvoker) Invoke(ctx context.Context, req invoke.Request) (invoke.Result, error) {
	res, err := c.next.Invoke(ctx, req)
	if res.Exec.Replayed {
		return res, err // counted the first time
	}
	status := string(res.Exec.Record.Status)
	if err != nil {
		status = string(fault.CodeOf(err))
	}
	if _, unknown := c.catalog.Now().Get(req.SkillID); unknown == nil {
		c.metrics.invokes.WithLabelValues(req.SkillID, status).Inc()
	} else if res.Skill != nil && res.Skill.Source == skills.Package {
		c.metrics.invokes.WithLabelValues(skills.Package, status).Inc() // not the id of a skill: those have a dot
	}
	return res, err
}
