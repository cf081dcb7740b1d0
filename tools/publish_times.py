#!/usr/bin/env python3
"""Measures a publication by ssh of a folder with one changed page, beside rsync of the same folder and a link.

    tools/publish_times.py [--files 1000] [--rounds 15] [--account NAME]

An OpenSSH server and an anthill run on loopback, and ssh keeps one connection for each of the two programs. Each round
writes a page of 10 KB anew, publishes the folder, and then copies the folder by `rsync -a --delete` and sets a link by
a second command. The time until served runs from the start of the program to the acknowledgment of the server. The last
round counts the bytes on the standard input and output of ssh. `--account` is the account of the receiver (default: the
own one); a shell with a long start-up file makes both programs slower. The script needs openssh-server and rsync. ANTHILL
and PUBLISHER name the binaries (default: those of `cargo build --release`).
"""
import argparse, getpass, os, pathlib, random, socket, statistics, subprocess, sys, tempfile, threading, time
import urllib.request

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ANTHILL = os.environ.get("ANTHILL", HERE + "/target/release/anthill")
PUBLISHER = os.environ.get("PUBLISHER", HERE + "/target/release/anthill-publish")
# Words of each page.
WORDS = 1500


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def count(file, command):
    """Runs a command, and appends the bytes of its standard input and output to a file."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    sums = [0, 0]

    def copy(number, source, target, close):
        while data := os.read(source, 65536):
            sums[number] += len(data)
            while data:
                data = data[os.write(target, data):]
        if close:
            child.stdin.close()

    up = (0, 0, child.stdin.fileno(), True)
    threading.Thread(target=copy, args=up, daemon=True).start()
    copy(1, child.stdout.fileno(), 1, False)
    with open(file, "a") as out:
        out.write(f"{sums[0]} {sums[1]}\n")
    os._exit(child.wait())


class Hosts:
    """The two servers on loopback, and the folder to publish."""

    def __init__(self, folder, account, files):
        self.folder = pathlib.Path(folder)
        self.words = random.Random(1)
        self.texts = ["".join(self.words.choices("abcdefghijklmnopqrstuvwxyz", k=self.words.randint(2, 9)))
                      for _ in range(2000)]
        for name in ("state", "state/releases", "state/served", "copy", "site"):
            (self.folder / name).mkdir(mode=0o755)
        self.folder.chmod(0o755)
        if account != getpass.getuser():
            self.run(f"chown {account} state/releases copy")
        for key in ("host", "publisher", "rsync"):
            self.run(f"ssh-keygen -q -t ed25519 -N '' -f {key}")
        line = self.run(f"{ANTHILL} receive www --store {folder}/state/releases --publisher ann --key-line")
        line = line.replace("KEY", (self.folder / "publisher.pub").read_text().strip()).strip()
        (self.folder / "keys").write_text(line + "\n" + (self.folder / "rsync.pub").read_text())
        self.ssh_port, self.port = free_port(), free_port()
        (self.folder / "sshd").write_text(
            f"Port {self.ssh_port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/keys\nStrictModes no\nPasswordAuthentication no\n")
        (self.folder / "anthill.toml").write_text(
            f"[server]\nhttps = []\nhttp = [\"127.0.0.1:{self.port}\"]\nstate = \"state\"\ncontrol = \"socket\"\n"
            "[[site]]\nnames = [\"*\"]\nhttp = \"serve\"\nrelease = \"www\"\n")
        os.makedirs("/run/sshd", exist_ok=True) if os.getuid() == 0 else None
        log = open(self.folder / "log", "w")
        self.servers = [subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) for command in (
            ["/usr/sbin/sshd", "-D", "-e", "-f", f"{folder}/sshd"], [ANTHILL, "serve", "anthill.toml"])]
        for number in range(files):
            self.write(f"d{number % 50}/p{number}.html", "")
        self.host = f"{account}@127.0.0.1"
        time.sleep(1)

    def write(self, path, mark):
        path = self.folder / "site" / path
        path.parent.mkdir(exist_ok=True)
        text = " ".join(self.words.choices(self.texts, k=WORDS))
        path.write_text(f"<!DOCTYPE html><title>x</title><p>{mark} {text}")

    def run(self, command):
        environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        ran = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=self.folder, env=environment)
        if ran.returncode:
            sys.exit(f"{command}: {ran.stderr}{ran.stdout}")
        return ran.stdout

    def ssh(self, key):
        return (f"ssh -F none -p {self.ssh_port} -i {self.folder}/{key} -o BatchMode=yes -o LogLevel=ERROR "
                f"-o StrictHostKeyChecking=no -o UserKnownHostsFile={self.folder}/known -o ControlMaster=auto "
                f"-o ControlPersist=60 -o ControlPath={self.folder}/{key}.socket")

    def counted(self, key):
        script = self.folder / f"{key}.sh"
        script.write_text(f"#!/bin/sh\nexec {sys.executable} {os.path.abspath(__file__)} --count "
                          f"{self.folder}/{key}.bytes {self.ssh(key)} \"$@\"\n")
        script.chmod(0o755)
        return str(script)

    def publish(self, ssh):
        self.run(f"{PUBLISHER} publish --ssh '{ssh}' site {self.host}")

    def copy(self, ssh):
        self.run(f"rsync -a --delete -e '{ssh}' site/ {self.host}:{self.folder}/copy/tree/")

    def link(self, ssh):
        self.run(f"{ssh} {self.host} ln -sfn {self.folder}/copy/tree {self.folder}/copy/current")


def measure(hosts, rounds):
    publisher, rsync = hosts.ssh("publisher"), hosts.ssh("rsync")
    hosts.publish(publisher), hosts.copy(rsync)
    times = {"until served": [], "anthill publish": [], "rsync and link": []}
    for number in range(rounds):
        hosts.write("d7/p7.html", f"round {number}")
        start = time.time()
        hosts.publish(publisher)
        times["anthill publish"].append(time.time() - start)
        times["until served"].append(os.stat(hosts.folder / "state/served/www").st_mtime - start)
        page = urllib.request.urlopen(f"http://127.0.0.1:{hosts.port}/d7/p7.html").read()
        assert f"round {number} ".encode() in page
        start = time.time()
        hosts.copy(rsync), hosts.link(rsync)
        times["rsync and link"].append(time.time() - start)
    for name, values in times.items():
        low, high = min(values) * 1000, max(values) * 1000
        print(f"{name}: {statistics.median(values) * 1000:.0f} ms ({low:.0f} to {high:.0f})")
    hosts.write("d7/p7.html", "counted")
    hosts.publish(hosts.counted("publisher")), hosts.copy(hosts.counted("rsync"))
    for key in ("publisher", "rsync"):
        sent, received = (hosts.folder / f"{key}.bytes").read_text().split()
        print(f"bytes of {key}: {sent} sent, {received} received")


def main():
    if sys.argv[1:2] == ["--count"]:
        count(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--account", default=getpass.getuser())
    settings = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(folder, settings.account, settings.files)
        try:
            measure(hosts, settings.rounds)
        finally:
            for key in ("publisher", "rsync"):
                subprocess.run(f"{hosts.ssh(key)} -O exit {hosts.host}", shell=True, capture_output=True)
            for server in hosts.servers:
                server.terminate()
                server.wait()


main()
