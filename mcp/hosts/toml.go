package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// maxTOML is the size of the largest TOML in bytes: the parser takes the square of the number of
// tables in time, and calls itself for each part of a key.
const maxTOML = 256 << 10

// addTOML adds an entry to the configuration of Codex. It replaces only the lines of the entry, and
// refuses a file in which that would change anything else.
func addTOML(config []byte, e Entry) ([]byte, error) {
	config = bytes.TrimPrefix(config, []byte("\ufeff"))
	if len(config) > maxTOML {
		return nil, fmt.Errorf("it has more than %d bytes", maxTOML)
	}
	want, err := parseTOML(config)
	if err != nil {
		return nil, fmt.Errorf("it is not TOML: %w", err)
	}
	servers, _ := want["mcp_servers"].(map[string]any)
	server, _ := servers[e.Name].(map[string]any)
	if servers == nil {
		servers = map[string]any{}
	}
	if server == nil {
		server = map[string]any{}
	}
	args := make([]any, len(e.Args))
	for i, a := range e.Args {
		args[i] = a
	}
	server["command"], server["args"] = e.Command, args
	env, _ := server["env"].(map[string]any)
	if delete(env, e.TokenVariable); e.Token != "" {
		if env == nil {
			env = map[string]any{}
		}
		env[e.TokenVariable] = e.Token
		server["env"] = env
	}
	servers[e.Name], want["mcp_servers"] = server, servers

	lines, err := toml.Marshal(map[string]any{"mcp_servers": map[string]any{e.Name: server}})
	if err != nil {
		return nil, err
	}
	lines = bytes.TrimPrefix(lines, []byte("[mcp_servers]\n"))
	before, after := cutTOML(config, e.Name)
	if before = bytes.TrimRight(before, "\r\n"); len(before) > 0 {
		lines = slices.Concat(before, []byte("\n\n"), lines)
	}
	result := slices.Concat(lines, after)
	if got, err := parseTOML(result); err != nil || !reflect.DeepEqual(got, want) {
		return nil, errors.New("its entry for " + e.Name + " is written in a way that this program does not change")
	}
	return result, nil
}

func parseTOML(config []byte) (map[string]any, error) {
	parsed := map[string]any{}
	return parsed, toml.Unmarshal(config, &parsed)
}

// cutTOML returns the parts of a file before and after the tables of an entry, which follow each
// other. Without such tables, the first part is the whole file.
func cutTOML(config []byte, name string) (before, after []byte) {
	table := "[mcp_servers." + name
	begin, end, at := -1, 0, 0 // end is after the last line of the entry that is not empty or a comment
	for line := range bytes.Lines(config) {
		text := strings.ReplaceAll(strings.TrimSpace(string(line)), `"`, "")
		own := strings.HasPrefix(text, table+"]") || strings.HasPrefix(text, table+".")
		switch {
		case own && begin < 0:
			begin = at
		case begin >= 0 && !own && strings.HasPrefix(text, "["):
			return config[:begin], config[end:]
		}
		if at += len(line); text != "" && text[0] != '#' {
			end = at
		}
	}
	if begin < 0 {
		return config, nil
	}
	return config[:begin], config[end:]
}
