package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"secbox/audit"
	"secbox/engine"
	"secbox/workspace"
)

// The files that we add to what an exec left.
const (
	stdoutFile   = "stdout.txt"
	stderrFile   = "stderr.txt"
	manifestFile = "manifest.json"
	metaFile     = "meta.json"
)

// collectPatience bounds the walk over what a job left: whoever makes a tree that takes longer loses the rest of it. On a slow and busy
// disk, 60,000 nested directories take the better part of a minute.
const collectPatience = 2 * time.Minute

// takeIn collects the artifacts of a dead container and publishes output, manifest and metadata beside them. It completes x.record.
// output is a skill's, if it left a valid one.
func (x *exec) takeIn(ctx context.Context, c *capture) (left []Artifact, output []byte) {
	ctx, cancel := context.WithTimeout(ctx, collectPatience)
	defer cancel()
	manifest, err := x.project.Collect(ctx, x.record.ExecID, x.snapshot.Values.MaxArtifactsBytesTotal)
	if err != nil {
		// What was found until then is kept, and so is the output, which has nothing to do with it.
		x.artifactsLost("what the job left could not be collected whole", err)
		manifest.Truncated = true
	} else {
		output = x.judgeOutput(manifest)
	}
	manifestJSON, err := manifest.JSON()
	if err != nil {
		x.artifactsLost("the manifest could not be written", err)
		return nil, nil
	}
	sum := sha256.Sum256(manifestJSON)
	x.record.ManifestDigest = "sha256:" + hex.EncodeToString(sum[:])
	x.record.ArtifactsBytes = manifest.TotalBytes
	if err := x.publish(c, manifestJSON); err != nil {
		x.artifactsLost("output and metadata could not be written to the workspace", err)
	}
	return artifactsOf(manifest), output
}

// artifactsLost turns the record into an error: an answer of success without what the job made would be a lie.
func (x *exec) artifactsLost(what string, err error) {
	x.cfg.Logger.Error(what, "exec", x.record.ExecID, "error", err)
	if x.record.Status == audit.Succeeded {
		x.record.Status, x.record.ErrorReason = audit.Errored, audit.ArtifactsLost
	}
	x.record.Detail = join(x.record.Detail, what)
}

func (x *exec) publish(c *capture, manifest []byte) error {
	var meta bytes.Buffer
	encoder := json.NewEncoder(&meta)
	encoder.SetEscapeHTML(false) // people read it, and scripts are full of > and &
	encoder.SetIndent("", " ")
	if err := encoder.Encode(x.meta()); err != nil {
		return err
	}
	return x.project.PublishAll(x.record.ExecID,
		workspace.File{Name: stdoutFile, Content: c.stdout.reader()},
		workspace.File{Name: stderrFile, Content: c.stderr.reader()},
		workspace.File{Name: manifestFile, Content: bytes.NewReader(manifest)},
		workspace.File{Name: metaFile, Content: &meta})
}

// meta is meta.json: the record and how its container was made. Neither has environment values, input contents or standard input.
type meta struct {
	audit.Record
	DockerMounts []engine.Mount `json:"docker_mounts"`
	DockerArgs   []string       `json:"docker_args"`
	User         string         `json:"container_user"`
}

func (x *exec) meta() meta {
	m := meta{Record: x.record, DockerMounts: x.slot.Mounts(), DockerArgs: x.slot.Args(), User: x.cfg.User}
	m.IdempotencyKey = "" // the caller's secret-like handle is the database's affair
	m.DurationMS = m.EndedAt.Sub(m.StartedAt).Milliseconds()
	return m
}

func artifactsOf(m workspace.Manifest) []Artifact {
	out := []Artifact{}
	for _, f := range m.Files {
		if f.Kind == workspace.KindFile {
			out = append(out, Artifact{Path: f.Path, Size: f.Size, SHA256: f.SHA256})
		}
	}
	return out
}
