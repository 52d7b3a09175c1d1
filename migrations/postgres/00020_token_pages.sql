-- Pages of tokens, and of holds; the first token that is not a runner's.

-- +goose Up
CREATE INDEX tokens_newest ON tokens (created_at, id);
CREATE INDEX tokens_newest_valid ON tokens (created_at, id) WHERE revoked_at IS NULL;
CREATE INDEX tokens_access ON tokens (id) WHERE role <> 'runner';
CREATE INDEX audit_holds_oldest ON audit_holds (added_at, id) WHERE removed_at IS NULL;
