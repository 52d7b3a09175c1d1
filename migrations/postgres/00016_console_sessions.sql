-- Sessions of browsers that signed in to the console with a token. Only the SHA-256 of a session's secret is stored. begun_at is by the
-- database's clock; a session is valid for 12 hours, unless its token is revoked.

-- +goose Up
CREATE TABLE console_sessions (
    hash     bytea PRIMARY KEY,
    token_id text COLLATE "C" NOT NULL,
    begun_at timestamptz NOT NULL
);

CREATE INDEX console_sessions_token ON console_sessions (token_id, begun_at);
CREATE INDEX console_sessions_begun ON console_sessions (begun_at);
