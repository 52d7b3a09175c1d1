package proof

import (
	"testing"
	"time"

	"secbox/audit/admin"
	"secbox/fault"
)

// TestAdminDocumentsAreReadBack: a changed byte is refused or says something else, and never the
// same.
func TestAdminDocumentsAreReadBack(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 123456000, time.UTC)
	d := AdminDocument{
		Seq: 7, At: at, NodeID: "n\u2028<&>", Actor: admin.Actor{Type: admin.ByToken, ID: "\"\\", Name: "😀\ufffd"}, Kind: admin.Export, Subject: "jsonl",
		Data: `{"b":1,"a":"\u003c"}`, LoggedAt: at.Add(time.Second),
	}
	const want = `{"actor_id":"\"\\","actor_name":"😀` + "\ufffd" +
		`","actor_type":"token","at":"2026-03-04T05:06:07.123456Z","data":{"b":1,"a":"\u003c"},"kind":"export",` +
		`"logged_at":"2026-03-04T05:06:08.123456Z","node_id":"n` + "\u2028" + `<&>","seq":7,"subject":"jsonl","type":"secbox/admin-event@v1"}`
	canonical := string(d.Canonical())
	if canonical != want {
		t.Fatalf("got\n%s\nwant\n%s", canonical, want)
	}
	if got, err := ParseAdmin(canonical); err != nil || got != d {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range canonical {
		changed := []byte(canonical)
		changed[i] ^= 1 << (i % 8)
		if got, err := ParseAdmin(string(changed)); err == nil && got == d {
			t.Errorf("byte %d: %s", i, changed)
		}
	}
	for _, other := range []string{"", "{}", " " + canonical, canonical + "\n", canonical[:len(canonical)-1] + `,"x":1}`} {
		if _, err := ParseAdmin(other); err == nil {
			t.Errorf("%s was accepted", other)
		}
	}
}

func TestCheckAdminRefuses(t *testing.T) {
	t.Parallel()
	key := string(read(t, "log.pub"))
	exec := read(t, "sqlite.json")
	if IsAdmin(exec) || !IsAdmin([]byte(`{"format":"secbox/admin-event-proof@v1","x":1}`)) || IsAdmin([]byte(`{"format":"x"`)) {
		t.Error("the format decides")
	}
	f, err := parse(exec)
	if err != nil {
		t.Fatal(err)
	}
	disguised, err := NewAdminFile(f.Events[0]).Marshal() // in the log, and of another type
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"nothing": nil, "the proof of an exec": exec, "the event of an exec": disguised,
		"too much": make([]byte, MaxBytes+1),
	} {
		if _, err := CheckAdmin(data, key); !fault.Is(err, fault.InvalidProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := CheckAdmin(disguised, "x"); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("no key: %v", err)
	}
}
