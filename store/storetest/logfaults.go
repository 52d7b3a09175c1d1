package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"secbox/audit/translog"
	"secbox/audit/translog/verify"
)

// errFault is the error of a step that a test lets fail.
var errFault = errors.New("fault")

// faulty is a store one of whose readings fails.
type faulty struct {
	translog.Store
	method string
}

func (s faulty) State(ctx context.Context) (translog.State, error) {
	if s.method == "State" {
		return translog.State{}, errFault
	}
	return s.Store.State(ctx)
}

func (s faulty) Unlogged(ctx context.Context, floors translog.Floors, limit int) (translog.Unlogged, error) {
	if s.method == "Unlogged" {
		return translog.Unlogged{}, errFault
	}
	return s.Store.Unlogged(ctx, floors, limit)
}

func (s faulty) Tile(ctx context.Context, level int, n int64) ([]byte, error) {
	if s.method == "Tile" {
		return nil, errFault
	}
	return s.Store.Tile(ctx, level, n)
}

// logFaults lets each reading and each change of a step fail, among them changes in the middle of
// the transaction.
func logFaults(t *testing.T, f Fixture) {
	file, key := logKey(t)
	s := f.TransparencyLog()
	newEvents := func() {
		for range 2 {
			r := record()
			mustOpen(t, f.Audit(), r)
			if _, err := f.Audit().Close(t.Context(), ended(r)); err != nil {
				t.Fatal(err)
			}
		}
	}
	newEvents()
	logAll(t, sequencer(t, s, "n1", file))
	fails := func(what string, s translog.Store) {
		t.Helper()
		before, err := s.State(t.Context())
		if err != nil && what != "State" {
			t.Fatal(err)
		}
		newEvents()
		if n, err := sequencer(t, s, "n1", file).Step(t.Context()); n != 0 || err == nil {
			t.Errorf("%s: %d, %v", what, n, err)
		}
		after, err := s.State(t.Context())
		if err != nil && what != "State" || after.Size != before.Size || after.Root != before.Root ||
			after.Checkpoint != before.Checkpoint {
			t.Errorf("%s: %d entries and then %d, %v", what, before.Size, after.Size, err)
		}
	}
	rounds := 1
	for _, method := range []string{"State", "Unlogged", "Tile"} {
		fails(method, faulty{s, method})
		rounds++
	}
	if f.Kind() == "postgres" {
		f.mustSQL(t, "CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'fault'; END $$")
	}
	for _, at := range []struct{ change, table, when string }{
		{"UPDATE", "audit_log", "1 = 1"},
		{"INSERT", "audit_log_entries", "NEW.idx % 4 = 3"}, // the first entries are written
		{"INSERT", "audit_log_tiles", "1 = 1"},
		{"UPDATE", "audit_log_tiles", "1 = 1"},
		{"UPDATE", "audit_log_sources", "1 = 1"},
	} {
		trigger, drop := "CREATE TRIGGER fault BEFORE "+at.change+" ON "+at.table+" FOR EACH ROW WHEN ("+at.when+")", "DROP TRIGGER fault"
		if f.Kind() == "postgres" {
			trigger, drop = trigger+" EXECUTE FUNCTION fault()", drop+" ON "+at.table
		} else {
			trigger += " BEGIN SELECT RAISE(ABORT, 'fault'); END"
		}
		f.mustSQL(t, trigger)
		fails(at.change+" "+at.table, s)
		rounds++
		f.mustSQL(t, drop)
		logAll(t, sequencer(t, s, "n1", file))
	}
	if got, want := len(verifyLog(t, s, key)), rounds*2*3; got != want {
		t.Errorf("the log has %d entries, want %d", got, want)
	}
	checkLogged(t, f)
}

// overtaken is a store that another sequencer changes between the reading and the append of this
// one.
type overtaken struct {
	translog.Store
	by func()
}

func (s overtaken) Append(ctx context.Context, a translog.Append) (bool, error) {
	s.by()
	return s.Store.Append(ctx, a)
}

// logOvertaken: of two sequencers that have both signed the next checkpoint, one publishes it.
func logOvertaken(t *testing.T, f Fixture) {
	file, key := logKey(t)
	s := unleased{f.TransparencyLog()}
	for round := range 4 {
		mustOpen(t, f.Audit(), record())
		fast := sequencer(t, s, "n2", file)
		slow := sequencer(t, overtaken{s, func() {
			if round%2 == 0 { // of the same events, or of more
				mustOpen(t, f.Audit(), record())
			}
			if n, err := fast.Step(t.Context()); n == 0 || err != nil {
				t.Errorf("the other sequencer: %d, %v", n, err)
			}
		}}, "n1", file)
		if n, err := slow.Step(t.Context()); n != 0 || err != nil {
			t.Errorf("a sequencer that was overtaken: %d, %v", n, err)
		}
	}
	logAll(t, sequencer(t, s, "n3", file))
	if got := len(verifyLog(t, s, key)); got != 12 {
		t.Errorf("the log has %d entries, want 12", got)
	}
	checkLogged(t, f)
}

// leasedFor is a store in which a lease lasts too long, as if the database's clock had been set
// back since.
type leasedFor struct {
	translog.Store
	lease time.Duration
}

func (s leasedFor) Append(ctx context.Context, a translog.Append) (bool, error) {
	a.Lease = s.lease
	return s.Store.Append(ctx, a)
}

// logClocks sets the clocks of nodes and database forwards and back.
func logClocks(t *testing.T, f Fixture) {
	e := newEvidence(t, f)
	s := f.TransparencyLog()
	for i, jump := range []time.Duration{48 * time.Hour, -48 * time.Hour, -10 * 365 * 24 * time.Hour, 0} {
		mustOpen(t, f.Audit(), record())
		q := translog.NewSequencer(translog.SequencerConfig{
			Store: leasedFor{s, 24 * time.Hour}, Origin: origin, Holder: []string{"n1", "n2"}[i%2], Logger: discard,
			Now: func() time.Time { return time.Now().Add(jump) },
			Key: func(bool) (translog.Key, error) { return translog.ReadKey(e.keyFile, origin) },
		})
		logAll(t, q)
		if lag, err := (translog.Log{Store: s}).Lag(t.Context(), time.Now().Add(jump)); err != nil || lag.Events != 0 || lag.Age < 0 {
			t.Errorf("%v: %+v, %v", jump, lag, err)
		}
	}
	if lines, sum, _ := e.verify(t, verify.Options{}); len(lines) > 0 || sum.Size != 20 {
		t.Errorf("%q, %+v", lines, sum)
	}
}
