//go:build unix

package scripts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// history is a repository with two commits, a tag, something staged and something not.
const history = `
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git init -q -b main app; cd app
printf '1\n2\n3\n4\n5\n6\n7\n8\n9\n' > n.txt; printf 'x\0' > bin; mkdir sub; printf 'old name\nis long\nenough\n' > sub/old; echo gone > gone; echo ü > 'ünï ÿ'
git add -A; git commit -qm one; git tag first
sed -i 's/^5$/five/' n.txt; git add -A; git commit -qm two
git mv sub/old sub/new; git rm -q gone; echo new > added; git add added
sed -i 's/^9$/nine/' n.txt; printf 'y\0' > bin; printf 'g\xff\n' > 'ünï ÿ'; echo untracked > untracked
`

// changes is what git.diff says of the files: "status path +additions -deletions".
func changes(out object) (lines []string) {
	for _, f := range out.list("files") {
		path := f.str("path")
		if old := f.str("old_path"); old != "" {
			path = old + " > " + path
		}
		lines = append(lines, fmt.Sprintf("%s %s +%v -%v", f.str("status"), path, f["additions"], f["deletions"]))
	}
	return lines
}

// TestDiff compares all that can be compared, with every option.
func TestDiff(t *testing.T) {
	t.Parallel()
	r := inRow(t, history)
	const bin, nine, u = "modified bin +<nil> -<nil>", "modified n.txt +1 -1", "modified ünï ÿ +1 -1"
	const added, gone, renamed = "added added +1 -0", "deleted gone +0 -1", "renamed sub/old > sub/new +0 -0"
	for name, c := range map[string]struct {
		inputs object
		files  []string
		has    string
	}{
		"files":            {object{}, []string{bin, nine, u}, "-9\n+nine\n"},
		"staged":           {object{"staged": true}, []string{added, gone, renamed}, "rename from sub/old\nrename to sub/new\n"},
		"a commit":         {object{"from": "HEAD"}, []string{added, bin, gone, nine, renamed, u}, "+new\n"},
		"an older one":     {object{"from": "HEAD~1", "paths": []string{"n.txt"}}, []string{"modified n.txt +2 -2"}, "-5\n+five\n"},
		"staged and older": {object{"from": "first", "staged": true, "paths": []string{"n.txt", "added"}}, []string{added, nine}, "+five\n"},
		"two commits":      {object{"from": "first", "to": "main"}, []string{nine}, "-5\n+five\n"},
		"backwards":        {object{"from": "main", "to": "refs/tags/first"}, []string{nine}, "-five\n+5\n"},
		"the same":         {object{"from": "main", "to": "HEAD"}, nil, ""},
		"by reflog":        {object{"from": "HEAD@{1}", "to": "HEAD^{commit}"}, []string{nine}, "+five\n"},
		"no context":       {object{"paths": []string{"n.txt"}, "context": 0}, []string{nine}, "@@ -9 +9 @@ five\n-9\n+nine\n"},
		"all context":      {object{"paths": []string{"n.txt"}, "context": 100}, []string{nine}, "@@ -1,9 +1,9 @@\n 1\n 2\n"},
		"no UTF-8":         {object{"paths": []string{"ünï ÿ"}}, []string{u}, "diff --git a/ünï ÿ b/ünï ÿ\n"},
		"no such path":     {object{"paths": []string{"nowhere", "--help", ":(top)n.txt", "*.txt"}}, nil, ""},
		"a folder's":       {object{"path": "app/sub", "staged": true}, []string{added, gone, renamed}, "rename to sub/new\n"},
		"paths from there": {object{"path": "app/sub", "staged": true, "paths": []string{"new"}}, []string{"added sub/new +3 -0"}, "+old name\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inputs := object{"path": "app"}
			for k, v := range c.inputs {
				inputs[k] = v
			}
			out := r.with(t).uses("git.diff", inputs)
			same(t, "files", changes(out), c.files)
			if diff := out.str("diff"); !strings.Contains(diff, c.has) || (diff == "") != (c.has == "") || out.at("truncated") != false {
				t.Errorf("%v", out)
			}
		})
	}
}

// TestDiffOfOddRepositories: those that are new, in the midst of a merge, work trees of others, or
// of SHA-256.
func TestDiffOfOddRepositories(t *testing.T) {
	t.Parallel()
	r := inRow(t, history+`
git reset -q --hard; git checkout -qb side first; echo side > n.txt; git commit -qam side; git merge main >/dev/null || true
cd ..; git init -q fresh; echo x > fresh/x; git -C fresh add x
git -C app worktree add -q ../tree first 2>/dev/null; echo y > tree/gone
git init -q --object-format=sha256 long; cd long; echo x > x; git add x; git commit -qm x; echo y > x; cd ..
git init -q packed; cd packed; echo x > x; git add x; git commit -qm x; git tag -am t t; git gc -q; echo y > x; cd ..
git init -q crlf; cd crlf; git config core.autocrlf true; printf 'x\n' > x; git add x; git commit -qm x; printf 'x\r\n' > x; cd ..
mkdir typed; cd typed; git init -q .; echo x > x; git add x; git commit -qm x; rm x; ln -s /etc/passwd x; cd ..
`)
	for path, want := range map[string][]string{
		"app": {"unmerged n.txt +1 -9"}, "tree": {"modified gone +1 -1"}, "long": {"modified x +1 -1"}, "packed": {"modified x +1 -1"}, "crlf": nil,
		"fresh": nil,
		"typed": {"type_changed x +1 -1"},
	} {
		out := r.uses("git.diff", object{"path": path})
		got := changes(out)
		if path == "app" && len(got) == 1 && strings.HasPrefix(got[0], "unmerged n.txt") && strings.Contains(out.str("diff"), "++<<<<<<< HEAD") {
			continue // git chooses the base of these numbers
		}
		same(t, path, got, want)
		if strings.Contains(out.str("diff"), "root:") {
			t.Errorf("%s: followed a link: %v", path, out)
		}
	}
	same(t, "new", changes(r.uses("git.diff", object{"path": "fresh", "staged": true})), []string{"added x +1 -0"})
	same(t, "a tag that is an object", changes(r.uses("git.diff", object{"path": "packed", "from": "t"})), []string{"modified x +1 -1"})
	r.useFails("git.diff", object{"path": "fresh", "from": "HEAD"}, 2, "names no commit")
}

// TestDiffRunsNothing checks that no command configured by a repository runs.
func TestDiffRunsNothing(t *testing.T) {
	t.Parallel()
	const sprung = "touch /workspace/artifacts/sprung"
	r := inRow(t, history+`
cat > evil <<'END'
#!/bin/sh
`+sprung+`
cat
END
chmod 755 evil; E=$PWD/evil
for hook in post-index-change fsmonitor-watchman reference-transaction pre-commit post-checkout; do cp evil .git/hooks/$hook; done
git init -q inner; (cd inner; echo x > x; git add x; git commit -qm x); git -c protocol.file.allow=always submodule --quiet add ./inner inner 2>/dev/null || git add inner
echo y > inner/x
echo '* filter=evil diff=evil merge=evil working-tree-encoding=UTF-8' > .gitattributes; cp .gitattributes .git/info/attributes
cp "$E" /tmp/evil; echo '[core] fsmonitor = '"$E" > .git/more
cat >> .git/config <<END
[core]
	fsmonitor = $E
	hooksPath = $PWD/.git/hooks
	pager = $E
	sshCommand = $E
	editor = $E
	askPass = $E
	attributesFile = $PWD/.gitattributes
	gitProxy = $E
	alternateRefsCommand = $E
[pager]
	diff = $E
[diff]
	external = $E
	submodule = log
	ignoreSubmodules = none
[diff "evil"]
	command = $E
	textconv = $E
	cachetextconv = true
[filter "evil"]
	clean = $E
	smudge = $E
	process = $E
	required = true
[alias]
	diff = !$E
[interactive]
	diffFilter = $E
[include]
	path = more
[extensions]
	partialClone = origin
	worktreeConfig = true
[remote "origin"]
	url = ext::$E
	promisor = true
	uploadpack = $E
[protocol "ext"]
	allow = always
[submodule "inner"]
	update = !$E
END
cp .git/config .git/config.worktree
for config in inner/.git/config .git/modules/inner/config; do test -e $config && sed -n '/^.core.$/,$p' .git/config | sed 1,6d >> $config; done
rm -f evil.x; true
`)
	before := r.snapshot()
	for _, inputs := range []object{{}, {"staged": true}, {"from": "HEAD"}, {"from": "first", "to": "HEAD"}, {"paths": []string{"inner"}}} {
		inputs["path"] = "app"
		a := r.use("git.diff", inputs)
		if a.str("exec.status") != "succeeded" {
			t.Errorf("%v: %v", inputs, a)
		}
		if slices.ContainsFunc(a.list("exec.artifacts"), func(f object) bool { return f.str("path") == "sprung" }) {
			t.Errorf("%v ran what the repository names: %v", inputs, a)
		}
	}
	same(t, "work/", r.snapshot(), before)

	// The traps are sharp: git itself springs them.
	r.bash("set +e; cd app && git diff; git status; true")
	if err := os.Remove(filepath.Join(r.dir, "workspace/artifacts/sprung")); err != nil {
		t.Errorf("git itself runs nothing there: %v", err)
	}

	// An object that is missing is not fetched by the command that the remote names.
	r.bash(`cd app; rm -rf .git/objects/??`)
	a := r.use("git.diff", object{"path": "app", "from": "first", "to": "HEAD"})
	if a.str("exec.status") != "failed" || len(a.list("exec.artifacts")) > 0 {
		t.Errorf("a missing object: %v", a)
	}
}

// TestDiffRefuses names that could be options or ranges, and folders that are no repository or hold
// a broken one.
func TestDiffRefuses(t *testing.T) {
	t.Parallel()
	for field, inputs := range map[string]object{
		"inputs.context":   {"context": 101},
		"inputs.max_bytes": {"max_bytes": 999},
		"inputs.staged":    {"staged": "yes"},
		"inputs.paths":     {"paths": "x"},
		"inputs.paths[0]":  {"paths": []string{"../x"}},
		"inputs.paths[1]":  {"paths": []string{"x", "/etc"}},
		"inputs.to":        {"from": "a", "to": "-b"},
	} {
		refusesInputs(t, "git.diff", inputs, field)
	}
	for _, from := range []any{"", "-x", "--output=/workspace/artifacts/x", "a b", "a\nb", "a\x00", strings.Repeat("x", 251), 1} {
		refusesInputs(t, "git.diff", object{"from": from}, "inputs.from")
	}
	r := inRow(t, history+`
cd ..; mkdir -p none fifo/.git/objects fifo/.git/refs out; git clone -q --bare app bare
printf 'ref: refs/heads/main\n' > fifo/.git/HEAD; mkfifo fifo/.git/index; mkdir linked; ln -s ../app/.git linked/.git; printf 'gitdir: /etc\n' > out/.git
mkdir -p broken/.git; mkdir -p head/.git/objects head/.git/refs; mkfifo head/.git/HEAD; mkdir -p up; printf 'gitdir: ../../inputs\n' > up/.git; touch file
`)
	for _, c := range []struct {
		inputs object
		says   string
	}{
		{object{}, "neither it nor a folder above it"},
		{object{"path": "none"}, "neither it nor a folder above it"},
		{object{"path": "bare"}, "neither it nor a folder above it"},
		{object{"path": "file"}, "is no folder"},
		{object{"path": "app/n.txt"}, "is no folder"},
		{object{"path": "fifo"}, "index is neither a file nor a folder"},
		{object{"path": "head"}, "HEAD cannot be read: neither a file nor a folder"},
		{object{"path": "broken"}, "HEAD cannot be read"},
		{object{"path": "linked"}, "its .git is a link"},
		{object{"path": "out"}, "outside of work/"},
		{object{"path": "up"}, "outside of work/"},
		{object{"path": "app", "from": "nosuch"}, "from: 'nosuch' names no commit"},
		{object{"path": "app", "from": "HEAD", "to": "nosuch"}, "to: 'nosuch' names no commit"},
		{object{"path": "app", "from": "first..main"}, "names no commit"},
		{object{"path": "app", "from": "^main"}, "names no commit"},
		{object{"path": "app", "from": "main:n.txt"}, "names no commit"},
		{object{"path": "app", "to": "HEAD"}, "it needs from"},
		{object{"path": "app", "from": "first", "to": "HEAD", "staged": true}, "cannot be together with staged"},
	} {
		a := r.useFails("git.diff", c.inputs, 2, c.says)
		same(t, "outputs", a["outputs"], nil)
	}
	inRow(t, "").useFails("git.diff", object{}, 2, "neither it nor a folder above it")
}

// TestDiffALot is cut at the end of a line, and lists no more files than an output may have.
func TestDiffALot(t *testing.T) {
	t.Parallel()
	r := inRow(t, `git init -q .; mkdir many; seq 1 6000 | sed 's,^,many/,' | xargs touch; seq 1 200000 > n; git add -A; git -c user.name=a -c user.email=a@example.org commit -qm x
for f in many/*; do echo x > $f; done; seq 2 200001 | sed s/1/x/ > n; printf '%600000s' x > long; git add -N long`)
	out := r.uses("git.diff", object{"paths": []string{"n"}, "max_bytes": 5000})
	if diff := out.str("diff"); out.at("truncated") != true || len(diff) > 5000 || len(diff) < 4900 || !strings.HasSuffix(diff, "\n") ||
		len(out.list("files")) != 1 {
		t.Errorf("%d bytes: %.200q", len(out.str("diff")), out)
	}
	out = r.uses("git.diff", object{"paths": []string{"n"}, "max_bytes": 524288})
	if diff := out.str("diff"); out.at("truncated") != true || len(diff) < 524000 {
		t.Errorf("%d bytes", len(diff))
	}
	out = r.uses("git.diff", object{"paths": []string{"many"}})
	if len(out.list("files")) != 5000 || out.at("truncated") != true {
		t.Errorf("%d files", len(out.list("files")))
	}
}
