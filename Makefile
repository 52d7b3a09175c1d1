# `make help` lists the targets. All of them but help, check, lint, fmt, kube-down and clean set the machine up
# first, which takes a second once it is done.

SHELL := bash
.DEFAULT_GOAL := help
export PATH := $(PATH):/usr/local/go/bin:/usr/lib/go/bin
# A Go that is too old for go.mod downloads the right one; set GOTOOLCHAIN=local to prevent that.
export GOTOOLCHAIN ?= auto
# Compiled packages hold no paths of the clone, so that a fresh clone reuses the build cache.
export GOFLAGS ?= -trimpath
# SECBOX_SOAK=1 makes tests with random timing repeat long; see `make soak`.
export SECBOX_SOAK ?=

# As images/build-core-api.sh compiles, so that all share compiled packages. Only the race detector needs cgo.
NO_CGO := CGO_ENABLED=0
BUILD := $(NO_CGO) go build -trimpath -o bin/ ./cmd/core-api ./cmd/secbox
GOLANGCI := go run -exec 'env $(NO_CGO)' github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

define LINT
$(GOLANGCI) run ./...
@for f in $$(git ls-files -co --exclude-standard '*.sh' .ci/run); do bash -n "$$f" || exit 1; done
endef

# For other systems types are checked without compiling; of packages that run on users' machines, also those of the tests.
define VET
$(NO_CGO) go vet ./...
$(NO_CGO) go run ./scripts/typecheck windows/amd64 $(ON_USERS_MACHINES)
$(NO_CGO) go run ./scripts/typecheck darwin/arm64 $(ON_USERS_MACHINES)
endef

ON_USERS_MACHINES := ./cmd/secbox ./mcp/hosts ./sandbox ./sandbox/files ./sandbox/process ./sandbox/remote/...

# Packages whose tests need a Docker engine or a browser: make check leaves them to make test.
NEED_ENGINE := clients|cmd/bench|cmd/core-api|console|engine/dockercli|docs|e2e|engine|health|images|sandbox/docker|scripts|packages/creator

PREFIX ?= /usr/local
TEST_FLAGS ?=
# For one test program that hangs; on an idle machine of two cores the slowest, of e2e, takes a few minutes.
TEST_TIMEOUT ?= 45m
# The test programs share one engine and this machine's cores: three at a time keep two cores busy although their tests wait now and then.
TEST_P ?= 3
# Tests of one program at a time. Most of them wait for a container, so more than there are cores.
TEST_PARALLEL ?= 6
# Of e2e, which runs alone: its tests also wait for servers, whose starts and ends take little CPU time.
E2E_PARALLEL ?= 8
FUZZ_TIME ?= 10s
# How long make chaos breaks things.
CHAOS ?= 8m
CHAOS_FLAGS ?=
SCALING_FLAGS ?=

# make test vets first, all packages with their tests.
GO_TEST = go test -vet=off -parallel $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT)
test-e2e: TEST_PARALLEL = $(E2E_PARALLEL)
# The race detector needs a C compiler. It leaves out SQLite, translated C that one connection uses at a time: with it, opening a
# database takes several times the CPU time. By default a program waits for a second before it exits, for reports that come late.
RACE := export GORACE=atexit_sleep_ms=0; race=; [ "$$(go env CGO_ENABLED)" = 1 ] && command -v "$$(go env CC)" >/dev/null && race='-race -gcflags=modernc.org/...=-race=false'
# With it, computing takes several times the CPU time, so make test runs the packages that carry the concurrency with it, and those whose Go
# files changed since the commit RACE_SINCE. make soak runs all of them with it.
RACED := api/inflight|audit(/(admin|retention|translog))?|access/sessions|cluster/.*|cmd/(sandbox-init|secbox)|engine(/(attach|memengine|worker))?|health
RACED := $(RACED)|internal/(admission|quota|traces/otlp)|mcp/.*|packages/(catalog|content|library|versions)|runner(/.*)?|sandbox(/.*)?|server|skills|store/sqlite
RACE_SINCE ?= $(shell git describe --tags --abbrev=0 2>/dev/null)
# Tests that build programs of the module, or run its scripts, ask for this variable, so that go test repeats them when anything has changed.
export SECBOX_SOURCE ?= $(shell { git rev-parse 'HEAD^{tree}' && git diff HEAD; } 2>/dev/null | cksum | cut -d' ' -f1)
# These tests of e2e send many requests at once to one server, and make test runs them with the race detector. It runs the others without,
# which halves the CPU time of the test program: they show what one client sees, and the packages below have race-tested tests. A race
# that needs the wiring of a whole server and other routes than these is left to make soak, which runs everything with the race detector.
E2E_RACE := ^Test(ManyExecsAtOnce|InvokesAtOnce|InvokesDuringEdits|OneKeyOneExec|SlotsTakenAwayUnderTraffic|CancelDuringHandOver|CloseLeavesNothing)$$

# A recipe needs what the one before it made.
.NOTPARALLEL:
.PHONY: help setup setup-kube test-kube kube-down demo demo-cluster demo-kubernetes run install check vet test test-packages test-e2e soak chaos scaling test-reach interop bench dist lint fmt fuzz generate screenshots images up clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install missing parts: Go modules, Docker engine, PostgreSQL and PgBouncer for the tests, the sandbox image
	@scripts/setup.sh

setup-kube: ## Start a Kubernetes of one node on this machine, built once (some minutes), and print its kubeconfig; as root on Debian
	@scripts/setup.sh demo
	@scripts/kube.sh up

test-kube: setup-kube ## Run the engine's suite on pods of that Kubernetes
	@scripts/test-kube.sh

kube-down: ## End that Kubernetes; its programs stay in SECBOX_KUBE_CACHE (~/.cache/secbox-kube)
	@scripts/kube.sh down

demo: ## Start core-api, run a real exec and a refused one, show result, artifact, policy, audit rows and the page of the exec
	@scripts/setup.sh demo
	@scripts/demo.sh

demo-cluster: ## Start PostgreSQL and three nodes, send them many execs, kill one node, and account for every exec in a table
	@scripts/setup.sh
	@scripts/demo-cluster.sh

demo-kubernetes: setup-kube ## Deploy core-api on that Kubernetes, run an exec as a pod, and remove both
	@scripts/demo-kubernetes.sh

run: ## Serve on 127.0.0.1:8003 with a workspace and state that stay in .cache/run
	@scripts/setup.sh demo
	@$(BUILD)
	@mkdir -p .cache/run/workspaces
	@exec bin/core-api serve --workspace-root "$(CURDIR)/.cache/run/workspaces" --state-dir "$(CURDIR)/.cache/run/state"

install: ## Build core-api and secbox, and put them into PREFIX/bin (/usr/local)
	@scripts/setup.sh demo
	@$(BUILD)
	@install -d "$(DESTDIR)$(PREFIX)/bin" && install -m 755 bin/core-api bin/secbox "$(DESTDIR)$(PREFIX)/bin/"
	@echo "core-api and secbox are in $(DESTDIR)$(PREFIX)/bin"

check: vet lint ## Vet, lint, and run the tests of packages that need no Docker engine; PostgreSQL must be installed
	$(NO_CGO) go test -parallel $(TEST_PARALLEL) $(TEST_FLAGS) $$(go list ./... | grep -vxE 'secbox/($(NEED_ENGINE))')

vet:
	$(VET)

test: setup vet ## Run every test, on a real Docker engine and a real PostgreSQL
	@failed=; for part in packages e2e; do $(MAKE) --no-print-directory test-$$part || failed=1; done; [ -z "$$failed" ]

# The packages with the slowest tests begin, so that none of them runs alone at the end.
SLOWEST := console engine api cmd/bench images scripts
test-packages:
	@$(RACE); failed=; all=$$({ printf 'secbox/%s\n' $(SLOWEST); go list ./...; } | grep -vx secbox/e2e | awk '!seen[$$0]++'); \
	raced=$$({ grep -xE 'secbox/($(RACED))' <<<"$$all"; \
		[ -z '$(RACE_SINCE)' ] || git diff --name-only '$(RACE_SINCE)' -- '*.go' | sed -n 's|/[^/]*$$||p' | sort -u | sed 's|^|secbox/|' | grep -xF "$$all"; } | sort -u); \
	[ "$(SECBOX_SOAK)" != 1 ] || raced=$$all; \
	set -x; $(GO_TEST) $$race -p $(TEST_P) $(TEST_FLAGS) $$raced || failed=1; \
	[ "$$raced" = "$$all" ] || $(NO_CGO) $(GO_TEST) -p $(TEST_P) $(TEST_FLAGS) $$(grep -vxF "$$raced" <<<"$$all") || failed=1; \
	{ set +x; } 2>/dev/null; [ -z "$$failed" ]

test-e2e:
	@$(RACE); failed=; set -x; \
	if [ -z "$$race" ] || [ "$(SECBOX_SOAK)" = 1 ]; then $(GO_TEST) $$race $(TEST_FLAGS) ./e2e; exit; fi; \
	$(GO_TEST) $$race -run '$(E2E_RACE)' $(TEST_FLAGS) ./e2e || failed=1; \
	$(NO_CGO) $(GO_TEST) -skip '$(E2E_RACE)' $(TEST_FLAGS) ./e2e || failed=1; \
	{ set +x; } 2>/dev/null; [ -z "$$failed" ]

soak: ## Run every test with the long random loops and the race detector; takes hours
	@$(MAKE) test SECBOX_SOAK=1 TEST_TIMEOUT=6h TEST_FLAGS="-count=1 $(TEST_FLAGS)"

chaos: setup ## Break three nodes, their engines and the database under load, and count what ran (CHAOS=1h for longer; as root)
	$(NO_CGO) go test -count=1 -tags chaos -run '^TestChaos$$' -v -timeout 3h ./e2e -chaos $(CHAOS) $(CHAOS_FLAGS)

scaling: setup ## Compare three nodes with one, each with an equal share of the processors (as root, with cgroup v1)
	$(NO_CGO) go test -count=1 -tags chaos -run '^TestScaling$$' -v -timeout 3h ./e2e $(SCALING_FLAGS)

test-reach: setup ## Run tests on cgroup v2, newer engines, rootless ones and Wine, in one table (REACH='cgroup2 windows' for parts; as root on Debian)
	@scripts/reach.sh $(REACH)

interop: setup ## Run programs of others against a core-api: MCP's conformance suite, LangChain, sigstore, promtool and more, in one table (INTEROP='sdk fuzz' for parts)
	@scripts/interop.sh $(INTEROP)

bench: ## Measure core-api beside docker run, unzip, cp and docker exec (BENCH_FLAGS='--only warm'; bin/bench --help lists more)
	@scripts/setup.sh test
	@$(BUILD) ./cmd/bench
	@bin/bench $(BENCH_FLAGS)

dist: ## Make a release in dist/: archives, packages, notices, bill of materials, checksums, signed with KEY=file (DIST_FLAGS='-only linux/amd64' for parts)
	@$(NO_CGO) go run ./scripts/dist $(if $(KEY),-key '$(KEY)') $(DIST_FLAGS)

lint: ## Check the import rules, the style, the formatting (gofumpt) and the scripts' syntax
	$(LINT)

fmt: ## Format the Go files with gofumpt
	$(GOLANGCI) fmt ./...

fuzz: ## Run each fuzz target for FUZZ_TIME (10s)
	@scripts/fuzz.sh $(FUZZ_TIME)

generate: ## Generate the HTTP types of Go and TypeScript from api/openapi.yaml, and the code of the console's templates
	go generate ./api ./clients ./console

screenshots: ## Take the pictures of README again, after a change of the console's pages
	$(NO_CGO) go test -count=1 -run '^TestScreenshots$$' ./console -screenshots

images: ## Build the sandbox image and the image of core-api
	@images/build-sandbox.sh
	@images/build-core-api.sh

up: images ## Start PostgreSQL and core-api with docker compose (the variables are in docs/deployment.md)
	@scripts/compose.sh up

clean: ## Remove build results; images, workspaces of `make run` and the engine stay
	rm -rf bin dist
	go clean -testcache
