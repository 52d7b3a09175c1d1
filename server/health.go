package server

import (
	"context"

	"secbox/api"
	"secbox/fault"
	"secbox/health"
)

// healthReports gives the API the node's health in the contract's words.
type healthReports struct {
	checker *health.Checker
	ending  func() bool // the node drains
}

// Ready sends load balancers elsewhere as soon as the node refuses execs.
func (h healthReports) Ready(ctx context.Context) error {
	if h.ending() {
		return fault.New(fault.ShuttingDown, "this node is shutting down")
	}
	return h.checker.Ready(ctx)
}

func (h healthReports) Report(ctx context.Context) api.HealthReport {
	r := h.checker.Report(ctx)
	out := api.HealthReport{
		Status: api.HealthReportStatus(r.Status), Version: r.Version, NodeID: r.NodeID, RuntimeMode: r.RuntimeMode,
		WorkspaceRootNative: r.WorkspaceRootNative, WorkspaceWritable: r.WorkspaceWritable, DockerCLIPath: r.DockerCLIPath,
		DockerVersion: r.DockerVersion, DockerContext: r.DockerContext, EngineRuntime: r.EngineRuntime, CgroupVersion: r.CgroupVersion,
		ContainerUser: r.ContainerUser, ImagePresent: r.ImagePresent, Database: r.Database,
		Skills: api.HealthSkills{Loaded: r.Skills.Loaded, Broken: r.Skills.Broken}, Problems: []api.HealthProblem{},
	}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, api.HealthProblem{Check: p.Check, Reason: p.Reason, Remedy: p.Remedy})
	}
	return out
}
