-- Tokens take turns, so what is due is found by token first.

-- +goose Up
CREATE INDEX webhook_deliveries_turns ON webhook_deliveries (requested_by, next_at, exec_id, host) WHERE state = 'due';
DROP INDEX webhook_deliveries_due;
