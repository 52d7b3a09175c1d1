-- The numbers of each node of the last day. minute is the database's time in minutes since 1970. numbers is a list such as "queued=0 running=3", health a JSON
-- object of the node's newest sample only. The rows of a minute are bounded, and each new sample removes what is older than 25 hours.

-- +goose Up
CREATE TABLE node_samples (
    node_id TEXT NOT NULL,
    minute  INTEGER NOT NULL,
    numbers TEXT NOT NULL,
    health  TEXT NOT NULL,
    PRIMARY KEY (node_id, minute)
) STRICT, WITHOUT ROWID;

CREATE INDEX node_samples_minute ON node_samples (minute);
