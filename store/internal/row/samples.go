package row

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"secbox/cluster/samples"
	"secbox/fault"
)

// Samples implements samples.Store. Tx runs statements of constant text in one durable transaction.
type Samples struct {
	Database
	Tx func(ctx context.Context, fn func(run Run) error) error
}

// Add implements samples.Store.
func (db Samples) Add(ctx context.Context, s samples.Sample) error {
	health, err := json.Marshal(s.Health)
	if err != nil {
		return err
	}
	return db.Tx(ctx, func(run Run) error {
		args := Params{Text(s.NodeID), Text(valuesText(s.Values)), Text(string(health)), int64(samples.MaxNodes)}
		now := db.Minute(&args)
		minute, stored, err := One(ctx, run, Value[int64], "INSERT INTO node_samples (node_id, minute, numbers, health) SELECT $1, "+now+
			", $2, $3 WHERE (SELECT count(*) FROM node_samples WHERE minute = "+now+" AND node_id <> $1) < $4"+
			" ON CONFLICT (node_id, minute) DO UPDATE SET numbers = excluded.numbers, health = excluded.health RETURNING minute", args...)
		if err == nil && !stored {
			err = fault.New(fault.ServerBusy, "%d nodes have a sample of this minute, which is the limit", samples.MaxNodes)
		}
		if err == nil {
			err = run(ctx, nil, "UPDATE node_samples SET health = '' WHERE node_id = $1 AND minute < $2 AND health <> ''", Text(s.NodeID), minute)
		}
		if err == nil {
			err = run(ctx, nil, "DELETE FROM node_samples WHERE minute < $1", minute-minutes(samples.Keep))
		}
		if err == nil { // another node's sample may be of the next minute already
			err = run(ctx, nil, "DELETE FROM node_samples WHERE minute > $1", minute+1)
		}
		return err
	})
}

// valuesText is the column of values: "queued=0 running=3". A page reads 1,440 of them, for which
// JSON takes 20 ms.
func valuesText(values map[samples.Name]int64) string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(string(name) + "=" + strconv.FormatInt(values[name], 10))
	}
	return b.String()
}

// valuesOf leaves out what is no value.
func valuesOf(text string) map[samples.Name]int64 {
	values := make(map[samples.Name]int64, strings.Count(text, "="))
	for text != "" {
		var one string
		one, text, _ = strings.Cut(text, " ")
		name, number, _ := strings.Cut(one, "=")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			values[samples.Name(name)] = n
		}
	}
	return values
}

func minutes(d time.Duration) int64 { return int64(d / time.Minute) }

// Day implements samples.Store.
func (db Samples) Day(ctx context.Context, nodeID string) (day samples.Day, err error) {
	args := Params{Text(nodeID), minutes(samples.Shown)}
	now := db.Minute(&args)
	day.Samples, err = All(ctx, db.Query, func(scan Scan) (samples.Sample, error) {
		var minute, present int64
		s, numbers := samples.Sample{NodeID: nodeID}, ""
		err := scan(&minute, &present, &numbers)
		s.At, day.Now = time.Unix(60*minute, 0).UTC(), time.Unix(60*present, 0).UTC()
		s.Values = valuesOf(numbers)
		return s, err
	}, "SELECT minute, "+now+", numbers FROM node_samples WHERE node_id = $1 AND minute > "+now+" - $2 AND minute <= "+now+
		" ORDER BY minute", args...)
	return day, err
}

// Latest implements samples.Store.
func (db Samples) Latest(ctx context.Context) (map[string]samples.Sample, error) {
	args := Params{minutes(samples.Lately)}
	now := db.Minute(&args)
	latest := map[string]samples.Sample{}
	err := db.Query(ctx, func(scan Scan) error {
		var s samples.Sample
		var minute int64
		var numbers, health string
		err := scan(&s.NodeID, &minute, &numbers, &health)
		s.At = time.Unix(60*minute, 0).UTC()
		s.Values = valuesOf(numbers)
		_ = json.Unmarshal([]byte(health), &s.Health) // not known if it is no JSON
		latest[s.NodeID] = s
		return err
	}, "SELECT node_id, minute, numbers, health FROM node_samples WHERE minute > "+now+" - $1 AND minute <= "+now+" ORDER BY minute", args...)
	return latest, err
}
