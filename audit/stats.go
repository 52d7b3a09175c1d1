package audit

import (
	"context"
	"math"
	"slices"
	"time"
)

// defaultStatsRows is the most records that statistics read.
const defaultStatsRows = 100_000

// Outline is the part of a record for statistics.
type Outline struct {
	Status      Status
	ErrorReason Reason
	RequestedBy string
	SkillID     string
	Backend     string
	DurationMS  int64
}

// Stats counts records. Empty values are not counted: the error_reason of an exec that succeeded,
// the skill_id of one without a skill, the backend of one that ran nowhere.
type Stats struct {
	Counted  int  // records
	Complete bool // false: older records of the requested time were not read

	ByStatus  map[Status]int
	ByReason  map[Reason]int
	ByToken   map[string]int // requested_by
	BySkill   map[string]int
	ByBackend map[string]int

	// The percentiles are actual durations, in milliseconds, of the Ended execs, which ended by
	// themselves or at a limit.
	Ended int
	P50MS int64
	P95MS int64
}

// Stats counts the execs created between two times. When requestedBy is not empty, it counts only
// the execs of that token. It reads the newest records of all tokens up to a bound. A result that
// the database does not have yet is counted as running.
func (l *Log) Stats(ctx context.Context, since, until time.Time, requestedBy string) (Stats, error) {
	s := Stats{
		Complete: true,
		ByStatus: map[Status]int{}, ByReason: map[Reason]int{}, ByToken: map[string]int{}, BySkill: map[string]int{},
		ByBackend: map[string]int{},
	}
	var durations []int64
	seen := 0
	err := l.store.Outlines(ctx, since, until, l.cfg.StatsRows+1, func(o Outline) {
		if seen++; seen > l.cfg.StatsRows {
			s.Complete = false
			return
		}
		if requestedBy != "" && o.RequestedBy != requestedBy {
			return
		}
		s.Counted++
		count(s.ByStatus, o.Status)
		count(s.ByReason, o.ErrorReason)
		count(s.ByToken, o.RequestedBy)
		count(s.BySkill, o.SkillID)
		count(s.ByBackend, o.Backend)
		switch o.Status {
		case Succeeded, Failed, Timeout, OOMKilled:
			durations = append(durations, o.DurationMS)
		}
	})
	if err != nil {
		return Stats{}, err
	}
	slices.Sort(durations)
	s.Ended, s.P50MS, s.P95MS = len(durations), percentile(durations, 0.50), percentile(durations, 0.95)
	return s, nil
}

func count[K ~string](in map[K]int, key K) {
	if key != "" {
		in[key]++
	}
}

// percentile is the smallest of the sorted values that at least the share p of them do not exceed;
// 0 when there is none.
func percentile(sorted []int64, p float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(p*float64(len(sorted))))-1]
}
