-- Administrative events: who created a token, started a node, promoted a baseline, and so on. They are a source of the transparency log.

-- +goose Up
CREATE TABLE admin_events (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    node_id    TEXT NOT NULL,
    actor_type TEXT NOT NULL,
    actor_id   TEXT NOT NULL,
    actor_name TEXT NOT NULL,
    kind       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    data       TEXT NOT NULL CHECK (json_valid(data))
) STRICT;

CREATE INDEX admin_events_newest ON admin_events (at, seq);
CREATE INDEX admin_events_kind ON admin_events (kind, at, seq);
CREATE INDEX admin_events_actor ON admin_events (actor_id, at, seq);
CREATE INDEX admin_events_subject ON admin_events (subject, at, seq);

-- +goose StatementBegin
CREATE TRIGGER admin_events_no_update BEFORE UPDATE ON admin_events
BEGIN
    SELECT RAISE(ABORT, 'admin_events is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER admin_events_no_delete BEFORE DELETE ON admin_events
BEGIN
    SELECT RAISE(ABORT, 'admin_events is append-only');
END;
-- +goose StatementEnd
-- INSERT OR REPLACE removes the old row without the trigger above.
-- +goose StatementBegin
CREATE TRIGGER admin_events_no_replace BEFORE INSERT ON admin_events
WHEN EXISTS (SELECT 1 FROM admin_events WHERE seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'admin_events is append-only');
END;
-- +goose StatementEnd

INSERT INTO audit_log_sources (source, floor_seq) VALUES ('admin', 0);
