-- Lists of an author's entries are read in order from the index.

-- +goose Up
DROP INDEX registry_entries_author;
CREATE INDEX registry_entries_author ON registry_entries (agent_id, user_id, kind, name);
