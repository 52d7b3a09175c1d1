-- The registry of skills and agents that users publish for each other: the current version of each, the state of each user's installation,
-- and a record of every change. fold is the name as systems see it that ignore case; text is what a search looks in. Comparisons are by bytes.

-- +goose Up
CREATE TABLE registry_entries (
    kind               text COLLATE "C" NOT NULL CHECK (kind IN ('skill', 'agent')),
    name               text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
    fold               text COLLATE "C" NOT NULL,
    text               text COLLATE "C" NOT NULL,
    version            bigint NOT NULL CHECK (version >= 1),
    digest             text COLLATE "C" NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
    description        text COLLATE "C" NOT NULL,
    files              bigint NOT NULL,
    bytes              bigint NOT NULL,
    agent_id           text COLLATE "C" NOT NULL,
    user_id            text COLLATE "C" NOT NULL,
    requested_by       text COLLATE "C" NOT NULL,
    first_published_at timestamptz NOT NULL,
    published_at       timestamptz NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE UNIQUE INDEX registry_entries_fold ON registry_entries (kind, fold);
CREATE INDEX registry_entries_author ON registry_entries (agent_id, user_id);

CREATE TABLE registry_installs (
    agent_id   text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL CHECK (kind IN ('skill', 'agent')),
    name       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    state      text COLLATE "C" NOT NULL CHECK (state IN ('installing', 'installed', 'failed', 'removing', 'removed')),
    version    bigint NOT NULL,
    digest     text COLLATE "C" NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (agent_id, user_id, kind, name)
);

CREATE TABLE registry_events (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    kind         text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    version      bigint NOT NULL,
    digest       text COLLATE "C" NOT NULL,
    action       text COLLATE "C" NOT NULL,
    agent_id     text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    requested_by text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL
);

CREATE INDEX registry_events_name ON registry_events (kind, name, at, id);

-- +goose StatementBegin
CREATE FUNCTION registry_events_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'registry_events is append-only' USING ERRCODE = 'restrict_violation';
END
$$;
-- +goose StatementEnd

CREATE TRIGGER registry_events_immutable BEFORE UPDATE OR DELETE ON registry_events
    FOR EACH ROW EXECUTE FUNCTION registry_events_refuse();
CREATE TRIGGER registry_events_kept BEFORE TRUNCATE ON registry_events
    FOR EACH STATEMENT EXECUTE FUNCTION registry_events_refuse();
