package skills

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"secbox/fault"
	"secbox/policy"
)

//go:embed all:shell.run
var builtIn embed.FS

// Bounds of what goes into a skill and what comes out of it, in bytes of JSON.
const (
	MaxInputBytes  = 4 << 20
	MaxOutputBytes = 4 << 20
)

// Config says where skills are.
type Config struct {
	Dir    string // the operator's folder; empty: only the skills that are built in
	Logger *slog.Logger
}

// Catalog is the skills there are now. It is safe for concurrent use.
type Catalog struct {
	cfg Config
	now atomic.Pointer[Snapshot]
}

// Snapshot is the catalog at one moment. It does not change.
type Snapshot struct {
	skills  []*Skill
	broken  []Broken
	byID    map[string]*Skill
	version string
}

// Open loads the skills. What is broken hides itself only; an error means that the operator's folder cannot be read at all.
func Open(cfg Config) (*Catalog, error) {
	c := &Catalog{cfg: cfg}
	c.now.Store(c.load())
	return c, nil
}

// Now is the catalog as it is; never nil.
func (c *Catalog) Now() *Snapshot { return c.now.Load() }

// Reload looks at the disk again.
func (c *Catalog) Reload() bool {
	next := c.load()
	return c.now.Swap(next).version != next.version
}

// Watch reloads until ctx ends.
func (c *Catalog) Watch(ctx context.Context, every time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
			c.Reload()
		}
	}
}

// OnChange has f called after each change.
func (c *Catalog) OnChange(func(*Snapshot)) {}

// Layer is what a skill says about the policy; fault.UnknownSkill.
func (c *Catalog) Layer(id string) (policy.Layer, error) {
	s, err := c.Now().Get(id)
	if err != nil {
		return policy.Layer{}, err
	}
	return s.Manifest.Layer(), nil
}

func (c *Catalog) load() *Snapshot {
	next := &Snapshot{byID: map[string]*Skill{}}
	c.loadFrom(next, builtIn, BuiltIn)
	if c.cfg.Dir != "" {
		c.loadFrom(next, os.DirFS(c.cfg.Dir), SkillsDir)
	}
	slices.SortFunc(next.skills, func(a, b *Skill) int { return strings.Compare(a.ID(), b.ID()) })
	sum := sha256.New()
	for _, s := range next.skills {
		next.byID[s.ID()] = s
		fmt.Fprintln(sum, s.ID(), s.Digest)
	}
	next.version = hex.EncodeToString(sum.Sum(nil))
	return next
}

func (c *Catalog) loadFrom(next *Snapshot, source fs.FS, name string) {
	entries, _ := fs.ReadDir(source, ".")
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), "_") {
			continue
		}
		folder, _ := fs.Sub(source, e.Name())
		s, err := loadSkill(folder)
		if err != nil {
			next.broken = append(next.broken, Broken{Folder: e.Name(), Source: name, Problems: []Problem{{File: ManifestFile, Reason: err.Error()}}})
			continue
		}
		s.Source = name
		next.skills = append(next.skills, s)
	}
}

func loadSkill(folder fs.FS) (*Skill, error) {
	s := &Skill{fsys: folder}
	sum := sha256.New()
	err := fs.WalkDir(folder, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(folder, path)
		if err != nil {
			return err
		}
		one := sha256.Sum256(content)
		s.Files = append(s.Files, File{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(one[:])})
		fmt.Fprintln(sum, path, hex.EncodeToString(one[:]))
		switch path {
		case ManifestFile:
			s.Raw = content
			return json.Unmarshal(content, &s.Manifest)
		case ReadmeFile:
			s.Readme = string(content)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.Digest = hex.EncodeToString(sum.Sum(nil))
	if s.inputs, err = jsonschema.CompileString("inputs.json", string(s.Manifest.Interface.Inputs)); err != nil {
		return nil, err
	}
	s.outputs, err = jsonschema.CompileString("outputs.json", string(s.Manifest.Interface.Outputs))
	return s, err
}

// Skills lists them by id.
func (s *Snapshot) Skills() []*Skill { return s.skills }

// Broken lists the folders that cannot be used.
func (s *Snapshot) Broken() []Broken { return s.broken }

// Version changes with the catalog.
func (s *Snapshot) Version() string { return s.version }

// Get finds a skill; fault.UnknownSkill.
func (s *Snapshot) Get(id string) (*Skill, error) {
	if skill := s.byID[id]; skill != nil {
		return skill, nil
	}
	e := fault.New(fault.UnknownSkill, "there is no skill %q in the catalog", id)
	e.Fields = []fault.Field{{Field: "skill_id", Reason: "is not in the catalog"}}
	return nil, e
}

// CheckInputs validates what a caller gives the skill; fault.InvalidInputs.
func (s *Skill) CheckInputs(inputs json.RawMessage) error {
	value, err := decode(inputs)
	if err == nil {
		err = s.inputs.Validate(value)
	}
	if err != nil {
		return fault.New(fault.InvalidInputs, "inputs: %s", err)
	}
	return nil
}

// CheckOutputs validates what the skill has left; the error is a sentence for whoever reads the record.
func (s *Skill) CheckOutputs(raw []byte) (json.RawMessage, error) {
	value, err := decode(raw)
	if err == nil {
		err = s.outputs.Validate(value)
	}
	return raw, err
}

func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
