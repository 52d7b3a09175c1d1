-- People who signed in to the console by OIDC. An id is "oidc:", the issuer, "#" and the subject; it is the token_id of their sessions, and
-- requested_by of their execs. The role is that of the last sign-in.

-- +goose Up
CREATE TABLE console_people (
    id         TEXT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    first_at   INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    blocked_at INTEGER
) STRICT;

CREATE INDEX console_people_first ON console_people (first_at, id);
