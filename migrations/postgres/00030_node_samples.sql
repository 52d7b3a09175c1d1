-- The numbers of each node of the last day. minute is the database's time in minutes since 1970. numbers is a list such as "queued=0 running=3", health a JSON
-- object of the node's newest sample only. The rows of a minute are bounded, and each new sample removes what is older than 25 hours.

-- +goose Up
CREATE TABLE node_samples (
    node_id text COLLATE "C" NOT NULL,
    minute  bigint NOT NULL,
    numbers text NOT NULL,
    health  text NOT NULL,
    PRIMARY KEY (node_id, minute)
);

CREATE INDEX node_samples_minute ON node_samples (minute);
