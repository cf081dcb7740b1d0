#!/usr/bin/env python3
"""Counts the user instructions of a request or a handshake with callgrind.

    tools/instructions.py [PROGRAM] [--budget FILE] [--write] [--only tls,h2] [--before PROGRAM]

Each figure is the difference of two runs of the server with few and with many requests, so the start of the server
does not count. The server has one worker, and the client uses one connection (for handshakes, one after another; HTTP/2 with
10 requests at a time). The
figures do not depend on the load or the clock of the machine; HTTP/3 and backends vary by about 1 % with the timing of
packets, so these scenarios are counted three times and the median stands.

`--budget FILE` compares the figures with a budget, a file with one line `SCENARIO INSTRUCTIONS` for each scenario. The
script fails if a figure is more than 2 % over its budget. `--write` writes the file anew. `--before PROGRAM` prints
the figures of another program beside them. The script needs valgrind, h2load, nginx and php-fpm (Debian's), and for
HTTP/3 the Python of `tools/setup.sh test`. All traffic is on loopback.
"""
import argparse, concurrent.futures, os, pathlib, re, shutil, signal, socket, ssl, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = HERE / f"target/{os.uname().machine}-unknown-linux-musl/release/anthill"
TOOLS_PYTHON = HERE / "target/tools/python/bin/python"
TOLERANCE = 1.02
START_SECONDS, END_SECONDS = 60, 60
PAGE_BYTES = 5100
# Scenario: requests of the short and of the long run, and the number of counts.
SCENARIOS = {
    "plain": (300, 2300, 1),
    "tls": (300, 2300, 1),
    "h2": (300, 2300, 1),
    "h3": (100, 800, 3),
    "cached": (300, 2300, 1),
    "proxied": (200, 1200, 3),
    "fastcgi": (100, 600, 3),
    "cgi": (50, 250, 3),
    "full-handshake": (20, 120, 1),
    "resumed-handshake": (20, 220, 1),
}

H3_CLIENT = """
import asyncio, ssl, sys
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http, self.ends, self.status = H3Connection(self._quic), {}, {}
    def quic_event_received(self, event):
        for each in self.http.handle_event(event):
            if isinstance(each, HeadersReceived):
                self.status[each.stream_id] = dict(each.headers)[b":status"]
            if isinstance(each, (HeadersReceived, DataReceived)) and each.stream_ended:
                self.ends[each.stream_id].set_result(None)
    async def get(self, host):
        stream = self._quic.get_next_available_stream_id()
        self.ends[stream] = asyncio.get_running_loop().create_future()
        head = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", host), (b":path", b"/page.html")]
        self.http.send_headers(stream, head, end_stream=True)
        self.transmit()
        await asyncio.wait_for(self.ends[stream], 30)
        assert self.status[stream] == b"200", self.status[stream]

async def main(port, count):
    options = QuicConfiguration(is_client=True, alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, server_name="localhost")
    async with connect("127.0.0.1", port, configuration=options, create_protocol=Client) as client:
        for _ in range(count):
            await client.get(b"localhost")

asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class StartError(Exception):
    """A server that ended at its start, perhaps because another program took its port."""


def wait_for_port(process, address, name):
    """Waits until a server accepts connections at an address."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StartError(f"{name} ended with {process.returncode} at its start")
        try:
            family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
            with socket.socket(family) as probe:
                probe.connect(address)
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"{name} did not listen at {address} within {START_SECONDS} s")


class Stage:
    """Folder, backends and configuration that all runs share."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.processes = []
        www = self.folder / "www"
        www.mkdir()
        line = b"<p>Workers carry leaves of many trees along the trail.</p>\n"
        page = (line * (PAGE_BYTES // len(line) + 1))[:PAGE_BYTES]
        (www / "page.html").write_bytes(page)
        (www / "php").mkdir()
        (www / "php/hello.php").write_text("<?php echo 'hello';\n")
        script = self.folder / "scripts/hello"
        script.parent.mkdir()
        script.write_text("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nhello'\n")
        script.chmod(0o755)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", self.folder / "key.pem", "-out", self.folder / "cert.pem"],
            check=True, capture_output=True)

    def start_backends(self):
        self.member = free_port()
        nginx = self.folder / "nginx.conf"
        nginx.write_text(
            f"daemon off; pid {self.folder}/nginx.pid; error_log stderr crit; worker_processes 1;\n"
            "events { worker_connections 64; }\n"
            f"http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {self.folder}/body;\n"
            f"proxy_temp_path {self.folder}/t1; fastcgi_temp_path {self.folder}/t2; uwsgi_temp_path {self.folder}/t3;\n"
            f"scgi_temp_path {self.folder}/t4; server {{ listen 127.0.0.1:{self.member}; root {self.folder}/www; }} }}\n")
        self.start([find_program("nginx", "/usr/sbin/nginx"), "-c", nginx, "-p", self.folder], ("127.0.0.1", self.member))
        fpm = self.folder / "fpm.conf"
        self.fastcgi = f"{self.folder}/fpm.sock"
        account = "user = www-data\ngroup = www-data\n" if os.geteuid() == 0 else ""
        fpm.write_text(
            f"[global]\nerror_log = {self.folder}/fpm.log\ndaemonize = no\n[www]\n{account}listen = {self.fastcgi}\n"
            "listen.mode = 0666\npm = static\npm.max_children = 1\n")
        self.start([find_program("php-fpm8.2", "/usr/sbin/php-fpm8.2"), "-F", "-y", fpm], self.fastcgi)

    def start(self, command, address):
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        wait_for_port(process, address, command[0])

    def end(self):
        for process in self.processes:
            process.terminate()
            process.wait(END_SECONDS)

    def configure(self, run):
        """Writes the configuration of one run. Returns its file and its ports (HTTP, HTTPS)."""
        http, https = free_port(), free_port()
        (run / "state").mkdir()
        file = run / "anthill.toml"
        file.write_text(f'''[server]
http = ["127.0.0.1:{http}"]
https = ["127.0.0.1:{https}"]
workers = 1
state = "{run}/state"
[log]
access = "off"
[[site]]
names = ["*"]
root = "{self.folder}/www"
http = "serve"
certificate = "{self.folder}/cert.pem"
key = "{self.folder}/key.pem"
[[site.route]]
path = "/proxied"
proxy = "http://127.0.0.1:{self.member}/"
[[site.route]]
path = "/cached"
cgi = "{self.folder}/scripts"
cache = {{ seconds = 100000 }}
[[site.route]]
path = "/run"
cgi = "{self.folder}/scripts"
[[site.route]]
path = "/php"
fastcgi = "unix:{self.fastcgi}"
files = ".php"
''')
        return file, http, https


def find_program(name, fallback):
    program = shutil.which(name) or fallback
    if not os.path.exists(program):
        sys.exit(f"{name} is missing: install it with `sh tools/setup.sh` (goal test) or from Debian")
    return program


def h2load(count, url, *options):
    command = [find_program("h2load", "/usr/bin/h2load"), "-c1", "-t1", "-n", str(count), *options, url]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    if f"{count} succeeded" not in result.stdout or f" {count} 2xx" not in result.stdout:
        sys.exit(f"{' '.join(command)}: not all requests succeeded\n{result.stdout}")


def handshakes(count, port, is_resumed):
    """Opens TLS connections one after another, each with one request for a short page."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    session, resumed = None, 0
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", port), 30) as plain:
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as stream:
                stream.sendall(b"HEAD /page.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while stream.recv(65536):
                    pass
                resumed += stream.session_reused
                if is_resumed:
                    session = stream.session
    if resumed != (count - 1 if is_resumed else 0):
        sys.exit(f"{resumed} of {count} handshakes were resumed")


def send(scenario, count, http, https):
    """Sends the requests of a scenario."""
    plain, secure = f"http://localhost:{http}", f"https://localhost:{https}"
    if scenario == "h3":
        subprocess.run([TOOLS_PYTHON, "-c", H3_CLIENT, str(https), str(count)], check=True, timeout=300)
    elif scenario == "tls":
        h2load(count, secure + "/page.html", "--npn-list=http/1.1", "-m1")
    elif scenario == "h2":
        h2load(count, secure + "/page.html", "--npn-list=h2", "-m10")
    elif scenario in ("full-handshake", "resumed-handshake"):
        handshakes(count, https, scenario == "resumed-handshake")
    else:
        path = {"plain": "/page.html", "cached": "/cached/hello", "proxied": "/proxied/page.html", "fastcgi": "/php/hello.php",
                "cgi": "/run/hello"}[scenario]
        h2load(count, plain + path, "--h1", "-m1")


def count_run(stage, program, scenario, count):
    """Returns the instructions of a server that serves `count` requests of a scenario."""
    with tempfile.TemporaryDirectory(dir=stage.folder) as folder:
        run = pathlib.Path(folder)
        file, http, https = stage.configure(run)
        command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={run}/out.%p", str(program), "serve", str(file)]
        with open(run / "log", "wb") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            for port in (https, http):
                wait_for_port(server, ("127.0.0.1", port), program)
            send(scenario, count, http, https)
        except BaseException:
            sys.stderr.write((run / "log").read_text(errors="replace")[-2000:])
            raise
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(END_SECONDS)
        text = (run / f"out.{server.pid}").read_text(errors="replace")
        return int(re.findall(r"^(?:summary|totals): (\d+)", text, re.M)[-1])


def count_run_again(stage, program, scenario, count):
    """Counts as count_run does, and again with other ports if the server did not start."""
    for _ in range(2):
        try:
            return count_run(stage, program, scenario, count)
        except StartError:
            pass
    return count_run(stage, program, scenario, count)


def count_once(stage, program, scenario):
    few, many, _ = SCENARIOS[scenario]
    counts = [count_run_again(stage, program, scenario, count) for count in (many, few)]
    return (counts[0] - counts[1]) / (many - few)


def count_all(stage, programs, scenarios):
    """Returns the median count of each scenario for each program."""
    jobs = [(program, name) for name in scenarios for program in programs for _ in range(SCENARIOS[name][2])]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = list(pool.map(lambda job: count_once(stage, *job), jobs))
    by_job = {}
    for job, count in zip(jobs, counts):
        by_job.setdefault(job, []).append(count)
    return {job: round(statistics.median(counts)) for job, counts in by_job.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--budget", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default=",".join(SCENARIOS))
    options = parser.parse_args()
    scenarios = options.only.split(",")
    if unknown := set(scenarios) - set(SCENARIOS):
        sys.exit(f"no such scenario: {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    programs = [program for program in (options.program, options.before) if program]
    find_program("valgrind", "/usr/bin/valgrind")
    with tempfile.TemporaryDirectory(prefix="anthill-instructions-") as folder:
        os.chmod(folder, 0o755)
        stage = Stage(folder)
        try:
            stage.start_backends()
            counts = count_all(stage, programs, scenarios)
        finally:
            stage.end()
    budget = {}
    if options.budget and options.budget.exists():
        lines = [line.split() for line in options.budget.read_text().splitlines() if line and not line.startswith("#")]
        budget = {name: int(instructions) for name, instructions in lines}
    over = []
    for name in scenarios:
        now = counts[options.program, name]
        text = f"{name:18} {now:>9,}"
        if options.before:
            before = counts[options.before, name]
            text += f"  before {before:>9,}  {now / before:.3f}"
        if name in budget:
            text += f"  budget {budget[name]:>9,}  {now / budget[name]:.3f}"
            if now > budget[name] * TOLERANCE:
                over.append(name)
        print(text, flush=True)
    if options.write:
        head = "".join(line + "\n" for line in options.budget.read_text().splitlines() if line.startswith("#"))
        budget.update({name: counts[options.program, name] for name in scenarios})
        options.budget.write_text(head + "".join(f"{name} {budget[name]}\n" for name in SCENARIOS if name in budget))
    elif over:
        sys.exit(f"over the budget by more than 2 %: {', '.join(over)}. Find the growth with callgrind_annotate (profile "
                 f"`profiling`), or state its reason in the commit and run the script with --write.")


if __name__ == "__main__":
    main()
