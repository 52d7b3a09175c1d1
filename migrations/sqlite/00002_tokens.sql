-- API tokens. Only the SHA-256 of a secret is stored. Revoked tokens are kept, so that their secrets differ from unknown ones and
-- requested_by in the audit rows keeps its meaning.

-- +goose Up
CREATE TABLE tokens (
    id         TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    projects   TEXT NOT NULL CHECK (json_valid(projects)),
    agents     TEXT NOT NULL CHECK (json_valid(agents)),
    users      TEXT NOT NULL CHECK (json_valid(users)),
    user_id    TEXT NOT NULL,
    hash       BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT;

CREATE INDEX tokens_valid ON tokens (role) WHERE revoked_at IS NULL;
