-- The transparency log of events: its state with the signed checkpoint, an entry for each event, and the tiles of the Merkle tree. A source is a
-- table of events, and the log has every event of it with a seq of at most floor_seq. An entry outlives its event, without the salt.

-- +goose Up
CREATE TABLE audit_log (
    only_row     INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    size         INTEGER NOT NULL,
    root         BLOB NOT NULL CHECK (length(root) = 32),
    checkpoint   TEXT NOT NULL,
    signed_at    INTEGER,
    verifier_key TEXT NOT NULL,
    holder       TEXT NOT NULL,
    fence        INTEGER NOT NULL,
    lease_until  INTEGER NOT NULL
) STRICT;

INSERT INTO audit_log (size, root, checkpoint, verifier_key, holder, fence, lease_until) VALUES (0, zeroblob(32), '', '', '', 0, 0);

CREATE TABLE audit_log_sources (
    source    TEXT NOT NULL PRIMARY KEY,
    floor_seq INTEGER NOT NULL
) STRICT;

INSERT INTO audit_log_sources (source, floor_seq) VALUES ('exec', 0);

CREATE TABLE audit_log_entries (
    idx       INTEGER NOT NULL PRIMARY KEY CHECK (idx >= 0),
    source    TEXT NOT NULL,
    event_seq INTEGER NOT NULL,
    salt      BLOB CHECK (length(salt) = 32),
    entry     BLOB NOT NULL CHECK (length(entry) = 32),
    logged_at INTEGER NOT NULL,
    UNIQUE (source, event_seq)
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER audit_log_entries_no_update BEFORE UPDATE ON audit_log_entries
WHEN NEW.salt IS NOT NULL OR NEW.idx <> OLD.idx OR NEW.source <> OLD.source OR NEW.event_seq <> OLD.event_seq OR NEW.entry <> OLD.entry
    OR NEW.logged_at <> OLD.logged_at
BEGIN
    SELECT RAISE(ABORT, 'audit_log_entries is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_log_entries_no_delete BEFORE DELETE ON audit_log_entries
BEGIN
    SELECT RAISE(ABORT, 'audit_log_entries is append-only');
END;
-- +goose StatementEnd
-- INSERT OR REPLACE removes the old row without the trigger above.
-- +goose StatementBegin
CREATE TRIGGER audit_log_entries_no_replace BEFORE INSERT ON audit_log_entries
WHEN EXISTS (SELECT 1 FROM audit_log_entries WHERE idx = NEW.idx OR (source = NEW.source AND event_seq = NEW.event_seq))
BEGIN
    SELECT RAISE(ABORT, 'audit_log_entries is append-only');
END;
-- +goose StatementEnd

-- The widest form of each tile; a narrower one is its beginning.
CREATE TABLE audit_log_tiles (
    level  INTEGER NOT NULL,
    n      INTEGER NOT NULL,
    hashes BLOB NOT NULL CHECK (length(hashes) BETWEEN 32 AND 8192),
    PRIMARY KEY (level, n)
) STRICT, WITHOUT ROWID;
