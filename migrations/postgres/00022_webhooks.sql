-- An exec whose request has a callback_url gets its delivery before its row. The transaction that ends the row makes the delivery due, by a trigger, so that
-- no way to end a row can leave it out. Until it was delivered, next_at is the next try; while a try is made, the end of its lease. tries is a JSON list.
-- The secrets sign deliveries; they are sealed with the key of the installation.

-- +goose Up
CREATE TABLE webhook_deliveries (
    exec_id      text COLLATE "C" PRIMARY KEY,
    requested_by text COLLATE "C" NOT NULL,
    host         text COLLATE "C" NOT NULL,
    url          text NOT NULL,
    state        text NOT NULL CHECK (state IN ('open', 'due', 'delivered', 'failed')),
    attempts     integer NOT NULL DEFAULT 0,
    created_at   timestamptz NOT NULL,
    next_at      timestamptz NOT NULL,
    tries        text NOT NULL DEFAULT '[]'
);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (host, next_at, exec_id) WHERE state = 'due';
CREATE INDEX webhook_deliveries_token ON webhook_deliveries (requested_by, state) WHERE state IN ('open', 'due');
CREATE INDEX webhook_deliveries_open ON webhook_deliveries (created_at) WHERE state = 'open';

CREATE TABLE webhook_secrets (
    requested_by   text COLLATE "C" PRIMARY KEY,
    sealed         bytea NOT NULL,
    previous       bytea,
    previous_until timestamptz
);

-- +goose StatementBegin
CREATE FUNCTION sandbox_execs_webhook_due() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE webhook_deliveries SET state = 'due', next_at = least(NEW.ended_at, statement_timestamp()) WHERE exec_id = NEW.exec_id AND state = 'open';
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER sandbox_execs_webhook AFTER UPDATE OF status ON sandbox_execs FOR EACH ROW
    WHEN (OLD.status IN ('queued', 'running') AND NEW.status NOT IN ('queued', 'running')) EXECUTE FUNCTION sandbox_execs_webhook_due();

-- +goose StatementBegin
CREATE FUNCTION sandbox_execs_webhook_remove() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM webhook_deliveries WHERE exec_id = OLD.exec_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER sandbox_execs_webhook_gone AFTER DELETE ON sandbox_execs FOR EACH ROW EXECUTE FUNCTION sandbox_execs_webhook_remove();
