package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirements are what the document 004 (the sandbox as the provider of tools) requires of tools,
// catalog, registry, long results, Feishu and MCP servers, by its lines. Comments of tests name the
// lines that they prove, such as 004 l36, l350–363.
var requirements = map[string]string{
	"l11":      "files, commands, skills and agents of a user who chose remote are on the user's machine",
	"l23":      "MCP servers are started where the user's sandbox is",
	"l30":      "long results are kept on the server, and digests come from the sandbox",
	"l31":      "the check for outdated reads gets the sandbox as an argument; MaybeOffload gets the digest of what was read, and reads nothing again",
	"l32":      "the catalog is cached for 5 minutes, and can be invalidated",
	"l36":      "files are found by a command in the sandbox, on every backend",
	"l38":      "a copy from a sandbox expands links",
	"l39":      "trees are walked by listing directories",
	"l221":     "the digest of a file that was read is that of the sandbox's content",
	"l222":     "outdated reads are found through the sandbox",
	"l223":     "kept results are files of the server",
	"l226":     "files are read through the sandbox",
	"l227":     "an edit reads through the sandbox",
	"l228":     "a new file gets its directories",
	"l229":     "an edit makes a file through the sandbox",
	"l230":     "an edit writes through the sandbox",
	"l231":     "names are found in the sandbox only",
	"l232":     "content is found in the sandbox only",
	"l233":     "the tree of a directory comes from the sandbox",
	"l236":     "a user's skills are listed in the sandbox",
	"l237":     "a directory with SKILL.md is a skill",
	"l238":     "SKILL.md is read in the sandbox",
	"l240":     "a user's agents are looked for in the sandbox",
	"l241":     "a skill's directory is looked for in the sandbox",
	"l242":     "a skill is found among those of the sandbox",
	"l243":     "a skill's SKILL.md is loaded from the sandbox",
	"l244":     "all files of a skill are listed",
	"l245":     "agents are listed in the sandbox",
	"l246":     "an agent's file is read in the sandbox",
	"l247":     "a missing directory of agents is no error",
	"l248":     "skills of the installation are on the server, those of the user in the sandbox",
	"l252":     "an installation looks for the skill in the sandbox",
	"l253":     "a skill's files are read on the server and written in the sandbox",
	"l254":     "the directory of agents is made in the sandbox",
	"l255":     "an installation looks for the agent in the sandbox",
	"l256":     "an agent is read from the server",
	"l257":     "an agent is written in the sandbox",
	"l258":     "a skill is removed from the sandbox",
	"l259":     "an agent is removed from the sandbox",
	"l263":     "a skill's files are read in the sandbox and kept on the server",
	"l264":     "the skill to publish is found in the sandbox",
	"l265":     "the agent to publish is found in the sandbox",
	"l269":     "the user's skills in lists come from the sandbox",
	"l270":     "the user's agents in lists come from the sandbox",
	"l271":     "the user's skill is looked for in the sandbox",
	"l272":     "the user's agent is looked for in the sandbox",
	"l277":     "a download makes its directories and its file in the sandbox",
	"l278":     "an upload reads in the sandbox",
	"l279":     "the size of an upload is checked",
	"l280":     "no marker in a result stands for a file",
	"l297–320": "WalkDir passes relative paths of files, and a missing root is an error",
	"l321–325": "links become plain files in both directions",
	"l337–339": "the configuration of MCP servers is read on the server",
	"l350–363": "MaybeOffload replaces a long result",
	"l364–369": "InvalidateStaleReads returns the files that have changed",
	"l370–385": "relative paths begin at the session's current directory",
	"l390–398": "the digest is the SHA-256 of what was read; none if it cannot be read",
	"l401–418": "a fresh catalog is answered from the cache",
	"l419–442": "the catalog has the service's skills, then the user's",
	"l443–447": "InvalidateCache makes the next call read again",
	"l450–461": `skill %q already installed`,
	"l462–473": "read cache: …",
	"l474–485": "mkdir: … and write: …",
	"l486–491": `skill %q not found`,
	"l493–502": "read skill: …",
	"l503–515": "the published files are kept on the server; as versions, which are never changed, instead of one directory",
	"l518–532": "the service's skill is found before the user's",
	"l533–540": "a download is written through the sandbox",
	"l541–547": "an upload is read through the sandbox",
	"l558–572": "the current directory is a path of the sandbox, on every backend",
	"l573–582": "there is one implementation of the searches",
	"l584–596": "a write makes the directories, without a shell",
	"l597–602": "one interface, and the same results on every backend",
	"l645":     "the configuration of MCP servers stays on the server",
}

var named = regexp.MustCompile(`\b004 (l[0-9][0-9l, –-]*)`)

// TestRequirementsHaveTests compares the lines that tests name with the requirements, so that the
// removal of the last proof is noticed.
func TestRequirementsHaveTests(t *testing.T) {
	t.Parallel()
	proven := map[string]bool{}
	plain := strings.NewReplacer("l", "", "-", "–")
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != ".." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "bin" || e.Name() == "dist") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") || e.Name() == "requirements_test.go" {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.SplitSeq(m[1], ",") {
				proven["l"+strings.TrimSpace(plain.Replace(line))] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	for line, what := range requirements {
		if !proven[line] {
			missing = append(missing, line+": "+what)
		}
	}
	slices.Sort(missing)
	for _, requirement := range missing {
		t.Errorf("no test names %s", requirement)
	}
}
