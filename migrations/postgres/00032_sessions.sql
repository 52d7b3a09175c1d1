-- session_id is the exec whose container an exec has run in, or the exec itself if its container stays for others: a session. session_seq is the place of
-- an exec among the execs of its session, from 1; 0 for the session. context is the session's interpreter that has run an exec.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN session_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sandbox_execs ADD COLUMN session_seq bigint NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN context text NOT NULL DEFAULT '';

CREATE INDEX sandbox_execs_session ON sandbox_execs (session_id, created_at, exec_id) WHERE session_id <> '';
CREATE INDEX sandbox_execs_sessions ON sandbox_execs (created_at, exec_id) WHERE session_id = exec_id;
