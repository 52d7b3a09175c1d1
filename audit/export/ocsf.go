package export

import (
	"cmp"
	"path"
	"strings"
	"time"

	"secbox/audit"
)

// OCSFVersions are the versions of OCSF's schema that exports can follow, newest first.
func OCSFVersions() []string { return []string{"1.8.0", "1.1.0"} }

// Numbers of OCSF's schema, the same in all versions above.
const (
	processActivity = 1007
	fileActivity    = 1001

	launch    = 1 // of a process
	terminate = 2

	create = 1 // of a file
	update = 3
	remove = 4

	other         = 99
	informational = 1
	server        = 1 // type of a device
	regularFile   = 1
	sha256ID      = 3
)

// ocsfEvents writes each record as an event of OCSF, a line of JSON: an exec is a Process Activity,
// a change of a file a File System Activity. What OCSF has no attribute for is in unmapped.record,
// which is the whole record.
type ocsfEvents struct {
	jsonLines
	version string
}

type (
	ocsfEvent struct {
		ActivityID    int           `json:"activity_id"`
		CategoryUID   int           `json:"category_uid"`
		ClassUID      int           `json:"class_uid"`
		TypeUID       int           `json:"type_uid"`
		Time          int64         `json:"time"` // milliseconds since 1970
		StartTime     int64         `json:"start_time,omitzero"`
		EndTime       int64         `json:"end_time,omitzero"`
		Duration      int64         `json:"duration,omitzero"` // milliseconds
		SeverityID    int           `json:"severity_id"`
		StatusID      int           `json:"status_id,omitzero"`
		Status        string        `json:"status,omitzero"`
		StatusCode    string        `json:"status_code,omitzero"`
		StatusDetail  string        `json:"status_detail,omitzero"`
		ActionID      int           `json:"action_id,omitzero"`
		DispositionID int           `json:"disposition_id,omitzero"`
		ExitCode      *int          `json:"exit_code,omitzero"`
		Message       string        `json:"message,omitzero"`
		Actor         *ocsfActor    `json:"actor,omitzero"`
		Device        *ocsfDevice   `json:"device,omitzero"`
		Process       *ocsfProcess  `json:"process,omitzero"`
		File          *ocsfFile     `json:"file,omitzero"`
		Metadata      *ocsfMetadata `json:"metadata"`
		Unmapped      any           `json:"unmapped"`
	}
	ocsfNamed struct {
		Name string `json:"name,omitzero"`
		UID  string `json:"uid,omitzero"`
	}
	ocsfActor struct {
		User ocsfNamed `json:"user"`
	}
	ocsfDevice struct {
		TypeID int    `json:"type_id"`
		UID    string `json:"uid"`
		Name   string `json:"name"`
	}
	ocsfProcess struct {
		UID            string         `json:"uid"`
		Name           string         `json:"name"`
		CmdLine        string         `json:"cmd_line"`
		CreatedTime    int64          `json:"created_time,omitzero"`
		TerminatedTime int64          `json:"terminated_time,omitzero"`
		Container      *ocsfContainer `json:"container,omitzero"`
	}
	ocsfContainer struct {
		Name    string    `json:"name"`
		Image   ocsfNamed `json:"image"`
		Runtime string    `json:"runtime"`
	}
	ocsfFile struct {
		Name   string     `json:"name"`
		Path   string     `json:"path"`
		TypeID int        `json:"type_id"`
		Hashes []ocsfHash `json:"hashes,omitzero"`
	}
	ocsfHash struct {
		AlgorithmID int    `json:"algorithm_id"`
		Algorithm   string `json:"algorithm"`
		Value       string `json:"value"`
	}
	ocsfMetadata struct {
		Version        string      `json:"version"`
		UID            string      `json:"uid,omitzero"`
		CorrelationUID string      `json:"correlation_uid,omitzero"`
		Profiles       []string    `json:"profiles,omitzero"`
		Product        ocsfProduct `json:"product"`
	}
	ocsfProduct struct {
		Name       string `json:"name"`
		VendorName string `json:"vendor_name"`
	}
	ocsfRecord struct {
		Record withRequest `json:"record"`
	}
)

func (o ocsfEvents) metadata() *ocsfMetadata {
	return &ocsfMetadata{Version: o.version, Product: ocsfProduct{"secbox", "secbox"}}
}

func (o ocsfEvents) record(b []byte, r audit.Record) ([]byte, error) {
	r.Kind = kind(r)
	e := ocsfEvent{
		CategoryUID: processActivity / 1000, ClassUID: processActivity, SeverityID: informational,
		Time: millis(r.CreatedAt), StartTime: millis(r.StartedAt), EndTime: millis(r.EndedAt), Duration: r.DurationMS,
		StatusID: statusID(r.Status), Status: string(r.Status), StatusCode: string(r.ErrorReason), StatusDetail: r.Detail,
		ActionID: 1, DispositionID: 1, ExitCode: r.ExitCode, // allowed
		Actor:    &ocsfActor{ocsfNamed{UID: r.RequestedBy, Name: r.UserID}},
		Device:   &ocsfDevice{TypeID: server, UID: r.NodeID, Name: r.NodeID},
		Metadata: o.metadata(), Unmapped: ocsfRecord{withRequest{&r, r.Request}},
	}
	e.Metadata.UID, e.Metadata.CorrelationUID = r.ExecID, r.TaskID
	e.Metadata.Profiles = []string{"container", "host", "security_control"}
	if r.Runner != "" {
		e.Device = &ocsfDevice{UID: r.Runner, Name: r.Runner} // of an unknown type
	}
	if r.Status == audit.Rejected {
		e.ActionID, e.DispositionID = 2, 2 // denied, blocked
	}
	if r.Kind == audit.KindChange {
		o.file(&e, r)
	} else {
		o.process(&e, r)
	}
	e.TypeUID = e.ClassUID*100 + e.ActivityID
	return o.append(b, &e)
}

// process completes the event of an exec.
func (o ocsfEvents) process(e *ocsfEvent, r audit.Record) {
	e.ActivityID = launch
	switch {
	case !r.EndedAt.IsZero() && !r.StartedAt.IsZero():
		e.ActivityID, e.Time = terminate, millis(r.EndedAt)
	case !r.StartedAt.IsZero():
		e.Time = millis(r.StartedAt)
	}
	e.Process = &ocsfProcess{
		UID: r.ExecID, Name: r.Cmd, CmdLine: strings.Join(append([]string{r.Cmd}, r.Args...), " "), CreatedTime: millis(r.StartedAt),
		TerminatedTime: millis(r.EndedAt),
	}
	if r.Backend == audit.BackendDocker {
		image := ocsfNamed{r.Image, r.ImageID}
		if image.UID == "" {
			image.UID = r.Image
		}
		e.Process.Container = &ocsfContainer{r.ExecID, image, "docker"}
	}
}

// file completes the event of a change of a file, whose path is the first of the arguments.
func (o ocsfEvents) file(e *ocsfEvent, r audit.Record) {
	e.ClassUID, e.ExitCode = fileActivity, nil
	if !r.EndedAt.IsZero() {
		e.Time = millis(r.EndedAt)
	}
	name := r.Cmd // in a summary
	if len(r.Args) > 0 {
		name = r.Args[0]
	}
	e.File = &ocsfFile{Name: path.Base(name), Path: name, TypeID: regularFile}
	switch {
	case r.SHA256After == absent:
		e.ActivityID = remove
	case r.SHA256Before == absent:
		e.ActivityID = create
	default:
		e.ActivityID = update
	}
	if r.SHA256After != "" && r.SHA256After != absent {
		e.File.Hashes = []ocsfHash{{sha256ID, "SHA-256", r.SHA256After}}
	}
}

// absent is the digest of a file that is not there.
const absent = "absent"

// statusID is 1 for a success, 2 for a failure, and 0 for an outcome that is not known.
func statusID(s audit.Status) int {
	switch {
	case s == audit.Succeeded:
		return 1
	case !s.Final() || s == audit.Lost:
		return 0
	}
	return 2
}

func (o ocsfEvents) notLogged(b []byte, execIDs []string) ([]byte, error) {
	return o.base(b, "the transparency log does not have all events of these execs yet", time.Now(), notLogged{typeNotLogged, execIDs})
}

func (o ocsfEvents) end(b []byte, e end) ([]byte, error) {
	return o.base(b, cmp.Or(e.Problem, "the export ends with the checkpoint that covers it"), e.CreatedBefore, e)
}

// base appends an event of no class, which OCSF calls a Base Event.
func (o ocsfEvents) base(b []byte, message string, at time.Time, unmapped any) ([]byte, error) {
	return o.append(b, &ocsfEvent{
		ActivityID: other, TypeUID: other, SeverityID: informational, Time: millis(at), Message: message, Metadata: o.metadata(),
		Unmapped: unmapped,
	})
}

// millis is 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
