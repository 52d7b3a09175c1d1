package workspace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"

	"secbox/workspace/tree"
)

// Kinds of artifacts.
const (
	KindFile    = "file"
	KindSymlink = "symlink"
	KindFIFO    = "fifo"
	KindSocket  = "socket"
	KindDevice  = "device"
)

// Reasons why something is omitted.
const (
	OmitReserved   = "reserved_name" // of early versions: stdout.txt, stderr.txt, manifest.json or meta.json
	OmitOverLimit  = "over_limit"    // does not fit into max_artifacts_bytes_total
	OmitTooMany    = "too_many"      // more entries, or longer paths altogether, than a manifest lists
	OmitTooDeep    = "too_deep"      // below more directories than are walked
	OmitNotUTF8    = "name_not_utf8" // JSON cannot carry the name, and with its bytes as %XX it is taken or too long; path shows it escaped
	OmitForeign    = "foreign_name"  // Windows, where core-api runs, has no such name
	OmitUnreadable = "unreadable"    // of a kind that this system does not know, or a link whose target changed while it was copied
)

// Bounds of a manifest, which is read as a whole. A job can make millions of entries in a minute.
const (
	MaxArtifacts    = tree.MaxEntries // files and directories
	MaxDepth        = tree.MaxDepth   // directories below each other
	MaxPathBytes    = 4 << 20         // all listed paths together: 10,000 paths of 400 bytes
	maxOmittedLines = 1_000           // lines in omitted; omitted_count goes on
	maxOmittedName  = 512             // bytes of a path shown in omitted: a reason needs no more
	// maxManifestBytes is the most bytes of such a manifest as JSON, where one byte may become six
	// (\u0001).
	maxManifestBytes = 6*(3*MaxPathBytes+maxOmittedLines*maxOmittedName) + 256*(tree.MaxEntries+maxOmittedLines) + 4096
)

// ManifestEntry is an artifact. Only regular files are opened and have Size and SHA256.
type ManifestEntry struct {
	Path   string `json:"path"` // relative to the exec's artifacts, with slashes
	Size   int64  `json:"size"` // bytes, apparent
	SHA256 string `json:"sha256,omitempty"`
	Kind   string `json:"kind"`

	// Stored is where the file is below the exec's artifacts, if not at Path: core-api's own files
	// have that name.
	Stored string `json:"stored,omitempty"`

	// Link is the target of the symbolic link that the job had made, and in whose place the file is
	// a copy.
	Link string `json:"link,omitempty"`
}

// onDisk returns the path of the file below the exec's artifacts.
func (e ManifestEntry) onDisk() string { return cmp.Or(e.Stored, e.Path) }

// OmittedEntry is an artifact that was removed; a directory has one line.
type OmittedEntry struct {
	Path   string `json:"path"` // cut when very long, escaped when it is not UTF-8
	Size   int64  `json:"size"` // bytes, of a regular file
	Reason string `json:"reason"`
}

// Manifest lists the artifacts of an exec in the order of the walk: names sorted within a
// directory, a directory's content at its place. Directories are not listed.
type Manifest struct {
	ExecID       string          `json:"exec_id"`
	Files        []ManifestEntry `json:"files"`
	TotalBytes   int64           `json:"total_bytes"` // of the regular files in Files
	Truncated    bool            `json:"truncated"`   // something was removed because of a limit
	Omitted      []OmittedEntry  `json:"omitted"`     // the first 1,000
	OmittedCount int64           `json:"omitted_count"`

	// Published lists the files of core-api: stdout.txt, stderr.txt, meta.json, terminal.cast of
	// an exec with a terminal, and usage.json of a session. Manifests of early versions have none.
	Published []ManifestEntry `json:"published,omitempty"`

	// Limits are the reasons of Truncated, as Collect found them: OmitOverLimit, OmitTooMany,
	// OmitTooDeep. Omitted may not have all of them.
	Limits []string `json:"-"`
}

// JSON is the published form of the manifest. It is canonical, so that its digest identifies the
// content.
func (m Manifest) JSON() ([]byte, error) {
	if m.Files == nil {
		m.Files = []ManifestEntry{}
	}
	if m.Omitted == nil {
		m.Omitted = []OmittedEntry{}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(m); err != nil {
		return nil, fmt.Errorf("encode the manifest: %w", err)
	}
	return b.Bytes(), nil
}
