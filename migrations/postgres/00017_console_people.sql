-- People who signed in to the console by OIDC. An id is "oidc:", the issuer, "#" and the subject; it is the token_id of their sessions, and
-- requested_by of their execs. The role is that of the last sign-in.

-- +goose Up
CREATE TABLE console_people (
    id         text COLLATE "C" PRIMARY KEY,
    name       text NOT NULL,
    role       text COLLATE "C" NOT NULL,
    first_at   timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    blocked_at timestamptz
);

CREATE INDEX console_people_first ON console_people (first_at, id);
