package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"secbox/audit"
	"secbox/audit/hmackey"
	"secbox/fault"
	"secbox/policy"
	"secbox/runner"
	"secbox/workspace"
)

// Equal says whether a point is equal in both execs.
type Equal string

// The values of Equal.
const (
	Yes     Equal = "true"
	No      Equal = "false"
	Unknown Equal = "unknown" // it was not recorded, was not kept, or could not be the same
)

// Point is one point of a comparison. First and Second are what is known of it: a value, a digest,
// or nothing.
type Point struct {
	What   string `json:"what"`
	Equal  Equal  `json:"equal"`
	First  string `json:"first"`
	Second string `json:"second"`
	Why    string `json:"why"` // a sentence if they are not equal
}

// comparison collects the points.
type comparison []Point

func (c *comparison) add(what string, equal Equal, first, second, why string) {
	*c = append(*c, Point{what, equal, first, second, why})
}

// values compares what is known on both sides.
func (c *comparison) values(what, first, second, why string) {
	if first == second {
		c.add(what, Yes, first, second, "")
	} else {
		c.add(what, No, first, second, why)
	}
}

// Compare compares an exec with its replay, from their records and what they left. What cannot be
// read, or does not fit into memory, is unknown.
func (r *Replayer) Compare(ctx context.Context, first, second audit.Record, reserve Reserve) []Point {
	var c comparison
	c.outcome(first, second)
	r.files(ctx, &c, first, second, reserve)
	c.values("image", first.ImageID, second.ImageID, "another image ran")
	if first.SkillDigest != "" || second.SkillDigest != "" {
		c.values("skill", first.SkillDigest, second.SkillDigest, "another version of the skill ran")
	}
	c.policy(first, second)
	wholeFirst, errFirst := r.whole(ctx, first, reserve)
	wholeSecond, errSecond := r.whole(ctx, second, reserve)
	if err := cmp.Or(errFirst, errSecond); err != nil {
		c.add("command", Unknown, "", "", sentence(err))
	} else {
		c.request(wholeFirst, wholeSecond)
	}
	c.place(first)
	return c
}

func sentence(err error) string { return fault.From(err).Message }

func (c *comparison) outcome(first, second audit.Record) {
	known := func(r audit.Record) bool { return r.Status.Final() && r.Status != audit.Lost }
	if !known(first) || !known(second) {
		c.add("status", Unknown, string(first.Status), string(second.Status), "the outcome of one of them is not known")
	} else {
		c.values("status", string(first.Status), string(second.Status), "they ended differently")
	}
	if first.ExitCode == nil || second.ExitCode == nil {
		c.add("exit_code", Unknown, exitCode(first), exitCode(second), "one of them did not report an exit code")
	} else {
		c.values("exit_code", exitCode(first), exitCode(second), "they ended differently")
	}
}

func exitCode(r audit.Record) string {
	if r.ExitCode == nil {
		return ""
	}
	return strconv.Itoa(*r.ExitCode)
}

// files compares outputs and artifacts, by their manifests.
func (r *Replayer) files(ctx context.Context, c *comparison, first, second audit.Record, reserve Reserve) {
	var a, b workspace.Manifest
	for _, side := range []struct {
		of   audit.Record
		into *workspace.Manifest
		name string
	}{{first, &a, "the first exec"}, {second, &b, "the replay"}} {
		if err := r.published(ctx, side.of, runner.ManifestFile, side.into, reserve); err != nil {
			why := "the manifest of " + side.name + " cannot be used: " + sentence(err)
			for _, what := range []string{"stdout", "stderr", "artifacts"} {
				c.add(what, Unknown, "", "", why)
			}
			return
		}
	}
	c.output("stdout", workspace.StdoutName, a, b, first.StdoutTruncated || second.StdoutTruncated, first.StdoutBytes, second.StdoutBytes)
	c.output("stderr", workspace.StderrName, a, b, first.StderrTruncated || second.StderrTruncated, first.StderrBytes, second.StderrBytes)
	c.artifacts(a, b)
}

func (c *comparison) output(what, name string, a, b workspace.Manifest, truncated bool, bytesFirst, bytesSecond int64) {
	first, second := published(a, name), published(b, name)
	switch {
	case bytesFirst != bytesSecond:
		c.add(what, No, first, second, fmt.Sprintf("they wrote %d and %d bytes", bytesFirst, bytesSecond))
	case first == "" || second == "":
		c.add(what, Unknown, first, second, "the manifest of an older version has no digest of the output")
	case first == second && truncated:
		c.add(what, Unknown, first, second, "the beginning is the same, and the rest was not kept")
	default:
		c.values(what, first, second, "they wrote something else")
	}
}

func published(m workspace.Manifest, name string) string {
	for _, f := range m.Published {
		if f.Path == name {
			return f.SHA256
		}
	}
	return ""
}

func (c *comparison) artifacts(a, b workspace.Manifest) {
	second := make(map[string]string, len(b.Files))
	for _, f := range b.Files {
		second[f.Path] = content(f)
	}
	seen := make(map[string]bool, len(a.Files))
	for _, f := range a.Files {
		seen[f.Path] = true
		if other, ok := second[f.Path]; ok {
			c.values("artifacts/"+f.Path, content(f), other, "it has other content")
		} else {
			c.add("artifacts/"+f.Path, No, content(f), "", "only the first exec left it")
		}
	}
	for _, f := range b.Files {
		if !seen[f.Path] {
			c.add("artifacts/"+f.Path, No, "", content(f), "only the replay left it")
		}
	}
	if a.Truncated || b.Truncated {
		c.add("artifacts", Unknown, "", "", "artifacts over a limit were removed")
	}
}

// content is the digest of a regular file, and the kind of anything else.
func content(f workspace.ManifestEntry) string {
	if f.Kind == workspace.KindFile {
		return f.SHA256
	}
	return f.Kind
}

// policy compares the fields of the policies.
func (c *comparison) policy(first, second audit.Record) {
	a, errA := policy.ParseSnapshot(first.PolicySnapshot)
	b, errB := policy.ParseSnapshot(second.PolicySnapshot)
	if errA != nil || errB != nil {
		c.add("policy", Unknown, "", "", "one of the policies is of a version that this one cannot read")
		return
	}
	var differ []string
	for name, f := range a.Fields {
		if !reflect.DeepEqual(f.Value, b.Fields[name].Value) {
			differ = append(differ, name)
		}
	}
	if len(differ) == 0 {
		c.add("policy", Yes, "", "", "")
		return
	}
	slices.Sort(differ)
	values := func(s policy.Snapshot) string {
		of := map[string]any{}
		for _, name := range differ {
			of[name] = s.Fields[name].Value
		}
		text, _ := json.Marshal(of) // numbers and text always have a JSON form
		return string(text)
	}
	c.add("policy", No, values(a), values(b), "the settings or the machine have other values of "+strings.Join(differ, ", "))
}

// request compares command, inputs, environment and standard input, by whole records.
func (c *comparison) request(first, second audit.Record) {
	if first.Cmd == second.Cmd && first.Cwd == second.Cwd && slices.Equal(first.Args, second.Args) {
		c.add("command", Yes, "", "", "")
	} else {
		c.add("command", No, first.Cmd, second.Cmd, "they ran other commands")
	}
	c.inputs(first, second)
	c.secrets(first, second)
}

func (c *comparison) inputs(first, second audit.Record) {
	contents := func(r audit.Record) map[string]string {
		all := map[string]string{}
		for _, in := range r.Inputs {
			if ofSkill(in) {
				in.Path = workspace.SkillInputs // its name is random
			}
			all[in.Path] = in.SHA256 + in.Mode
		}
		return all
	}
	a, b := contents(first), contents(second)
	equal, why := Yes, ""
	if !reflect.DeepEqual(a, b) {
		equal, why = No, "they were given other input files"
	}
	c.add("inputs", equal, files(len(a)), files(len(b)), why)
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return strconv.Itoa(n) + " files"
}

// secrets compares environment and standard input by their keyed digests.
func (c *comparison) secrets(first, second audit.Record) {
	cannot := ""
	switch key := hmackey.KeyOf(first.RequestDigest); {
	case key == "":
		cannot = "the first record is of a version without keyed digests"
	case key != hmackey.KeyOf(second.RequestDigest) || first.HMACSalt != second.HMACSalt && second.HMACSalt != "":
		cannot = "another key made the keyed digests of the first record; see audit.hmac_key_file"
	}
	given := hmacs(second)
	known := hmacs(first)
	for _, name := range Variables(first) {
		a, b := known[name], given[name]
		switch _, ok := given[name]; {
		case !ok:
			c.add("env."+name, No, a, "", "its value was not given again, so the replay did not have the variable")
		case cannot != "" || a == "" || b == "":
			c.add("env."+name, Unknown, a, b, cmp.Or(cannot, "there is no keyed digest of its value"))
		default:
			c.values("env."+name, a, b, "another value was given")
		}
	}
	switch {
	case first.StdinBytes == 0 && second.StdinBytes == 0 && cannot == "":
	case first.StdinBytes == 0 && cannot != "":
		c.add("stdin", Unknown, "", second.StdinHMAC, cannot)
	case second.StdinBytes == 0:
		c.add("stdin", No, first.StdinHMAC, "", "it was not given again, so the replay had none")
	case first.StdinBytes != second.StdinBytes:
		c.add("stdin", No, first.StdinHMAC, second.StdinHMAC, fmt.Sprintf("they had %d and %d bytes", first.StdinBytes, second.StdinBytes))
	case cannot != "":
		c.add("stdin", Unknown, first.StdinHMAC, second.StdinHMAC, cannot)
	default:
		c.values("stdin", first.StdinHMAC, second.StdinHMAC, "another standard input was given")
	}
}

// hmacs are the keyed digests of a record's variables by name; empty for those without one.
func hmacs(r audit.Record) map[string]string {
	all := make(map[string]string, len(r.EnvKeys))
	for i, name := range r.EnvKeys {
		all[name] = ""
		if i < len(r.EnvHMACs) {
			all[name] = r.EnvHMACs[i]
		}
	}
	return all
}

// place adds what the execs found in the project beside their inputs.
func (c *comparison) place(first audit.Record) {
	snapshot, err := policy.ParseSnapshot(first.PolicySnapshot)
	if err != nil {
		return // policy has said so
	}
	modes := snapshot.Values.MountModes()
	if modes.Work == policy.NoAccess {
		c.add("work", Yes, "", "", "")
	} else {
		c.add("work", Unknown, "", "", "work/ has what execs have left there until now, and its former state is not kept")
	}
	if modes.Inputs == policy.NoAccess {
		c.add("other_inputs", Yes, "", "", "")
	} else {
		c.add("other_inputs", Unknown, "", "", "inputs/ may have files of other execs and uploads, which records do not list")
	}
}
