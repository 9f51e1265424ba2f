# Everything that a person or CI does with this project. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# What `make test` runs on a cluster; empty means all suites that tests/run knows.
SUITES ?=

# Of the bugs that are put in to be found: which, by parts of their names; and what those are drawn by that nobody chose.
MUTANTS ?=
SEED ?= 1

# embedded: a real Kubernetes built from source, on this machine. kind: kind and Docker. existing: the current context.
CLUSTER ?= embedded
export CLUSTER
# Of the crash points: sample, or all. Of the Helm tests: core, or all.
CRASH_POINTS ?= sample
HELM_TESTS ?= core
export CRASH_POINTS HELM_TESTS
# With a folder of the real CRDs, the tests run on those instead of ours: make test UPSTREAM_CRDS=DIR
UPSTREAM_CRDS ?=
# Cargo runs each test in its crate's folder, where a relative path means another place.
override UPSTREAM_CRDS := $(abspath $(UPSTREAM_CRDS))
export UPSTREAM_CRDS

ifeq ($(shell uname -sm),Linux x86_64)
include tests/target.env
export CARGO_BUILD_TARGET CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS
endif
# release is what is shipped. dev is what the tests have built anyway: the same code, without minutes of optimisation.
PROFILE ?= release
BUILD_release := --release -p belay
BUILD_dev     := --workspace --bins
BUILT_release := target/$(CARGO_BUILD_TARGET)/release
BUILT_dev     := target/$(CARGO_BUILD_TARGET)/debug
# Megabytes that the compressed image may have.
LIMIT_release := 10
# Steps become hard links to the one executable: belay itself tells which there are.
ROOTFS ?= target/image/rootfs
IMAGE  := target/belay-image.tar
MANAGE := go -C $(CURDIR)/tests/cluster/manage run .

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-15s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## Show a chart upgraded by real Helm: steps that succeed, one that fails and puts everything back
	@tests/demo/demo up

.PHONY: clean-demo
clean-demo: ## Remove all that the demo made
	@tests/demo/demo down

.PHONY: cluster
cluster: ## Bring up a cluster and print the line that points kubectl at it
	@tests/tools/check go root
	@$(MANAGE) up

.PHONY: clean-cluster
clean-cluster: ## Remove the cluster that `make cluster` made
	@$(MANAGE) down

# Stripped, also where the profile does not do it: nobody debugs in an image that has no shell.
.PHONY: rootfs
rootfs:
	@tests/tools/check machine
	cargo build --locked $(BUILD_$(PROFILE))
	rm -rf $(ROOTFS)
	mkdir -p $(ROOTFS)
	strip -o $(ROOTFS)/belay $(BUILT_$(PROFILE))/belay
	for step in $$($(ROOTFS)/belay --list | awk '{print $$1}'); do ln $(ROOTFS)/belay $(ROOTFS)/$$step; done
	@tests/tools/knows-no-tests $(PROFILE) $(ROOTFS)/belay

.PHONY: ready-for-image
ready-for-image:
	@tests/tools/check cargo machine

.PHONY: image
image: ready-for-image rootfs ## Build the image belay:dev, with Docker where it runs, else with Debian's buildah
	tests/tools/build-image belay:dev $(IMAGE) Dockerfile target/image $(LIMIT_$(PROFILE))

.PHONY: charts
charts: ## Package the charts into target/charts
	@tests/tools/package-charts target/charts

.PHONY: test-unit
test-unit: ## Tests that need no cluster: seconds after the build
	@tests/tools/check go cargo
	cargo test --locked --workspace --lib --bins --test proxy --test mistakes --test page
	cd tests/cluster/manage && go vet ./... && go test ./...

# What to hand to the simulation: make simulate ARGS="fixture --mode kill-after"
ARGS ?=
# Instead of every single fault: so many schedules, in each of which several things go wrong.
SEEDS ?=

.PHONY: simulate
simulate: ## Every fault at every call of every step, in a simulated world: some minutes, no cluster (SEEDS=10000: several faults at once, drawn by seed)
	@tests/tools/check cargo
	cargo test --locked --workspace --test simulation -- $(if $(SEEDS),--schedules $(SEEDS)) $(ARGS)

# What tests/run will ask for too, before the minutes that come first.
.PHONY: ready-for-test
ready-for-test:
	@tests/tools/check go cargo machine root

.PHONY: test
test: ready-for-test test-unit ## Every kind of test, in 20 minutes: a simulation, a real API server, real Helm, a real image (SUITES="e2e crash": only those)
	@tests/run $(SUITES)

.PHONY: test-all
test-all: ## All tests, in hours: every crash point, every Helm test, the image that is shipped
	@$(MAKE) test CRASH_POINTS=all HELM_TESTS=all PROFILE=release

.PHONY: mutants
mutants: ## Prove that the simulation finds bugs: puts those of tests/simulation/mutants.txt in (MUTANTS="lock undo": only those)
	@tests/tools/check cargo
	cargo run --locked --quiet -p simulation --bin mutants -- run $(MUTANTS)

.PHONY: mutants-drawn
mutants-drawn: ## The same with 30 bugs in runtime/ that nobody chose, the same each time (SEED=2: others)
	@tests/tools/check cargo
	@tests/tools/list-mutants belay-runtime target/mutants/listed.json
	cargo run --locked --quiet -p simulation --bin mutants -- drawn target/mutants/listed.json --seed $(SEED)

.PHONY: lint
lint: ## Formatting, clippy, rustdoc, licences and sources of dependencies
	@tests/tools/check go cargo
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
	@tests/lint

.PHONY: bench
bench: ## Measure: the share of the API server's raw write rate that a step reaches
	@tests/run bench
