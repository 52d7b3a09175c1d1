-- The audit tables. Column names are the JSON names of audit.Record, since to_jsonb makes the events from the row.
--
-- Compared or sorted text has the collation "C", so that the order is by bytes, as in SQLite and in Go.
-- The indexes of lists ascend, although lists are newest first: rows arrive in ascending order, for which PostgreSQL keeps pages full, and
-- reading an index backwards costs nothing. The queries repeat the conditions of partial indexes literally, since the planner cannot use
-- them for a parameter.

-- +goose Up
CREATE TABLE sandbox_execs (
    exec_id          text COLLATE "C" PRIMARY KEY,
    project_id       text COLLATE "C" NOT NULL,
    task_id          text COLLATE "C" NOT NULL,
    conversation_id  text COLLATE "C" NOT NULL,
    agent_id         text COLLATE "C" NOT NULL,
    user_id          text COLLATE "C" NOT NULL,
    skill_id         text COLLATE "C" NOT NULL,
    image            text NOT NULL,
    image_id         text NOT NULL,
    cmd              text NOT NULL,
    args             jsonb NOT NULL,
    cwd              text NOT NULL,
    env_keys         jsonb NOT NULL,
    inputs           jsonb NOT NULL,
    policy_snapshot  jsonb NOT NULL,
    status           text COLLATE "C" NOT NULL,
    exit_code        integer,
    error_reason     text NOT NULL,
    detail           text NOT NULL,
    created_at       timestamptz NOT NULL,
    started_at       timestamptz,
    ended_at         timestamptz,
    duration_ms      bigint NOT NULL,
    artifacts_path   text NOT NULL,
    manifest_digest  text NOT NULL,
    stdout_truncated boolean NOT NULL,
    stderr_truncated boolean NOT NULL,
    stdout_bytes     bigint NOT NULL,
    stderr_bytes     bigint NOT NULL,
    artifacts_bytes  bigint NOT NULL,
    oom_events       bigint NOT NULL,
    node_id          text COLLATE "C" NOT NULL,
    backend          text NOT NULL,
    warm             boolean NOT NULL,
    requested_by     text COLLATE "C" NOT NULL,
    request_digest   text NOT NULL,
    idempotency_key  text COLLATE "C" NOT NULL,
    settings_digest  text NOT NULL
);

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
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    exec_id text COLLATE "C" NOT NULL,
    kind    text NOT NULL,
    at      timestamptz NOT NULL,
    node_id text NOT NULL,
    data    jsonb NOT NULL
);

CREATE INDEX sandbox_exec_events_exec ON sandbox_exec_events (exec_id, seq);

-- +goose StatementBegin
CREATE FUNCTION sandbox_exec_events_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'sandbox_exec_events is append-only' USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER sandbox_exec_events_immutable BEFORE UPDATE OR DELETE ON sandbox_exec_events
    FOR EACH ROW EXECUTE FUNCTION sandbox_exec_events_refuse();
CREATE TRIGGER sandbox_exec_events_kept BEFORE TRUNCATE ON sandbox_exec_events
    FOR EACH STATEMENT EXECUTE FUNCTION sandbox_exec_events_refuse();

CREATE TABLE nodes (
    node_id    text COLLATE "C" PRIMARY KEY,
    version    text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
);

CREATE TABLE installation (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    id       text NOT NULL
);

INSERT INTO installation (id) VALUES (gen_random_uuid()::text);
