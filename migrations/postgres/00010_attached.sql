-- Containers that wait for any project get the directories of one when an exec takes them. Containers of older execs were started with theirs.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN attached boolean NOT NULL DEFAULT false;
