package export

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"secbox/audit"
)

// compiled is OCSF's schema of a version: the classes and objects that exports use, and no
// attribute that the schema does not have.
func compiled(t *testing.T, version string) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "ocsf", version+".json"))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.CompileString("ocsf.json", string(text))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestEventsFollowTheSchema validates events of every kind and status.
func TestEventsFollowTheSchema(t *testing.T) {
	t.Parallel()
	statuses := []audit.Status{
		audit.Queued, audit.Running, audit.Succeeded, audit.Failed, audit.Timeout, audit.OOMKilled, audit.Canceled, audit.Rejected, audit.Errored, audit.Lost,
	}
	m := many(4 * len(statuses))
	for i := range m.all {
		r := &m.all[i]
		r.Status, r.Kind = statuses[i%len(statuses)], []audit.Kind{"", audit.KindExec, audit.KindChange, audit.KindChange}[i/len(statuses)]
		r.ErrorReason, r.ExitCode, r.Detail = audit.NonzeroExit, new(3), "=why"
		switch r.Status {
		case audit.Queued, audit.Rejected:
			r.StartedAt, r.ExitCode, r.ImageID = time.Time{}, nil, ""
		}
		if !r.Status.Final() {
			r.EndedAt, r.DurationMS = time.Time{}, 0
		}
		if r.Kind == audit.KindChange {
			r.Args = []string{"dir/file.txt"}
			r.SHA256Before, r.SHA256After = []string{"", absent, "aa"}[i%3], []string{"bb", "", absent}[(i+i/3)%3]
		}
		if i%3 == 0 {
			r.SkillID, r.SkillDigest = "", ""
		}
		if i%5 == 0 {
			r.ReplayOf, r.Unreadable = r.ExecID, map[string]string{"args": "NULL"}
		}
		if i%7 == 0 {
			r.Backend, r.Runner = "remote", "laptop"
		}
		if i%11 == 0 {
			r.Args, r.Cmd, r.RequestedBy, r.UserID, r.NodeID, r.TaskID = nil, "", "t", "", "n", ""
		}
	}
	m.lacking = []string{m.all[0].ExecID}
	for _, version := range OCSFVersions() {
		schema := compiled(t, version)
		var out strings.Builder
		if _, err := (Exporter{Records: m, Log: m, Events: m}).Write(t.Context(), &out, Query{Format: Format{Name: "ocsf", OCSFVersion: version}}); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != len(m.all)+2 {
			t.Fatalf("%d events", len(lines))
		}
		seen := map[string]int{}
		for i, line := range lines {
			var event map[string]any
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(event); err != nil {
				t.Errorf("%s: %s: %#v", version, line, err)
			}
			if event["metadata"].(map[string]any)["version"] != version {
				t.Errorf("%s: another version: %s", version, line)
			}
			seen[fmt.Sprint(event["type_uid"])]++
			unmapped := event["unmapped"].(map[string]any)
			if i < len(m.all) && unmapped["record"].(map[string]any)["exec_id"] != m.all[i].ExecID {
				t.Errorf("event %d has the record %v", i, unmapped["record"])
			}
			if i == len(lines)-1 && (unmapped["type"] != typeEnd || unmapped["records"] != float64(len(m.all))) {
				t.Errorf("the end: %v", unmapped)
			}
		}
		for _, class := range []string{"100701", "100702", "100101", "100103", "100104", "99"} {
			if seen[class] == 0 {
				t.Errorf("%s: no event of type %s: %v", version, class, seen)
			}
		}
	}
}

// TestSchemaRefuses: the test above can fail.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	m := many(1)
	out, err := ocsfEvents{newJSONL(), "1.1.0"}.record(nil, m.all[0])
	if err != nil {
		t.Fatal(err)
	}
	schema := compiled(t, "1.1.0")
	for _, change := range [][2]string{
		{`"status_id":`, `"status_idx":`},
		{`"type_uid":10`, `"type_uid":20`},
		{`"severity_id":1`, `"severity_id":77`},
		{`"device":`, `"unmapped":`},
		{`"time":`, `"time":"x","start_time":`},
	} {
		changed := strings.Replace(string(out), change[0], change[1], 1)
		var event any
		if err := json.Unmarshal([]byte(changed), &event); err != nil || changed == string(out) {
			t.Fatal(change, err)
		}
		if schema.Validate(event) == nil {
			t.Errorf("accepted %s", changed)
		}
	}
}
