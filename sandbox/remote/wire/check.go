package wire

import (
	"cmp"
	"io/fs"
	"math"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"secbox/sandbox"
)

// Bounds that valid messages do not come near.
const (
	maxPathBytes = 32 << 10 // longer than any valid path: those are the runner's to refuse
	maxUserID    = 512
	maxFileName  = 4 * sandbox.MaxNameBytes // replaced bytes of a name that is not UTF-8 grow
	maxCode      = 64
	maxHeartbeat = 3_600_000
	maxCan       = 64
	maxInput     = 1 << 52 // bytes or signals; JSON numbers are exact up to there

	MaxEntries = 8192      // names in one message
	MaxArgs    = 16 << 10  // of a command
	MaxEnv     = 4096      // variables of a command
	MaxTimeout = 8_640_000 // of a command, in seconds: 100 days
)

func (h *Hello) check(Type) error {
	switch {
	case !isHex(h.Session, 32):
		return protocolErrorf("hello: the session must be 32 hexadecimal digits")
	case !sandbox.ValidRunnerName(h.Name):
		return protocolErrorf("hello: the name must be 1 to %d letters, digits, dots, underscores and dashes, a letter or digit first",
			sandbox.MaxRunnerName)
	case !isWord(h.Version) || !isWord(h.OS) || !isWord(h.Arch) || !isWord(h.Shell):
		return protocolErrorf("hello: version, os, arch and shell must be 1 to %d printable bytes", MaxWordBytes)
	case len(h.Allow) > 2 || len(h.Allow) == 2 && h.Allow[0] == h.Allow[1]:
		return protocolErrorf("hello: allow has each of exec and write at most once")
	case len(h.Held) > MaxHeld:
		return protocolErrorf("hello: held has %d ids, more than %d", len(h.Held), MaxHeld)
	}
	if len(h.Can) > maxCan {
		return protocolErrorf("hello: can has %d entries, more than %d", len(h.Can), maxCan)
	}
	for _, c := range h.Can {
		if !isWord(c) {
			return protocolErrorf("hello: an entry of can must be 1 to %d printable bytes", MaxWordBytes)
		}
	}
	for _, a := range h.Allow {
		if a != AllowExec && a != AllowWrite {
			return protocolErrorf("hello: %s cannot be allowed", quoted(a))
		}
	}
	for _, id := range h.Held {
		if err := checkID(id, TypeHello); err != nil {
			return err
		}
	}
	return nil
}

// The values of Hello.Allow.
const (
	AllowExec  = "exec"
	AllowWrite = "write"
)

func (w *Welcome) check(Type) error {
	switch {
	case w.UserID == "" || len(w.UserID) > maxUserID:
		return protocolErrorf("welcome: user_id must have 1 to %d bytes", maxUserID)
	case !isWord(w.Version):
		return protocolErrorf("welcome: the version must be 1 to %d printable bytes", MaxWordBytes)
	case w.HeartbeatMS < 1 || w.HeartbeatMS > maxHeartbeat:
		return protocolErrorf("welcome: heartbeat_ms must be 1 to %d", maxHeartbeat)
	case len(w.Expects) > MaxHeld:
		return protocolErrorf("welcome: expects has %d entries, more than %d", len(w.Expects), MaxHeld)
	}
	for _, e := range w.Expects {
		if err := checkID(e.ID, TypeWelcome); err != nil {
			return err
		}
		if !isOffset(e.Stdout) || !isOffset(e.Stderr) {
			return protocolErrorf("welcome: an offset must be 0 to %d", sandbox.MaxOutputBytes)
		}
	}
	return nil
}

func (e *Exec) check(Type) error {
	switch {
	case len(e.Args) > MaxArgs:
		return protocolErrorf("exec has %d arguments, more than %d", len(e.Args), MaxArgs)
	case len(e.Env) > MaxEnv:
		return protocolErrorf("exec has %d variables, more than %d", len(e.Env), MaxEnv)
	case len(e.Dir) > maxPathBytes:
		return protocolErrorf("exec: dir has more than %d bytes", maxPathBytes)
	case len(e.UserID) > maxUserID:
		return protocolErrorf("exec: user_id has more than %d bytes", maxUserID)
	case !(e.Timeout >= 0 && e.Timeout <= MaxTimeout):
		return protocolErrorf("exec: the timeout must be 0 to %d seconds", MaxTimeout)
	case !isOffset(e.MaxStdout) || !isOffset(e.MaxStderr):
		return protocolErrorf("exec: max_stdout and max_stderr must be 0 to %d", sandbox.MaxOutputBytes)
	}
	if e.Input && e.Stdin != "" {
		return protocolErrorf("exec has stdin, and says that it comes in messages")
	}
	return decodeTexts(TypeExec, &e.Encoding, &e.Stdin)
}

func (s *Stdin) check(Type) error {
	switch {
	case len(s.Data) > MaxOutput || len(s.Data) == 0 && !s.End:
		return protocolErrorf("stdin must have 1 to %d bytes, or end", MaxOutput)
	case s.Offset < 0 || s.Offset > maxInput:
		return protocolErrorf("stdin: the offset must be 0 to %d", int64(maxInput))
	}
	return nil
}

// SignalNames are the signals of Signal by name.
var SignalNames = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL,
}

func (s *Signal) check(Type) error {
	switch {
	case SignalNames[s.Signal] == 0:
		return protocolErrorf("signal: there is no signal %s here", quoted(s.Signal))
	case s.Number < 1 || s.Number > maxInput:
		return protocolErrorf("signal: the number must be 1 to %d", int64(maxInput))
	}
	return nil
}

func (a *InputAck) check(Type) error {
	if a.Stdin < 0 || a.Stdin > maxInput || a.Signals < 0 || a.Signals > maxInput {
		return protocolErrorf("input_ack: the numbers must be 0 to %d", int64(maxInput))
	}
	return nil
}

func (p *Path) check(t Type) error {
	switch {
	case len(p.Path) > maxPathBytes:
		return protocolErrorf("%s: the path has more than %d bytes", t, maxPathBytes)
	case len(p.UserID) > maxUserID:
		return protocolErrorf("%s: user_id has more than %d bytes", t, maxUserID)
	case p.Perm > 0o777:
		return protocolErrorf("%s: perm has more than the nine bits of permissions", t)
	case p.Perm != 0 && t != TypeMkdirAll && t != TypeWriteFile:
		return protocolErrorf("%s has no perm", t)
	case p.Data != nil && t != TypeWriteFile:
		return protocolErrorf("%s has no data", t)
	case len(p.Data) > InlineBytes:
		return protocolErrorf("%s has %d bytes of data, more than %d", t, len(p.Data), InlineBytes)
	case p.Transfer != "" && t != TypeWriteFile && t != TypeReadFile:
		return protocolErrorf("%s has no transfer", t)
	case p.Transfer != "" && !isHex(p.Transfer, 32):
		return protocolErrorf("%s: transfer must be 32 hexadecimal digits", t)
	case p.Digest != "" && (p.Digest != DigestGMAC || p.Transfer == ""):
		return protocolErrorf("%s: there is no digest %s, or no transfer that it is of", t, quoted(p.Digest))
	case p.IfSHA256 != "" && t != TypeWriteFile:
		return protocolErrorf("%s has no if_sha256", t)
	case p.IfSHA256 != "" && !isHex(p.IfSHA256, 64):
		return protocolErrorf("%s: if_sha256 must be 64 hexadecimal digits", t)
	case p.IfAbsent && (t != TypeWriteFile || p.IfSHA256 != ""):
		return protocolErrorf("%s has no if_absent, or if_sha256 too", t)
	case t == TypeWriteFile && (p.Data == nil) == (p.Transfer == ""):
		return protocolErrorf("%s needs data or a transfer, one of them", t)
	}
	return nil
}

func (o *Output) check(Type) error {
	switch {
	case o.Stream != Stdout && o.Stream != Stderr:
		return protocolErrorf("output: there is no stream %s", quoted(o.Stream))
	case len(o.Data) == 0 || len(o.Data) > MaxOutput:
		return protocolErrorf("output must have 1 to %d bytes", MaxOutput)
	case !isOffset(o.Offset) || !isOffset(o.Offset+int64(len(o.Data))):
		return protocolErrorf("output: the offset must be 0 to %d", sandbox.MaxOutputBytes)
	}
	return nil
}

// The streams of Output.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

func (r *ExecResult) check(Type) error {
	if err := decodeTexts(TypeExecResult, &r.Encoding, &r.Stdout, &r.Stderr); err != nil {
		return err
	}
	r.StdoutBytes = cmp.Or(r.StdoutBytes, r.StdoutAt+int64(len(r.Stdout)))
	r.StderrBytes = cmp.Or(r.StderrBytes, r.StderrAt+int64(len(r.Stderr)))
	switch {
	case !isOffset(r.StdoutAt) || !isOffset(r.StderrAt) ||
		!isOffset(r.StdoutAt+int64(len(r.Stdout))) || !isOffset(r.StderrAt+int64(len(r.Stderr))):
		return protocolErrorf("exec_result gives back more than %d bytes of a stream", sandbox.MaxOutputBytes)
	case r.StdoutBytes < r.StdoutAt+int64(len(r.Stdout)) || r.StderrBytes < r.StderrAt+int64(len(r.Stderr)):
		return protocolErrorf("exec_result gives back more than was written")
	case r.ExitCode < -1 || int64(r.ExitCode) > math.MaxUint32 || r.TimedOut && r.ExitCode != -1:
		return protocolErrorf("exec_result: there is no exit code %d here", r.ExitCode)
	}
	return nil
}

func (c *FileContent) check(Type) error {
	if c.SHA256 == "" {
		c.Size = cmp.Or(c.Size, int64(len(c.Data)))
	}
	switch {
	case c.SHA256 != "" && !isHex(c.SHA256, 64):
		return protocolErrorf("file_content: sha256 must be 64 hexadecimal digits")
	case c.Size < 0 || c.Size > sandbox.MaxFileBytes:
		return protocolErrorf("file_content: the size must be 0 to %d", sandbox.MaxFileBytes)
	case len(c.Data) > InlineBytes:
		return protocolErrorf("file_content has %d bytes of data, more than %d", len(c.Data), InlineBytes)
	case c.SHA256 == "" && c.Size != int64(len(c.Data)):
		return protocolErrorf("file_content has %d bytes and says %d", len(c.Data), c.Size)
	case c.SHA256 != "" && len(c.Data) > 0:
		return protocolErrorf("file_content has data and a transfer's sha256")
	}
	return nil
}

func (i *FileInfo) check(Type) error {
	if !isFileName(i.Name) || i.Size < 0 {
		return protocolErrorf("file_info: the name or the size is invalid")
	}
	if i.IsDir {
		i.Mode |= uint32(fs.ModeDir)
	}
	return nil
}

func (d *DirEntries) check(Type) error {
	if len(d.Entries) > MaxEntries {
		return protocolErrorf("dir_entries has %d entries, more than %d", len(d.Entries), MaxEntries)
	}
	if d.More && len(d.Entries) == 0 {
		return protocolErrorf("dir_entries is empty and says that there is more")
	}
	for i := range d.Entries {
		if !isFileName(d.Entries[i].Name) || d.Entries[i].Size < 0 {
			return protocolErrorf("dir_entries: the name or the size of an entry is invalid")
		}
		if e := &d.Entries[i]; e.IsDir {
			e.Size, e.Mode = 0, e.Mode|uint32(fs.ModeDir)
		}
	}
	return nil
}

func (e *Error) check(Type) error {
	if e.Code == "" || len(e.Code) > maxCode {
		return protocolErrorf("error: the code must have 1 to %d bytes", maxCode)
	}
	return nil
}

func checkID(id string, t Type) error {
	if !ValidID(id) {
		return protocolErrorf("%s: an id must be 1 to %d letters, digits, dots, underscores, dashes", t, MaxID)
	}
	return nil
}

// ValidID reports whether s can be a request's id.
func ValidID(s string) bool {
	return s != "" && len(s) <= MaxID && isOf(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-")
}

// isOf reports whether s has only characters of a set.
func isOf(s, set string) bool { return strings.Trim(s, set) == "" }

func isHex(s string, digits int) bool { return len(s) == digits && isOf(s, "0123456789abcdef") }

// isWord reports whether s can be shown in a log and a table.
func isWord(s string) bool {
	return s != "" && len(s) <= MaxWordBytes && utf8.ValidString(s) && !strings.ContainsFunc(s,
		func(r rune) bool { return !unicode.IsPrint(r) })
}

func isFileName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= maxFileName && !strings.ContainsAny(s, "/\x00")
}

func isOffset(n int64) bool { return 0 <= n && n <= sandbox.MaxOutputBytes }
