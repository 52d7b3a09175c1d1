-- Administrative events: who created a token, started a node, promoted a baseline, and so on. They are a source of the transparency log.
-- Events are hashed as they are stored, so data is text. PostgreSQL limits entries of indexes to 2,704 bytes; texts have at most 512.

-- +goose Up
CREATE TABLE admin_events (
    seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL,
    node_id    text NOT NULL,
    actor_type text NOT NULL,
    actor_id   text COLLATE "C" NOT NULL,
    actor_name text NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    subject    text COLLATE "C" NOT NULL,
    data       text NOT NULL
);

CREATE INDEX admin_events_newest ON admin_events (at, seq);
CREATE INDEX admin_events_kind ON admin_events (kind, at, seq);
CREATE INDEX admin_events_actor ON admin_events (actor_id, at, seq);
CREATE INDEX admin_events_subject ON admin_events (subject, at, seq);

-- +goose StatementBegin
CREATE FUNCTION admin_events_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'admin_events is append-only' USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER admin_events_immutable BEFORE UPDATE OR DELETE ON admin_events
    FOR EACH ROW EXECUTE FUNCTION admin_events_refuse();
CREATE TRIGGER admin_events_kept BEFORE TRUNCATE ON admin_events
    FOR EACH STATEMENT EXECUTE FUNCTION admin_events_refuse();

INSERT INTO audit_log_sources (source, floor_seq, mark_seq, mark_xid) VALUES ('admin', 0, 0, '0');
