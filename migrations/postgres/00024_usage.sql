-- What the processes of an exec used: CPU time in microseconds, and the most memory that one of them had. NULL where it was not measured, as in older execs.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN cpu_us bigint;
ALTER TABLE sandbox_execs ADD COLUMN max_rss_bytes bigint;
