package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"secbox/fault"
	"secbox/skills"
	"secbox/skills/invoke"
)

// watchSkills adds the gauges of the catalog.
func (m *metrics) watchSkills(catalog *skills.Catalog) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "secbox_skills_loaded", Help: "Skills that can be invoked."},
			func() float64 { return float64(len(catalog.Now().Skills())) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "secbox_skills_broken", Help: "Folders that are meant to be skills and cannot be used."},
			func() float64 { return float64(len(catalog.Now().Broken())) }),
	)
}

// countedInvoker counts what becomes of invokes, whoever asked for them.
type countedInvoker struct {
	next    *invoke.Invoker
	catalog *skills.Catalog
	metrics *metrics
}

// Invoke invokes and counts. A name that is in no catalog gets no label of its own: users could make any number of them.
func (c countedInvoker) Invoke(ctx context.Context, req invoke.Request) (invoke.Result, error) {
	res, err := c.next.Invoke(ctx, req)
	if res.Exec.Replayed {
		return res, err // it was counted the first time
	}
	status := string(res.Exec.Record.Status)
	if err != nil {
		status = string(fault.CodeOf(err))
	}
	if _, unknown := c.catalog.Now().Get(req.SkillID); unknown == nil {
		c.metrics.invokes.WithLabelValues(req.SkillID, status).Inc()
	} else if res.Skill != nil && res.Skill.Source == skills.Package {
		c.metrics.invokes.WithLabelValues(skills.Package, status).Inc() // no skill is called so: an id has a dot
	}
	return res, err
}
