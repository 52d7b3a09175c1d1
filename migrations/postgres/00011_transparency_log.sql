-- The transparency log of events: its state with the signed checkpoint, an entry for each event, and the tiles of the Merkle tree. A source is a
-- table of events, and the log has every event of it with a seq of at most floor_seq. An entry outlives its event, without the salt.
--
-- Transactions commit in another order than they take a seq. When all transactions before mark_xid have ended, every event with a seq of at most
-- mark_seq is visible or will never be.

-- +goose Up

-- Events are hashed as they are stored, so their data must stay the same text. This rewrites the table.
SET LOCAL TimeZone = 'UTC';
ALTER TABLE sandbox_exec_events ALTER COLUMN data TYPE text USING data::text;

CREATE TABLE audit_log (
    only_row     boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    size         bigint NOT NULL,
    root         bytea NOT NULL CHECK (length(root) = 32),
    checkpoint   text NOT NULL,
    signed_at    timestamptz,
    verifier_key text NOT NULL,
    holder       text COLLATE "C" NOT NULL,
    fence        bigint NOT NULL,
    lease_until  timestamptz NOT NULL
);

INSERT INTO audit_log (size, root, checkpoint, verifier_key, holder, fence, lease_until)
    VALUES (0, decode(repeat('00', 32), 'hex'), '', '', '', 0, to_timestamp(0));

CREATE TABLE audit_log_sources (
    source    text COLLATE "C" PRIMARY KEY,
    floor_seq bigint NOT NULL,
    mark_seq  bigint NOT NULL,
    mark_xid  xid8 NOT NULL
);

INSERT INTO audit_log_sources (source, floor_seq, mark_seq, mark_xid) VALUES ('exec', 0, 0, '0');

CREATE TABLE audit_log_entries (
    idx       bigint PRIMARY KEY CHECK (idx >= 0),
    source    text COLLATE "C" NOT NULL,
    event_seq bigint NOT NULL,
    salt      bytea CHECK (length(salt) = 32),
    entry     bytea NOT NULL CHECK (length(entry) = 32),
    logged_at timestamptz NOT NULL,
    UNIQUE (source, event_seq)
);

-- +goose StatementBegin
CREATE FUNCTION audit_log_entries_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_log_entries is append-only' USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER audit_log_entries_immutable BEFORE UPDATE ON audit_log_entries FOR EACH ROW
    WHEN (NEW.salt IS NOT NULL OR (NEW.idx, NEW.source, NEW.event_seq, NEW.entry, NEW.logged_at) IS DISTINCT FROM (OLD.idx, OLD.source, OLD.event_seq, OLD.entry, OLD.logged_at))
    EXECUTE FUNCTION audit_log_entries_refuse();
CREATE TRIGGER audit_log_entries_kept BEFORE DELETE OR TRUNCATE ON audit_log_entries
    FOR EACH STATEMENT EXECUTE FUNCTION audit_log_entries_refuse();

-- The widest form of each tile; a narrower one is its beginning.
CREATE TABLE audit_log_tiles (
    level  integer NOT NULL,
    n      bigint NOT NULL,
    hashes bytea NOT NULL CHECK (length(hashes) BETWEEN 32 AND 8192),
    PRIMARY KEY (level, n)
);
