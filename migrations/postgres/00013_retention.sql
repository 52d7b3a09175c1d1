-- Retention of the audit. A hold keeps execs; a tombstone tells that an exec's record, or its artifacts, were removed, and by which rule. An event
-- can be deleted, and its entry in the transparency log can lose its salt, only once audit_tombstone_events has its seq; a row, only once it has a
-- tombstone. audit_removals are the artifacts of tombstones that are still to be removed from the disk.

-- +goose Up
CREATE TABLE audit_holds (
    id         text COLLATE "C" PRIMARY KEY,
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('project', 'user', 'task', 'exec')),
    value      text COLLATE "C" NOT NULL CHECK (value <> ''),
    reason     text NOT NULL,
    added_at   timestamptz NOT NULL,
    added_by   text NOT NULL,
    removed_at timestamptz,
    removed_by text NOT NULL DEFAULT ''
);

CREATE INDEX audit_holds_active ON audit_holds (kind, value) WHERE removed_at IS NULL;

CREATE TABLE audit_tombstones (
    exec_id      text COLLATE "C" NOT NULL,
    part         text COLLATE "C" NOT NULL CHECK (part IN ('record', 'artifacts')),
    project_id   text COLLATE "C" NOT NULL,
    requested_by text COLLATE "C" NOT NULL,
    rule         text NOT NULL,
    days         bigint NOT NULL,
    events       bigint NOT NULL,
    removed_at   timestamptz NOT NULL,
    PRIMARY KEY (exec_id, part)
);

CREATE TABLE audit_tombstone_events (
    event_seq bigint PRIMARY KEY,
    exec_id   text COLLATE "C" NOT NULL
);

CREATE TABLE audit_removals (
    exec_id    text COLLATE "C" PRIMARY KEY,
    project_id text COLLATE "C" NOT NULL,
    queued_at  timestamptz NOT NULL
);

CREATE INDEX audit_removals_oldest ON audit_removals (queued_at, exec_id);

-- The run of retention: its lease, what the last one removed, and the last time that the clock was plausible.
CREATE TABLE audit_retention (
    only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    holder      text COLLATE "C" NOT NULL DEFAULT '',
    lease_until timestamptz NOT NULL DEFAULT to_timestamp(0),
    clock_at    timestamptz,
    began_at    timestamptz,
    ended_at    timestamptz,
    records     bigint NOT NULL DEFAULT 0,
    artifacts   bigint NOT NULL DEFAULT 0,
    projects    bigint NOT NULL DEFAULT 0,
    held        bigint NOT NULL DEFAULT 0
);

INSERT INTO audit_retention DEFAULT VALUES;

-- +goose StatementBegin
CREATE FUNCTION audit_retention_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION sandbox_exec_events_refuse_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM audit_tombstone_events WHERE event_seq = OLD.seq AND exec_id = OLD.exec_id) THEN
        RAISE EXCEPTION 'sandbox_exec_events is append-only' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;
-- +goose StatementEnd
DROP TRIGGER sandbox_exec_events_immutable ON sandbox_exec_events;
CREATE TRIGGER sandbox_exec_events_immutable BEFORE UPDATE ON sandbox_exec_events
    FOR EACH ROW EXECUTE FUNCTION sandbox_exec_events_refuse();
CREATE TRIGGER sandbox_exec_events_no_delete BEFORE DELETE ON sandbox_exec_events
    FOR EACH ROW EXECUTE FUNCTION sandbox_exec_events_refuse_delete();

-- +goose StatementBegin
CREATE FUNCTION sandbox_execs_refuse_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM audit_tombstones WHERE exec_id = OLD.exec_id AND part = 'record') THEN
        RAISE EXCEPTION 'a row of sandbox_execs goes only with a tombstone' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER sandbox_execs_no_delete BEFORE DELETE ON sandbox_execs
    FOR EACH ROW EXECUTE FUNCTION sandbox_execs_refuse_delete();
CREATE TRIGGER sandbox_execs_kept BEFORE TRUNCATE ON sandbox_execs
    FOR EACH STATEMENT EXECUTE FUNCTION audit_retention_refuse();

-- +goose StatementBegin
CREATE FUNCTION audit_log_entries_keep_salt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM audit_tombstone_events WHERE event_seq = OLD.event_seq) THEN
        RAISE EXCEPTION 'an entry loses its salt only with a tombstone' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER audit_log_entries_keep_salt BEFORE UPDATE ON audit_log_entries FOR EACH ROW
    WHEN (OLD.source = 'exec' AND NEW.salt IS NULL) EXECUTE FUNCTION audit_log_entries_keep_salt();

CREATE TRIGGER audit_tombstones_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_tombstones
    FOR EACH STATEMENT EXECUTE FUNCTION audit_retention_refuse();
CREATE TRIGGER audit_tombstone_events_immutable BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_tombstone_events
    FOR EACH STATEMENT EXECUTE FUNCTION audit_retention_refuse();

-- A hold is removed once, and stays as a row.
CREATE TRIGGER audit_holds_immutable BEFORE UPDATE ON audit_holds FOR EACH ROW
    WHEN (OLD.removed_at IS NOT NULL OR NEW.removed_at IS NULL
        OR (NEW.id, NEW.kind, NEW.value, NEW.reason, NEW.added_at, NEW.added_by) IS DISTINCT FROM (OLD.id, OLD.kind, OLD.value, OLD.reason, OLD.added_at, OLD.added_by))
    EXECUTE FUNCTION audit_retention_refuse();
CREATE TRIGGER audit_holds_kept BEFORE DELETE OR TRUNCATE ON audit_holds
    FOR EACH STATEMENT EXECUTE FUNCTION audit_retention_refuse();
