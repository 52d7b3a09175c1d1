package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/runner/output"
	"secbox/workspace"
)

// The files that core-api adds to the artifacts of an exec.
const (
	ManifestFile = workspace.ManifestName
	MetaFile     = workspace.MetaName
)

// collectTimeout bounds the walk over an exec's artifacts; artifacts that it does not reach are
// lost. On a slow and busy disk, 60,000 nested directories take almost a minute.
const collectTimeout = 2 * time.Minute

// collectResults collects the artifacts of a dead container and publishes output, manifest,
// metadata and what was recorded beside them. It completes x.record. output is the valid output of
// a skill, or nil.
func (x *exec) collectResults(ctx context.Context, c *output.Capture, recorded []workspace.File) (left []Artifact, out LeftOut,
	output []byte,
) {
	ctx, span := x.cfg.Tracer.Start(ctx, "collection")
	defer func() {
		switch reason := x.record.ErrorReason; reason {
		case audit.ArtifactsLost, audit.InvalidOutput:
			span.End(string(reason))
		default:
			span.End("")
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	collect := x.project.Collect
	if x.req.SessionID != "" {
		collect = x.project.CollectBeside
	}
	manifest, err := collect(ctx, x.record.ExecID, x.snapshot.Values.MaxArtifactsBytesTotal, accessOf(x.snapshot.Values.MountModes()))
	if err != nil {
		// The artifacts that were found until then are kept, and the output as well.
		x.artifactsLost("not all artifacts could be collected", err)
		manifest.Truncated = true
	} else {
		output = x.acceptOutput(manifest)
		if manifest.Truncated {
			x.record.Detail = join(x.record.Detail, "artifacts over a limit were removed, see omitted in the manifest")
		}
		for _, limit := range manifest.Limits {
			x.record.Detail = join(x.record.Detail, x.artifactsLimit(limit))
		}
		if text := omittedOf(manifest).detail(); text != "" {
			x.record.Detail = join(x.record.Detail, text)
		}
	}
	x.record.ArtifactsBytes = manifest.TotalBytes
	if err := x.publish(c, manifest, recorded); err != nil {
		x.artifactsLost("output and metadata could not be written to the workspace", err)
	}
	return artifactsOf(manifest), omittedOf(manifest), output
}

// artifactsLimit says which limit artifacts were over, and what to do.
func (x *exec) artifactsLimit(reason string) string {
	switch reason {
	case workspace.OmitTooMany:
		return tooMany()
	case workspace.OmitTooDeep:
		return tooDeep()
	}
	return fmt.Sprintf("max_artifacts_bytes_total=%d, raise %s", x.snapshot.Values.MaxArtifactsBytesTotal,
		x.raise("max_artifacts_bytes_total"))
}

// artifactsLost turns success into an error: a client must not take an incomplete result for a
// complete one.
func (x *exec) artifactsLost(what string, err error) {
	x.cfg.Logger.Error(what, "exec", x.record.ExecID, "error", err)
	if x.record.Status == audit.Succeeded {
		x.record.Status, x.record.ErrorReason = audit.Errored, audit.ArtifactsLost
	}
	x.record.Detail = join(x.record.Detail, what)
}

// publish writes the output, the metadata and the manifest, which lists these files as well. The
// row gets the manifest's digest, which covers all of them.
func (x *exec) publish(c *output.Capture, manifest workspace.Manifest, recorded []workspace.File) error {
	var meta bytes.Buffer
	encoder := json.NewEncoder(&meta)
	encoder.SetEscapeHTML(false) // for people: scripts are full of > and &
	encoder.SetIndent("", " ")
	if err := encoder.Encode(x.meta()); err != nil {
		return err
	}
	files := append(recorded,
		workspace.File{Name: workspace.StdoutName, Content: c.Stdout.Reader()},
		workspace.File{Name: workspace.StderrName, Content: c.Stderr.Reader()},
		workspace.File{Name: MetaFile, Content: bytes.NewReader(meta.Bytes())},
	)
	for _, f := range files {
		entry, err := workspace.Describe(f)
		if err != nil {
			return err
		}
		manifest.Published = append(manifest.Published, entry)
	}
	manifestJSON, err := manifest.JSON()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(manifestJSON)
	x.record.ManifestDigest = "sha256:" + hex.EncodeToString(sum[:])
	return x.project.PublishAll(x.record.ExecID, append(files,
		workspace.File{Name: ManifestFile, Content: bytes.NewReader(manifestJSON)})...)
}

// meta is meta.json: the record and how its container was made. It has no environment values, input
// contents or standard input, and no digest of the manifest, which contains the digest of
// meta.json.
type meta struct {
	audit.Record
	ManifestDigest string         `json:"manifest_digest,omitempty"` // hides the record's
	DockerMounts   []engine.Mount `json:"docker_mounts"`
	DockerArgs     []string       `json:"docker_args"`
	User           string         `json:"container_user"`
}

func (x *exec) meta() meta {
	m := meta{Record: x.record, DockerMounts: x.slot.Mounts(), DockerArgs: x.slot.Args(), User: x.cfg.User}
	m.IdempotencyKey = "" // it stays in the database: it works like a secret
	m.DurationMS = m.Duration().Milliseconds()
	return m
}

func artifactsOf(m workspace.Manifest) []Artifact {
	out := []Artifact{}
	for _, f := range m.Files {
		if f.Kind == workspace.KindFile {
			out = append(out, artifactOf(f))
		}
	}
	return out
}

func artifactOf(e workspace.ManifestEntry) Artifact {
	return Artifact{Path: e.Path, Size: e.Size, SHA256: e.SHA256}
}
