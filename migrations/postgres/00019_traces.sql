-- trace_id and span_id name the span of a distributed trace that an exec is, or, while this service exports no spans, the one that the request named by
-- W3C Trace Context. Execs of requests without a trace, and older ones, have none.

-- +goose Up
ALTER TABLE sandbox_execs ADD COLUMN trace_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE sandbox_execs ADD COLUMN span_id text NOT NULL DEFAULT '';

CREATE INDEX sandbox_execs_trace ON sandbox_execs (trace_id, created_at, exec_id) WHERE trace_id <> '';
