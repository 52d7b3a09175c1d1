package health

import (
	"context"
	"math"

	"github.com/prometheus/client_golang/prometheus"
)

// gauge is one metric and its value in a survey; known is false when there is none.
type gauge struct {
	desc  *prometheus.Desc
	value func(s survey) (value float64, known bool)
}

func newGauges() []gauge {
	describe := func(name, help string) *prometheus.Desc { return prometheus.NewDesc("secbox_"+name, help, nil, nil) }
	yes := func(is func(s survey) bool) func(survey) (float64, bool) {
		return func(s survey) (float64, bool) {
			if is(s) {
				return 1, true
			}
			return 0, true
		}
	}
	return []gauge{
		{describe("engine_up", "1 when the Docker engine answers."), yes(func(s survey) bool { return s.engineErr == nil })},
		{describe("image_present", "1 when the engine holds the image of execs that name none."), yes(survey.imagePresent)},
		{describe("database_up", "1 when the database answers."), yes(func(s survey) bool { return s.databaseErr == nil })},
		{
			describe("workspace_writable", "1 when a file could be made in the workspace."),
			yes(func(s survey) bool { return s.rootErr == nil }),
		},
		{
			describe("workspace_free_bytes", "Free bytes on the workspace's file system."),
			func(s survey) (float64, bool) { return float64(s.root.bytes), s.root.known },
		},
		{
			describe("workspace_free_inodes", "Free inodes on the workspace's file system, where it counts them."),
			func(s survey) (float64, bool) {
				return float64(s.root.inodes), s.root.known && s.root.inodes != math.MaxUint64
			},
		},
		{
			describe("audit_spool_results", "Results of execs that the database does not have yet."),
			func(s survey) (float64, bool) { return float64(s.spool.Results), s.spoolReported && s.spoolErr == nil },
		},
		{
			describe("audit_spool_refused", "Of these results, the ones that the database did not take when it was last asked."),
			func(s survey) (float64, bool) { return float64(s.spool.Refused), s.spoolReported && s.spoolErr == nil },
		},
		{
			describe("audit_spool_damaged_files", "Files of the audit spool from which no record can be read."),
			func(s survey) (float64, bool) { return float64(s.spool.Damaged), s.spoolReported && s.spoolErr == nil },
		},
		{
			describe("audit_log_entries", "Entries of the transparency log."),
			func(s survey) (float64, bool) {
				return float64(s.auditLog.Entries), s.logReported && s.auditLogErr == nil
			},
		},
		{
			describe("audit_log_behind_events", "Events that the transparency log does not have yet, counted up to 10000."),
			func(s survey) (float64, bool) {
				return float64(s.auditLog.BehindEvents), s.logReported && s.auditLogErr == nil
			},
		},
		{
			describe("audit_log_behind_seconds", "Age of the first event that the transparency log does not have yet."),
			func(s survey) (float64, bool) {
				return float64(s.auditLog.BehindMS) / 1000, s.logReported && s.auditLogErr == nil
			},
		},
		{
			describe("audit_log_halted", "1 when the database does not have the log that was signed before, so that it is not extended."),
			func(s survey) (float64, bool) {
				if s.auditLog.Halted != "" {
					return 1, true
				}
				return 0, s.logReported && s.auditLogErr == nil
			},
		},
		{
			describe("audit_log_anchored_entries", "Entries of the last checkpoint in audit.anchor_dir; 0 without one."),
			func(s survey) (float64, bool) {
				return float64(s.auditLog.AnchoredEntries), s.logReported && s.auditLogErr == nil
			},
		},
		{
			describe("retention_records_removed", "Records that runs of retention of this process removed."),
			func(s survey) (float64, bool) {
				return float64(s.retention.TotalRecords), s.retentionReported && s.retentionErr == nil
			},
		},
		{
			describe("retention_artifacts_removed",
				"Execs whose artifacts runs of retention of this process removed, and whose record stays."),
			func(s survey) (float64, bool) {
				return float64(s.retention.TotalArtifacts), s.retentionReported && s.retentionErr == nil
			},
		},
		{
			describe("retention_projects_removed", "Projects whose unused inputs or workspace runs of retention of this process removed."),
			func(s survey) (float64, bool) {
				return float64(s.retention.TotalProjects), s.retentionReported && s.retentionErr == nil
			},
		},
		{
			describe("retention_held_execs", "Execs that holds kept in the last run of retention."),
			func(s survey) (float64, bool) {
				return float64(s.retention.Held), s.retentionReported && s.retentionErr == nil
			},
		},
		{
			describe("retention_altered_execs",
				"Execs that the last run of retention kept because they are not as the transparency log says."),
			func(s survey) (float64, bool) {
				return float64(s.retention.Altered), s.retentionReported && s.retentionErr == nil
			},
		},
		{
			describe("retention_holds", "Holds that stop retention."),
			func(s survey) (float64, bool) {
				return float64(s.retention.Holds), s.retentionReported && s.retentionErr == nil
			},
		},
		{
			describe("retention_queued_execs", "Removed execs whose artifacts may still be on the disk."),
			func(s survey) (float64, bool) {
				return float64(s.retention.Queued), s.retentionReported && s.retentionErr == nil
			},
		},
		{
			describe("retention_last_run_timestamp_seconds", "When the last run of retention began."),
			func(s survey) (float64, bool) {
				if s.retention.BeganAt == nil {
					return 0, false
				}
				return float64(s.retention.BeganAt.Unix()), s.retentionErr == nil
			},
		},
		{
			describe("state_dir_free_bytes", "Free bytes on the state dir's file system."),
			func(s survey) (float64, bool) { return float64(s.state.bytes), s.state.known },
		},
	}
}

var witnessEntries = prometheus.NewDesc("secbox_audit_log_witness_entries", "Entries of the newest checkpoint that a witness has cosigned.",
	[]string{"witness"}, nil)

// Describe lists the gauges; a Checker is a prometheus.Collector.
func (c *Checker) Describe(to chan<- *prometheus.Desc) {
	for _, g := range c.gauges {
		to <- g.desc
	}
	to <- witnessEntries
}

// Collect uses cached answers, as Ready does. Unknown values have no sample.
func (c *Checker) Collect(to chan<- prometheus.Metric) {
	s := c.survey(context.Background(), readyAge, 0)
	for _, g := range c.gauges {
		if value, known := g.value(s); known {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value)
		}
	}
	for _, w := range s.auditLog.Witnesses {
		to <- prometheus.MustNewConstMetric(witnessEntries, prometheus.GaugeValue, float64(w.Entries), w.Name)
	}
}
