-- sandbox_choices is the sandbox that a user chose; runner is the user's machine on which a command ran. The indexes are for lists of the
-- commands of a machine, and of those outside docker; they have such commands only.

-- +goose Up
CREATE TABLE sandbox_choices (
    user_id    text COLLATE "C" PRIMARY KEY,
    backend    text COLLATE "C" NOT NULL,
    runner     text COLLATE "C" NOT NULL,
    updated_at timestamptz NOT NULL
);

ALTER TABLE sandbox_execs ADD COLUMN runner text COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX sandbox_execs_runner ON sandbox_execs (runner, created_at, exec_id) WHERE runner <> '';
CREATE INDEX sandbox_execs_backend ON sandbox_execs (backend, created_at, exec_id) WHERE backend <> 'docker';
