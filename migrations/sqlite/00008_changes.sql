-- Rows are of commands (exec) or of changes of files (change), which have the SHA-256 of the file's content before and after. Rows of changes from
-- before this migration have the digests among their arguments. A command has a digest of its request, which a change does not have.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN kind TEXT NOT NULL DEFAULT 'exec' CHECK (kind IN ('exec', 'change'));
ALTER TABLE sandbox_execs ADD COLUMN sha256_before TEXT NOT NULL DEFAULT '';
ALTER TABLE sandbox_execs ADD COLUMN sha256_after TEXT NOT NULL DEFAULT '';

UPDATE sandbox_execs SET kind = 'change'
WHERE cmd IN ('files.write', 'files.edit', 'feishu.download', 'feishu.upload') AND request_digest = '' AND image = '' AND backend <> '' AND cwd = '/workspace';

UPDATE sandbox_execs SET sha256_before = json_extract(args, '$[1]'), sha256_after = json_extract(args, '$[2]')
WHERE kind = 'change' AND cmd IN ('files.write', 'files.edit') AND json_array_length(args) = 3;

CREATE INDEX sandbox_execs_changes ON sandbox_execs (created_at, exec_id) WHERE kind = 'change';

DROP INDEX sandbox_execs_newest;
CREATE INDEX sandbox_execs_newest ON sandbox_execs (created_at, exec_id, status, error_reason, requested_by, skill_id, backend, duration_ms, kind);
