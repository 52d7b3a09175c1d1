-- Which version of the skill an exec ran: the digest of its files. Empty for execs of no skill, and for those of before. The index
-- answers who ran a version; it holds the execs of skills only.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN skill_digest TEXT NOT NULL DEFAULT '';

CREATE INDEX sandbox_execs_skill_digest ON sandbox_execs (skill_digest, created_at, exec_id) WHERE skill_digest <> '';
