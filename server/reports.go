package server

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/engine"
	"secbox/health"
	"secbox/sandbox/remote"
	"secbox/sandbox/remote/relay"
)

// healthReports implements api.Health.
type healthReports struct {
	checker *health.Checker
	pool    *engine.Pool
	accepts func() error // why the node refuses commands
}

// Ready fails as soon as the node refuses execs, so that load balancers send requests elsewhere.
func (h healthReports) Ready(ctx context.Context) error {
	if err := h.accepts(); err != nil {
		return err
	}
	return h.checker.Ready(ctx)
}

func (h healthReports) Report(ctx context.Context) wire.HealthReport {
	r := h.checker.Report(ctx)
	pool := h.pool.Stats()
	out := wire.HealthReport{
		Status: wire.HealthReportStatus(r.Status), Version: r.Version, NodeID: r.NodeID, RuntimeMode: r.RuntimeMode,
		WorkspaceRootNative: r.WorkspaceRootNative, WorkspaceWritable: r.WorkspaceWritable, DockerCLIPath: r.DockerCLIPath,
		Engine: wire.HealthReportEngine(r.Engine), DockerVersion: r.DockerVersion, DockerContext: r.DockerContext,
		EngineRuntime: r.EngineRuntime, CgroupVersion: r.CgroupVersion,
		ContainerUser: r.ContainerUser, ImagePresent: r.ImagePresent, Database: r.Database,
		PoolShared: pool.Shared, PoolNotSharedBecause: pool.NotShared,
		AuditLog: wire.HealthAuditLog{
			Entries: r.AuditLog.Entries, BehindEvents: r.AuditLog.BehindEvents, BehindMS: r.AuditLog.BehindMS,
			AnchoredEntries: r.AuditLog.AnchoredEntries, Witnesses: []wire.HealthAuditWitness{},
		},
		AuditSpool: wire.HealthAuditSpool{
			Results: r.AuditSpool.Results, Refused: r.AuditSpool.Refused, InMemory: r.AuditSpool.InMemory,
			DamagedFiles: r.AuditSpool.Damaged, OldestMS: r.AuditSpool.OldestMS,
		},
		Retention: wire.HealthRetention{
			Enabled: r.Retention.Enabled, Running: r.Retention.Running, BeganAt: (*visible.Timestamp)(r.Retention.BeganAt),
			Records: r.Retention.Records, Artifacts: r.Retention.Artifacts,
			Projects: r.Retention.Projects, Held: r.Retention.Held, Altered: r.Retention.Altered, Queued: r.Retention.Queued,
			Holds: r.Retention.Holds, NextAt: (*visible.Timestamp)(r.Retention.NextAt),
		},
		Skills: wire.HealthSkills{Loaded: r.Skills.Loaded, Broken: r.Skills.Broken}, Problems: []wire.HealthProblem{},
	}
	for _, w := range r.AuditLog.Witnesses {
		out.AuditLog.Witnesses = append(out.AuditLog.Witnesses, wire.HealthAuditWitness{Name: w.Name, Entries: w.Entries})
	}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, wire.HealthProblem{Check: p.Check, Reason: p.Reason, Remedy: p.Remedy})
	}
	return out
}

// poolReports implements api.Pool.
type poolReports struct{ pool *engine.Pool }

func (p poolReports) Report() wire.PoolReport {
	s := p.pool.Stats()
	out := wire.PoolReport{
		Enabled: s.Max > 0, Max: s.Max, MaxPerKey: s.MaxPerKey, MaxMemoryMB: s.MaxMemoryMB, IdleSeconds: int64(s.Idle / time.Second),
		SlotMemoryMB: engine.SlotMemoryMB, Idle: s.Waiting, Starting: s.Starting,
		MemoryMB: int64(s.Waiting+s.Starting) * engine.SlotMemoryMB,
		Shared:   s.Shared, NotSharedBecause: s.NotShared, Ready: s.Ready,
		ShortOfMemory: s.MemoryLow, Hits: s.Hits, Misses: s.Misses, Unattached: s.Unattached, Refills: s.Refills,
		RefillFailures: s.Failures,
		AgeMS:          spread(s.Age), RefillMS: spread(s.Refill), Keys: []wire.PoolKey{},
	}
	d := s.Dropped
	out.Dropped.Lru, out.Dropped.Idle, out.Dropped.Stale = d.LRU, d.Idle, d.Stale
	out.Dropped.Dead, out.Dropped.Pressed, out.Dropped.Drained = d.Dead, d.MemoryLow, d.Drained
	for _, k := range s.Keys {
		key := wire.PoolKey{
			ProjectID: k.ProjectID, Image: k.ImageRef, ImageID: k.ImageID, Runtime: k.Runtime, Access: k.Access,
			Idle: k.Waiting, Starting: k.Starting, Wanted: k.Wanted, OldestMS: k.Oldest.Milliseconds(),
		}
		limits, _ := json.Marshal(k.Limits) // numbers always have a JSON form
		_ = json.Unmarshal(limits, &key)    // a test of package api compares the names and types
		if !k.LastUse.IsZero() {
			key.LastUsedAt = new(visible.Timestamp(k.LastUse.UTC()))
		}
		out.Keys = append(out.Keys, key)
	}
	return out
}

func spread(s engine.Spread) wire.PoolSpread {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return wire.PoolSpread{N: s.N, P50: ms(s.P50), P95: ms(s.P95), Max: ms(s.Max)}
}

// connectedRunners implements api.Runners.
type connectedRunners struct{ machines *relay.Machines }

func (c connectedRunners) Connected(ctx context.Context) []wire.ConnectedRunner {
	all := c.machines.Runners(ctx)
	out := make([]wire.ConnectedRunner, len(all))
	for i, r := range all {
		out[i] = wire.ConnectedRunner{
			UserID: r.UserID, Name: r.Name, Version: r.Version, Os: r.OS, Arch: r.Arch, Allow: append([]string{}, r.Allow...),
			ConnectedSince: visible.Timestamp(r.ConnectedSince.UTC()), LatencyMS: float64(r.Latency.Microseconds()) / 1000,
			InFlight: r.InFlight, NodeID: r.NodeID,
		}
	}
	return out
}

func (c connectedRunners) ServeLink(w http.ResponseWriter, r *http.Request, caller tokens.Token) {
	c.machines.ServeLink(w, r, remote.Caller{TokenID: caller.ID, UserID: caller.UserID})
}

func (c connectedRunners) ServeTransfer(w http.ResponseWriter, r *http.Request, id string, caller tokens.Token) {
	c.machines.ServeTransfer(w, r, id, remote.Caller{TokenID: caller.ID, UserID: caller.UserID})
}
