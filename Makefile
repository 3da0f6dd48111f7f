# What a newcomer needs is `make run` and `make test`. Everything else: `make help`.
SHELL       := /bin/sh
GO          ?= go
PACKAGES    ?= ./...
COUNT       ?= 10
FUZZTIME    ?= 30s
RELAYTIME   ?= 30m
CHAOS       ?= 30m
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS     := -X github.com/freshmesh/freshmesh/internal/version.linked=$(VERSION)
TOOL        := $(GO) tool -modfile=tools/go.mod
# A build stamp is in LDFLAGS already; and a checkout owned by somebody else must build too.
export GOFLAGS := $(GOFLAGS) -buildvcs=false
# The race detector needs a C compiler; a machine without one runs the same tests without it.
RACE        := $(if $(shell command -v "$$($(GO) env CC)" 2>/dev/null),-race)
# Modules below test/ that stand alone because their dependencies would weigh on ours.
NESTED      := $(patsubst %/go.mod,%,$(wildcard test/*/go.mod))

.DEFAULT_GOAL := help
.PHONY: help run build check fmt format vet lint deadcode tidy arch test bench golden fuzz faults soak soak-chaos mutants

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## start the standalone mesh of configs/standalone, until Ctrl-C (ARGS="--help")
	@$(GO) build -o bin/ ./test/standalone && exec bin/standalone $(ARGS)

build: ## build the programs into bin/
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

check: fmt vet lint deadcode tidy arch ## everything that judges the code without running it

fmt:
	@unformatted=$$($(TOOL) gofumpt -l cmd internal pkg test) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not formatted (make format does it):"; echo "$$unformatted"; exit 1; fi

format: ## format the code
	$(TOOL) gofumpt -w cmd internal pkg test

vet:
	$(GO) vet ./...

lint:
	$(TOOL) golangci-lint run --allow-parallel-runners ./...

deadcode: # what neither the programs nor the tests reach
	@dead=$$($(TOOL) deadcode -test ./...) || exit 1; \
	if [ -n "$$dead" ]; then echo "$$dead"; exit 1; fi

tidy: # the module files say what the code needs, and nothing else
	$(GO) mod tidy -diff
	@for module in tools $(NESTED); do echo "(cd $$module && $(GO) mod tidy -diff)"; (cd $$module && $(GO) mod tidy -diff) || exit 1; done

arch:
	$(GO) test -count 1 ./test/arch # it reads what the test cache does not know of

# What comes off the wire is fuzzed in every run, each target for so many
# executions: about 20 s on two cores. A time would end in a false "context
# deadline exceeded" now and then (golang/go#75804, fixed in Go 1.27).
FUZZED := ./pkg/xds/ads:FuzzTranscript:10000x \
	./pkg/dataplane/http1:FuzzRequest:250000x ./pkg/dataplane/http1:FuzzChunked:250000x ./pkg/dataplane/http1:FuzzResponse:250000x \
	./pkg/dataplane/http1/relay:FuzzRelay:100000x ./pkg/dataplane/http1/relay:FuzzAnswer:100000x \
	./pkg/dataplane/http2:FuzzServer:25000x ./pkg/dataplane/http2:FuzzClient:25000x ./pkg/dataplane/http2/header:FuzzTranslate:200000x \
	./pkg/dataplane/http2/header:FuzzEncoderTable:30000x

# Packages first: what is wrong there explains what fails above them. A failure in
# one part does not keep the others from being run. Allocations are counted
# without the race detector, which makes some of its own.
test: ## run every test, with the race detector where there is a C compiler
	@$(if $(RACE),:,echo "no C compiler: testing without the race detector")
	@status=0; \
	echo "go test $(RACE) ./pkg/... ./internal/... ./cmd/..."; $(GO) test $(RACE) -p 2 ./pkg/... ./internal/... ./cmd/... || status=1; \
	echo "go test $(RACE) ./test/..."; $(GO) test $(RACE) -p 1 ./test/... || status=1; \
	$(if $(RACE),echo "go test -run Alloc ./pkg/dataplane/..."; $(GO) test -run Alloc ./pkg/dataplane/... || status=1;) \
	for fuzzed in $(FUZZED); do executions=$${fuzzed##*:} fuzzed=$${fuzzed%:*}; package=$${fuzzed%:*} target=$${fuzzed#*:}; \
		echo "go test -fuzz $$target $$package"; \
		$(GO) test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $$executions -fuzzminimizetime 1x || status=1; done; \
	for module in $(NESTED); do echo "(cd $$module && go test -short ./...)"; \
		(cd $$module && $(GO) test -short -timeout 40m ./...) || status=1; done; \
	exit $$status

.PHONY: e2e
e2e: ## the mesh on a real Kubernetes, whole, and docs/install.md command by command; `make test` has both smaller
	cd test/cluster && $(GO) test ./e2e ./install -p 1 -count 1 -timeout 60m -v

cluster: ## start a real Kubernetes control plane and nodes for a developer, until Ctrl-C (RUN="sh" for a shell in there)
	@cd test/cluster && $(GO) run ./start $(RUN)

ROLLOUTS    ?= 100
rollouts: ## ROLLOUTS rollouts of 10 pods, and one of 50 with and without the barrier; writes docs/rollouts.md (an hour)
	@mkdir -p bin
	cd test/cluster && $(GO) test ./e2e -run '^TestRollouts$$' -count 1 -timeout 0 -v -rollouts $(ROLLOUTS) -table $(CURDIR)/docs/rollouts.md > $(CURDIR)/bin/rollouts.txt 2>&1 || \
		{ grep -E '_test.go:[0-9]+: |--- FAIL|^FAIL' $(CURDIR)/bin/rollouts.txt; exit 1; }

# Images go to the registry REPO, or with OCI=DIR into an OCI layout.
REPO        ?=
OCI         ?=
PLATFORMS   ?= linux/amd64,linux/arm64
.PHONY: images
images: ## build the container images of .ko.yaml into a registry (REPO=registry.example/freshmesh) or a layout (OCI=bin/images)
	@test -n "$(REPO)$(OCI)" || { echo "give REPO=registry.example/freshmesh, or OCI=bin/images"; exit 1; }
	VERSION=$(VERSION) KO_DOCKER_REPO=$(or $(REPO),ko.local) $(GO) tool -modfile=test/image/go.mod ko build --base-import-paths --image-user 65532 \
		--platform $(PLATFORMS) --tags $(VERSION) --sbom-dir bin/sbom $(if $(OCI),--push=false --oci-layout-path $(OCI)) ./cmd/xds-server ./cmd/dataplane

HISTORIES   ?= 10000
AGE         ?= 720h
soak: soak-chaos ## CHAOS of random faults, HISTORIES random histories against the oracle, and AGE of a mesh's life; hours
	$(GO) test ./test/model -run TestHistories -count 1 -v -timeout 0 -histories $(HISTORIES)
	$(GO) test ./test/age -run TestAge -count 1 -v -timeout 0 -age $(AGE)

soak-chaos: ## CHAOS of random faults, with the race detector, every failed request judged by its reason
	$(GO) test $(RACE) ./test/chaos -run TestChaos -count 1 -v -timeout 0 -chaos $(CHAOS) -seed 0

mutants: ## put deliberate defects into the code, one by one: the tests must find each
	$(GO) run ./test/mutants

bench: ## measure against the peers named in docs/performance.md, then the packages' own benchmarks (COUNT runs)
	@mkdir -p bin
	$(GO) run ./test/bench/controlplane
	$(GO) run ./test/bench/dataplane --json bin/bench-dataplane.json
	$(GO) test -run '^$$' -bench . -benchmem -count $(COUNT) $(PACKAGES) | tee bin/bench.txt
	$(TOOL) benchstat bin/bench.txt

faults: ## break everything, measure the recovery with default intervals, write docs/faults.md (7 minutes; details in bin/faults.txt)
	@mkdir -p bin
	$(GO) test ./test/faults -run '^TestFaults$$' -count 1 -timeout 40m -v -table $(CURDIR)/docs/faults.md > bin/faults.txt 2>&1 || \
		{ grep -E '_test.go:[0-9]+: |--- FAIL|^FAIL' bin/faults.txt; exit 1; }

golden: ## write the golden files anew; look at the diff before you commit it
	@for package in $$(grep -rl --include='*_test.go' 'flag.Bool("update"' cmd pkg internal test | xargs -r -n1 dirname | sort -u); do \
		$(GO) test ./$$package -update || exit 1; done

fuzz: ## run each fuzz test for FUZZTIME
	@grep -rno --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' pkg internal test | sed 's/^\(.*\)\/[^/]*:[0-9]*:func \(.*\)$$/\1 \2/' | \
	while read -r package target; do \
		echo "$$package $$target"; $(GO) test ./$$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit 1; done

# One after the other; 4 hours.
.PHONY: fuzz-relays
fuzz-relays: ## run each fuzz test of the relays for 30 minutes (RELAYTIME)
	@for fuzzed in $(filter ./pkg/dataplane/%,$(FUZZED)); do fuzzed=$${fuzzed%:*}; package=$${fuzzed%:*} target=$${fuzzed#*:}; \
		echo "$$package $$target"; $(GO) test $$package -run '^$$' -fuzz "^$$target\$$" -fuzztime $(RELAYTIME) || exit 1; done

PROTOC_GEN_GO      := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
PROTOC_GEN_GO_GRPC := google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

.PHONY: proto
proto: ## generate the Go code of our .proto files (needs python3; CONTRIBUTING.md)
	@mkdir -p bin/protoc
	@test -x bin/protoc/venv/bin/python || { python3 -m venv bin/protoc/venv && bin/protoc/venv/bin/pip install -q grpcio-tools==1.76.0; }
	@GOBIN=$(CURDIR)/bin/protoc $(GO) install $(PROTOC_GEN_GO)
	@GOBIN=$(CURDIR)/bin/protoc $(GO) install $(PROTOC_GEN_GO_GRPC)
	PATH="$(CURDIR)/bin/protoc:$$PATH" bin/protoc/venv/bin/python -m grpc_tools.protoc -I . --go_out=. --go_opt=paths=source_relative \
		--go-grpc_out=. --go-grpc_opt=paths=source_relative $$(git ls-files '*.proto')
