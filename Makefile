# The main goals are `make run` and `make test`. Each goal is a small script in tools/, which installs missing
# programs (tools/setup.sh).

help:
	@echo 'make run             serve examples/journal: https://localhost:8443, http://localhost:8080'
	@echo 'make cluster         serve examples/cluster: a balancer and four members, http://localhost:8080'
	@echo 'make publish-demo    publish examples/publish on two hosts by ssh, on the loopback interface'
	@echo 'make test            all tests: prose, format, lints, unit, end to end'
	@echo 'make test-release    the end-to-end tests with the programs of make release and make tiny'
	@echo 'make test-service    long tests of the service: crash loops and kills at any moment, with the program of make release'
	@echo 'make test-arm        the receiver and the server of a Raspberry Pi Zero, under emulation'
	@echo 'make release         one static binary (musl)'
	@echo 'make release TARGET=…  the same for a Raspberry Pi (docs/src/installation.md)'
	@echo 'make tiny            a smaller binary, without the parts that docs/src/installation.md lists'
	@echo 'make bench           measure beside other servers: the tables of docs/performance.md (1 to 2 hours)'
	@echo 'make bench-quick     every suite with few rounds, as a test of the setup: writes no documents'
	@echo 'make fuzz            every fuzz target, FUZZ_SECONDS each'
	@echo 'make check-licences  licences of all dependencies against deny.toml'
	@echo 'make peers           the other servers of `anthill bench`'
	@echo 'make fmt             format the code'
	@echo 'make guide           docs/ as HTML in target/guide with a search'
	@echo 'make clean           remove all builds'

run:
	@sh tools/run.sh

cluster:
	@sh tools/cluster.sh

publish-demo:
	@sh tools/publish_demo.sh

test:
	@sh tools/test.sh

test-release:
	@sh tools/test_release.sh
	@sh tools/test_release.sh tiny

test-service:
	@sh tools/test_service.sh

test-arm:
	@sh tools/test_arm.sh

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
	@sh tools/guide.sh

clean:
	@cargo clean

.PHONY: help run cluster test test-release test-service test-arm release tiny bench bench-quick fuzz check-licences peers fmt guide clean publish-demo
