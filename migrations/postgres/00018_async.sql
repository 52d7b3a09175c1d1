-- An asynchronous exec waits without a node. sandbox_exec_jobs has what its container needs and no record may have, sealed with the key of the
-- installation; the transaction that ends the exec deletes it. rank is 0 for the priority high, 1 for normal, 2 for low. taken_by is the node that is
-- about to start the exec, or runs it; empty while it waits. Sealed content does not compress.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN async boolean NOT NULL DEFAULT false;
ALTER TABLE sandbox_execs ADD COLUMN priority text NOT NULL DEFAULT '';

CREATE TABLE sandbox_exec_jobs (
    exec_id      text COLLATE "C" PRIMARY KEY,
    rank         smallint NOT NULL,
    requested_by text COLLATE "C" NOT NULL,
    queued_at    timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    taken_by     text COLLATE "C" NOT NULL DEFAULT '',
    size         bigint NOT NULL,
    sealed       bytea NOT NULL
);
ALTER TABLE sandbox_exec_jobs ALTER COLUMN sealed SET STORAGE EXTERNAL;

CREATE INDEX sandbox_exec_jobs_waiting ON sandbox_exec_jobs (rank, requested_by, queued_at, exec_id) WHERE taken_by = '';
CREATE INDEX sandbox_exec_jobs_expiry ON sandbox_exec_jobs (expires_at, exec_id) WHERE taken_by = '';
CREATE INDEX sandbox_exec_jobs_taken ON sandbox_exec_jobs (taken_by) WHERE taken_by <> '';
CREATE INDEX sandbox_exec_jobs_size ON sandbox_exec_jobs (requested_by, taken_by, size);
