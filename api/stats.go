package api

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"secbox/access/tokens"
	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

const (
	defaultStatsPeriod = 24 * time.Hour
	maxRanked          = 100 // entries of a list whose names callers choose
)

// ExecStats counts the execs that the caller may see.
func (s *Server) ExecStats(ctx context.Context, in wire.ExecStatsRequestObject) (wire.ExecStatsResponseObject, error) {
	var bad fault.Fields
	now := s.cfg.Now()
	since, until := audit.ParseTime("since", value(in.Params.Since), now, &bad), audit.ParseTime("until", value(in.Params.Until), now, &bad)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if until.IsZero() {
		until = now.UTC()
	}
	if since.IsZero() {
		since = until.Add(-defaultStatsPeriod)
	}
	only := ""
	if caller := callFrom(ctx).caller; caller.Role == tokens.Worker {
		only = caller.ID
	}
	counts, err := s.cfg.History.Stats(ctx, since, until, only)
	if err != nil {
		return nil, err
	}
	byToken, bySkill := ranked(counts.ByToken), ranked(counts.BySkill)
	names, err := s.tokenNames(ctx, byToken)
	if err != nil {
		return nil, err
	}
	out := wire.ExecStats200JSONResponse{
		Since: visible.Timestamp(since), Until: visible.Timestamp(until), Counted: counts.Counted, Complete: counts.Complete,
		ByStatus: byName(counts.ByStatus), ByErrorReason: byName(counts.ByReason), ByBackend: counts.ByBackend,
		ByToken: make([]wire.TokenCount, len(byToken)), BySkill: make([]wire.SkillCount, len(bySkill)),
		DurationMS: wire.DurationStats{Count: counts.Ended},
	}
	for i, id := range byToken {
		out.ByToken[i] = wire.TokenCount{RequestedBy: id, RequestedByName: names[id], Count: counts.ByToken[id]}
	}
	for i, id := range bySkill {
		out.BySkill[i] = wire.SkillCount{SkillID: id, Count: counts.BySkill[id]}
	}
	if counts.Ended > 0 {
		out.DurationMS.P50, out.DurationMS.P95 = &counts.P50MS, &counts.P95MS
	}
	return out, nil
}

// ranked returns the names with the highest counts, highest first.
func ranked(counts map[string]int) []string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	return names[:min(len(names), maxRanked)]
}

func byName[K ~string](counts map[K]int) map[string]int {
	out := make(map[string]int, len(counts))
	for k, n := range counts {
		out[string(k)] = n
	}
	return out
}
