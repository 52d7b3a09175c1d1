package api_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"secbox/access/tokens"
	"secbox/api/wire"
	"secbox/audit"
	"secbox/fault"
)

// TestStatsAndNames counts execs for an auditor and for a worker.
func TestStatsAndNames(t *testing.T) {
	t.Parallel()
	f := start(t)
	if s := decodeAs[wire.ExecStats](t, f.get("/sandbox/stats"), 200); !s.Complete || s.Counted != 0 || s.DurationMS.P50 != nil ||
		time.Time(s.Until).Sub(time.Time(s.Since)) != 24*time.Hour {
		t.Errorf("without execs: %+v", s)
	}
	_, auditor := f.token(tokens.Spec{Role: tokens.Auditor, Name: "audit"})
	annID, ann := f.token(tokens.Spec{Role: tokens.Worker, Name: "ann's worker"})
	benID, ben := f.token(tokens.Spec{Role: tokens.Worker, Name: "ben's worker"})
	if _, err := f.tokens.Revoke(t.Context(), benID); err != nil {
		t.Fatal(err)
	}
	by := func(id, skill string, ms int64) string {
		return f.record(func(r *audit.Record) { r.RequestedBy, r.SkillID, r.DurationMS = id, skill, ms }).ExecID
	}
	execs := map[string]string{
		by(annID, "a.b", 40): "ann's worker", by(annID, "", 20): "ann's worker", by(benID, "a.b", 10): "ben's worker",
		by("loopback", "", 30): "", by("gone", "c.d", 50): "",
	}
	f.record(func(r *audit.Record) { r.RequestedBy, r.CreatedAt = annID, r.CreatedAt.Add(-25*time.Hour) })

	ask := func(secret, path string) reply { return f.do(request{path: path, token: secret}) }
	all := decodeAs[wire.ExecStats](t, ask(auditor, "/sandbox/stats"), 200)
	if all.Counted != 5 || !all.Complete || !maps.Equal(all.ByStatus, map[string]int{"succeeded": 5}) || len(all.ByErrorReason) != 0 ||
		!maps.Equal(all.ByBackend, map[string]int{"docker": 5}) ||
		all.DurationMS.Count != 5 || *all.DurationMS.P50 != 30 || *all.DurationMS.P95 != 50 ||
		!slices.Equal(all.BySkill, []wire.SkillCount{{Count: 2, SkillID: "a.b"}, {Count: 1, SkillID: "c.d"}}) {
		t.Errorf("an auditor: %+v", all)
	}
	wantTokens := map[string]wire.TokenCount{
		annID: {Count: 2, RequestedBy: annID, RequestedByName: "ann's worker"}, benID: {Count: 1, RequestedBy: benID, RequestedByName: "ben's worker"},
		"loopback": {Count: 1, RequestedBy: "loopback"}, "gone": {Count: 1, RequestedBy: "gone"},
	}
	if len(all.ByToken) != 4 || all.ByToken[0].RequestedBy != annID {
		t.Errorf("tokens: %+v", all.ByToken)
	}
	for _, got := range all.ByToken {
		if got != wantTokens[got.RequestedBy] {
			t.Errorf("a token: %+v", got)
		}
	}
	if older := decodeAs[wire.ExecStats](t, ask(auditor, "/sandbox/stats?since=7d&until=24h"), 200); older.Counted != 1 {
		t.Errorf("the days before: %+v", older)
	}
	own := decodeAs[wire.ExecStats](t, ask(ann, "/sandbox/stats"), 200)
	if own.Counted != 2 || !slices.Equal(own.ByToken, []wire.TokenCount{wantTokens[annID]}) || *own.DurationMS.P50 != 20 {
		t.Errorf("a worker: %+v", own)
	}
	ask(auditor, "/sandbox/stats?since=7x&until=never").wants(t, fault.InvalidRequest, "since", "until")
	ask(auditor, "/sandbox/stats?limit=5").wants(t, fault.InvalidRequest, "limit")
	ask(ben, "/sandbox/stats").wants(t, fault.TokenRevoked)

	for _, item := range decodeAs[wire.ExecList](t, ask(auditor, "/sandbox/execs?since=24h"), 200).Items {
		want, ok := execs[item.ExecID]
		if one := decodeAs[wire.ExecRecord](t, ask(auditor, "/sandbox/execs/"+item.ExecID), 200); !ok || item.RequestedByName != want ||
			one.RequestedByName != want {
			t.Errorf("%s: in the list %q, alone %q, want %q", item.ExecID, item.RequestedByName, one.RequestedByName, want)
		}
	}
	for _, item := range decodeAs[wire.ExecList](t, ask(ann, "/sandbox/execs"), 200).Items {
		if item.RequestedByName != "ann's worker" || ask(ann, "/sandbox/execs/"+item.ExecID).StatusCode != http.StatusOK {
			t.Errorf("a worker's own: %q", item.RequestedByName)
		}
	}
}
