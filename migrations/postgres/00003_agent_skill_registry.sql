-- The current versions of skills: one pointer for an agent's baseline (user_id is null), and one for each user who has another version or
-- is pinned to one. A null digest: this user has deleted the skill. Comparisons are by bytes.

-- +goose Up
CREATE TABLE agent_skill_registry (
    id          text COLLATE "C" PRIMARY KEY CHECK (octet_length(id) = 36),
    agent_id    text COLLATE "C" NOT NULL CHECK (octet_length(agent_id) BETWEEN 1 AND 255),
    skill_id    text COLLATE "C" NOT NULL CHECK (octet_length(skill_id) BETWEEN 1 AND 255),
    user_id     text COLLATE "C" CHECK (octet_length(user_id) BETWEEN 1 AND 255),
    digest      text COLLATE "C" CHECK (digest ~ '^[0-9a-f]{64}$'),
    base_digest text COLLATE "C" CHECK (base_digest ~ '^[0-9a-f]{64}$'),
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL CHECK (updated_at >= created_at),
    CHECK (user_id IS NOT NULL OR (digest IS NOT NULL AND base_digest IS NULL))
);

-- One pointer for each key, and the order of lists. There are two, since null equals nothing in a unique index.
CREATE UNIQUE INDEX agent_skill_registry_baseline ON agent_skill_registry (agent_id, skill_id) WHERE user_id IS NULL;
CREATE UNIQUE INDEX agent_skill_registry_user ON agent_skill_registry (agent_id, user_id, skill_id) WHERE user_id IS NOT NULL;

-- Which versions are in use, for garbage collection.
CREATE INDEX agent_skill_registry_digest ON agent_skill_registry (agent_id, skill_id, digest) WHERE digest IS NOT NULL;
CREATE INDEX agent_skill_registry_base ON agent_skill_registry (agent_id, skill_id, base_digest) WHERE base_digest IS NOT NULL;
