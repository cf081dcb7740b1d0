#!/usr/bin/env python3
"""Counts what clients lose while a server is replaced again and again by `anthill serve --replace`.

    tools/restart_losses.py [--restarts 20] [--pause 3] [--idle 1000]

Clients of HTTP/1.1 over plain TCP, TLS 1.2 and TLS 1.3 reuse their connections until a response announces the end, and
curl asks over HTTP/2. One client opens a connection for each request, whose times the report states. An upload, a
download and a tunnel begin before the first restart and end within the last but two. `--idle`
connections with TLS are idle over a restart, and each must answer a request afterwards; meanwhile the memory of the former
process is measured. At the end, the hit counts must equal the answered requests. ANTHILL names the binary (default:
target/release/anthill). All traffic is on loopback.
"""
import argparse, http.client, json, os, resource, shutil, socket, ssl, statistics, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ANTHILL = os.environ.get("ANTHILL", HERE + "/target/release/anthill")
PAGE = b"p" * 5100
# Processes that serve at the same time after a restart: the new one and at most 3 former ones.
LIVING_MAX = 4
BROWSER = {"Host": "localhost", "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/150.0"}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def tls(version):
    context = ssl._create_unverified_context()
    context.minimum_version = context.maximum_version = version
    return context


class Counter:
    """Answers and failures of one kind of client."""

    def __init__(self, name):
        self.name, self.answered, self.failures, self.times = name, 0, [], []

    def fail(self, error):
        self.failures.append(f"{time.monotonic() - BEGIN:.2f} s: {type(error).__name__}: {error}")


def keep_alive(counter, connect, done):
    """Sends requests over a connection until the server announces the end, then over the next one."""
    while not done.is_set():
        try:
            connection = connect()
            connection.connect()
            while not done.is_set():
                connection.request("GET", "/page.html", headers=BROWSER)
                response = connection.getresponse()
                if response.read() != PAGE or response.status != 200:
                    raise ValueError(f"status {response.status}")
                counter.answered += 1
                time.sleep(0.01)
                if response.will_close:
                    break
            connection.close()
        except Exception as error:
            counter.fail(error)


def fresh(counter, port, done):
    while not done.is_set():
        try:
            begin = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/page.html", headers={**BROWSER, "Connection": "close"})
            if connection.getresponse().read() != PAGE:
                raise ValueError("another page")
            connection.close()
            counter.times.append(time.monotonic() - begin)
            counter.answered += 1
            time.sleep(0.005)
        except Exception as error:
            counter.fail(error)


def http2(counter, port, done):
    url = f"https://127.0.0.1:{port}/page.html"
    while not done.is_set():
        command = ["curl", "-sk", "--http2", "-A", BROWSER["User-Agent"], "-w", "%{http_code} %{http_version} %{size_download}\n"]
        command += [part for _ in range(20) for part in (url, "-o", "/dev/null")]
        ran = subprocess.run(command, capture_output=True, text=True)
        good = ran.stdout.split("\n").count(f"200 2 {len(PAGE)}")
        counter.answered += good
        if good != 20 or ran.returncode:
            counter.fail(ValueError(f"curl: {good} of 20 answers, status {ran.returncode}"))


def upload(counter, port, seconds):
    """Sends a content slowly to a member that returns it."""
    try:
        parts = int(seconds * 20)
        stream = socket.create_connection(("127.0.0.1", port))
        stream.settimeout(60)
        stream.sendall(f"POST /echo/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: {parts * 1000}\r\n\r\n".encode())
        for _ in range(parts):
            stream.sendall(b"u" * 1000)
            time.sleep(0.05)
        response = http.client.HTTPResponse(stream)
        response.begin()
        got = len(response.read())
        if got != parts * 1000:
            raise ValueError(f"{got} of {parts * 1000} bytes")
        counter.answered += 1
    except Exception as error:
        counter.fail(error)


def download(counter, port, bytes_all, seconds):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/large.bin", headers=BROWSER)
        response, got = connection.getresponse(), 0
        part = max(1, int(bytes_all / (seconds * 20)))
        while chunk := response.read(part):
            got += len(chunk)
            time.sleep(0.05)
        if got != bytes_all:
            raise ValueError(f"{got} of {bytes_all} bytes")
        counter.answered += 1
    except Exception as error:
        counter.fail(error)


def tunnel(counter, port, seconds):
    try:
        stream = socket.create_connection(("127.0.0.1", port))
        stream.settimeout(60)
        stream.sendall(b"GET /tunnel/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = stream.recv(1)
            if not byte:
                raise ValueError(f"the end after {head!r}")
            head += byte
        if not head.startswith(b"HTTP/1.1 101 "):
            raise ValueError(f"{head!r}")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stream.sendall(b"ping")
            if stream.recv(4) != b"ping":
                raise ValueError("another answer")
            time.sleep(0.1)
        counter.answered += 1
    except Exception as error:
        counter.fail(error)


def echo_member(port):
    """Answers an upgrade with 101 and returns every byte, and a POST with its content."""

    def serve(stream):
        head = b""
        while b"\r\n\r\n" not in head:
            part = stream.recv(65536)
            if not part:
                return stream.close()
            head += part
        head, rest = head.split(b"\r\n\r\n", 1)
        lower = head.lower()
        if b"upgrade: websocket" in lower:
            stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + rest)
            while part := stream.recv(65536):
                stream.sendall(part)
        else:
            length = int(lower.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
            while len(rest) < length:
                rest += stream.recv(65536)
            stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % length + rest)
        stream.close()

    listener = socket.create_server(("127.0.0.1", port))

    def accept():
        while True:
            stream, _ = listener.accept()
            threading.Thread(target=serve, args=(stream,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


class Servers:
    """The server in use, and its former processes."""

    def __init__(self, folder):
        self.folder, self.processes, self.log = folder, [], open(f"{folder}/log", "ab")
        self.start([])

    def start(self, options):
        begin = time.monotonic()
        command = [ANTHILL, "serve", *options, f"{self.folder}/anthill.toml"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log)
        while self.status().get("pid") != process.pid:
            if process.poll() is not None:
                sys.exit(f"the server ended with status {process.returncode}:\n{open(self.folder + '/log').read()[-3000:]}")
            time.sleep(0.05)
        self.processes.append(process)
        return time.monotonic() - begin

    def status(self):
        ran = subprocess.run([ANTHILL, "status", "--json", "--control", f"{self.folder}/anthill.sock"], capture_output=True, text=True)
        return json.loads(ran.stdout) if ran.returncode == 0 else {}

    def living(self):
        return [process for process in self.processes if process.poll() is None]

    def stop(self):
        for process in reversed(self.living()):
            process.terminate()
        for process in self.processes:
            process.wait()


def private_dirty(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Private_Dirty")) * 1024


def idle_clients(port, count):
    context, clients = tls(ssl.TLSVersion.TLSv1_3), []
    for _ in range(count):
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=120)
        connection.request("GET", "/page.html", headers=BROWSER)
        connection.getresponse().read()
        clients.append(connection)
    return clients


def ask_idle(clients, counter):
    for connection in clients:
        try:
            # A closed connection would be opened again.
            connection.auto_open = 0
            connection.request("GET", "/page.html", headers=BROWSER)
            if connection.getresponse().read() != PAGE:
                raise ValueError("another page")
            counter.answered += 1
        except Exception as error:
            counter.fail(error)


def main():
    global BEGIN
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--pause", type=float, default=3, help="seconds between two restarts")
    parser.add_argument("--idle", type=int, default=1000, help="idle connections with TLS")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = tempfile.mkdtemp(prefix="anthill-restarts-")
    plain, secure, member = free_port(), free_port(), free_port()
    os.mkdir(folder + "/public")
    with open(folder + "/public/page.html", "wb") as page:
        page.write(PAGE)
    large = 50_000_000
    with open(folder + "/public/large.bin", "wb") as file:
        file.truncate(large)
    with open(folder + "/anthill.toml", "w") as file:
        file.write(f"""[server]
https = ["127.0.0.1:{secure}"]
http = ["127.0.0.1:{plain}"]
state = "state"
control = "anthill.sock"
workers = 2
limits = {{ idle_seconds = 600 }}

[[site]]
names = ["*"]
root = "public"
http = "serve"
hits = true

[[site.route]]
path = "/echo/"
proxy = "http://127.0.0.1:{member}"

[[site.route]]
path = "/tunnel/"
proxy = "http://127.0.0.1:{member}"
""")
    echo_member(member)
    BEGIN = time.monotonic()
    servers = Servers(folder)
    done, counters, threads = threading.Event(), [], []

    def run(name, work, *arguments):
        counter = Counter(name)
        counters.append(counter)
        threads.append(threading.Thread(target=work, args=(counter, *arguments), daemon=True))
        threads[-1].start()
        return counter

    def over_tls(version):
        context = tls(version)
        return lambda: http.client.HTTPSConnection("127.0.0.1", secure, context=context, timeout=60)

    # An older process is ended by the fourth restart after it, so a transfer lasts for at most 3 restarts.
    long = options.pause * 2
    reused = lambda: http.client.HTTPConnection("127.0.0.1", plain, timeout=60)
    views = [
        run("HTTP/1.1", keep_alive, reused, done),
        run("TLS 1.2", keep_alive, over_tls(ssl.TLSVersion.TLSv1_2), done),
        run("TLS 1.3", keep_alive, over_tls(ssl.TLSVersion.TLSv1_3), done),
        run("a connection for each request", fresh, plain, done),
    ]
    if shutil.which("curl"):
        views.append(run("HTTP/2 (curl)", http2, secure, done))
    if options.idle:
        idle = Counter(f"{options.idle} idle connections with TLS")
        counters.append(idle)
        clients = idle_clients(secure, options.idle)
    former, most, times = servers.processes[-1], 0, []
    for nth in range(options.restarts):
        if nth % 3 == 0:
            run("upload", upload, plain, long)
            run("download", download, plain, large, long)
            run("tunnel", tunnel, plain, long)
        times.append(servers.start(["--replace"]))
        most = max(most, len(servers.living()))
        time.sleep(options.pause)
        if nth == 0 and options.idle:
            memory = private_dirty(former.pid)
            print(f"memory of the former process with {options.idle} idle connections: {memory / 1e6:.2f} MB private and dirty")
            ask_idle(clients, idle)
            for connection in clients:
                connection.close()
    time.sleep(long)
    done.set()
    for thread in threads:
        thread.join(120)
    time.sleep(1)
    failed = 0
    for name in dict.fromkeys(counter.name for counter in counters):
        same = [counter for counter in counters if counter.name == name]
        failures = [failure for counter in same for failure in counter.failures]
        failed += len(failures)
        print(f"{name}: {sum(counter.answered for counter in same)} answered, {len(failures)} failed {failures[:3] or ''}")
    spans = sorted(views[3].times)
    print(f"fresh GET: median {statistics.median(spans) * 1000:.1f} ms, p99 {spans[len(spans) * 99 // 100] * 1000:.1f} ms, longest {spans[-1] * 1000:.1f} ms")
    print(f"{options.restarts} restarts: median {statistics.median(times):.2f} s; at most {most} of {LIVING_MAX} processes at the same time")
    answered = sum(counter.answered for counter in views)
    if options.idle:
        answered += idle.answered + options.idle
    ran = subprocess.run([ANTHILL, "hits", "--json", "--control", folder + "/anthill.sock"], capture_output=True, text=True)
    pages = json.loads(ran.stdout)["sites"][0]["pages"] if ran.returncode == 0 else []
    counted = sum(page["views"] for page in pages if page["path"] == "/page.html")
    print(f"hits of the page: {counted} counted, {answered} answered")
    failed += counted != answered
    servers.stop()
    if not failed:
        shutil.rmtree(folder)
    else:
        print(f"the log is in {folder}/log")
    sys.exit(1 if failed or most > LIVING_MAX else 0)


if __name__ == "__main__":
    main()
