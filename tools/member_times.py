#!/usr/bin/env python3
"""Measures after which time a member of a balancer that died or stopped gets no requests, and gets requests again.

    tools/member_times.py [--rounds 10] [--clients 8] [--health 'every = "500ms", timeout = "500ms", fall = 2']

Four members (nginx, `apt-get install nginx-light`) stand behind anthill, and clients ask for a page of 5,100 bytes
one request after another. Each round kills a member, starts the member again, stops the member by SIGSTOP and
continues the member by SIGCONT, each after a random pause. The times run from the signal, or from the start
of the program, to the line of the error log. A failed GET is a response other than the whole page. `--health` adds keys of
`health` to the default ones. ANTHILL names the binary (default: target/release/anthill). All traffic is on
loopback.
"""
import argparse, http.client, os, queue, random, signal, socket, statistics, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ANTHILL = os.environ.get("ANTHILL", HERE + "/target/release/anthill")
PAGE = b"p" * 5100
MEMBERS = 4
# Longest pause before a signal, in seconds: the default interval of the checks.
PAUSE = 2
# Longest wait for a line of the log, in seconds.
PATIENCE = 120


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Member:
    """An nginx of one process."""

    def __init__(self, folder, number):
        self.port = free_port()
        self.folder = f"{folder}/member-{number}"
        os.makedirs(self.folder + "/public")
        with open(self.folder + "/public/page", "wb") as page:
            page.write(PAGE)
        temporary = "".join(f"{kind}_temp_path {self.folder}/{kind}; "
                            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(self.folder + "/nginx.conf", "w") as config:
            config.write(f"""daemon off; master_process off; pid {self.folder}/pid; error_log stderr crit;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 1000000; {temporary}
server {{ listen 127.0.0.1:{self.port}; root {self.folder}/public; }} }}
""")
        self.start()

    def start(self):
        command = ["nginx", "-p", self.folder, "-c", self.folder + "/nginx.conf", "-e", "stderr"]
        environment = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin")
        self.process = subprocess.Popen(command, env=environment)
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.001)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Balancer:
    """anthill in front of the members. Changes of members arrive in a queue, with their times."""

    def __init__(self, folder, members, health):
        urls = ", ".join(f'"http://127.0.0.1:{member.port}"' for member in members)
        os.makedirs(folder + "/public")
        with open(folder + "/anthill.toml", "w") as config:
            config.write(f"""[server]
https = ["127.0.0.1:0"]
http = ["127.0.0.1:0"]
state = "state"
control = "control.sock"
workers = 1
[log]
access = "off"
[[site]]
names = ["*"]
root = "public"
http = "serve"
[[site.route]]
path = "/"
balance = "pool"
[[balancer]]
name = "pool"
members = [{urls}]
health = {{ path = "/page"{health} }}
""")
        command = [ANTHILL, "serve", folder + "/anthill.toml"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.changes, self.recent = queue.Queue(), []
        self.port = None
        for line in self.process.stderr:
            if line.strip().startswith("http://"):
                self.port = int(line.split()[0].rsplit(":", 1)[1])
            if line.startswith("ready"):
                break
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stderr:
            if " changed from " in line:
                self.changes.put((time.monotonic(), line))

    def time_of(self, member, words):
        """Returns the time of the first change of the member to one of the states since the last `forget`."""
        is_wanted = lambda line: (f":{member.port} changed from " in line
                                  and any(f" to {word}" in line for word in words))
        while True:
            for at, line in self.recent:
                if is_wanted(line):
                    return at
            self.recent.append(self.changes.get(timeout=PATIENCE))

    def forget(self):
        """Forgets the changes so far."""
        self.recent = []
        while not self.changes.empty():
            self.changes.get()


class Clients:
    """Clients that ask for the page until the end."""

    def __init__(self, port, count):
        self.port, self.ends, self.answered, self.failed = port, False, 0, 0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.ask, args=(f"127.0.0.{10 + nth}",)) for nth in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, own):
        connection = None
        while not self.ends:
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60,
                                                                      source_address=(own, 0))
                connection.request("GET", "/page")
                response = connection.getresponse()
                is_whole = response.status == 200 and response.read() == PAGE
            except (OSError, http.client.HTTPException):
                is_whole, connection = False, None
            with self.lock:
                self.answered += is_whole
                self.failed += not is_whole
            time.sleep(0.002)

    def end(self):
        self.ends = True
        for thread in self.threads:
            thread.join()


def measure(balancer, member, pause):
    """Returns the times of one round, by event."""
    times = {}

    def timed(signal_of, **states):
        time.sleep(random.uniform(0, pause))
        balancer.forget()
        start = time.monotonic()
        signal_of()
        for event, words in states.items():
            times[event] = balancer.time_of(member, words) - start

    timed(member.kill, killed_without_requests=["ejected", "check failed"], killed_and_out=["check failed"])
    timed(member.start, started_and_back=["up"])
    timed(lambda: member.process.send_signal(signal.SIGSTOP), stopped_and_out=["check failed"])
    timed(lambda: member.process.send_signal(signal.SIGCONT), continued_and_back=["up"])
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--health", default="", help="further keys of `health`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        members = [Member(folder, number) for number in range(MEMBERS)]
        balancer = Balancer(folder, members, args.health and ", " + args.health)
        clients = Clients(balancer.port, args.clients)
        try:
            rounds = [measure(balancer, members[nth % MEMBERS], PAUSE) for nth in range(args.rounds)]
        finally:
            clients.end()
            for process in [balancer.process] + [member.process for member in members]:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        for event in rounds[0]:
            times = [times[event] for times in rounds]
            print(f"{event.replace('_', ' ')}: {statistics.median(times):.2f} s ({min(times):.2f}-{max(times):.2f})")
        print(f"{clients.answered} pages, {clients.failed} failed GETs")


if __name__ == "__main__":
    sys.exit(main())
