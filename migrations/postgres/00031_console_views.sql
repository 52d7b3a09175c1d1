-- Views of the history that people save. An owner is the id of a token or a person. When a token is revoked,
-- or a person removed, the views go, too.

-- +goose Up
CREATE TABLE console_views (
    owner text COLLATE "C" NOT NULL,
    name  text COLLATE "C" NOT NULL,
    query text NOT NULL,
    PRIMARY KEY (owner, name)
);

-- +goose StatementBegin
CREATE FUNCTION console_views_remove() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM console_views WHERE owner = OLD.id;
    RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER tokens_views AFTER UPDATE OF revoked_at ON tokens FOR EACH ROW WHEN (NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION console_views_remove();
CREATE TRIGGER tokens_views_gone AFTER DELETE ON tokens FOR EACH ROW EXECUTE FUNCTION console_views_remove();
CREATE TRIGGER console_people_views_gone AFTER DELETE ON console_people FOR EACH ROW EXECUTE FUNCTION console_views_remove();
