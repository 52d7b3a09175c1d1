package settings

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"secbox/fault"
	"secbox/policy"
)

// here is an environment in which nothing is set but where the user lives.
func here(more ...string) []string {
	return append([]string{"HOME=/home/ann", "PATH=/usr/bin", "USER=ann", "LOCALAPPDATA=C:\\l", "USERPROFILE=C:\\u"}, more...)
}

// abs makes an absolute path of Linux one of this system.
func abs(path string) string {
	if runtime.GOOS == "windows" {
		return "C:" + filepath.FromSlash(path)
	}
	return path
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secbox.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// samples are three valid values of every setting, as a variable would have them: for the file, the
// environment and the flag.
var samples = map[string][3]string{
	"addr":         {"127.0.0.1:1", "[::1]:2", "localhost:3"},
	"state_dir":    {abs("/srv/a/state"), abs("/srv/b/state"), abs("/srv/c/state")},
	"database_url": {"postgres://u:p@h/a", "postgresql://u@h/b", "postgres:///c?host=/run/postgresql"},
	"log_level":    {"debug", "warn", "error"},
	"log_format":   {"json", "json", "json"},
	"admin_token":  {"", "0123456789abcdef", ""},

	"http.max_body_bytes": {"2048", "4096", ""},

	"http.max_memory_bytes":           {"300000000", "400000000", ""},
	"http.max_memory_bytes_per_token": {"200000000", "210000000", ""},
	"http.max_connections":            {"100", "200", ""},
	"http.max_streams":                {"700", "800", ""},
	"http.max_streams_per_token":      {"70", "80", ""},

	"http.allowed_hosts":   {"a.example", "b.example,c.example:8003", ""},
	"http.trusted_proxies": {"10.0.0.1", "10.0.0.0/8,::1", ""},

	"webhooks.allow":          {"a.example", "*.b.example,c.example:8443", ""},
	"webhooks.allow_networks": {"10.0.0.1", "10.0.0.0/8,fd00::/8", ""},
	"webhooks.allow_http":     {"true", "true", ""},

	"skills.max_upload_bytes":            {"1048576", "2097152", ""},
	"skills.max_concurrent_work":         {"1", "2", ""},
	"skills.max_queued_work":             {"0", "1", ""},
	"skills.max_uploads":                 {"1", "2", ""},
	"skills.max_uploads_per_token":       {"1", "2", ""},
	"skills.max_waiting_bytes":           {"300000000", "400000000", ""},
	"skills.max_waiting_bytes_per_token": {"300000000", "400000000", ""},
	"skills.max_downloads":               {"1", "2", ""},
	"skills.max_downloads_per_token":     {"1", "2", ""},
	"workspaces.idle_seconds":            {"3600", "7200", ""},
	"sandbox.workspace_ttl_hours":        {"24", "48", ""},

	"sandboxes.backend":              {"remote", "remote", ""},
	"sandboxes.none":                 {"true", "true", ""},
	"sandboxes.idle_seconds":         {"1", "2", ""},
	"sandboxes.max_containers":       {"1", "2", ""},
	"sandboxes.runner_grace_seconds": {"1", "2", ""},
	"sandboxes.heartbeat_seconds":    {"1", "2", ""},

	"audit.hmac_key_file":           {abs("/etc/secbox/hmac.key"), abs("/srv/hmac.key"), ""},
	"audit.inputs_max_mb":           {"512", "2048", "-1"},
	"audit.inputs_max_mb_per_token": {"64", "128", "-1"},
	"audit.log_key_file":            {abs("/etc/secbox/log.key"), abs("/srv/log.key"), ""},
	"audit.witnesses": {
		"a.example/w1+f5ceb7c8+BO4x+DyIpxIZpvz5vuDam8ImIFiPWhWmFFVTUE35ZJ5c http://a.example",
		"a.example/w1+f5ceb7c8+BO4x+DyIpxIZpvz5vuDam8ImIFiPWhWmFFVTUE35ZJ5c " +
			"http://a.example,b.example/w2+6430f1da+BO4x+DyIpxIZpvz5vuDam8ImIFiPWhWmFFVTUE35ZJ5c https://b.example/w2", "",
	},
	"audit.anchor_dir":               {abs("/srv/a/anchor"), abs("/srv/b/anchor"), ""},
	"audit.anchor_every":             {"1", "2", ""},
	"audit.retention_days":           {"365", "1", ""},
	"audit.artifacts_retention_days": {"30", "1", ""},

	"feishu.app_id":     {"cli_1", "cli_2", ""},
	"feishu.app_secret": {"", "a-secret", ""},
	"sandbox.secrets": {
		`{"key":{"file":"/a","hosts":["a.example.org"]}}`,
		`{"git":{"command":["/b","c"],"hosts":["*.example.org:8443"],"tokens":["t"],"as":["basic","header X-Key"]}}`, "",
	},
	"mcp_servers":     {`{"*":{"time":{"command":"a"}}}`, `{"a1":{"x":{"command":"b","args":["c"],"idle_seconds":5}}}`, ""},
	"feishu.base_url": {"https://a.example", "https://open.larksuite.com", ""},

	"traces.endpoint":     {"http://a.example:4318", "http://b.example:4318", ""},
	"traces.headers":      {"", "a=b", ""},
	"traces.sample_ratio": {"0.5", "0.25", ""},
	"traces.service_name": {"a", "b", ""},

	"console.oidc.issuer":         {"https://a.example", "https://b.example", ""},
	"console.oidc.client_id":      {"a", "b", ""},
	"console.oidc.client_secret":  {"", "a-secret", ""},
	"console.oidc.redirect_url":   {"https://a.example/cb", "https://b.example/cb", ""},
	"console.oidc.scopes":         {"email", "email,groups", ""},
	"console.oidc.groups_claim":   {"roles", "teams", ""},
	"console.oidc.admin_groups":   {"a", "a,b", ""},
	"console.oidc.auditor_groups": {"a", "a,b", ""},
	"console.oidc.worker_groups":  {"a", "a,b", ""},

	"sandbox.runtime_mode":                 {"linux", "wsl", ""},
	"sandbox.workspace_root":               {abs("/srv/d/ws"), abs("/srv/e/ws"), abs("/srv/f/ws")},
	"sandbox.workspace_root_win":           {`D:\a`, `D:\b`, ""},
	"sandbox.workspace_root_wsl":           {"/mnt/d/a", "/mnt/d/b", ""},
	"sandbox.workspace_root_host":          {"/host/a", `C:\b`, ""},
	"sandbox.workspace_volume":             {"a-workspace", "b.workspace", ""},
	"sandbox.max_concurrent_execs":         {"1", "2", ""},
	"sandbox.max_queued_execs":             {"0", "1", ""},
	"sandbox.images":                       {"a:1", "b:2,c:3", ""},
	"sandbox.skills_dir":                   {abs("/srv/a/skills"), abs("/srv/b/skills"), abs("/srv/c/skills")},
	"sandbox.read_only_rootfs":             {"false", "false", ""},
	"sandbox.seccomp":                      {"engine", "engine", ""},
	"sandbox.docker_path":                  {abs("/usr/bin/docker"), "podman", ""},
	"sandbox.runtime":                      {"crun", "io.containerd.runsc.v1", ""},
	"sandbox.user":                         {"1001:1001", "65534:0", ""},
	"sandbox.init_volume":                  {"a-volume", "b.volume", ""},
	"sandbox.engine":                       {"kubernetes", "kubernetes", ""},
	"sandbox.kubernetes.kubeconfig":        {"/etc/a", "/etc/b", ""},
	"sandbox.kubernetes.context":           {"a", "b", ""},
	"sandbox.kubernetes.namespace":         {"a", "b", ""},
	"sandbox.kubernetes.volume_claim":      {"a", "b", ""},
	"sandbox.kubernetes.runtime_class":     {"a", "b", ""},
	"sandbox.kubernetes.node_selector":     {"pool=a", "pool=b", ""},
	"sandbox.kubernetes.image_pull_secret": {"a", "b", ""},
	"sandbox.kubernetes.image_pull_policy": {"Always", "Never", ""},
	"sandbox.preview_domain":               {"preview.example.net", "preview.localhost", ""},

	"sandbox.max_concurrent_execs_per_token":           {"1", "2", ""},
	"sandbox.max_queued_execs_per_token":               {"1", "2", ""},
	"sandbox.sessions.max":                             {"0", "1", ""},
	"sandbox.net.private":                              {"10.0.0.0/8", "10.0.0.5,fd00::/8", ""},
	"sandbox.net.max_concurrent_connections":           {"1", "2", ""},
	"sandbox.net.max_concurrent_connections_per_token": {"1", "2", ""},
	"sandbox.sessions.warm_imports":                    {"json", "csv,xml.dom", ""},
	"sandbox.sessions.max_per_token":                   {"1", "2", ""},
	"sandbox.sessions.max_execs":                       {"1", "2", ""},
	"sandbox.sessions.max_ttl_seconds":                 {"60", "61", ""},
	"sandbox.max_queued_async":                         {"1", "2", ""},
	"sandbox.max_queued_async_mb":                      {"1", "2", ""},
	"sandbox.max_queued_per_token":                     {"1", "2", ""},
	"sandbox.reserved_execs":                           {"0", "1", ""},
	"sandboxes.max_containers_per_token":               {"1", "2", ""},
	"node.address":                                     {"http://a:8003", "https://b", ""},
	"node.lease_seconds":                               {"2", "60", ""},

	"sandbox.disk_free_min_bytes":     {"0", "1", ""},
	"sandbox.disk_free_min_inodes":    {"0", "1", ""},
	"sandbox.disk_growth_max_bytes":   {"1073741824", "2147483648", ""},
	"sandbox.disk_growth_max_entries": {"1000", "2000", ""},

	"pool.max":           {"0", "1", ""},
	"pool.max_per_key":   {"1", "2", ""},
	"pool.share":         {"false", "false", ""},
	"pool.ready":         {"0", "2", ""},
	"pool.max_memory_mb": {"16", "1024", ""},
	"pool.idle_seconds":  {"1", "604800", ""},

	"sandbox.policy.net.mode":  {"none", "none", ""},
	"sandbox.policy.net.allow": {"a.example.org", "*.example.org:8443,[2001:db8::1]:22", ""},
	"sandbox.policy.image":     {"a:1", "b:2", ""},
	"sandbox.policy.fs.read":   {"inputs/**", "inputs/**,work/**", ""},
	"sandbox.policy.fs.write":  {"work/**", "artifacts/**", ""},
}

// inYAML writes a sample as a file has it.
func inYAML(row setting, value string) string {
	switch want(row.typ) {
	case "a list":
		return "[" + value + "]"
	case "text":
		return "'" + value + "'"
	}
	return value
}

// Every setting can really be set by file, by each of its variables and by its flag, the later
// beats the earlier, and nothing else changes with it.
func TestPrecedenceOfEverySetting(t *testing.T) {
	t.Parallel()
	rows := table()
	samples := maps.Clone(samples)
	for _, row := range rows {
		_, ceiling := strings.CutPrefix(row.key, ceilingPrefix)
		number, err := strconv.ParseFloat(row.def, 64)
		if ceiling || strings.HasPrefix(row.key, policyPrefix) && err == nil {
			samples[row.key] = [3]string{show(reflect.ValueOf(number / 2)), show(reflect.ValueOf(number / 4)), ""}
		}
	}
	if len(rows) != len(samples) {
		t.Errorf("%d settings, %d samples", len(rows), len(samples))
	}
	plain, err := Load("", here(), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		t.Run(row.key, func(t *testing.T) {
			t.Parallel()
			sample, ok := samples[row.key]
			if !ok {
				t.Fatal("there is no sample")
			}
			check := func(what, file string, environ []string, o Overrides, want string) {
				t.Helper()
				s, err := Load(file, environ, o)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if got := show(row.in(&s)); got != want {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
				if same := s.Digest() == plain.Digest(); same != row.envOnly {
					t.Errorf("%s: the digest is that of the defaults: %v", what, same)
				}
				row.in(&s).Set(row.in(&plain))
				s.origin = plain.origin
				if !reflect.DeepEqual(s, plain) {
					t.Errorf("%s: another setting changed too", what)
				}
			}
			file := ""
			if !row.envOnly {
				file = write(t, row.key+": "+inYAML(row, sample[0]))
				check("file", file, here(), Overrides{}, sample[0])
			}
			for _, name := range row.env {
				check("environment", file, here(name+"="+sample[1]), Overrides{}, sample[1])
			}
			if row.flag != "" {
				var o Overrides
				v := reflect.ValueOf(&o).Elem()
				for f := range v.Type().Fields() {
					if f.Tag.Get("flag") == row.flag {
						v.FieldByIndex(f.Index).SetString(sample[2])
					}
				}
				check("flag", file, here(row.env[0]+"="+sample[1]), o, sample[2])
			}
		})
	}
}

func TestVariablesAreNamedAfterTheirKeys(t *testing.T) {
	t.Parallel()
	flags := map[string]bool{}
	for f := range reflect.TypeFor[Overrides]().Fields() {
		flags[f.Tag.Get("flag")] = true
	}
	seen := map[string]bool{}
	for _, row := range table() {
		if want := "CORE_API_" + strings.ToUpper(strings.ReplaceAll(row.key, ".", "_")); row.env[0] != want {
			t.Errorf("%s is read from %s, want %s", row.key, row.env[0], want)
		}
		if row.flag != "" && !flags[row.flag] {
			t.Errorf("--%s is not in Overrides", row.flag)
		}
		delete(flags, row.flag)
		if seen[row.key] {
			t.Errorf("%s is there twice", row.key)
		}
		seen[row.key] = true
	}
	if len(flags) > 0 {
		t.Errorf("flags without a setting: %v", flags)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	byEnv := map[string]Description{}
	for _, d := range Describe() {
		byEnv[d.Env] = d
		if d.Doc == "" || !strings.HasSuffix(d.Doc, ".") || len(d.Doc) > 200 {
			t.Errorf("%s: documentation %q", d.Env, d.Doc)
		}
		if d.Default == "" && d.Key != "http.allowed_hosts" && d.Key != "http.trusted_proxies" && d.Key != "sandbox.images" &&
			d.Key != "sandbox.sessions.warm_imports" && d.Key != "sandbox.policy.net.allow" {
			t.Errorf("%s: no default is told", d.Env)
		}
	}
	for env, want := range map[string]Description{
		"CORE_API_ADDR":                             {Key: "addr", Flag: "--addr", Default: "127.0.0.1:8003"},
		"CORE_API_DATABASE_URL, DATABASE_URL":       {Key: "database_url", Flag: "--database-url", Default: "SQLite in the state dir"},
		"CORE_API_ADMIN_TOKEN":                      {Default: "none"},
		"CORE_API_SANDBOX_POLICY_TIMEOUT_MS":        {Key: "sandbox.policy.timeout_ms", Default: "60000"},
		"CORE_API_SANDBOX_POLICY_CEILING_CPU_CORES": {Key: "sandbox.policy_ceiling.cpu_cores", Default: "4"},
		"CORE_API_SANDBOX_POLICY_FS_WRITE":          {Key: "sandbox.policy.fs.write", Default: "work/**,artifacts/**"},
		"CORE_API_SANDBOX_MAX_CONCURRENT_EXECS":     {Key: "sandbox.max_concurrent_execs", Default: "4"},
	} {
		got := byEnv[env]
		want.Env, want.Doc = env, got.Doc
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

func TestDefaultsThatOthersRelyOn(t *testing.T) {
	t.Parallel()
	s, err := Load("", here(), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Addr != "127.0.0.1:8003" || s.HTTP.MaxBodyBytes != 33554432 || s.Sandbox.MaxConcurrentExecs != 4 || s.Sandbox.MaxQueuedExecs != 64 ||
		!s.Sandbox.ReadOnlyRootfs || s.Sandbox.RuntimeMode != "auto" || s.LogFormat != "text" || s.DatabaseURL != "" || s.AdminToken != "" {
		t.Fatalf("%+v", s)
	}
	if _, err := policy.New(s.PolicyConfig()); err != nil {
		t.Fatal(err)
	}
}

func TestPolicyConfig(t *testing.T) {
	t.Parallel()
	s, err := Load(write(t, `
sandbox:
  images: [a:1, b:2]
  policy:
    max_stderr_bytes: 3
    image: a:1
    fs: {read: [inputs/**], write: []}
  policy_ceiling:
    cpu_cores: 10.5
`), here(), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.PolicyConfig()
	if *cfg.Settings.MaxStderrBytes != 3 || *cfg.Ceiling.CPUCores != 10.5 || cfg.Settings.FSWrite == nil || len(cfg.Settings.FSWrite) != 0 ||
		len(cfg.Settings.FSRead) != 1 || *cfg.Settings.Image != "a:1" || cfg.Settings.NetMode != nil || cfg.SettingsDigest != s.Digest() ||
		len(cfg.Images) != 2 {
		t.Fatalf("%+v", cfg)
	}
}

// Nested and dotted keys mean the same.
func TestTwoWaysToWriteAKey(t *testing.T) {
	t.Parallel()
	var digests []string
	for _, text := range []string{
		"sandbox: {policy: {net: {mode: none}, fs: {read: [inputs/**], write: []}, timeout_ms: 5}}",
		"sandbox: {policy: {net.mode: none, fs.read: [inputs/**], fs.write: [], timeout_ms: 5}}",
		"sandbox.policy: {net.mode: none, fs: {read: [inputs/**]}, fs.write: [], timeout_ms: 5}",
		"sandbox.policy.net.mode: none\nsandbox.policy.fs: {read: [inputs/**], write: []}\nsandbox: {policy.timeout_ms: 5}",
	} {
		s, err := Load(write(t, text), here(), Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, s.Digest())
	}
	for _, d := range digests {
		if d != digests[0] {
			t.Fatalf("%v", digests)
		}
	}
}

func TestUnsetValues(t *testing.T) {
	t.Parallel()
	plain, _ := Load("", here(), Overrides{})
	for _, text := range []string{"", "\n# nothing\n", "---\n", "~", "sandbox:\n", "sandbox: {policy: , images: }\naddr:\nhttp: ~\n"} {
		s, err := Load(write(t, text), here("CORE_API_ADDR=", "CORE_API_SANDBOX_POLICY_PIDS=  ", "CORE_API_ADMIN_TOKEN="), Overrides{})
		s.origin = plain.origin
		if err != nil || !reflect.DeepEqual(s, plain) {
			t.Errorf("%q: %v %+v", text, err, s)
		}
	}
}

func TestListsInVariables(t *testing.T) {
	t.Parallel()
	file := write(t, "http: {allowed_hosts: [file.example]}\nsandbox: {policy: {fs: {write: [work/**]}}}")
	for value, want := range map[string][]string{"a, b ,c": {"a", "b", "c"}, "a": {"a"}, "a,,": {"a"}, "[]": {}} {
		s, err := Load(file, here("CORE_API_HTTP_ALLOWED_HOSTS="+value), Overrides{})
		if err != nil || !reflect.DeepEqual(s.HTTP.AllowedHosts, want) {
			t.Errorf("%q: %v %v", value, s.HTTP.AllowedHosts, err)
		}
	}
	s, err := Load(file, here("CORE_API_SANDBOX_POLICY_FS_WRITE=[]"), Overrides{})
	if err != nil || s.Sandbox.Policy.FSWrite == nil || len(s.Sandbox.Policy.FSWrite) != 0 {
		t.Errorf("[] takes everything away: %v %v", s.Sandbox.Policy.FSWrite, err)
	}
}

func TestOwnVariableBeatsCommonOne(t *testing.T) {
	t.Parallel()
	s, err := Load("", here("DATABASE_URL=postgres://h/common", "CORE_API_DATABASE_URL=postgres://h/own"), Overrides{})
	if err != nil || s.DatabaseURL.Reveal() != "postgres://h/own" {
		t.Fatalf("%v %v", s.DatabaseURL.Reveal(), err)
	}
}

func TestFlagReplacesWorkspaceRoots(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Load("", here("CORE_API_SANDBOX_WORKSPACE_ROOT_WSL=/mnt/d/a", `CORE_API_SANDBOX_WORKSPACE_ROOT_WIN=D:\a`,
		"CORE_API_SANDBOX_WORKSPACE_ROOT_HOST=/h"), Overrides{WorkspaceRoot: dir})
	if err != nil || s.Sandbox.WorkspaceRoot != dir || s.Sandbox.WorkspaceRootWSL+s.Sandbox.WorkspaceRootWin != "" || s.Sandbox.WorkspaceRootHost != "/h" {
		t.Fatalf("%+v %v", s.Sandbox, err)
	}
}

func TestRelativeDirectoryFlag(t *testing.T) {
	t.Parallel()
	s, err := Load("", here(), Overrides{StateDir: "x/../state", WorkspaceRoot: "ws"})
	if err != nil {
		t.Fatal(err)
	}
	cwd, _ := os.Getwd()
	if s.StateDir != filepath.Join(cwd, "state") || s.Sandbox.WorkspaceRoot != filepath.Join(cwd, "ws") {
		t.Fatalf("%s %s", s.StateDir, s.Sandbox.WorkspaceRoot)
	}
}

// Errors name the key (or variable), the place and the remedy, all at once.
func TestErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500)
	const preview = "sandbox.preview_domain"
	noName := []string{"no domain name"}
	for _, c := range []struct {
		name, file string
		env        []string
		flags      Overrides
		field      string   // the first one
		says       []string // in its reason
	}{
		{
			name: "a typo", file: "addr: 127.0.0.1:1\nsandbox:\n  max_concurent_execs: 3\n", field: "sandbox.max_concurent_execs",
			says: []string{"line 3 of secbox.yaml", "did you mean sandbox.max_concurrent_execs?"},
		},
		{
			name: "a typo in a dotted key", file: "sandbox.polcy.timeout_ms: 3\n", field: "sandbox.polcy.timeout_ms",
			says: []string{"line 1", "did you mean sandbox.policy.timeout_ms?"},
		},
		{name: "no witness", file: "audit: {witnesses: ['http://a.example']}", field: "audit.witnesses[0]", says: []string{"its public key and its address"}},
		{
			name: "a witness with a damaged key",
			file: "audit: {witnesses: ['a.example/w1+f5ceb7c9+BO4x+DyIpxIZpvz5vuDam8ImIFiPWhWmFFVTUE35ZJ5c http://a.example']}", field: "audit.witnesses[0]",
			says: []string{"damaged"},
		},
		{
			name: "a witness twice", file: "audit: {witnesses: ['a.example/w1+f5ceb7c8+BO4x+DyIpxIZpvz5vuDam8ImIFiPWhWmFFVTUE35ZJ5c http://a', " +
				"'a.example/w1+f5ceb7c8+BO4x+DyIpxIZpvz5vuDam8ImIFiPWhWmFFVTUE35ZJ5c http://b']}", field: "audit.witnesses[1]",
			says: []string{"name of another one"},
		},
		{
			name: "an anchor in the state dir", file: "{state_dir: '" + abs("/srv/state") + "', audit: {anchor_dir: '" + abs("/srv/state/anchor") + "'}}",
			field: "audit.anchor_dir", says: []string{"another volume"},
		},
		{name: "a relative anchor", file: "audit: {anchor_dir: anchor}", field: "audit.anchor_dir", says: []string{"relative"}},
		{name: "no checkpoint is anchored", file: "audit: {anchor_every: 0}", field: "audit.anchor_every", says: []string{"use 1 to"}},
		{
			name: "a key in the wrong place", file: "max_concurrent_execs: 3", field: "max_concurrent_execs",
			says: []string{"did you mean sandbox.max_concurrent_execs?"},
		},
		{
			name: "a ceiling of a field without one", file: "sandbox: {policy_ceiling: {image: a}}", field: "sandbox.policy_ceiling.image",
			says: []string{"no such setting"},
		},
		{name: "a very long key", file: long + ": 1", field: strings.Repeat("x", 80) + "…", says: []string{"no such setting"}},
		{
			name: "text for a number", file: "\n\nhttp: {max_body_bytes: many}", field: "http.max_body_bytes",
			says: []string{"line 3", `must be a whole number, not "many"`},
		},
		{
			name: "a fraction for a whole number", file: "sandbox: {policy: {pids: 20.5}}", field: "sandbox.policy.pids",
			says: []string{"a whole number", `"20.5"`},
		},
		{name: "a quoted number", file: "sandbox: {policy: {pids: '20'}}", field: "sandbox.policy.pids", says: []string{"a whole number"}},
		{name: "beyond int64", file: "sandbox: {policy: {pids: 99999999999999999999}}", field: "sandbox.policy.pids", says: []string{"a whole number"}},
		{name: "a number for text", file: "addr: 8003", field: "addr", says: []string{"must be text"}},
		{name: "text for a switch", file: "sandbox: {read_only_rootfs: 'yes'}", field: "sandbox.read_only_rootfs", says: []string{"true or false"}},
		{
			name: "no module", file: "sandbox: {sessions: {warm_imports: ['os; exit()']}}", field: "sandbox.sessions.warm_imports[0]",
			says: []string{"no name of a module"},
		},
		{name: "one word for a list", file: "sandbox: {images: a:1}", field: "sandbox.images", says: []string{"must be a list"}},
		{name: "numbers in a list", file: "sandbox: {images: [1]}", field: "sandbox.images", says: []string{"must be a list"}},
		{name: "a section for a value", file: "addr: {host: a}", field: "addr", says: []string{"must be text, not a section"}},
		{name: "a value for a section", file: "sandbox: 5", field: "sandbox", says: []string{"is a section", "such as sandbox.engine"}},
		{name: "a list for a section", file: "sandbox: [5]", field: "sandbox", says: []string{"is a section"}},
		{name: "a list for a key", file: "? [a]\n: 1", field: "?", says: []string{"a key must be plain text"}},
		{name: "twice in one section", file: "addr: localhost:1\naddr: localhost:2", field: "addr", says: []string{"line 2", "line 1 already"}},
		{
			name: "twice in two spellings", file: "sandbox.policy.pids: 20\nsandbox: {policy: {pids: 30}}", field: "sandbox.policy.pids",
			says: []string{"line 1 already"},
		},
		{name: "no YAML", file: "addr: [", field: "secbox.yaml", says: []string{"is no YAML", "line"}},
		{name: "tabs", file: "sandbox:\n\timages: []", field: "secbox.yaml", says: []string{"is no YAML"}},
		{name: "two documents", file: "addr: a:1\n---\naddr: b:1", field: "secbox.yaml", says: []string{"more than one"}},
		{name: "a list of settings", file: "- addr: a:1", field: "secbox.yaml", says: []string{"keys and values"}},
		{
			name: "a token in the file", file: "admin_token: 0123456789abcdef", field: "admin_token",
			says: []string{"must not be in a file", "CORE_API_ADMIN_TOKEN"},
		},

		{
			name: "an unknown variable", env: []string{"CORE_API_SANDBOX_MAX_CONCURENT_EXECS=3"}, field: "CORE_API_SANDBOX_MAX_CONCURENT_EXECS",
			says: []string{"did you mean CORE_API_SANDBOX_MAX_CONCURRENT_EXECS?"},
		},
		{name: "an unknown empty variable", env: []string{"CORE_API_ADRR="}, field: "CORE_API_ADRR", says: []string{"did you mean CORE_API_ADDR?"}},
		{name: "a port that is ours", env: []string{"CORE_API_PORT=8003"}, field: "CORE_API_PORT", says: []string{"no such setting"}},
		{name: "the prefix alone", env: []string{"CORE_API_=8003"}, field: "CORE_API_", says: []string{"no such setting"}},
		{
			name: "a variable that is no number", env: []string{"CORE_API_SANDBOX_POLICY_TIMEOUT_MS=5s"}, field: "CORE_API_SANDBOX_POLICY_TIMEOUT_MS",
			says: []string{`a whole number, not "5s"`},
		},
		{
			name: "a variable that is no switch", env: []string{"CORE_API_SANDBOX_READ_ONLY_ROOTFS=yes"}, field: "CORE_API_SANDBOX_READ_ONLY_ROOTFS",
			says: []string{"true or false"},
		},
		{
			name: "a variable that is not a finite number", env: []string{"CORE_API_SANDBOX_POLICY_CPU_CORES=NaN"}, field: "sandbox.policy.cpu_cores",
			says: []string{"must be a number", "CORE_API_SANDBOX_POLICY_CPU_CORES"},
		},

		{
			name: "no port", file: "addr: localhost", field: "addr",
			says: []string{`"localhost" is no address`, "127.0.0.1:8003", "set by line 1 of secbox.yaml"},
		},
		{name: "a port beyond", env: []string{"CORE_API_ADDR=:65536"}, field: "addr", says: []string{`"65536" is no port`, "set by CORE_API_ADDR"}},
		{name: "a host that is none", flags: Overrides{Addr: "http://x:1"}, field: "addr", says: []string{"set by --addr"}},
		{name: "a log level", env: []string{"CORE_API_LOG_LEVEL=loud"}, field: "log_level", says: []string{`"loud" is none of debug, info, warn, error`}},
		{name: "a log format", env: []string{"CORE_API_LOG_FORMAT=xml"}, field: "log_format", says: []string{"text, json"}},
		{
			name: "a runtime mode", env: []string{"CORE_API_SANDBOX_RUNTIME_MODE=mac"}, field: "sandbox.runtime_mode",
			says: []string{"auto, linux, windows, wsl, container"},
		},
		{
			name: "another database", env: []string{"DATABASE_URL=mysql://u:hunter2@h/db"}, field: "database_url",
			says: []string{"not a PostgreSQL URL", "set by DATABASE_URL"},
		},
		{name: "a database in key words", env: []string{"DATABASE_URL=host=h password=hunter2"}, field: "database_url", says: []string{"not a PostgreSQL URL"}},
		{
			name: "a database URL that is broken", env: []string{"DATABASE_URL=postgres://u:hunter2%zz@h/db"}, field: "database_url",
			says: []string{"percent-encoding"},
		},
		{name: "a database nowhere", env: []string{"DATABASE_URL=postgres:///db"}, field: "database_url", says: []string{"names no host"}},
		{name: "a short admin token", env: []string{"CORE_API_ADMIN_TOKEN=hunter2"}, field: "CORE_API_ADMIN_TOKEN", says: []string{"16 characters", "openssl"}},
		{
			name: "an admin token of two lines", env: []string{"CORE_API_ADMIN_TOKEN=hunter2hunter2\nhunter2"}, field: "CORE_API_ADMIN_TOKEN",
			says: []string{"Authorization header cannot carry"},
		},
		{name: "a tiny body", env: []string{"CORE_API_HTTP_MAX_BODY_BYTES=-1"}, field: "http.max_body_bytes", says: []string{"-1 is out of bounds", "1024"}},
		{
			name: "a URL for a host", env: []string{"CORE_API_HTTP_ALLOWED_HOSTS=a,https://b"}, field: "http.allowed_hosts[1]",
			says: []string{`"https://b"`, "set by CORE_API_HTTP_ALLOWED_HOSTS"},
		},
		{name: "all hosts", env: []string{"CORE_API_HTTP_ALLOWED_HOSTS=*"}, field: "http.allowed_hosts[0]", says: []string{"without *"}},
		{name: "a name for a proxy", env: []string{"CORE_API_HTTP_TRUSTED_PROXIES=proxy"}, field: "http.trusted_proxies[0]", says: []string{"10.0.0.0/24"}},
		{name: "no place at all", env: []string{"CORE_API_SANDBOX_MAX_CONCURRENT_EXECS=0"}, field: "sandbox.max_concurrent_execs", says: []string{"1 to 1024"}},
		{
			name: "no memory for a body", env: []string{"CORE_API_HTTP_MAX_MEMORY_BYTES_PER_TOKEN=33554432"}, field: "http.max_memory_bytes_per_token",
			says: []string{"167772160 to"},
		},
		{
			name: "less memory for all than for one", file: "http: {max_memory_bytes: 200000000, max_memory_bytes_per_token: 300000000}",
			field: "http.max_memory_bytes", says: []string{"300000000 to"},
		},
		{name: "more streams of a token than in all", file: "http: {max_streams: 5}", field: "http.max_streams_per_token", says: []string{"1 to 5"}},
		{name: "no connections", file: "http: {max_connections: 0}", field: "http.max_connections", says: []string{"16 to"}},
		{
			name: "more for one token than for all", file: "sandbox: {max_concurrent_execs: 2, max_concurrent_execs_per_token: 3}",
			field: "sandbox.max_concurrent_execs_per_token", says: []string{"0 to 2"},
		},
		{name: "a negative queue", env: []string{"CORE_API_SANDBOX_MAX_QUEUED_EXECS=-1"}, field: "sandbox.max_queued_execs", says: []string{"0 to"}},
		{name: "root", env: []string{"CORE_API_SANDBOX_USER=0:0"}, field: "sandbox.user", says: []string{"root"}},
		{name: "root in disguise", env: []string{"CORE_API_SANDBOX_USER=000:1"}, field: "sandbox.user", says: []string{"root"}},
		{name: "a user by name", env: []string{"CORE_API_SANDBOX_USER=sandbox"}, field: "sandbox.user", says: []string{"uid:gid"}},
		{name: "a preview domain that is an address", env: []string{"CORE_API_SANDBOX_PREVIEW_DOMAIN=10.0.0.1"}, field: preview, says: noName},
		{name: "a preview domain with a star", env: []string{"CORE_API_SANDBOX_PREVIEW_DOMAIN=*.example.net"}, field: preview, says: noName},
		{name: "a preview domain in upper case", env: []string{"CORE_API_SANDBOX_PREVIEW_DOMAIN=Example.net"}, field: preview, says: noName},
		{name: "a preview domain with a port", env: []string{"CORE_API_SANDBOX_PREVIEW_DOMAIN=example.net:80"}, field: preview, says: noName},
		{
			name: "a preview domain that is too long", env: []string{"CORE_API_SANDBOX_PREVIEW_DOMAIN=" + strings.Repeat("a.", 110) + "net"},
			field: preview, says: noName,
		},
		{name: "a preview domain that is the console's", env: []string{"CORE_API_SANDBOX_PREVIEW_DOMAIN=localhost"}, field: preview, says: []string{"in it"}},
		{
			name: "a preview domain above the console", file: "http: {allowed_hosts: [\"Box.example.net:8003\"]}\nsandbox: {preview_domain: example.net}",
			field: preview, says: []string{"box.example.net", "in it"},
		},
		{
			name: "a preview domain below the console", file: "http: {allowed_hosts: [example.net]}\nsandbox: {preview_domain: preview.example.net}",
			field: preview, says: []string{"below"},
		},
		{
			name: "a volume that is a path", env: []string{"CORE_API_SANDBOX_INIT_VOLUME=/etc"}, field: "sandbox.init_volume",
			says: []string{"no name of a Docker volume"},
		},
		{name: "a relative docker", env: []string{"CORE_API_SANDBOX_DOCKER_PATH=./docker"}, field: "sandbox.docker_path", says: []string{"relative"}},
		{
			name: "a runtime that is a path", env: []string{"CORE_API_SANDBOX_RUNTIME=/usr/bin/crun"}, field: "sandbox.runtime",
			says: []string{`"/usr/bin/crun" is no name of a runtime`, "docker info", "leave it out", "set by CORE_API_SANDBOX_RUNTIME"},
		},
		{
			name: "a runtime that is an option", file: "sandbox: {runtime: --privileged}", field: "sandbox.runtime",
			says: []string{"no name of a runtime", "line 1"},
		},
		{
			name: "uploads larger than are unpacked", file: "skills: {max_upload_bytes: 268435457}", field: "skills.max_upload_bytes",
			says: []string{"268435457 is out of bounds", "to 268435456", "line 1"},
		},
		{name: "no work on skills", env: []string{"CORE_API_SKILLS_MAX_CONCURRENT_WORK=0"}, field: "skills.max_concurrent_work", says: []string{"1 to 256"}},
		{name: "a negative queue of work", file: "skills: {max_queued_work: -1}", field: "skills.max_queued_work", says: []string{"0 to", "line 1"}},
		{name: "no uploads", file: "skills: {max_uploads: 0}", field: "skills.max_uploads", says: []string{"1 to"}},
		{name: "no uploads by a token", file: "skills: {max_uploads_per_token: 0}", field: "skills.max_uploads_per_token", says: []string{"1 to"}},
		{name: "no downloads", file: "skills: {max_downloads: 0}", field: "skills.max_downloads", says: []string{"1 to"}},
		{name: "no downloads by a token", file: "skills: {max_downloads_per_token: 0}", field: "skills.max_downloads_per_token", says: []string{"1 to"}},
		{
			name: "no room for the largest archive", file: "skills: {max_waiting_bytes: 268435456}", field: "skills.max_waiting_bytes",
			says: []string{"skills.max_upload_bytes"},
		},
		{
			name: "no room for a token's largest archive", file: "skills: {max_waiting_bytes_per_token: 1}", field: "skills.max_waiting_bytes_per_token",
			says: []string{"skills.max_upload_bytes"},
		},
		{name: "uploads of nothing", env: []string{"CORE_API_SKILLS_MAX_UPLOAD_BYTES=0"}, field: "skills.max_upload_bytes", says: []string{"1024 to"}},
		{
			name: "records that are removed before their end", env: []string{"CORE_API_AUDIT_RETENTION_DAYS=-1"}, field: "audit.retention_days",
			says: []string{"0 to"},
		},
		{
			name: "artifacts for a million years", env: []string{"CORE_API_AUDIT_ARTIFACTS_RETENTION_DAYS=365000000"}, field: "audit.artifacts_retention_days",
			says: []string{"0 to"},
		},
		{
			name: "workspaces that are idle before they are used", env: []string{"CORE_API_WORKSPACES_IDLE_SECONDS=-1"}, field: "workspaces.idle_seconds",
			says: []string{"0 to"},
		},
		{
			name: "a backend that is none", file: "sandboxes: {backend: kubernetes}", field: "sandboxes.backend",
			says: []string{"docker, remote, none", "line 1"},
		},
		{
			name: "the backend none, not allowed", file: "sandboxes: {backend: none}", field: "sandboxes.backend",
			says: []string{"unconfined", "sandboxes.none", "line 1"},
		},
		{
			name: "workspaces that are removed before they are used", env: []string{"CORE_API_SANDBOX_WORKSPACE_TTL_HOURS=-1"},
			field: "sandbox.workspace_ttl_hours", says: []string{"0 to"},
		},
		{name: "containers that stop at once", env: []string{"CORE_API_SANDBOXES_IDLE_SECONDS=0"}, field: "sandboxes.idle_seconds", says: []string{"1 to"}},
		{name: "no containers", file: "sandboxes: {max_containers: 0}", field: "sandboxes.max_containers", says: []string{"1 to"}},
		{name: "no grace", file: "sandboxes: {runner_grace_seconds: 0}", field: "sandboxes.runner_grace_seconds", says: []string{"1 to 3600"}},
		{name: "a heart that stands still", file: "sandboxes: {heartbeat_seconds: 0}", field: "sandboxes.heartbeat_seconds", says: []string{"1 to 300"}},
		{
			name: "a pool of less than nothing", env: []string{"CORE_API_POOL_MAX=-1"}, field: "pool.max",
			says: []string{"-1 is out of bounds", "0 to", "0 turns the pool off"},
		},
		{name: "nothing per key", file: "pool: {max_per_key: 0}", field: "pool.max_per_key", says: []string{"1 to", "set pool.max to 0", "line 1"}},
		{
			name: "memory for not one", env: []string{"CORE_API_POOL_MAX_MEMORY_MB=15"}, field: "pool.max_memory_mb",
			says: []string{"16 to", "set pool.max to 0"},
		},
		{
			name: "a webhook's host as an address", file: "webhooks: {allow: ['https://a.example']}", field: "webhooks.allow[0]",
			says: []string{"is no host", "hooks.example.com"},
		},
		{name: "any host for webhooks", file: "webhooks: {allow: ['*']}", field: "webhooks.allow[0]", says: []string{"is no host"}},
		{
			name: "no network for webhooks", file: "webhooks: {allow_networks: [lan]}", field: "webhooks.allow_networks[0]",
			says: []string{"is no address and no network"},
		},
		{
			name: "a collector without a scheme", env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318"}, field: "traces.endpoint",
			says: []string{"is no address of a collector", "http://HOST:4318"},
		},
		{
			name: "a collector's key in its address", file: "traces: {endpoint: 'https://a:hunter2@b.example'}", field: "traces.endpoint",
			says: []string{"has a user", "traces.headers", "line 1"},
		},
		{
			name: "a header without a value", env: []string{"OTEL_EXPORTER_OTLP_HEADERS=a=b,c"}, field: "CORE_API_TRACES_HEADERS",
			says: []string{"header 2 is malformed", "name=value"},
		},
		{
			name: "a header with a line break", env: []string{"CORE_API_TRACES_HEADERS=a=b%0Ac"}, field: "CORE_API_TRACES_HEADERS",
			says: []string{"header 1 is malformed"},
		},
		{
			name: "more than all traces", env: []string{"OTEL_TRACES_SAMPLER_ARG=1.5"}, field: "traces.sample_ratio",
			says: []string{"1.5 is out of bounds", "0 to 1"},
		},
		{name: "no number of traces", env: []string{"CORE_API_TRACES_SAMPLE_RATIO=NaN"}, field: "traces.sample_ratio", says: []string{"NaN is out of bounds"}},
		{
			name: "no patience at all", env: []string{"CORE_API_POOL_IDLE_SECONDS=0"}, field: "pool.idle_seconds",
			says: []string{"0 is out of bounds", "1 to", "set pool.max to 0"},
		},
		{
			name: "less growth than artifacts", env: []string{"CORE_API_SANDBOX_DISK_GROWTH_MAX_BYTES=1000000"}, field: "sandbox.disk_growth_max_bytes",
			says: []string{"1073741824", "policy_ceiling"},
		},
		{name: "a relative state dir", file: "state_dir: ~/x", field: "state_dir", says: []string{`"~/x" is relative`}},
		{name: "a relative workspace", env: []string{"CORE_API_SANDBOX_WORKSPACE_ROOT=ws"}, field: "sandbox.workspace_root", says: []string{"relative"}},
		{
			name: "one in the other", env: []string{"CORE_API_STATE_DIR=" + abs("/srv/x/ws/state"), "CORE_API_SANDBOX_WORKSPACE_ROOT=" + abs("/srv/x/ws")},
			field: "sandbox.workspace_root", says: []string{"is under the workspace root", "choose two"},
		},
		{
			name:  "the WSL root in the state dir",
			env:   []string{"CORE_API_STATE_DIR=" + abs("/mnt/d"), "CORE_API_SANDBOX_WORKSPACE_ROOT_WSL=" + abs("/mnt/d/ws")},
			field: "sandbox.workspace_root_wsl", says: []string{"is under state_dir"},
		},
		{
			name: "the policy's own rules", file: "sandbox: {policy: {timeout_ms: 1800001}}", field: "sandbox.policy.timeout_ms",
			says: []string{"default ceiling of 1800000", "sandbox.policy_ceiling.timeout_ms", "set by line 1"},
		},
		{name: "an image list", file: "sandbox: {images: ['--privileged']}", field: "sandbox.images[0]", says: []string{"no image reference", "line 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			file := ""
			if c.file != "" {
				file = write(t, c.file)
			}
			s, err := Load(file, here(c.env...), c.flags)
			if !fault.Is(err, fault.InvalidSettings) {
				t.Fatalf("got %v, %+v", err, s)
			}
			e := fault.From(err)
			if e.Fields[0].Field != c.field {
				t.Fatalf("field %q, want %q: %v", e.Fields[0].Field, c.field, err)
			}
			for _, words := range c.says {
				if !strings.Contains(e.Fields[0].Reason, words) {
					t.Errorf("%q does not say %q", e.Fields[0].Reason, words)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a secret: %v", err)
			}
			if len(e.Message) > 1000 || !strings.Contains(e.Message, e.Fields[0].Reason) {
				t.Errorf("message of %d bytes: %s", len(e.Message), e.Message)
			}
		})
	}
}

func TestErrorsComeAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Load(write(t, "adr: a:1\nlog_level: loud\nsandbox: {policy: {pids: 1}}"), here("CORE_API_FOO=1", "CORE_API_LOG_FORMAT=xml"), Overrides{Addr: "x"})
	want := []string{"adr", "CORE_API_FOO", "addr", "log_level", "log_format", "sandbox.policy.pids"}
	var got []string
	for _, f := range fault.From(err).Fields {
		got = append(got, f.Field)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	_, err := Load(filepath.Join(t.TempDir(), "nope.yaml"), here(), Overrides{})
	if !fault.Is(err, fault.InvalidSettings) || !strings.Contains(fault.From(err).Message, "nope.yaml (there is no such file)") {
		t.Fatal(err)
	}
}

// TestLargeFile: a file without an end, such as a wrong device, takes no more memory than a
// settings file may have.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, maxFile+1); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file, here(), Overrides{})
	if !fault.Is(err, fault.InvalidSettings) || !strings.Contains(fault.From(err).Message, "large.yaml (has more than 1048576 bytes)") {
		t.Fatal(err)
	}
}

// Kubernetes sets variables for a service of our name; they are not typos.
func TestVariablesOfAnOrchestrator(t *testing.T) {
	t.Parallel()
	if _, err := Load("", here(
		"CORE_API_SERVICE_HOST=10.0.0.1", "CORE_API_SERVICE_PORT=8003", "CORE_API_SERVICE_PORT_HTTP=8003", "CORE_API_PORT=tcp://10.0.0.1:8003",
		"CORE_API_PORT_8003_TCP=tcp://10.0.0.1:8003", "CORE_API_PORT_8003_TCP_PROTO=tcp", "CORE_API_PORT_8003_TCP_ADDR=10.0.0.1",
		"CORE_API_PORT_8003_TCP_PORT=8003", "CORE_API_METRICS_SERVICE_HOST=10.0.0.2", "CORE_API_METRICS_PORT=tcp://10.0.0.2:1",
	), Overrides{}); err != nil {
		t.Fatal(err)
	}
}

func TestWindowsVariablesHaveNoCase(t *testing.T) {
	t.Parallel()
	vars := variables([]string{"=C:=C:\\x", "Core_Api_Addr=a:1", "broken", "A=1=2", "A=3"}, "windows")
	if want := map[string]string{"CORE_API_ADDR": "a:1", "A": "3"}; !reflect.DeepEqual(vars, want) {
		t.Fatalf("%v", vars)
	}
	if vars := variables([]string{"a=1", "A=2"}, "linux"); len(vars) != 2 {
		t.Fatalf("%v", vars)
	}
}

// FuzzFile: no file makes the reader panic, and the digest covers every value that it accepts.
func FuzzFile(f *testing.F) {
	f.Add([]byte("sandbox: {policy: {net: {mode: none}, fs.read: []}}\naddr: a:1\n"))
	f.Add([]byte("a: &a {b: *a}\nsandbox: *a\n"))
	f.Add([]byte("<<: {addr: a:1}\n? {x: y}\n: 1\n--- 2"))
	f.Add([]byte("sandbox: &s {policy: *s}"))
	f.Add([]byte("admin_token: hunter2hunter2\ndatabase_url: [hunter2hunter2]"))
	rows := table()
	f.Fuzz(func(t *testing.T, data []byte) {
		s := Default()
		var p problems
		readFile(&s, rows, "f", data, &p)
		if s.AdminToken != "" {
			t.Fatal("a token came out of a file")
		}
		for _, bad := range append(p.fields, s.check()...) {
			if bad.Field == "" || bad.Reason == "" {
				t.Fatalf("%+v", bad)
			}
		}
		if d := s.Digest(); len(d) != len("sha256:")+64 {
			t.Fatal(d)
		}
		_ = fmt.Sprint(s.Redacted())
	})
}
