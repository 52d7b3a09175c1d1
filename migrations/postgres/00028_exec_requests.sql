-- What the caller of a skill asked: the arguments, as JSON, shortened. Not a column of sandbox_execs, since events repeat its rows and proofs have
-- them. A request goes with its exec, also if a node of an older version removes that.

-- +goose Up
CREATE TABLE sandbox_exec_requests (
    exec_id text COLLATE "C" PRIMARY KEY,
    request text NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION sandbox_execs_request_remove() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM sandbox_exec_requests WHERE exec_id = OLD.exec_id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER sandbox_execs_request_gone AFTER DELETE ON sandbox_execs FOR EACH ROW EXECUTE FUNCTION sandbox_execs_request_remove();
