// Package storetest is what every database must do for audit, tokens, skills and sandbox: each
// sentence of audit.Store, tokens.Store, skills.Registry and sandbox.Choices is a case here. An
// implementation joins with Run and a function that makes a fresh database.
//
// To test a program whose database refuses: stop a PostgreSQL cluster with pgtest's Stop, and go on
// with Start; or hold BEGIN EXCLUSIVE on the SQLite file from another connection, and end it with
// ROLLBACK. Writes are then refused with fault.DatabaseUnavailable within some seconds. SQLite's
// readers do not notice.
package storetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"secbox/access/sessions"
	"secbox/access/tokens"
	"secbox/access/views"
	"secbox/audit"
	"secbox/audit/admin"
	"secbox/audit/retention"
	"secbox/audit/translog"
	"secbox/cluster/nodes"
	"secbox/cluster/samples"
	"secbox/images/catalog"
	"secbox/packages/registry"
	"secbox/runner/jobs"
	"secbox/runner/webhooks"
	"secbox/sandbox"
	"secbox/skills"
	"secbox/store/storetest/planprobe"
)

// Database is what both stores offer beyond the four interfaces.
type Database interface {
	planprobe.Database
	Audit() audit.Store
	Jobs() jobs.Store
	Nodes() nodes.Store
	Samples() samples.Store
	Connections() audit.Connections
	Webhooks() webhooks.Store
	Tokens() tokens.Store
	Skills() skills.Registry
	Sandboxes() sandbox.Choices
	Registry() registry.Store
	TransparencyLog() translog.Store
	AdminEvents() admin.Store
	Limits() *admin.Limits
	Retention() retention.Store
	Sessions() sessions.Store
	Views() views.Store
	OwnImages() catalog.Store
	Close() error
}

// Fixture is one fresh, migrated database.
type Fixture struct {
	Database
	// SQL runs one statement as an administrator would, past this program, and returns the one
	// value it answers with, if any.
	SQL func(statement string) (string, error)
	// Reopen opens the same database once more, as a second process would.
	Reopen func(t *testing.T) Database
}

// Run runs the suite; each case gets its own database.
func Run(t *testing.T, fresh func(t *testing.T) Fixture) {
	cases := []struct {
		name string
		run  func(t *testing.T, f Fixture)
	}{
		{"a record comes back as it went in", roundTrip},
		{"strings that no database takes are made visible", oddStrings},
		{"lists that are nil or empty come back empty", emptyLists},
		{"times are UTC with microseconds", times},
		{"the opening writes the events of its status", openingEvents},
		{"only the first event repeats large lists", largeLists},
		{"an exec has its request until it is removed", requests},
		{"an opening that is wrong writes nothing", openingRefused},
		{"an exec id is never used twice", idUsedTwice},
		{"an idempotency key belongs to one requester", idempotency},
		{"of concurrent openings with one key exactly one wins", idempotencyRace},
		{"a start moves a queued row", start},
		{"of concurrent starts exactly one wins", startRace},
		{"a closing sets only the fields that can change", closing},
		{"a closing is idempotent and the first ending stands", closingTwice},
		{"of concurrent closings one stands", closingRace},
		{"a result after lost is a correction", correction},
		{"a closing that is wrong writes nothing", closingRefused},
		{"a closing can give the key up", closingGivesTheKeyUp},
		{"losing ends the open rows of one node", losing},
		{"of losing and closing at once the result stands", losingRace},
		{"a lost exec does not end before it began", losingWithSkew},
		{"an asynchronous exec waits with its job", jobRoundTrip},
		{"jobs are taken by priority, token and age", jobOrder},
		{"of concurrent takers exactly one gets a job", jobRace},
		{"jobs are bounded", jobLimits},
		{"jobs that are stored together have outcomes of their own", jobBatch},
		{"the execs of a task are counted", taskCounts},
		{"a job ends with its exec, which its node ends", jobEnds},
		{"a job is returned unless its exec has started", jobReturned},
		{"of ten thousand jobs the next is found by an index", jobPlans},
		{"a job that has waited too long is taken to be ended", jobExpires},
		{"an unknown exec", unknownExec},
		{"lists run newest first and page by keyset", paging},
		{"pages through equal times miss nothing", pagingEqualTimes},
		{"every filter, alone and together", filters},
		{"scopes narrow a list", scopes},
		{"since is inclusive and until exclusive", sinceUntil},
		{"outlines come newest first, within a time and a bound", outlines},
		{"execs are counted by hour and outcome", hours},
		{"the slowest execs come first, within a time and a bound", slowest},
		{"the events of all execs come in order", changes},
		{"events cannot be changed", immutableEvents},
		{"the log has every event, and proves execs", logOfEvents},
		{"a checkpoint covers the events, or names their execs", logCover},
		{"a record that was altered is not attested", logAttest},
		{"an exec is compared with the signed tree", logStanding},
		{"a report is what the log says of a span", reports},
		{"an exec with large lists and a correction is proven", logLargeLists},
		{"odd texts are proven as they are stored", logOdd},
		{"sequencers that all hold the lease do not fork the log", logRace},
		{"the log is extended from the expected state only", logAppend},
		{"entries of the log cannot be changed", immutableEntries},
		{"an altered log is not signed", logAltered},
		{"a sequencer that crashes loses and doubles nothing", logCrashes},
		{"a step that fails anywhere changes nothing", logFaults},
		{"of two sequencers that have signed, one publishes", logOvertaken},
		{"clocks that jump stop no log", logClocks},
		{"a log that is not the witnessed one stops", logWatched},
		{"the log has the events of both sources", logBoth},
		{"administrative events come back in pages", adminLists},
		{"administrative events have bounded texts", adminOdd},
		{"administrative events are read in order from one index", adminPlans},
		{"a damaged administrative event hides no other", adminDamaged},
		{"administrative events cannot be changed", adminImmutable},
		{"tokens are created and revoked with their events", tokenEvents},
		{"baselines and backends change with their events", changeEvents},
		{"changes of clients are limited", changesAreLimited},
		{"a change that changes nothing takes nothing from the limits", unchangedIsFree},
		{"the ends of changes are not limited", endsAreNotLimited},
		{"what is beyond the limits is counted", refusalsAreCounted},
		{"a change without its event does not happen", refusedEvents},
		{"retention leaves tombstones, and entries of the log", retentionRemoves},
		{"retention keeps what is open, held, unsettled or not logged", retentionKeeps},
		{"retention keeps what is not as the log says", retentionAltered},
		{"nothing goes without a tombstone", retentionTriggers},
		{"one run of retention at a time", retentionLease},
		{"retention notices a clock that jumps", retentionClock},
		{"no exec is removed once it is held", retentionHoldRace},
		{"a run of retention ends what a killed one began", retentionRuns},
		{"sessions begin and end with their events", sessionsBeginAndEnd},
		{"sessions end with their token and their time", sessionsEndByThemselves},
		{"sessions are bounded", sessionsBounded},
		{"people sign in with their role", peopleSignIn},
		{"people are blocked", peopleBlocked},
		{"people are listed in pages", peopleListed},
		{"an own image comes back as it was put, with events", imageRoundTrip},
		{"own images that cannot be are refused", imageRefused},
		{"of concurrent versions of an own image one is put", imageRace},
		{"views are their owner's", viewsOfOwners},
		{"views are bounded", viewsBounded},
		{"views go with their token and their person", viewsEnd},
		{"a run of retention refuses a clock that jumped", retentionClockStops},
		{"files of a project stay for its execs and holds", retentionProjects},
		{"a verification finds nothing in an honest database", verifyHonest},
		{"a verification excuses what an event of the log says that retention removed", verifyRetention},
		{"a verification names every attack", verifyAttacks},
		{"a verification finds nothing in a filled database", verifyFilled},
		{"a verification names every attack on artifacts", verifyArtifacts},
		{"a verification finds nothing wrong in lost and corrected and removed execs", verifyLives},
		{"a damaged cell hides no other", damagedCells},
		{"connections come back", connectionRows},
		{"connections of a lost exec end", lostConnections},
		{"a changed connection is named", changedConnections},
		{"a lease is renewed under its epoch only", leases},
		{"a node with another key than a live one does not join", otherKeys},
		{"only a node with a lease is drained", draining},
		{"only a node without a lease is forgotten", forgetting},
		{"nodes are those that were seen lately", nodesSeen},
		{"samples of nodes come back, one a minute", samplesOfNodes},
		{"samples are bounded in time, also when the clock is set back", samplesBounded},
		{"samples are of a bounded number of nodes", samplesOfManyNodes},
		{"a node whose lease has ended is retired", retiring},
		{"of concurrent retirings one ends the execs", retiringRace},
		{"a retired node starts nothing", retiredStarts},
		{"a webhook is due once its exec has ended, however it ends", webhookDue},
		{"a webhook is taken for the time of a lease", webhookTaken},
		{"of concurrent nodes one takes a webhook", webhookRace},
		{"webhooks are bounded, and forgotten without an exec", webhookBounds},
		{"a webhook is removed with its exec", webhookRemoved},
		{"a webhook's secret is replaced with an event", webhookSecrets},
		{"of ten thousand webhooks those that are due are found by an index", webhookPlans},
		{"the installation's id is made once", installationID},
		{"a ping writes nothing", ping},
		{"a canceled caller gets its cancellation", canceled},
		{"a closed database is unavailable", closed},
		{"lists are read in order from one index", plans},
		{"lists with any two filters are read in order", pairPlans},
		{"lists look at a bounded number of records", looking},
		{"pages of tokens run newest first", tokenPages},
		{"a token is usable until it is revoked", tokenUsable},
		{"a token comes back as it went in", tokenRoundTrip},
		{"token ids and secrets are never used twice", tokenUsedTwice},
		{"a revoked token stays revoked", tokenRevoke},
		{"seeding replaces the seeded ones", tokenSeed},
		{"concurrent seedings make one token", tokenSeedRace},
		{"a runner's token does not close the door", tokenAny},
		{"the token service from secret to refusal", tokenService},
		{"a choice of a sandbox comes back as it was made", choiceRoundTrip},
		{"of concurrent choices one stands whole", choiceRace},
		{"choices that cannot be are refused", choiceRefused},
		{"an entry of the registry comes back as it was published", entryRoundTrip},
		{"entries are listed by name, searched and paged", entryList},
		{"an entry changes only from the expected version", entryVersions},
		{"of concurrent publications exactly one wins", entryRace},
		{"entries that cannot be are refused", entryRefused},
		{"an installation changes only from the expected state", installStates},
		{"of concurrent installations exactly one begins", installRace},
		{"events of the registry are in pages, newest first", registryEvents},
		{"events of the registry cannot be changed", immutableRegistryEvents},
		{"lists of the registry are read in order from one index", registryPlans},
		{"a pointer comes back as it was set", pointerRoundTrip},
		{"ids are compared by bytes", pointerIDs},
		{"ids and states that cannot be are refused", pointerRefused},
		{"the table refuses invalid pointers", pointerChecks},
		{"a pointer changes only from the expected state", pointerCompareAndSwap},
		{"of concurrent settings exactly one wins each round", pointerRace},
		{"concurrent settings lose no update", pointerCounterRace},
		{"making and removing at once leave one or none", pointerRemoveRace},
		{"lists of pointers run by skill id and page by keyset", pointerPaging},
		{"the first access pins every baseline", pinFirst},
		{"pinning keeps what the user has", pinKeeps},
		{"of concurrent first accesses one is the first", pinRace},
		{"no user is pinned to an unused version", pinWhileMoving},
		{"versions in use come once, in order and in pages", versionsInUse},
		{"agents with a pointer come once, in order and in pages", agentsInPages},
		{"all rows of an agent come in order and in pages", rowsInPages},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, fresh(t))
		})
	}
}

// base is a time without a round number in any unit.
var base = time.Date(2026, 3, 4, 5, 6, 7, 123456000, time.UTC)

var counter atomic.Int64

var discard = slog.New(slog.DiscardHandler)

// newID gives ids that ascend.
func newID() string { return fmt.Sprintf("0195%012d", counter.Add(1)) }

// record is a running exec with every field set that is known at the opening.
func record() audit.Record {
	return filled(0, audit.Record{
		ExecID: newID(), Kind: audit.KindExec, ProjectID: "demo", TaskID: "t1", ConversationID: "c1", AgentID: "a1", UserID: "u1",
		SkillID:     "shell.run",
		SkillDigest: "5d1e",
		Image:       "sandbox:1", ImageID: "sha256:aa", Cmd: "bash", Args: []string{"-lc", "echo \"hi\" && exit 3 # ü 漢 😀 <&>\n\t\\u0041"},
		Cwd:     "/workspace/work",
		EnvKeys: []string{"A", "B"}, Inputs: []audit.Input{{Path: "main.py", Size: 8, SHA256: "00ff"}},
		PolicySnapshot: json.RawMessage(`{"fields": {"timeout_ms": {"value": 5000, "layer": "request"}}, "settings_digest": "d"}`),
		Status:         audit.Running, CreatedAt: base, StartedAt: base.Add(time.Millisecond),
		ArtifactsPath: "projects/demo/artifacts/x", NodeID: "n1", Backend: audit.BackendDocker, Runner: "laptop", Warm: false,
		RequestedBy: "tok", RequestDigest: "rd",
		SettingsDigest: "sd", ReplayOf: "0194", EnvHMACs: []string{"0a", "0b"}, HMACSalt: "salt", StdinHMAC: "0c", StdinBytes: 1 << 33,
		Async: true, Priority: audit.Low, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", SpanID: "00f067aa0ba902b7",
	})
}

// filled sets the empty numbers and texts of the columns with this use, so that a new column makes
// its way through the database, too.
func filled(use audit.Use, r audit.Record) audit.Record {
	for i, c := range audit.Columns {
		if c.Use&(audit.MayChange|audit.Clears) != use || c.Name == "net_digest" || c.Name == "net_marks" { // of rows of another table
			continue
		}
		switch f := c.In(&r).(type) {
		case *string:
			*f = cmp.Or(*f, fmt.Sprint("value ", i))
		case *int64:
			*f = cmp.Or(*f, int64(i))
		case **int64:
			*f = cmp.Or(*f, new(int64(i)))
		}
	}
	return r
}

// ended is the same exec after its end.
func ended(r audit.Record) audit.Record {
	code := 3
	r.Status, r.ExitCode, r.ErrorReason, r.Detail = audit.Failed, &code, audit.NonzeroExit, "exit code 3"
	r.EndedAt, r.DurationMS = r.CreatedAt.Add(1501*time.Millisecond), 1500
	r.ManifestDigest, r.StdoutTruncated, r.StderrTruncated = "md", true, true
	r.StdoutBytes, r.StderrBytes, r.ArtifactsBytes, r.OOMEvents = 1<<40, 2, 3, 4
	r.SHA256Before, r.SHA256After = "absent", "ff00"
	r.InputsKept, r.MaxRSSBytes = audit.Kept, new(int64(1<<41))
	return filled(audit.OnClose, r)
}

// in changes a copy of the record.
func in(r audit.Record, change func(*audit.Record)) audit.Record {
	change(&r)
	return r
}

func mustOpen(t *testing.T, s audit.Store, r audit.Record) {
	t.Helper()
	taken, err := s.Open(t.Context(), r)
	if err != nil || taken != nil {
		t.Fatalf("Open(%s) = %+v, %v", r.ExecID, taken, err)
	}
}

func mustGet(t *testing.T, s audit.Store, id string) audit.Record {
	t.Helper()
	r, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatalf("Get(%s): %v", id, err)
	}
	return r
}

func mustEvents(t *testing.T, s audit.Store, id string) []audit.Event {
	t.Helper()
	events, err := s.Events(t.Context(), id)
	if err != nil {
		t.Fatalf("Events(%s): %v", id, err)
	}
	return events
}

// kinds are the kinds of an exec's events in their order.
func kinds(t *testing.T, s audit.Store, id string) []audit.EventKind {
	t.Helper()
	var all []audit.EventKind
	for _, e := range mustEvents(t, s, id) {
		all = append(all, e.Kind)
	}
	return all
}

// same compares records; JSON by its meaning, since a database may order and space it as it likes.
func same(t *testing.T, what string, got, want audit.Record) {
	t.Helper()
	if !sameJSON(got.PolicySnapshot, want.PolicySnapshot) {
		t.Errorf("%s: policy snapshot\n got %s\nwant %s", what, got.PolicySnapshot, want.PolicySnapshot)
	}
	got.PolicySnapshot, want.PolicySnapshot = nil, nil
	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// inEvent is the record that an event holds.
func inEvent(t *testing.T, e audit.Event) audit.Record {
	t.Helper()
	var r audit.Record
	if err := json.Unmarshal(e.Data, &r); err != nil {
		t.Fatalf("event %d: %v: %s", e.Seq, err, e.Data)
	}
	return r
}
