-- The connections that execs asked for, at most 1,000 of each exec: further ones are only counted. seq is the order in which they were asked for. ended_at is
-- NULL while one is open. net_digest of the exec is the digest of its rows, and net_marks
-- has the beginning of each row's own digest.

-- +goose Up
CREATE TABLE sandbox_connections (
    exec_id    TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    protocol   TEXT NOT NULL,
    host       TEXT NOT NULL,
    port       INTEGER NOT NULL,
    address    TEXT NOT NULL,
    allowed    INTEGER NOT NULL,
    rule       TEXT NOT NULL,
    secrets    TEXT NOT NULL,
    bytes_out  INTEGER NOT NULL,
    bytes_in   INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,
    ending     TEXT NOT NULL,
    detail     TEXT NOT NULL,
    PRIMARY KEY (exec_id, seq)
) STRICT, WITHOUT ROWID;

ALTER TABLE sandbox_execs ADD COLUMN net_connections INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN net_denied INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN net_bytes_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN net_bytes_in INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN net_digest TEXT NOT NULL DEFAULT '';
ALTER TABLE sandbox_execs ADD COLUMN net_marks TEXT NOT NULL DEFAULT '';

-- +goose StatementBegin
CREATE TRIGGER sandbox_execs_connections_gone AFTER DELETE ON sandbox_execs
BEGIN
    DELETE FROM sandbox_connections WHERE exec_id = OLD.exec_id;
END;
-- +goose StatementEnd
