package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"secbox/settings"
)

// schemaFiles is a package whose schemas are these and that runs a script.
func schemaFiles(t *testing.T, id, inputs, outputs, script string) []string {
	t.Helper()
	files := toolFiles(id, "")
	var manifest object
	if err := json.Unmarshal([]byte(files[5]), &manifest); err != nil {
		t.Fatal(err)
	}
	manifest["interface"] = object{"inputs": json.RawMessage(inputs), "outputs": json.RawMessage(outputs)}
	changed, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	files[3], files[5] = script, string(changed)
	return files
}

// TestSchemasOfStrangers uploads schemas that cost more than they look. Those that are too large
// are broken and hide only themselves; validation by the others is bounded, can be canceled, and
// takes no place from other execs.
func TestSchemasOfStrangers(t *testing.T) {
	t.Parallel()
	s := start(t, noPool, func(c *settings.Settings) { c.Sandbox.MaxConcurrentExecs = 1 })
	const plain, catalog, project = `{"type":"object"}`, "?agent_id=ag&user_id=ann", "ag~ann"
	withPattern := func(pattern string) string {
		text, _ := json.Marshal(object{"type": "object", "properties": object{"s": object{"pattern": pattern}}})
		return string(text)
	}
	bomb := "(?:" + strings.Repeat(".{0,1000}", 109) + `)\d$`
	var many []string
	for n := range 900 {
		many = append(many, fmt.Sprintf(`"p%d":{"pattern":"%s"}`, n, strings.Repeat(`.{0,1000}`, 110)))
	}
	huge := strings.Repeat("c", 900_000)
	const output = `touch started; { printf '{"s":"'; head -c 4000000 /dev/zero | tr '\0' a; printf '"}'; } >$SKILL_OUTPUT; printf done`
	broken := map[string]string{ // where
		"bad.inputs": "/interface/inputs/properties/s/pattern", "bad.outputs": "/interface/outputs/properties/s/pattern",
		"bad.many": "/interface/outputs/properties/p0/pattern", "bad.ref": "/interface/inputs/$ref",
	}
	for id, schemas := range map[string][2]string{
		"bad.inputs": {withPattern(bomb), plain}, "bad.outputs": {plain, withPattern(bomb)},
		"bad.many":  {plain, `{"type":"object","properties":{` + strings.Join(many, ",") + `}}`},
		"bad.ref":   {`{"type":"object","$ref":"#/x","x":` + withPattern(bomb) + `}`, plain},
		"good.dear": {withPattern(`.{0,900}\d$`), withPattern(`.{0,900}\d$`)}, "good.slow": {plain, withPattern(`.{0,60}\d$`)},
		"good.const": {`{"type":"object","properties":{"s":{"items":{"const":"` + huge + `"}}}}`, plain},
	} {
		s.upload("ann/ag", "", "x.zip", archiveOf(t, id, schemaFiles(t, id, schemas[0], schemas[1], output)...)).done(t)
	}
	for _, one := range s.get("/skills" + catalog + "&broken=true").list("broken") {
		problems := one.list("problems")
		if where := broken[one.str("folder")]; problems[0].str("file") != "manifest.json" || where == "" ||
			!strings.HasPrefix(problems[0].str("pointer"), where[:len(where)-len("0/pattern")]) {
			t.Errorf("%v", one)
		}
		delete(broken, one.str("folder"))
	}
	if len(broken) > 0 {
		t.Errorf("not broken: %v", broken)
	}
	if ids := s.toolIDs(catalog); len(ids) != 3 {
		t.Errorf("the others: %q", ids)
	}

	// First and alone: it counts the places.
	t.Run("cancel, and places", func(t *testing.T) {
		s := s.with(t)
		answer := make(chan object, 1)
		go func() { answer <- s.invoke("good.slow", object{"project_id": project}) }()
		eventually(t, "the script has ended", func() bool {
			rows := s.get("/sandbox/execs?skill_id=good.slow").list("items")
			return len(rows) == 1 && string(s.send(http.MethodGet, "/sandbox/execs/"+rows[0].str("exec_id")+"/stdout", nil).Body) == "done"
		})
		other := s.post(shell("other", "sleep 1000"))
		runs := s.awaitRow("other", "running") // in the only place, while the output is validated
		s.cancel(s.get("/sandbox/execs?skill_id=good.slow").list("items")[0].str("exec_id"))
		if exec := (<-answer).at("exec"); exec.(map[string]any)["status"] != "canceled" {
			t.Errorf("%v", exec)
		}
		s.cancel(runs)
		other.result().wants(t, object{"status": "canceled"})
	})
	t.Run("a dear output", func(t *testing.T) {
		t.Parallel()
		a := s.with(t).invoke("good.dear", object{"project_id": project})
		if a.str("exec.error_reason") != "invalid_output" || !strings.Contains(a.str("exec.detail"), "asks for too much work") {
			t.Errorf("%v", a["exec"])
		}
	})
	t.Run("dear inputs", func(t *testing.T) {
		t.Parallel()
		inputs := object{"s": strings.Repeat("a", 4_000_000)}
		a := s.with(t).send(http.MethodPost, "/skills/good.dear/invoke", object{"project_id": project, "inputs": inputs})
		if a.Code != http.StatusBadRequest && a.Code != http.StatusUnprocessableEntity || !strings.Contains(string(a.Body), "asks for too much work") {
			t.Errorf("%d %.300s", a.Code, a.Body)
		}
	})
	t.Run("a large constant", func(t *testing.T) {
		t.Parallel()
		inputs := object{"s": strings.Split(strings.Repeat("x", 1000), "")}
		a := s.with(t).send(http.MethodPost, "/skills/good.const/invoke", object{"project_id": project, "inputs": inputs})
		if a.json(t).str("code") != "invalid_inputs" || len(a.Body) > 20_000 {
			t.Errorf("%d: %d bytes: %.300s", a.Code, len(a.Body), a.Body)
		}
	})
}
