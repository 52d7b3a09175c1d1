package pathadapter

import (
	"errors"
	"fmt"
	"strings"

	"secbox/fault"
)

// root is a checked, cleaned absolute directory in one system's form, or the root of a volume.
type root struct {
	path     string // without a trailing separator; "" in the zero value and in a volume
	windows  bool
	inVolume bool // paths are relative, with slashes
}

// join appends names and refuses those that could mean anything but a child.
func (r root) join(rel []string) (string, error) {
	if r.path == "" && !r.inVolume {
		return "", errors.New("the path adapter has no root: it was not made by New")
	}
	separator := "/"
	if r.windows {
		separator = `\`
	}
	var b strings.Builder
	b.WriteString(r.path)
	for _, part := range rel {
		for name := range strings.SplitSeq(part, "/") {
			if reason := NameFault(name); reason != "" {
				return "", fmt.Errorf("path %q below the workspace root: the name %q %s", part, name, reason)
			}
			if b.Len() > 0 {
				b.WriteString(separator)
			}
			b.WriteString(name)
		}
	}
	if b.Len() == 0 { // docker would mount the whole volume
		return "", errors.New("the root of a volume is no path in it")
	}
	return b.String(), nil
}

// posixRoot checks a root of the form /srv/secbox.
func posixRoot(setting, s string) (root, error) {
	refuse := refusal(setting, s)
	switch {
	case strings.HasPrefix(s, `\\`):
		return root{}, refuse("is a network or WSL share; docker needs a plain directory such as /srv/secbox")
	case hasDrive(s):
		return root{}, refuse(`is a Windows path, but this system takes Linux paths: give /mnt/d/… instead of D:\…`)
	case strings.HasPrefix(s, "~"):
		return root{}, refuse("starts with ~, which only a shell expands: write the directory out")
	case !strings.HasPrefix(s, "/"):
		return root{}, refuse("is relative: give an absolute directory such as /srv/secbox")
	}
	if reason := rootCharFault(s); reason != "" {
		return root{}, refuse(reason)
	}
	if strings.ContainsAny(s, `:\`) {
		return root{}, refuse(`holds ":" or "\", which docker's mount options cannot take: choose another directory`)
	}
	names, reason := rootNames(s[1:], "/")
	if reason != "" {
		return root{}, refuse(reason)
	}
	return root{path: "/" + strings.Join(names, "/")}, nil
}

// winRoot checks a root of the form D:\secbox. Slashes are taken for backslashes and the drive
// letter is written in upper case, so that one directory has one spelling.
func winRoot(setting, s string) (root, error) {
	refuse := refusal(setting, s)
	s = strings.ReplaceAll(s, "/", `\`)
	switch {
	case strings.HasPrefix(s, `\\?\`) || strings.HasPrefix(s, `\\.\`):
		return root{}, refuse(`is a device path: give a plain one such as D:\secbox`)
	case strings.HasPrefix(s, `\\`):
		return root{}, refuse(`is a network or WSL share, which Docker cannot mount: give a directory on a drive such as D:\secbox`)
	case strings.HasPrefix(s, "~"):
		return root{}, refuse("starts with ~, which only a shell expands: write the directory out")
	case strings.HasPrefix(s, `\mnt\`):
		return root{}, refuse(`is a WSL path, but Docker on Windows takes Windows paths: give D:\… instead of /mnt/d/…`)
	case !hasDrive(s):
		return root{}, refuse(`has no drive: give an absolute directory such as D:\secbox`)
	case len(s) < 3 || s[2] != '\\':
		return root{}, refuse(`is relative to the drive's current directory: write a backslash after the colon, as in D:\secbox`)
	}
	if reason := rootCharFault(s); reason != "" {
		return root{}, refuse(reason)
	}
	names, reason := rootNames(s[3:], `\`)
	if reason != "" {
		return root{}, refuse(reason)
	}
	for _, name := range names {
		if reason := NameFault(name); reason != "" {
			return root{}, refuse(fmt.Sprintf("cannot be used: the name %q %s", name, reason))
		}
	}
	return root{path: strings.ToUpper(s[:1]) + `:\` + strings.Join(names, `\`), windows: true}, nil
}

// rootNames splits what follows / or D:\ and drops empty names, so that doubled and trailing
// separators do no harm.
func rootNames(s, separator string) (names []string, reason string) {
	for name := range strings.SplitSeq(s, separator) {
		switch name {
		case "":
		case ".", "..":
			return nil, `holds a "." or ".." component: write the directory out`
		default:
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, "is a whole disk: give a directory on it"
	}
	return names, ""
}

// rootCharFault finds characters that no form may have: docker reads --mount as a line of CSV.
func rootCharFault(s string) string {
	for _, r := range s {
		switch {
		case r == ',' || r == '"':
			return fmt.Sprintf("holds %q, which docker's mount options cannot take: choose another directory", r)
		case r < 0x20 || r == 0x7f:
			return "holds a control character: choose another directory"
		case r == 0xfffd:
			return "is not valid UTF-8: choose another directory"
		}
	}
	return ""
}

func refusal(setting, value string) func(string) error {
	return func(reason string) error { return fault.New(fault.InvalidSettings, "%s %q %s", setting, value, reason) }
}

func hasDrive(s string) bool {
	return len(s) >= 2 && s[1] == ':' && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z')
}

// automounted gives the Windows form of /mnt/d/ws as WSL mounts drives by default; ok is false for
// other places.
func automounted(posix string) (win string, ok bool) {
	rest, ok := strings.CutPrefix(posix, "/mnt/")
	if !ok {
		return "", false
	}
	drive, dir, ok := strings.Cut(rest, "/")
	if !ok || len(drive) != 1 || drive[0] < 'a' || drive[0] > 'z' {
		return "", false
	}
	return strings.ToUpper(drive) + `:\` + strings.ReplaceAll(dir, "/", `\`), true
}
