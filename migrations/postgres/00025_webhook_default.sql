-- callback_url is where execs of the token are told whose request names no other address; empty: nowhere.

-- +goose Up
ALTER TABLE webhook_secrets ADD COLUMN callback_url text NOT NULL DEFAULT '';
