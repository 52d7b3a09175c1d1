package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sessionTests are what sessions must do, and the tests that prove it, as "directory TestName".
// What is measured and not tested is in performance-internals.md.
var sessionTests = map[string][]string{
	"a session is one container for many execs, each with its row":                   {"e2e TestSession", "server TestSessionsTakeWhatContainersDo"},
	"it is a container that waits, if there is one, with the limits of its policy":   {"engine TestKeptContainerHadWaited", "engine TestKeptContainerWithoutItsLimits"},
	"an old sandbox-init is replaced":                                                {"engine TestKeptContainerWithAnOldInit"},
	"it ends for a reason of a closed list, by request, idleness, time or node":      {"e2e TestSessionEnds", "api TestEndReasons"},
	"sessions are bounded by node and token, and execs in one; a key is one session": {"e2e TestSessionBounds"},
	"only its token, an auditor or an admin sees it":                                 {"api TestSessionsAreSeenByTheirTokens"},
	"each exec has its own artifacts, which neighbours cannot change afterwards":     {"workspace TestArtifactsOfSession", "workspace TestArtifactsOfSessionThatAreGone"},
	"what an exec leaves does not break the next one, or is named":                   {"e2e TestSessionAfterHostileExecs", "e2e TestSessionNeighbours"},
	"an exec in the background has a record, output and an end":                      {"e2e TestSessionBackground"},
	"contexts of Python and bash keep their state, and lose it only with a word":     {"e2e TestSessionContexts", "runner/session TestMarked"},
	"a terminal outlives its clients, is recorded, and may leave out what was typed": {"e2e TestTerminal", "e2e TestTerminalInFreshContainer", "runner/terminal TestRecordingWithoutTyped"},
	"a terminal ends with the token's rights":                                        {"api TestTerminalEndsWithItsToken"},
	"a recording is played in the console":                                           {"console TestPlayer", "console TestPlayerSeeks", "console TestPlayerIsBounded"},
	"files of a session and a project are read, changed, listed and watched":         {"e2e TestSessionFiles", "sandbox/places TestWrites", "sandbox/places TestWatch"},
	"a session's answers are not believed":                                           {"sandbox/places TestLies"},
	"a project's files are confined":                                                 {"sandbox/places TestProjectIsConfined"},
	"projects are listed, and their removal is an event":                             {"api TestProjectsAreListed"},
	"tools of MCP share a session, which ends with the MCP session":                  {"e2e TestSessionOverMCP", "mcp/mcpserver TestCallsShareASession"},
	"pages show sessions, contexts, processes, and what one uses":                    {"console TestSessionsPage", "e2e TestSessionBackground"},
	"what one used over its life is kept, within a bound":                            {"e2e TestSessionBackground", "runner/session TestUsageStaysBounded"},
	"a skill may run in a session":                                                   {"e2e TestSkillInSession", "policy TestWithinAManifest"},
	"metrics count sessions":                                                         {"server TestSessionsAreCounted"},
}

func TestSessionsAreTested(t *testing.T) {
	t.Parallel()
	for what, tests := range sessionTests {
		for _, test := range tests {
			dir, name, _ := strings.Cut(test, " ")
			files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(files, func(file string) bool {
				text, err := os.ReadFile(file)
				return err == nil && strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {")
			}) {
				t.Errorf("there is no %s in %s, which proves: %s", name, dir, what)
			}
		}
	}
}
