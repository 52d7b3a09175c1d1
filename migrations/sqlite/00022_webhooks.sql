-- An exec whose request has a callback_url gets its delivery before its row. The transaction that ends the row makes the delivery due, by a trigger, so that
-- no way to end a row can leave it out. Until it was delivered, next_at is the next try; while a try is made, the end of its lease. tries is a JSON list.
-- The secrets sign deliveries; they are sealed with the key of the installation.

-- +goose Up
CREATE TABLE webhook_deliveries (
    exec_id      TEXT NOT NULL PRIMARY KEY,
    requested_by TEXT NOT NULL,
    host         TEXT NOT NULL,
    url          TEXT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('open', 'due', 'delivered', 'failed')),
    attempts     INTEGER NOT NULL DEFAULT 0,
    created_at   INTEGER NOT NULL,
    next_at      INTEGER NOT NULL,
    tries        TEXT NOT NULL DEFAULT '[]'
) STRICT;

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (host, next_at, exec_id) WHERE state = 'due';
CREATE INDEX webhook_deliveries_token ON webhook_deliveries (requested_by, state) WHERE state IN ('open', 'due');
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (created_at) WHERE state = 'open';

CREATE TABLE webhook_secrets (
    requested_by   TEXT NOT NULL PRIMARY KEY,
    sealed         BLOB NOT NULL,
    previous       BLOB,
    previous_until INTEGER
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER sandbox_execs_webhook AFTER UPDATE OF status ON sandbox_execs
WHEN OLD.status IN ('queued', 'running') AND NEW.status NOT IN ('queued', 'running')
BEGIN
    UPDATE webhook_deliveries SET state = 'due', next_at = coalesce(NEW.ended_at, 0) WHERE exec_id = NEW.exec_id AND state = 'open';
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER sandbox_execs_webhook_gone AFTER DELETE ON sandbox_execs
BEGIN
    DELETE FROM webhook_deliveries WHERE exec_id = OLD.exec_id;
END;
-- +goose StatementEnd
