-- Own images: names that execs may use beside the images of the settings. recipe is the file that an image was built from, dir the directory on the
-- node that built it, bom the bill of materials (CycloneDX).

-- +goose Up
CREATE TABLE own_images (
    name       TEXT NOT NULL PRIMARY KEY,
    ref        TEXT NOT NULL,
    image_id   TEXT NOT NULL,
    source     TEXT NOT NULL,
    base       TEXT NOT NULL,
    base_id    TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    packages   INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    recipe     TEXT NOT NULL,
    dir        TEXT NOT NULL,
    bom        TEXT NOT NULL
) STRICT;
