-- The connections that execs asked for, at most 1,000 of each exec: further ones are only counted. seq is the order in which they were asked for. ended_at is
-- NULL while one is open. net_digest of the exec is the digest of its rows, and net_marks
-- has the beginning of each row's own digest.

-- +goose Up
CREATE TABLE sandbox_connections (
    exec_id    text COLLATE "C" NOT NULL,
    seq        bigint NOT NULL,
    protocol   text NOT NULL,
    host       text NOT NULL,
    port       bigint NOT NULL,
    address    text NOT NULL,
    allowed    boolean NOT NULL,
    rule       text NOT NULL,
    secrets    text NOT NULL,
    bytes_out  bigint NOT NULL,
    bytes_in   bigint NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz,
    ending     text NOT NULL,
    detail     text NOT NULL,
    PRIMARY KEY (exec_id, seq)
);

ALTER TABLE sandbox_execs ADD COLUMN net_connections bigint NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN net_denied bigint NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN net_bytes_out bigint NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN net_bytes_in bigint NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN net_digest text NOT NULL DEFAULT '';
ALTER TABLE sandbox_execs ADD COLUMN net_marks text NOT NULL DEFAULT '';

-- +goose StatementBegin
CREATE FUNCTION sandbox_execs_connections_remove() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM sandbox_connections WHERE exec_id = OLD.exec_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER sandbox_execs_connections_gone AFTER DELETE ON sandbox_execs FOR EACH ROW EXECUTE FUNCTION sandbox_execs_connections_remove();
