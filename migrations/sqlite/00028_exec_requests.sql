-- What the caller of a skill asked: the arguments, as JSON, shortened. Not a column of sandbox_execs, since events repeat its rows and proofs have
-- them. A request goes with its exec, also if an older version removes that.

-- +goose Up
CREATE TABLE sandbox_exec_requests (
    exec_id TEXT NOT NULL PRIMARY KEY,
    request TEXT NOT NULL
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER sandbox_execs_request_gone AFTER DELETE ON sandbox_execs
BEGIN
    DELETE FROM sandbox_exec_requests WHERE exec_id = OLD.exec_id;
END;
-- +goose StatementEnd
