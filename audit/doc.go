// Package audit records execs: one row per exec, its append-only events, and a spool for results
// that the database refuses.
//
// The row is the latest state, the events are the history; both are written in one transaction.
// Environment values, input contents and standard input never reach the package. Start with
// record.go (the fields), log.go (the life of a row), store.go (what a database must do) and
// spool.go. Then read:
//
//   - hmackey: HMAC digests of values that no record may have
//   - admin: administrative events: who created a token, promoted a baseline, exported
//   - translog: the transparency log over all events: the sequencer and its checkpoints
//   - translog/checkpoint: signed checkpoints: verified, compared and kept
//   - translog/proof: the log's entries, and the file that proves an exec
//   - translog/verify: recomputes a log and compares all evidence with it
//   - translog/witness: follows the log on an auditor's machine
//   - translog/logtest: only tests: verifies a log with other people's libraries
//   - report: what happened in a span of time, and the check of a bundle that proves it
//   - export: records as JSON Lines, CSV and OCSF, and bundles of reports
//   - retention: removes what the rules no longer keep, and respects holds
//
// The room must not know SQL, Docker or the HTTP API, nor how a command runs.
package audit
