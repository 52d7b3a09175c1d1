package export

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"secbox/audit"
	"secbox/fault"
)

// A FormatInfo describes a format.
type FormatInfo struct {
	Name        string // in the parameter format
	Label       string // for people
	contentType string
	fileName    string
	encoder     func(f Format) encoder
}

// DefaultFormat is the name of the format of a query that names none.
const DefaultFormat = "jsonl"

const ocsf = "ocsf"

// formats are all formats, the default first.
var formats = []FormatInfo{
	{DefaultFormat, "JSON Lines", "application/x-ndjson", "audit.jsonl", func(Format) encoder { return newJSONL() }},
	{"csv", "CSV", "text/csv; charset=utf-8; header=present", "audit.csv", func(Format) encoder { return csvRecords{} }},
	{ocsf, "OCSF", "application/x-ndjson", "audit.jsonl", func(f Format) encoder {
		return ocsfEvents{newJSONL(), cmp.Or(f.OCSFVersion, OCSFVersions()[0])}
	}},
}

// Formats returns all formats in the order of their labels.
func Formats() []FormatInfo {
	return slices.SortedFunc(slices.Values(formats), func(a, b FormatInfo) int { return cmp.Compare(a.Label, b.Label) })
}

// anyOf lists the names of all formats for a sentence, after the text of the first.
func anyOf(first string) string {
	text := first
	for _, f := range formats[1 : len(formats)-1] {
		text += ", " + f.Name
	}
	return text + " or " + formats[len(formats)-1].Name
}

// Format is the form of an export.
type Format struct {
	Name        string // of a FormatInfo
	OCSFVersion string // of OCSF's schema; empty: the newest that this program knows
}

// ContentType returns the media type.
func (f Format) ContentType() string { return f.info().contentType }

// FileName returns a name for the export's file.
func (f Format) FileName() string { return f.info().fileName }

// info describes the format. It is zero for an unknown name.
func (f Format) info() (found FormatInfo) {
	for _, info := range formats {
		if info.Name == f.Name {
			found = info
		}
	}
	return found
}

// Params are the parameters of ParseFormat, for command lines.
func Params() []audit.FilterParam {
	return []audit.FilterParam{
		{Name: "format", Meaning: anyOf(DefaultFormat + " (the default)")},
		{Name: "ocsf_version", Meaning: "of OCSF's schema: " + strings.Join(OCSFVersions(), " or ") + "; the first is the default"},
	}
}

// ParseQuery returns what the parameters of audit.ParseFilter and ParseFormat ask for. get returns
// a parameter by its name, empty if it is absent. Wrong ones go to bad.
func ParseQuery(get func(name string) string, now time.Time, bad *fault.Fields) Query {
	q := Query{Filter: audit.ParseFilter(get, now, bad), Format: ParseFormat(get, bad), Asked: map[string]string{}}
	for _, p := range append(audit.FilterParams(), Params()...) {
		if value := get(p.Name); value != "" {
			q.Asked[p.Name] = value
		}
	}
	return q
}

// ParseFormat returns the format that the parameters format and ocsf_version name. An empty format
// is DefaultFormat.
func ParseFormat(get func(name string) string, bad *fault.Fields) Format {
	f := Format{Name: cmp.Or(get("format"), DefaultFormat), OCSFVersion: get("ocsf_version")}
	if f.info().encoder == nil {
		bad.Add("format", "must be %s", anyOf(DefaultFormat))
	} else if f.OCSFVersion != "" && f.Name != ocsf {
		bad.Add("ocsf_version", "is for format=ocsf only")
	} else if f.OCSFVersion != "" && !slices.Contains(OCSFVersions(), f.OCSFVersion) {
		bad.Add("ocsf_version", "must be one of %s", strings.Join(OCSFVersions(), ", "))
	}
	return f
}

// kind returns the record's kind; an empty one is audit.KindExec.
func kind(r audit.Record) audit.Kind {
	if r.Kind == "" {
		return audit.KindExec
	}
	return r.Kind
}
