-- The registry of skills and agents that users publish for each other: the current version of each, the state of each user's installation,
-- and a record of every change. fold is the name as systems see it that ignore case; text is what a search looks in. Comparisons are by bytes.

-- +goose Up
CREATE TABLE registry_entries (
    kind               TEXT NOT NULL CHECK (kind IN ('skill', 'agent')),
    name               TEXT NOT NULL CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 255),
    fold               TEXT NOT NULL,
    text               TEXT NOT NULL,
    version            INTEGER NOT NULL CHECK (version >= 1),
    digest             TEXT NOT NULL CHECK (length(CAST(digest AS BLOB)) = 64 AND digest NOT GLOB '*[^0-9a-f]*'),
    description        TEXT NOT NULL,
    files              INTEGER NOT NULL,
    bytes              INTEGER NOT NULL,
    agent_id           TEXT NOT NULL,
    user_id            TEXT NOT NULL,
    requested_by       TEXT NOT NULL,
    first_published_at INTEGER NOT NULL,
    published_at       INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;

CREATE UNIQUE INDEX registry_entries_fold ON registry_entries (kind, fold);
CREATE INDEX registry_entries_author ON registry_entries (agent_id, user_id);

CREATE TABLE registry_installs (
    agent_id   TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('skill', 'agent')),
    name       TEXT NOT NULL,
    id         TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('installing', 'installed', 'failed', 'removing', 'removed')),
    version    INTEGER NOT NULL,
    digest     TEXT NOT NULL,
    changed_at INTEGER NOT NULL,
    PRIMARY KEY (agent_id, user_id, kind, name)
) STRICT;

CREATE TABLE registry_events (
    id           TEXT NOT NULL PRIMARY KEY,
    kind         TEXT NOT NULL,
    name         TEXT NOT NULL,
    version      INTEGER NOT NULL,
    digest       TEXT NOT NULL,
    action       TEXT NOT NULL,
    agent_id     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    at           INTEGER NOT NULL
) STRICT;

CREATE INDEX registry_events_name ON registry_events (kind, name, at, id);

-- +goose StatementBegin
CREATE TRIGGER registry_events_no_update BEFORE UPDATE ON registry_events
BEGIN
    SELECT RAISE(ABORT, 'registry_events is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER registry_events_no_delete BEFORE DELETE ON registry_events
BEGIN
    SELECT RAISE(ABORT, 'registry_events is append-only');
END;
-- +goose StatementEnd
-- INSERT OR REPLACE removes the old row without the trigger above.
-- +goose StatementBegin
CREATE TRIGGER registry_events_no_replace BEFORE INSERT ON registry_events
WHEN EXISTS (SELECT 1 FROM registry_events WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'registry_events is append-only');
END;
-- +goose StatementEnd
