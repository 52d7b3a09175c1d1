package export

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// Format is the form of an export.
type Format struct {
	Name        string // jsonl, csv or ocsf
	OCSFVersion string // of OCSF's schema; empty: the newest that this program knows
}

// Params are the parameters of ParseFormat, for command lines.
func Params() []audit.FilterParam {
	return []audit.FilterParam{
		{Name: "format", Meaning: "jsonl (the default), csv or ocsf"},
		{Name: "ocsf_version", Meaning: "of OCSF's schema: " + strings.Join(OCSFVersions(), " or ") + "; the first is the default"},
	}
}

// ParseQuery returns what the parameters of audit.ParseFilter and ParseFormat ask for. get returns a parameter by its name, empty if it is absent. Wrong ones go to bad.
func ParseQuery(get func(name string) string, now time.Time, bad *fault.Fields) Query {
	q := Query{Filter: audit.ParseFilter(get, now, bad), Format: ParseFormat(get, bad), Asked: map[string]string{}}
	for _, p := range append(audit.FilterParams(), Params()...) {
		if value := get(p.Name); value != "" {
			q.Asked[p.Name] = value
		}
	}
	return q
}

// ParseFormat returns the format that the parameters format and ocsf_version name. An empty format is JSON Lines.
func ParseFormat(get func(name string) string, bad *fault.Fields) Format {
	f := Format{Name: get("format"), OCSFVersion: get("ocsf_version")}
	if f.Name == "" {
		f.Name = "jsonl"
	}
	if _, known := encoders[f.Name]; !known {
		bad.Add("format", "must be jsonl, csv or ocsf")
	} else if f.OCSFVersion != "" && f.Name != "ocsf" {
		bad.Add("ocsf_version", "is for format=ocsf only")
	} else if f.OCSFVersion != "" && !slices.Contains(OCSFVersions(), f.OCSFVersion) {
		bad.Add("ocsf_version", "must be one of %s", strings.Join(OCSFVersions(), ", "))
	}
	return f
}

// ContentType returns the media type.
func (f Format) ContentType() string {
	if f.Name == "csv" {
		return "text/csv; charset=utf-8; header=present"
	}
	return "application/x-ndjson"
}

// FileName returns a name for the export's file.
func (f Format) FileName() string {
	if f.Name == "csv" {
		return "audit.csv"
	}
	return "audit.jsonl"
}

var encoders = map[string]func(f Format) encoder{
	"jsonl": func(Format) encoder { return newJSONL() },
	"csv":   func(Format) encoder { return csvRecords{} },
	"ocsf":  func(f Format) encoder { return ocsfEvents{newJSONL(), cmp.Or(f.OCSFVersion, OCSFVersions()[0])} },
}

func (f Format) encoder() (encoder, error) {
	if make, ok := encoders[f.Name]; ok {
		return make(f), nil
	}
	return nil, fault.BadField("format", "must be jsonl, csv or ocsf")
}

// kind returns the record's kind; an empty one is audit.KindExec.
func kind(r audit.Record) audit.Kind {
	if r.Kind == "" {
		return audit.KindExec
	}
	return r.Kind
}
