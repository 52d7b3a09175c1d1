package api

import (
	"context"

	"secbox/api/visible"
	"secbox/api/wire"
	"secbox/images/catalog"
)

// ListImages sends the own images.
func (s *Server) ListImages(ctx context.Context, _ wire.ListImagesRequestObject) (wire.ListImagesResponseObject, error) {
	images, err := s.cfg.Images.List(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.ListImages200JSONResponse{Items: make([]wire.OwnImage, len(images))}
	for n, i := range images {
		out.Items[n] = ownImage(i)
	}
	return out, nil
}

// GetImage sends an own image with its bill of materials.
func (s *Server) GetImage(ctx context.Context, in wire.GetImageRequestObject) (wire.GetImageResponseObject, error) {
	if err := callFrom(ctx).reserve(2 * catalog.MaxBOM); err != nil {
		return nil, err
	}
	i, err := s.cfg.Images.Get(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := ownImage(i)
	out.Recipe, out.Bom = &i.Recipe, &i.BOM
	return wire.GetImage200JSONResponse(out), nil
}

func ownImage(i catalog.Image) wire.OwnImage {
	out := wire.OwnImage{
		Name: i.Name, Ref: i.Ref, ImageID: i.ImageID, Source: string(i.Source), Base: i.Base, SizeBytes: i.SizeBytes, Packages: i.Packages,
		CreatedAt: visible.Timestamp(i.CreatedAt.UTC()), UpdatedAt: visible.Timestamp(i.UpdatedAt.UTC()),
	}
	if i.BaseID != "" {
		out.BaseID = &i.BaseID
	}
	return out
}
