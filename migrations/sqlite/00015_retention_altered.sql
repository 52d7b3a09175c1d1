-- How many execs the running or last run of retention kept because they are not as the transparency log says.

-- +goose Up
ALTER TABLE audit_retention ADD COLUMN altered INTEGER NOT NULL DEFAULT 0;
