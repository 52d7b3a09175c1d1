-- replay_of is the exec that an exec runs again. The values of env_hmacs and stdin_hmac are keyed digests: rows have neither environment values nor
-- standard input. inputs_kept says whether the contents of the inputs are kept for a replay; its index is for the search for contents that no exec
-- needs. Older execs have none of these.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN replay_of TEXT NOT NULL DEFAULT '';
ALTER TABLE sandbox_execs ADD COLUMN env_hmacs TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(env_hmacs));
ALTER TABLE sandbox_execs ADD COLUMN hmac_salt TEXT NOT NULL DEFAULT '';
ALTER TABLE sandbox_execs ADD COLUMN stdin_hmac TEXT NOT NULL DEFAULT '';
ALTER TABLE sandbox_execs ADD COLUMN stdin_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandbox_execs ADD COLUMN inputs_kept TEXT NOT NULL DEFAULT '';

CREATE INDEX sandbox_execs_replay_of ON sandbox_execs (replay_of, created_at, exec_id) WHERE replay_of <> '';
CREATE INDEX sandbox_execs_inputs_kept ON sandbox_execs (created_at, exec_id) WHERE inputs_kept = 'kept';
