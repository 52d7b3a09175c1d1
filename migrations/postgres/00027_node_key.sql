-- key_check is a digest by the node's hmac.key: nodes of one database need the same key. Empty for a node of an older version.

-- +goose Up
ALTER TABLE nodes ADD COLUMN key_check text NOT NULL DEFAULT '';
