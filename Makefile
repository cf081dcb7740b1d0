# The two that matter are `make run` and `make test`. Each goal is a small script in tools/; what a
# goal needs and is not there, it installs (tools/setup.sh).

help:
	@echo 'make run             serve examples/journal: https://localhost:8443, http://localhost:8080'
	@echo 'make test            all tests: format, lints, unit, end to end'
	@echo 'make release         one static binary (musl)'
	@echo 'make release TARGET=…  the same for a Raspberry Pi (docs/src/installation.md)'
	@echo 'make tiny            the same, smaller'
	@echo 'make bench           measure beside the peers: the tables of docs/performance.md (about an hour)'
	@echo 'make bench-quick     every suite in little, to see that it works: no documents are written'
	@echo 'make fuzz            every fuzz target, FUZZ_SECONDS each'
	@echo 'make check-licences  licences of all dependencies against deny.toml'
	@echo 'make peers           the servers that `anthill bench` measures beside ours'
	@echo 'make fmt             format the code'
	@echo 'make guide           docs/ as HTML in target/guide (needs mdbook)'
	@echo 'make clean           forget all that was built'

run:
	@sh tools/run.sh

test:
	@sh tools/test.sh

release:
	@sh tools/release.sh

tiny:
	@sh tools/release.sh tiny

bench:
	@sh tools/bench.sh

bench-quick:
	@sh tools/bench.sh quick

fuzz:
	@sh tools/fuzz.sh

check-licences:
	@sh tools/licences.sh

peers:
	@sh tools/peers.sh

fmt:
	@cargo fmt --all

guide:
	@mdbook build docs

clean:
	@cargo clean

.PHONY: help run test release tiny bench bench-quick fuzz check-licences peers fmt guide clean
