-- API tokens. Only the SHA-256 of a secret is stored. Revoked tokens are kept, so that their secrets differ from unknown ones and
-- requested_by in the audit rows keeps its meaning.

-- +goose Up
CREATE TABLE tokens (
    id         text COLLATE "C" PRIMARY KEY,
    name       text COLLATE "C" NOT NULL,
    role       text COLLATE "C" NOT NULL,
    projects   jsonb NOT NULL,
    agents     jsonb NOT NULL,
    users      jsonb NOT NULL,
    user_id    text NOT NULL,
    hash       bytea NOT NULL UNIQUE,
    created_at timestamptz NOT NULL,
    revoked_at timestamptz
);

CREATE INDEX tokens_valid ON tokens (role) WHERE revoked_at IS NULL;
