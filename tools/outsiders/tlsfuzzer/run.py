"""Runs the scripts of tlsfuzzer that scripts.txt lists, and counts the conversations that passed.

    PYTHONPATH=CHECKOUT python run.py HOST:PORT SCRIPTS OUT

The output of each script is left in the folder OUT, a table of results in OUT/results.txt.
"""

import os
import re
import subprocess
import sys

SECONDS_MAX = 1800
AFTER_EXCHANGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "after_exchange.py")


def count(output, word):
    """Returns the number after `word` in a script's summary; 0 if the script ended without a summary."""
    found = re.search(r"^%s: (\d+)$" % word, output, re.MULTILINE)
    return int(found.group(1)) if found else 0


def run(address, words, out):
    """Runs one line of scripts.txt; returns the counts of passed and of all conversations, and if there was a summary."""
    host, port = address.rsplit(":", 1)
    kept_alive = words[0] == "after-exchange"
    name, options = (words[1], words[2:]) if kept_alive else (words[0], words[1:])
    if kept_alive:
        command = [AFTER_EXCHANGE, name]
    else:
        command = ["-m", "tlsfuzzer._apps." + name.replace("-", "_")]
    command = [sys.executable] + command + ["-h", host, "-p", port] + options
    log = os.path.join(out, "-".join(words[:2] if kept_alive else words[:1]) + ".log")
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            timeout=SECONDS_MAX,
        ).stdout
    except subprocess.TimeoutExpired as ended:
        done = (ended.stdout or b"").decode(errors="replace") + "\nended at its deadline\n"
    with open(log, "w") as file:
        file.write(done)
    # Some scripts print a total that is not the number of their conversations.
    passed = count(done, "PASS") + count(done, "XFAIL")
    total = passed + count(done, "FAIL") + count(done, "XPASS")
    return passed, total, total > 0


def main():
    address, scripts, out = sys.argv[1:]
    passed = total = broken = 0
    with open(scripts) as lines, open(os.path.join(out, "results.txt"), "w") as results:
        for line in lines:
            words = line.split("#")[0].split()
            if not words:
                continue
            good, whole, is_whole = run(address, words, out)
            passed, total, broken = passed + good, total + whole, broken + (not is_whole)
            note = "" if is_whole else " (no summary: see its log)"
            text = "%4d of %4d  %s%s" % (good, whole, " ".join(words), note)
            print(text, flush=True)
            results.write(text + "\n")
    print("tlsfuzzer: passed %d of %d" % (passed, total))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
