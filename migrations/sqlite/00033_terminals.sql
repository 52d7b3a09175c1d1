-- tty_record is what the recording of an exec's terminal has: all or output; empty for a command without a terminal.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN tty_record TEXT NOT NULL DEFAULT '';
