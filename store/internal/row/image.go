package row

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"secbox/audit/admin"
	"secbox/fault"
	"secbox/images/catalog"
)

// OwnImages implements catalog.Store.
type OwnImages struct{ Database }

const (
	ownImageColumns = "name, ref, image_id, source, base, base_id, size_bytes, packages, created_at, updated_at"
	ownImageTexts   = ", recipe, dir, bom"
)

func readOwnImage(scan Scan, more ...any) (i catalog.Image, err error) {
	err = scan(append([]any{
		&i.Name, &i.Ref, &i.ImageID, (*string)(&i.Source), &i.Base, &i.BaseID, &i.SizeBytes, &i.Packages,
		timeInto{&i.CreatedAt},
		timeInto{&i.UpdatedAt},
	}, more...)...)
	return i, err
}

func scanOwnImage(scan Scan) (catalog.Image, error) { return readOwnImage(scan) }

func scanWholeImage(scan Scan) (catalog.Image, error) {
	var recipe, dir, bom string
	i, err := readOwnImage(scan, &recipe, &dir, &bom)
	i.Recipe, i.Dir, i.BOM = recipe, dir, []byte(bom)
	return i, err
}

// List implements catalog.Store. The bound is for images that were added at the same time.
func (db OwnImages) List(ctx context.Context) ([]catalog.Image, error) {
	return All(ctx, db.Query, scanOwnImage, "SELECT "+ownImageColumns+" FROM own_images ORDER BY name LIMIT $1", 2*catalog.MaxImages)
}

// Get implements catalog.Store.
func (db OwnImages) Get(ctx context.Context, name string) (catalog.Image, error) {
	i, found, err := One(ctx, db.Query, scanWholeImage,
		"SELECT "+ownImageColumns+ownImageTexts+" FROM own_images WHERE name = $1", Text(name))
	if err == nil && !found {
		err = catalog.Unknown(name)
	}
	return i, err
}

// Put implements catalog.Store.
func (db OwnImages) Put(ctx context.Context, i catalog.Image, replaces string) (catalog.Image, error) {
	if err := i.Check(); err != nil {
		return catalog.Image{}, err
	}
	args := Params{
		i.Name, i.Ref, i.ImageID, string(i.Source), Text(i.Base), Text(i.BaseID), i.SizeBytes, i.Packages, Text(i.Recipe), Text(i.Dir),
		Text(string(i.BOM)),
	}
	now := db.Now(&args)
	var statement string
	if replaces == "" {
		statement = "INSERT INTO own_images (name, ref, image_id, source, base, base_id, size_bytes, packages, recipe, dir, bom, created_at," +
			" updated_at) SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, " + now + ", " + now + " WHERE (SELECT count(*) FROM own_images) < " +
			args.Add(catalog.MaxImages) + " ON CONFLICT (name) DO NOTHING"
	} else {
		statement = "UPDATE own_images SET ref = $2, image_id = $3, source = $4, base = $5, base_id = $6, size_bytes = $7, packages = $8," +
			" recipe = $9, dir = $10, bom = $11, updated_at = " + now + " WHERE name = $1 AND image_id = " + args.Add(replaces)
	}
	var put *catalog.Image
	err := db.withEvent(ctx, func(scan Scan) error {
		stored, err := scanWholeImage(scan)
		put = &stored
		return err
	}, admin.ImageAllowed, i.Name, imageData(i, replaces), statement+" RETURNING "+ownImageColumns+ownImageTexts, args...)
	if err != nil {
		return catalog.Image{}, err
	}
	if put != nil {
		return *put, nil
	}
	if _, err := db.Get(ctx, i.Name); fault.Is(err, fault.UnknownImage) && replaces == "" {
		return catalog.Image{}, fault.New(fault.InvalidRequest, "there are %d own images already; remove one with `core-api image rm`",
			catalog.MaxImages)
	}
	return catalog.Image{}, catalog.Conflict(i.Name)
}

// imageData is what the event has of an image: enough to tell what ran, and to check the texts.
func imageData(i catalog.Image, replaces string) map[string]any {
	data := map[string]any{
		"image_id": i.ImageID, "ref": i.Ref, "source": i.Source, "packages": i.Packages, "bom_sha256": digestOf(string(i.BOM)),
	}
	for key, value := range map[string]string{"base": i.Base, "base_id": i.BaseID, "replaces": replaces} {
		if value != "" {
			data[key] = value
		}
	}
	if i.Recipe != "" {
		data["recipe_sha256"] = digestOf(i.Recipe)
	}
	return data
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Remove implements catalog.Store.
func (db OwnImages) Remove(ctx context.Context, name string) (catalog.Image, error) {
	before, err := db.Get(ctx, name)
	if err != nil {
		return catalog.Image{}, err
	}
	removed := false
	err = db.withEvent(ctx, func(Scan) error {
		removed = true
		return nil
	}, admin.ImageRemoved, name, map[string]any{"image_id": before.ImageID, "ref": before.Ref},
		"DELETE FROM own_images WHERE name = $1 AND image_id = $2 RETURNING name", name, before.ImageID)
	if err == nil && !removed {
		err = catalog.Conflict(name)
	}
	return before, err
}
