-- The audit tables. Column names are the JSON names of audit.Record. Times are microseconds since 1970 in UTC, JSON is text.
--
-- The indexes of lists ascend, although lists are newest first: rows arrive in ascending order, which keeps pages full, and reading an
-- index backwards costs nothing. The queries repeat the conditions of partial indexes literally, so that the planner uses them.

-- +goose Up
CREATE TABLE sandbox_execs (
    exec_id          TEXT NOT NULL PRIMARY KEY,
    project_id       TEXT NOT NULL,
    task_id          TEXT NOT NULL,
    conversation_id  TEXT NOT NULL,
    agent_id         TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    skill_id         TEXT NOT NULL,
    image            TEXT NOT NULL,
    image_id         TEXT NOT NULL,
    cmd              TEXT NOT NULL,
    args             TEXT NOT NULL CHECK (json_valid(args)),
    cwd              TEXT NOT NULL,
    env_keys         TEXT NOT NULL CHECK (json_valid(env_keys)),
    inputs           TEXT NOT NULL CHECK (json_valid(inputs)),
    policy_snapshot  TEXT NOT NULL CHECK (json_valid(policy_snapshot)),
    status           TEXT NOT NULL,
    exit_code        INTEGER,
    error_reason     TEXT NOT NULL,
    detail           TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    started_at       INTEGER,
    ended_at         INTEGER,
    duration_ms      INTEGER NOT NULL,
    artifacts_path   TEXT NOT NULL,
    manifest_digest  TEXT NOT NULL,
    stdout_truncated INTEGER NOT NULL,
    stderr_truncated INTEGER NOT NULL,
    stdout_bytes     INTEGER NOT NULL,
    stderr_bytes     INTEGER NOT NULL,
    artifacts_bytes  INTEGER NOT NULL,
    oom_events       INTEGER NOT NULL,
    node_id          TEXT NOT NULL,
    backend          TEXT NOT NULL,
    warm             INTEGER NOT NULL,
    requested_by     TEXT NOT NULL,
    request_digest   TEXT NOT NULL,
    idempotency_key  TEXT NOT NULL,
    settings_digest  TEXT NOT NULL
) STRICT;

CREATE INDEX sandbox_execs_newest ON sandbox_execs (created_at, exec_id);
CREATE INDEX sandbox_execs_project ON sandbox_execs (project_id, created_at, exec_id);
CREATE INDEX sandbox_execs_status ON sandbox_execs (status, created_at, exec_id);
CREATE INDEX sandbox_execs_requested_by ON sandbox_execs (requested_by, created_at, exec_id);
CREATE INDEX sandbox_execs_task ON sandbox_execs (task_id, created_at, exec_id) WHERE task_id <> '';
CREATE INDEX sandbox_execs_conversation ON sandbox_execs (conversation_id, created_at, exec_id) WHERE conversation_id <> '';
CREATE INDEX sandbox_execs_skill ON sandbox_execs (skill_id, created_at, exec_id) WHERE skill_id <> '';
CREATE INDEX sandbox_execs_user ON sandbox_execs (user_id, created_at, exec_id) WHERE user_id <> '';
CREATE INDEX sandbox_execs_open ON sandbox_execs (node_id) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX sandbox_execs_idempotency ON sandbox_execs (requested_by, idempotency_key) WHERE idempotency_key <> '';

CREATE TABLE sandbox_exec_events (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    exec_id TEXT NOT NULL,
    kind    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    data    TEXT NOT NULL CHECK (json_valid(data))
) STRICT;

CREATE INDEX sandbox_exec_events_exec ON sandbox_exec_events (exec_id, seq);

-- +goose StatementBegin
CREATE TRIGGER sandbox_exec_events_no_update BEFORE UPDATE ON sandbox_exec_events
BEGIN
    SELECT RAISE(ABORT, 'sandbox_exec_events is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER sandbox_exec_events_no_delete BEFORE DELETE ON sandbox_exec_events
BEGIN
    SELECT RAISE(ABORT, 'sandbox_exec_events is append-only');
END;
-- +goose StatementEnd
-- INSERT OR REPLACE removes the old row without the trigger above.
-- +goose StatementBegin
CREATE TRIGGER sandbox_exec_events_no_replace BEFORE INSERT ON sandbox_exec_events
WHEN EXISTS (SELECT 1 FROM sandbox_exec_events WHERE seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'sandbox_exec_events is append-only');
END;
-- +goose StatementEnd

CREATE TABLE nodes (
    node_id    TEXT NOT NULL PRIMARY KEY,
    version    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE installation (
    only_row INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    id       TEXT NOT NULL
) STRICT;

-- A random (version 4) UUID.
INSERT INTO installation (id) VALUES (lower(
    hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
    substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))));
