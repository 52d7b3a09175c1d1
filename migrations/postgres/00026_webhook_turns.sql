-- Tokens take turns, so what is due is found by token first. Without its query, the address of a webhook that has ended holds no password any more.

-- +goose Up
CREATE INDEX webhook_deliveries_turns ON webhook_deliveries (requested_by, next_at, exec_id, host) WHERE state = 'due';
DROP INDEX webhook_deliveries_due;
UPDATE webhook_deliveries SET url = split_part(url, '?', 1) WHERE state IN ('delivered', 'failed') AND strpos(url, '?') > 0;
