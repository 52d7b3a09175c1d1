package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestNamesOfOtherSystems leaves files whose names Windows does not have or does not tell apart,
// and a path of more than 300 characters. Nothing of that disturbs an exec: jobs keep the files of
// work/, and each artifact is either there with its own content, or listed as omitted. Where
// core-api runs on Linux, all are there.
func TestNamesOfOtherSystems(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const project = "names-of-other-systems"
	names := []string{
		"a:b", "con", "aux.txt", "trailing.", "trailing ", "Case", "case", "q?*", `back\slash`,
		strings.Repeat("a-directory-of-thirty-letters/", 11) + "file",
	}
	script := ""
	for i, name := range names {
		for _, dir := range []string{"/workspace/work/", "/workspace/artifacts/"} {
			script += fmt.Sprintf("mkdir -p '%[1]s'; echo %[2]d >'%[1]s/%[3]s'\n", dir+name[:max(0, strings.LastIndexByte(name, '/'))], i,
				name[strings.LastIndexByte(name, '/')+1:])
		}
	}
	result := s.exec(shell(project, script))
	result.wants(t, object{"status": "succeeded"})
	omitted := s.manifest(result).list("omitted")
	for i, name := range names {
		is := func(o object) bool { return o.str("path") == name }
		there := slices.ContainsFunc(result.list("artifacts"), is)
		if there == slices.ContainsFunc(omitted, is) || !there && os.Getenv("SECBOX_E2E_WINDOWS") == "" {
			t.Errorf("%q: listed %v in %v, %v", name, there, result.list("artifacts"), omitted)
		}
		if !there {
			continue
		}
		path := strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
		if a := s.artifact(result.str("exec_id"), path); a.Code != http.StatusOK || string(a.Body) != fmt.Sprintln(i) {
			t.Errorf("%q: %d %q", name, a.Code, a.Body)
		}
	}
	var all strings.Builder
	for i := range names {
		fmt.Fprintln(&all, i)
	}
	s.exec(shell(project, "cat -- '"+strings.Join(names, "' '")+"'")).wants(t, object{"status": "succeeded", "stdout": all.String()})
}
