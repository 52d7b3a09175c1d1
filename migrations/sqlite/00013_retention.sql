-- Retention of the audit. A hold keeps execs; a tombstone tells that an exec's record, or its artifacts, were removed, and by which rule. An event
-- can be deleted, and its entry in the transparency log can lose its salt, only once audit_tombstone_events has its seq; a row, only once it has a
-- tombstone. audit_removals are the artifacts of tombstones that are still to be removed from the disk.

-- +goose Up
CREATE TABLE audit_holds (
    id         TEXT NOT NULL PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('project', 'user', 'task', 'exec')),
    value      TEXT NOT NULL CHECK (value <> ''),
    reason     TEXT NOT NULL,
    added_at   INTEGER NOT NULL,
    added_by   TEXT NOT NULL,
    removed_at INTEGER,
    removed_by TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX audit_holds_active ON audit_holds (kind, value) WHERE removed_at IS NULL;

CREATE TABLE audit_tombstones (
    exec_id      TEXT NOT NULL,
    part         TEXT NOT NULL CHECK (part IN ('record', 'artifacts')),
    project_id   TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    rule         TEXT NOT NULL,
    days         INTEGER NOT NULL,
    events       INTEGER NOT NULL,
    removed_at   INTEGER NOT NULL,
    PRIMARY KEY (exec_id, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit_tombstone_events (
    event_seq INTEGER NOT NULL PRIMARY KEY,
    exec_id   TEXT NOT NULL
) STRICT;

CREATE TABLE audit_removals (
    exec_id    TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL,
    queued_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_removals_oldest ON audit_removals (queued_at, exec_id);

-- The run of retention: its lease, what the last one removed, and the last time that the clock was plausible.
CREATE TABLE audit_retention (
    only_row    INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    holder      TEXT NOT NULL DEFAULT '',
    lease_until    INTEGER NOT NULL DEFAULT 0,
    clock_at    INTEGER,
    began_at    INTEGER,
    ended_at    INTEGER,
    records     INTEGER NOT NULL DEFAULT 0,
    artifacts   INTEGER NOT NULL DEFAULT 0,
    projects    INTEGER NOT NULL DEFAULT 0,
    held        INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO audit_retention DEFAULT VALUES;

DROP TRIGGER sandbox_exec_events_no_delete;
-- +goose StatementBegin
CREATE TRIGGER sandbox_exec_events_no_delete BEFORE DELETE ON sandbox_exec_events
WHEN NOT EXISTS (SELECT 1 FROM audit_tombstone_events WHERE event_seq = OLD.seq AND exec_id = OLD.exec_id)
BEGIN
    SELECT RAISE(ABORT, 'sandbox_exec_events is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER sandbox_execs_no_delete BEFORE DELETE ON sandbox_execs
WHEN NOT EXISTS (SELECT 1 FROM audit_tombstones WHERE exec_id = OLD.exec_id AND part = 'record')
BEGIN
    SELECT RAISE(ABORT, 'a row of sandbox_execs goes only with a tombstone');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_log_entries_keep_salt BEFORE UPDATE ON audit_log_entries
WHEN OLD.source = 'exec' AND NEW.salt IS NULL AND NOT EXISTS (SELECT 1 FROM audit_tombstone_events WHERE event_seq = OLD.event_seq)
BEGIN
    SELECT RAISE(ABORT, 'an entry loses its salt only with a tombstone');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_tombstones_no_update BEFORE UPDATE ON audit_tombstones
BEGIN
    SELECT RAISE(ABORT, 'audit_tombstones is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_tombstones_no_delete BEFORE DELETE ON audit_tombstones
BEGIN
    SELECT RAISE(ABORT, 'audit_tombstones is append-only');
END;
-- +goose StatementEnd
-- INSERT OR REPLACE removes the old row without the trigger above.
-- +goose StatementBegin
CREATE TRIGGER audit_tombstones_no_replace BEFORE INSERT ON audit_tombstones
WHEN EXISTS (SELECT 1 FROM audit_tombstones WHERE exec_id = NEW.exec_id AND part = NEW.part)
BEGIN
    SELECT RAISE(ABORT, 'audit_tombstones is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_tombstone_events_no_update BEFORE UPDATE ON audit_tombstone_events
BEGIN
    SELECT RAISE(ABORT, 'audit_tombstone_events is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_tombstone_events_no_delete BEFORE DELETE ON audit_tombstone_events
BEGIN
    SELECT RAISE(ABORT, 'audit_tombstone_events is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_tombstone_events_no_replace BEFORE INSERT ON audit_tombstone_events
WHEN EXISTS (SELECT 1 FROM audit_tombstone_events WHERE event_seq = NEW.event_seq)
BEGIN
    SELECT RAISE(ABORT, 'audit_tombstone_events is append-only');
END;
-- +goose StatementEnd
-- A hold is removed once, and stays as a row.
-- +goose StatementBegin
CREATE TRIGGER audit_holds_no_update BEFORE UPDATE ON audit_holds
WHEN OLD.removed_at IS NOT NULL OR NEW.removed_at IS NULL OR NEW.id <> OLD.id OR NEW.kind <> OLD.kind OR NEW.value <> OLD.value OR NEW.reason <> OLD.reason
    OR NEW.added_at <> OLD.added_at OR NEW.added_by <> OLD.added_by
BEGIN
    SELECT RAISE(ABORT, 'audit_holds is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_holds_no_delete BEFORE DELETE ON audit_holds
BEGIN
    SELECT RAISE(ABORT, 'audit_holds is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_holds_no_replace BEFORE INSERT ON audit_holds
WHEN EXISTS (SELECT 1 FROM audit_holds WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'audit_holds is append-only');
END;
-- +goose StatementEnd
