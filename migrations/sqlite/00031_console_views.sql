-- Views of the history that people save. An owner is the id of a token or a person. When a token is revoked,
-- or a person removed, the views go, too.

-- +goose Up
CREATE TABLE console_views (
    owner TEXT NOT NULL,
    name  TEXT NOT NULL,
    query TEXT NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER tokens_views AFTER UPDATE OF revoked_at ON tokens WHEN NEW.revoked_at IS NOT NULL
BEGIN
    DELETE FROM console_views WHERE owner = NEW.id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER tokens_views_gone AFTER DELETE ON tokens
BEGIN
    DELETE FROM console_views WHERE owner = OLD.id;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER console_people_views_gone AFTER DELETE ON console_people
BEGIN
    DELETE FROM console_views WHERE owner = OLD.id;
END;
-- +goose StatementEnd
