package audit

import (
	"context"
	"math"
	"slices"
	"time"
)

// defaultStatsRows is how many records statistics look at.
const defaultStatsRows = 100_000

// Outline is what statistics need of a record.
type Outline struct {
	Status      Status
	ErrorReason Reason
	RequestedBy string
	SkillID     string
	Backend     string
	DurationMS  int64
}

// Stats counts the records of some time. Empty values are not counted: the error_reason of an exec that succeeded, the skill_id of one
// without a skill, the backend of one that ran nowhere.
type Stats struct {
	Counted  int  // records
	Complete bool // false: older records of the time asked for were not looked at

	ByStatus  map[Status]int
	ByReason  map[Reason]int
	ByToken   map[string]int // requested_by
	BySkill   map[string]int
	ByBackend map[string]int

	// The percentiles are those of the Ended execs, which ended by themselves or at a limit. They are durations that occurred, in
	// milliseconds.
	Ended int
	P50MS int64
	P95MS int64
}

// Stats counts the records created since one time and until another; only those of one token when requestedBy is not empty. It looks at the
// newest records up to a bound, whichever token's they are. A result that waits for the database is still counted as running.
func (l *Log) Stats(ctx context.Context, since, until time.Time, requestedBy string) (Stats, error) {
	s := Stats{
		Complete: true,
		ByStatus: map[Status]int{}, ByReason: map[Reason]int{}, ByToken: map[string]int{}, BySkill: map[string]int{}, ByBackend: map[string]int{},
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

// percentile is the smallest value that at least the share p of the sorted values do not exceed; 0 when there is none.
func percentile(sorted []int64, p float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(math.Ceil(p*float64(len(sorted))))-1]
}
