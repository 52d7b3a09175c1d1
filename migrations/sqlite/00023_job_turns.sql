-- Tokens take turns, so their jobs are found by token first.

-- +goose Up
CREATE INDEX sandbox_exec_jobs_turns ON sandbox_exec_jobs (requested_by, rank, queued_at, exec_id) WHERE taken_by = '';
DROP INDEX sandbox_exec_jobs_waiting;
