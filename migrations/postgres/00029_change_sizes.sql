-- The size of the content that a change of a file has written, in bytes. NULL where it is not known, as in older changes.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN size_after bigint;
