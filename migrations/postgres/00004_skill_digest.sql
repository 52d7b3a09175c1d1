-- skill_digest is the version of the skill that an exec ran: the digest of its files. It is empty for execs without a skill and for older
-- ones. The index is for lists of the execs of a version; it has execs of skills only.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN skill_digest text COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX sandbox_execs_skill_digest ON sandbox_execs (skill_digest, created_at, exec_id) WHERE skill_digest <> '';
