-- large_lists describes the lists of an exec that are too large to be stored whole, or to be repeated in every event. The partial indexes
-- are for lists by agent, by error_reason, and of failed commands; the index of the newest has all columns of statistics.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN large_lists jsonb NOT NULL DEFAULT '{}';

CREATE INDEX sandbox_execs_agent ON sandbox_execs (agent_id, created_at, exec_id) WHERE agent_id <> '';
CREATE INDEX sandbox_execs_reason ON sandbox_execs (error_reason, created_at, exec_id) WHERE error_reason <> '';
CREATE INDEX sandbox_execs_exit ON sandbox_execs (created_at, exec_id) WHERE exit_code <> 0;

DROP INDEX sandbox_execs_newest;
CREATE INDEX sandbox_execs_newest ON sandbox_execs (created_at, exec_id)
    INCLUDE (status, error_reason, requested_by, skill_id, backend, duration_ms);
