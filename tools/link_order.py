#!/usr/bin/env python3
"""Writes server/link_order.ld: the functions that run, which the linker of a release puts beside one another.

    cargo build --locked --release --target x86_64-unknown-linux-musl -p anthill --config 'profile.release.strip="none"'
    tools/link_order.py [PROGRAM]

The kernel maps 16 pages of a program at once. Without an order, the 0.8 MB of code for a page over TLS are spread over
7 MB, and a server with one connection has 5.4 MB of code in its memory. With the order, it has 2.8 MB.

The script finds with callgrind which functions run at all, and which of them run more often with more pages and
handshakes. PROGRAM has its symbols (default: the build above). Names stand in the file without the hash at their end, so most of them hold for
other processors and other versions of the compiler. A name that no longer exists has no effect, and the server takes a
little more memory: write the file anew before a release. The script needs valgrind and h2load. All traffic is on loopback.
"""
import bisect, pathlib, re, signal, subprocess, sys, tempfile

from instructions import END_SECONDS, HERE, PROGRAM, Stage, send, wait_for_port

FILE = HERE / "server/link_order.ld"
# Scenarios of instructions.py without a backend, and their numbers of requests in a round.
SCENARIOS = {"plain": 20, "tls": 20, "h2": 20, "full-handshake": 5, "resumed-handshake": 5}
# A round opens connections of its own, so a function for each connection runs more often with each round.
ROUNDS_SHORT, ROUNDS_LONG = 1, 5
RUNS_MIN = ROUNDS_LONG - ROUNDS_SHORT
# Characters of a name in the file. A few functions that never run share the beginning of a longer name.
NAME_CHARACTERS_MAX = 50
HEAD = """/* Functions that serve pages, and other functions that run in a server, side by side. tools/link_order.py has the reason,
   and writes this file. */
SECTIONS
{
"""
TAIL = """}
INSERT BEFORE .text;
"""


def count_runs(stage, program, rounds):
    """Returns how often the instruction at each address ran in a server that serves the scenarios."""
    with tempfile.TemporaryDirectory(dir=stage.folder) as folder:
        run = pathlib.Path(folder)
        file, http, https = stage.configure(run)
        out = run / "out"
        server = subprocess.Popen(
            ["valgrind", "-q", "--tool=callgrind", "--dump-instr=yes", f"--callgrind-out-file={out}", str(program), "serve", str(file)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_port(server, ("127.0.0.1", https), program)
            for scenario, count in rounds * list(SCENARIOS.items()):
                send(scenario, count, http, https)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(END_SECONDS)
        return parse(out.read_text(errors="replace"))


def parse(text):
    """Reads the counts by address from a file of callgrind. An address may be relative to the previous one."""
    counts, address, is_call = {}, 0, False
    for line in text.splitlines():
        if line.startswith("calls="):
            # The next line has the costs of the called function, which has lines of its own.
            is_call = True
            continue
        found = re.match(r"(0x[0-9a-f]+|\+\d+|-\d+|\*) \S+(?: (\d+))?", line)
        if not found:
            continue
        word = found[1]
        if word.startswith("0x"):
            address = int(word, 16)
        elif word != "*":
            address += int(word)
        if not is_call:
            counts[address] = counts.get(address, 0) + int(found[2] or 0)
        is_call = False
    return counts


def read_symbols(program):
    """Returns the addresses and the names of the functions, in order."""
    listed = subprocess.run(["nm", "-n", "--defined-only", str(program)], check=True, capture_output=True, text=True).stdout
    words = [line.split() for line in listed.splitlines()]
    return [(int(word[0], 16), word[2]) for word in words if len(word) == 3 and word[1] in "tTwW"]


def pattern(name):
    """Returns the pattern for the section of a function, without what another compiler names in another way."""
    name = re.sub(r"17h[0-9a-f]{16}E(\.llvm\.\d+)?$", "17h*", name)
    if name.startswith("_R"):
        name = re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", name)
    if len(name) > NAME_CHARACTERS_MAX:
        name = name[:NAME_CHARACTERS_MAX] + "*"
    return f".text.{name}"


def output_section(name, patterns):
    return f"  .text.{name} :\n  {{\n    *(\n" + "".join(f"      {each}\n" for each in patterns) + "    )\n  }\n"


def main():
    program = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PROGRAM
    symbols = read_symbols(program)
    if not symbols:
        sys.exit(f"{program} has no symbols: build it with --config 'profile.release.strip=\"none\"'")
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(folder)
        # Routes that no scenario requests.
        stage.member, stage.fastcgi = 9, f"{folder}/none"
        short = count_runs(stage, program, ROUNDS_SHORT)
        long = count_runs(stage, program, ROUNDS_LONG)
    starts = [address for address, _ in symbols]
    served, others = set(), set()
    for address, runs in long.items():
        nth = bisect.bisect_right(starts, address) - 1
        if nth >= 0:
            is_served = runs >= short.get(address, 0) + RUNS_MIN
            (served if is_served else others).add(pattern(symbols[nth][1]))
    others -= served
    FILE.write_text(HEAD + output_section("serve", sorted(served)) + output_section("run", sorted(others)) + TAIL)
    print(f"{FILE.relative_to(HERE)}: {len(served)} functions of pages, {len(others)} others")


if __name__ == "__main__":
    main()
