package recipe

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Names in the build context.
const (
	pipDir   = "pip"
	filesDir = "files"
)

// StepFailed begins the line of a build's output that names the step that failed.
const StepFailed = "secbox-step-failed: "

// Build is what a Dockerfile is made for.
type Build struct {
	Base   string            // the image to build on
	Labels map[string]string // plain texts of this program
	// Init is an image with sandbox-init in /opt/secbox, for a base without it; empty: the base has
	// it.
	Init      string
	InitLabel string // of an image with sandbox-init, and its value
	InitBuild string
}

// Dockerfile returns the text for docker build. It is plain enough for the classic builder of
// engine 20.10. All steps are one layer, so that what a step removes takes no space.
func (r Recipe) Dockerfile(b Build) string {
	var d strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&d, format+"\n", args...) }
	line("FROM %s", b.Base)
	line("USER 0:0")
	// The label comes first, so that every intermediate image has it and can be found.
	var labels []string
	for _, name := range sortedKeys(b.Labels) {
		labels = append(labels, name+"="+quoteWord(b.Labels[name]))
	}
	line("LABEL %s", strings.Join(labels, " "))
	if b.Init != "" { // the variables that the sandbox image sets
		line("ENV HOME=/tmp LANG=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1")
	}
	if len(r.Npm) > 0 {
		line("ENV NODE_PATH=/usr/local/lib/node_modules")
	}
	for _, v := range r.Env {
		line("ENV %s=%s", v.Name, quoteWord(v.Value))
	}
	if r.Pip.used() {
		line(`COPY ["%s", "/opt/secbox-pip/"]`, pipDir)
	}
	for i, f := range r.Files {
		line(`COPY ["%s/%d", "%s"]`, filesDir, i, f.To)
	}
	line("RUN sh -ec \"$(echo %s | base64 -d)\"", base64.StdEncoding.EncodeToString([]byte(r.script())))
	if b.Init != "" {
		line("COPY --from=%s /opt/secbox /opt/secbox", b.Init)
		line("LABEL %s=%s", b.InitLabel, quoteWord(b.InitBuild))
		line("WORKDIR /workspace/work")
		line(`ENTRYPOINT ["/opt/secbox/sandbox-init"]`)
	}
	line("USER 1000:1000")
	return d.String()
}

// script is what the build runs as root.
func (r Recipe) script() string {
	var s strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	line("step=files; trap 'test -z \"$step\" || echo \"%s$step\" >&2' EXIT", StepFailed)
	line("export DEBIAN_FRONTEND=noninteractive")
	if len(r.Apt) > 0 {
		line("step=apt")
		line("apt-get -o Acquire::Languages=none update -qq")
		// A build that is cut short leaves no image, so files need no sync.
		line("apt-get -o Dpkg::Options::=--force-unsafe-io -o Dpkg::Options::=--force-confold install -qq -y --no-install-recommends "+
			"-- %s >/dev/null", quoteAll(r.Apt))
		line("rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log")
	}
	if r.Pip.used() {
		from := ""
		if r.Pip.Wheels != "" {
			from = "--no-index --find-links /opt/secbox-pip/wheels "
		}
		line("step=pip")
		line("PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore python3 -m pip install -q --no-input --no-cache-dir "+
			"--disable-pip-version-check --require-hashes %s-r /opt/secbox-pip/lock.txt", from)
		line("rm -rf /opt/secbox-pip")
	}
	if len(r.Npm) > 0 {
		line("step=npm")
		line("npm install --global --no-audit --no-fund --no-update-notifier --loglevel=error --cache /opt/secbox-npm -- %s", quoteAll(r.Npm))
		line("rm -rf /opt/secbox-npm")
	}
	for i, l := range r.Run {
		line("step='run, line %d'", i+1)
		line("sh -ec %s", quote(l))
	}
	// As in the sandbox image: jobs get no new privileges, so such a program could only fail.
	line("step=finish")
	line("find / -xdev -type f -perm /6000 -exec chmod ug-s {} +")
	line("mkdir -p /workspace/inputs /workspace/work /workspace/artifacts; chown -R 1000:1000 /workspace; chmod 1777 /tmp; rm -rf /tmp/* /tmp/.[!.]*")
	line("step=")
	return s.String()
}

// quote makes one word of a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}

// quoteWord makes one word of a Dockerfile's ENV or LABEL, in which nothing is expanded.
func quoteWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`).Replace(s) + `"`
}
