-- A node has a lease until lease_until, by the database's clock, and renews it under its epoch. Another node retires a lease that has ended, under the next
-- epoch; then lease_until is null, as after the end of a node. Nodes of older versions write none of these columns: their epoch is 0, and they are not
-- retired. draining: the node takes no new work until its next start.

-- +goose Up
ALTER TABLE nodes ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN lease_until INTEGER;
ALTER TABLE nodes ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;
