-- Own images: names that execs may use beside the images of the settings. recipe is the file that an image was built from, dir the directory on the
-- node that built it, bom the bill of materials (CycloneDX).

-- +goose Up
CREATE TABLE own_images (
    name       text COLLATE "C" NOT NULL PRIMARY KEY,
    ref        text NOT NULL,
    image_id   text NOT NULL,
    source     text NOT NULL,
    base       text NOT NULL,
    base_id    text NOT NULL,
    size_bytes bigint NOT NULL,
    packages   bigint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    recipe     text NOT NULL,
    dir        text NOT NULL,
    bom        text NOT NULL
);
