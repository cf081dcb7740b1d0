#!/usr/bin/env python3
"""Measures anthill beside other servers: CPU per request, memory per connection.

    tools/measure.py SCENARIO [--servers anthill,nginx] [--rounds 5] [--seconds 4] [--size 5100] [--conns 1500]

Scenarios: tls, plain, close, workers, log (CPU per request); held, unread, stuck (memory per
connection); waiting, unanswered (proxied requests that
wait for a member, and proxied pages of 512 KB that the clients do not read); idle; cached, cachedtls (a page of the page cache beside a stored file of the same server); h2,
h2held (HTTP/2 over TLS); h3, h3held (HTTP/3); cgi (a hello in C by CGI), fastcgi (a hello by php-fpm,
with processes on the client's CPU, not counted). The client is `anthill bench load` (cargo build --release -p
anthill-bench, or the program named by BENCH), or wrk with `--client wrk`. wrk is the limit of fast servers: waiting
for wrk between requests costs the server time. The server runs on CPU 0, the client on
CPU 1; rounds are interleaved (A B, B A, A B ...); the median is printed with the smallest and the
largest, and the median of the rounds' ratios with its 95 % interval. ANTHILL names the binary (default: the
static release), and ANTHILL_BEFORE another binary to compare as `anthill-before`. `--servers
anthill,anthill-uncounted` shows the cost of hit counts. The script needs ab (apache2-utils), h2load
(nghttp2-client), openssl, and the named servers.
All traffic is on loopback.
"""
import argparse, json, math, os, random, re, resource, shutil, signal, socket, ssl, statistics, subprocess, sys, tempfile, threading, time

HTTP, HTTPS, MEMBER = 28080, 28443, 28081
TICK = os.sysconf("SC_CLK_TCK")
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ANTHILL = os.environ.get("ANTHILL", HERE + "/target/x86_64-unknown-linux-musl/release/anthill")

BEFORE = os.environ.get("ANTHILL_BEFORE", ANTHILL)
BENCH = os.environ.get("BENCH", HERE + "/target/release/anthill-bench")

def anthill(folder, workers=1, access="off", binary=ANTHILL, keep=""):
    text = f'''[server]
https = ["127.0.0.1:{HTTPS}"]
http = ["127.0.0.1:{HTTP}"]
workers = {workers}
state = "{folder}/state"
limits = {{ connections = 20000 }}
[log]
access = "{access}"
[[site]]
names = ["*"]
root = "{folder}/www"
http = "serve"
certificate = "{folder}/cert.pem"
key = "{folder}/key.pem"
[[site.route]]
path = "/run"
cgi = "{folder}/www/run"
[[site.route]]
path = "/php"
fastcgi = "unix:{folder}/fpm.sock"
files = ".php"
{keep}
'''
    open(folder + "/anthill.toml", "w").write(text)
    return [binary, "serve", folder + "/anthill.toml"]

def anthill_cached(folder):
    command = anthill(folder)
    with open(folder + "/anthill.toml", "a") as file:
        file.write(f'[[site.route]]\npath = "/live"\ncgi = "{folder}/www/run"\ncache = {{ seconds = 100000 }}\n')
    return command

def anthill_uncounted(folder):
    command = anthill(folder)
    with open(folder + "/anthill.toml", "a") as file:
        file.write("hits = false\n")
    return command

def anthill_proxy(folder):
    command = anthill(folder)
    with open(folder + "/anthill.toml", "a") as file:
        file.write(f'[[site]]\nnames = ["proxied"]\nroot = "{folder}/www"\nhttp = "serve"\n[[site.route]]\npath = "/"\nproxy = "http://127.0.0.1:{MEMBER}"\n')
    return command

def nginx(folder, keep=""):
    text = f'''worker_processes 1; worker_rlimit_nofile 20000; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err crit; user root;
events {{ worker_connections 8192; multi_accept on; use epoll; accept_mutex off; }}
http {{ default_type text/html; access_log off; server_tokens off; sendfile on; tcp_nopush on; tcp_nodelay on;
 keepalive_requests 1000000; keepalive_timeout 75;
 open_file_cache max=1000 inactive=600s; open_file_cache_valid 600s; open_file_cache_min_uses 1;
 ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
 ssl_prefer_server_ciphers on; ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384;
 ssl_ecdh_curve X25519:prime256v1; ssl_session_cache shared:SSL:20m; ssl_session_tickets on; ssl_buffer_size 16k;
 upstream fpm {{ server unix:{folder}/fpm.sock; {"keepalive 4;" if keep else ""} }}
 server {{ listen 127.0.0.1:{HTTP} backlog=65535; listen 127.0.0.1:{HTTPS} ssl backlog=65535; root {folder}/www;
  location ~ \\.php$ {{ fastcgi_pass fpm; {keep} include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }} }} }}
'''
    open(folder + "/nginx.conf", "w").write(text)
    return ["nginx", "-c", folder + "/nginx.conf"]

def lighttpd(folder):
    text = f'''server.document-root = "{folder}/www"
server.bind = "127.0.0.1"
server.port = {HTTP}
server.errorlog = "{folder}/lighttpd.err"
server.max-connections = 8192
server.max-fds = 20000
server.max-keep-alive-requests = 65535
server.max-keep-alive-idle = 75
server.listen-backlog = 65535
server.event-handler = "linux-sysepoll"
server.network-backend = "sendfile"
server.stat-cache-engine = "simple"
server.modules += ("mod_cgi")
cgi.assign = (".cgi" => "")
mimetype.assign = (".html" => "text/html")
'''
    open(folder + "/lighttpd.conf", "w").write(text)
    return ["lighttpd", "-D", "-f", folder + "/lighttpd.conf"]

def lighttpd_tls(folder):
    command = lighttpd(folder)
    plain = open(folder + "/lighttpd.conf").read()
    open(folder + "/lighttpd.conf", "w").write(f'''server.modules = ("mod_openssl")
{plain}server.feature-flags = ("server.h2proto" => "enable")
$SERVER["socket"] == "127.0.0.1:{HTTPS}" {{
 ssl.engine = "enable"
 ssl.pemfile = "{folder}/cert.pem"
 ssl.privkey = "{folder}/key.pem"
 ssl.openssl.ssl-conf-cmd = ("MinProtocol" => "TLSv1.2", "Ciphersuites" => "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384", "Options" => "+ServerPreference", "Curves" => "X25519:P-256")
}}
''')
    return command

def h2o(folder):
    text = f'''num-threads: 1
max-connections: 8192
user: root
http2-idle-timeout: 75
listen:
  host: 127.0.0.1
  port: {HTTP}
listen:
  host: 127.0.0.1
  port: {HTTPS}
  ssl:
    certificate-file: {folder}/cert.pem
    key-file: {folder}/key.pem
    cipher-preference: server
    ocsp-update-interval: 0
hosts:
  default:
    paths:
      /:
        file.dir: {folder}/www
'''
    open(folder + "/h2o.conf", "w").write(text)
    return ["h2o", "-c", folder + "/h2o.conf"]

def caddy(folder):
    text = f"""{{
 admin off
 auto_https off
 skip_install_trust
 grace_period 1s
 storage file_system {folder}/caddy
}}
https://localhost:{HTTPS}, https://127.0.0.1:{HTTPS} {{
 tls {folder}/cert.pem {folder}/key.pem
 root * {folder}/www
 file_server
}}
http://:{HTTP} {{
 root * {folder}/www
 file_server
}}
"""
    open(folder + "/Caddyfile", "w").write(text)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", folder + "/Caddyfile"]

SERVERS = {
    "caddy": caddy,
    "lighttpd-tls": lighttpd_tls,
    "h2o": h2o,
    "anthill": anthill,
    "anthill-before": lambda folder: anthill(folder, binary=BEFORE),
    "anthill-cached": anthill_cached,
    "anthill-proxy": anthill_proxy,
    "anthill-uncounted": anthill_uncounted,
    "anthill-2": lambda folder: anthill(folder, workers=2),
    "anthill-log": lambda folder: anthill(folder, access=folder + "/access.log"),
    "anthill-keep": lambda folder: anthill(folder, keep="keep = 4"),
    "nginx": nginx,
    "nginx-keep": lambda folder: nginx(folder, keep="fastcgi_keep_conn on;"),
    "lighttpd": lighttpd,
}

class Server:
    def __init__(self, name, folder, cpus={0}):
        for port in (HTTP, HTTPS):
            if not refused(port):
                sys.exit(f"port {port} is in use")
        command = SERVERS[name](folder)
        self.log = open(f"{folder}/{name}.out", "ab")
        setup = lambda: (os.setsid(), os.sched_setaffinity(0, cpus))
        self.process = subprocess.Popen(command, preexec_fn=setup, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.time() + 10
        while refused(HTTP):
            if time.time() > end or self.process.poll() is not None:
                sys.exit(f"{name} did not start: " + open(self.log.name).read()[-500:])
            time.sleep(0.05)
        time.sleep(0.4)
    def pids(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                stat = open(f"/proc/{pid}/stat").read()
            except OSError:
                continue
            fields = stat[stat.rindex(")") + 2:].split()
            if int(fields[3]) == self.process.pid:
                yield pid, sum(map(int, fields[11:15]))
    def cpu_seconds(self):
        return sum(ticks for _, ticks in self.pids()) / TICK
    def pss_kib(self):
        total = 0
        for pid, _ in self.pids():
            try:
                lines = open(f"/proc/{pid}/smaps_rollup").readlines()
            except OSError:
                # The process has ended in the meantime.
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total
    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            # The whole process group ends, since some servers leave children behind.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        time.sleep(0.3)

def refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return False
    except OSError:
        return True

def client(command):
    return subprocess.run(["taskset", "-c", "1"] + command, capture_output=True, text=True).stdout

def keep_asking(server, url, conns, seconds):
    """Returns microseconds of CPU per request, requests per second, p99 in ms, PSS in MiB half-way."""
    before = server.cpu_seconds()
    # Memory is measured half-way, while the connections are open, since servers release some of it later.
    seen = []
    sampler = threading.Timer(seconds / 2, lambda: seen.append(server.pss_kib()))
    sampler.start()
    count, rate, p99 = CLIENTS[CLIENT](url, conns, seconds)
    sampler.join()
    cpu = server.cpu_seconds() - before
    return {"us": cpu * 1e6 / count, "req/s": rate, "p99 ms": p99, "PSS MB": seen[0] / 1024}

def bench_load(url, conns, seconds):
    said = json.loads(client([BENCH, "load", "--connections", str(conns), "--seconds", str(seconds), "--json", url]))
    if said["failures"]:
        sys.exit(f"wrong responses: {said['failures']}")
    return said["requests"], said["requests"] / said["seconds"], said["latency"]["percentiles_us"]["99"] / 1000

def wrk(url, conns, seconds):
    out = client(["wrk", "-t1", f"-c{conns}", f"-d{seconds}s", "--latency", url])
    if "Non-2xx" in out:
        sys.exit("responses other than 200:\n" + out)
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", out)
    p99 = float(p99[1]) * {"us": 0.001, "ms": 1, "s": 1000}[p99[2]]
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    return int(re.search(r"(\d+) requests in", out)[1]), rate, p99

CLIENTS = {"bench": bench_load, "wrk": wrk}
CLIENT = "bench"

def cached(server, base, page, size, conns, seconds):
    """Measures a cached page and a stored file in turn; returns the ratio of their requests per second."""
    live = f"/live/page.cgi?{size}"
    sides = {"stored": page, "cached": live}
    order = list(sides)
    random.shuffle(order)
    got = {side: keep_asking(server, base + sides[side], conns, seconds) for side in order}
    result = {f"{side} {key}": got[side][key] for side in sides for key in ("req/s", "us")}
    result["req/s ratio"] = got["cached"]["req/s"] / got["stored"]["req/s"]
    result["CPU ratio"] = got["cached"]["us"] / got["stored"]["us"]
    return result

def ab(server, url, count):
    before = server.cpu_seconds()
    out = client(["ab", "-q", "-r", "-c", "10", "-n", str(count), url])
    cpu = server.cpu_seconds() - before
    failed = int(re.search(r"Failed requests:\s+(\d+)", out)[1])
    rate = float(re.search(r"Requests per second:\s+([\d.]+)", out)[1])
    return {"us": cpu * 1e6 / count, "req/s": rate, "failed": failed}

def h2load(server, url, count):
    """Returns microseconds of CPU per request over HTTP/2: 100 connections with 10 requests at a time each."""
    before = server.cpu_seconds()
    out = client(["h2load", "-c100", "-m10", "-t1", "-n", str(count), url])
    cpu = server.cpu_seconds() - before
    if f"{count} succeeded" not in out:
        sys.exit("missing responses:\n" + out)
    return {"us": cpu * 1e6 / count, "req/s": float(re.search(r"([\d.]+) req/s", out)[1])}

def h3(path, connections, *more):
    """Starts the load generator of anthill over HTTP/3, with JSON output."""
    command = [BENCH, "load", f"https://localhost:{HTTPS}{path}", "--http", "3", "--connections", str(connections), "--json", *more]
    return subprocess.Popen(["taskset", "-c", "1"] + command, stdout=subprocess.PIPE, text=True)

def h3_said(asking):
    """Waits for the end of a load generator and returns its round."""
    out = asking.communicate()[0]
    if asking.returncode:
        sys.exit("missing responses:\n" + out)
    return json.loads(out)

def h3load(server, path, count):
    """Returns microseconds of CPU per request over HTTP/3: 10 connections with 10 requests at a time each."""
    before = server.cpu_seconds()
    round = h3_said(h3(path, 10, "--streams", "10", "--requests", str(count)))
    cpu = server.cpu_seconds() - before
    return {"us": cpu * 1e6 / count, "req/s": count / round["seconds"]}

def h3_held(server, count):
    """Holds `count` connections of HTTP/3 with one page request every 8 s each, one after another."""
    before = server.pss_kib()
    asking = h3("/p5100.html", count, "--rate", str(count / 8), "--seconds", "12")
    time.sleep(10)
    after = server.pss_kib()
    round = h3_said(asking)
    if round["extra"].get("connections", count) != count:
        sys.exit("fewer connections than requested")
    return {"KiB each": (after - before) / count, "PSS before MB": before / 1024, "PSS MB": after / 1024}

def h2_begin():
    """Opens a connection of HTTP/2 and requests one page."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    raw = socket.create_connection(("127.0.0.1", HTTPS))
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s = context.wrap_socket(raw, server_hostname="localhost")
    literal = lambda index, value: bytes([0x40 | index, len(value)]) + value
    block = b"\x82\x87" + literal(1, b"localhost") + literal(4, b"/p5100.html") + literal(58, b"measure.py")
    head = len(block).to_bytes(3, "big") + b"\x01\x05\0\0\0\x01"
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0" + head + block)
    got = b""
    while b"</html>" not in got:
        got += s.recv(65536)
    s.sendall(b"\0\0\0\x04\x01\0\0\0\0")
    return s

def connections(server, count, begin):
    """Holds `count` connections, each opened by `begin`; returns the KiB of PSS per connection."""
    # Some servers release memory of their start within two seconds.
    time.sleep(2)
    before = server.pss_kib()
    held = [begin() for _ in range(count)]
    time.sleep(3)
    after = server.pss_kib()
    fresh = [get_ms() for _ in range(21)]
    for connection in held:
        connection.close()
    return {"KiB each": (after - before) / count, "PSS before MB": before / 1024, "PSS MB": after / 1024, "fresh GET ms": statistics.median(fresh)}

def crowd(server, kind, count):
    """Holds `count` proxied requests (tests/support/crowd.py); returns the PSS in MB."""
    time.sleep(2)
    before = server.pss_kib()
    script = [sys.executable, HERE + "/tests/support/crowd.py"]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    member = subprocess.Popen(script + ["member", str(MEMBER)], **pipes)
    member.stdout.readline()
    clients = subprocess.Popen(script + [kind, str(HTTP), str(count)], **pipes)
    try:
        clients.stdout.readline()
        time.sleep(3)
        after = server.pss_kib()
        fresh = [get_ms() for _ in range(21)]
    finally:
        for process in (clients, member):
            process.kill()
            process.wait()
    return {"KiB each": (after - before) / count, "PSS before MB": before / 1024, "PSS MB": after / 1024, "fresh GET ms": statistics.median(fresh)}

def get_ms():
    started = time.perf_counter()
    with socket.create_connection(("127.0.0.1", HTTP), 5) as s:
        s.sendall(b"GET /f1k.html HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        while s.recv(65536):
            pass
    return (time.perf_counter() - started) * 1000

CONTEXT = None
def tls_begin(path, read, receive_buffer=None):
    global CONTEXT
    if CONTEXT is None:
        CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        CONTEXT.check_hostname, CONTEXT.verify_mode = False, ssl.CERT_NONE
    raw = socket.socket()
    if receive_buffer:
        # A client that does not read also has a small receive buffer.
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    raw.connect(("127.0.0.1", HTTPS))
    s = CONTEXT.wrap_socket(raw, server_hostname="localhost")
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    got = b""
    while read and not got.endswith(b"</html>\n"):
        got += s.recv(65536)
    return s

def half_head():
    s = socket.create_connection(("127.0.0.1", HTTP), 5)
    s.sendall(b"GET /f1k.html HTTP/1.1\r\nHost: localhost\r\nUser-Agent: half-way thro")
    return s

def scenario(name, server, args):
    page = f"/f{args.size // 1024}k.html" if args.size % 1024 == 0 else "/p5100.html"
    if name in ("tls", "log", "workers"):
        return keep_asking(server, f"https://127.0.0.1:{HTTPS}{page}", args.conns, args.seconds)
    if name == "h2":
        return h2load(server, f"https://127.0.0.1:{HTTPS}{page}", args.count)
    if name == "h2held":
        return connections(server, args.conns, h2_begin)
    if name == "h3":
        return h3load(server, page, args.count)
    if name == "h3held":
        return h3_held(server, args.conns)
    if name == "plain":
        return keep_asking(server, f"http://127.0.0.1:{HTTP}{page}", args.conns, args.seconds)
    if name in ("cached", "cachedtls"):
        base = f"https://127.0.0.1:{HTTPS}" if name == "cachedtls" else f"http://127.0.0.1:{HTTP}"
        return cached(server, base, page, args.size, args.conns, args.seconds)
    if name == "close":
        return ab(server, f"http://127.0.0.1:{HTTP}/p228.html", args.count)
    if name == "held":
        return connections(server, args.conns, lambda: tls_begin("/p5100.html", True))
    if name == "unread":
        return connections(server, args.conns, lambda: tls_begin("/f512k.html", False, 4096))
    if name in ("waiting", "unanswered"):
        return crowd(server, {"waiting": "wait", "unanswered": "unread"}[name], args.conns)
    if name == "stuck":
        return connections(server, args.conns, half_head)
    if name == "cgi":
        return keep_asking(server, f"http://127.0.0.1:{HTTP}/run/hello.cgi", args.conns if args.conns != 1500 else 8, args.seconds)
    if name == "fastcgi":
        return keep_asking(server, f"http://127.0.0.1:{HTTP}/php/hello.php", args.conns if args.conns != 1500 else 8, args.seconds)
    if name == "idle":
        time.sleep(3)
        return {"PSS MB": server.pss_kib() / 1024}
    sys.exit(f"no scenario {name}")

HELLO = r'''#include <unistd.h>
int main(void) { static const char hello[] = "Content-Type: text/plain\n\nhello\n"; return write(1, hello, sizeof hello - 1) < 0; }
'''

def php_fpm(folder):
    """Starts a pool of php-fpm on the client's processor."""
    os.makedirs(folder + "/www/php")
    open(folder + "/www/php/hello.php", "w").write("<?php echo 'hello';")
    open(folder + "/fpm.conf", "w").write(f"""[global]
error_log = {folder}/fpm.log
daemonize = no
[www]
listen = {folder}/fpm.sock
listen.mode = 0666
user = nobody
group = nogroup
pm = static
pm.max_children = 4
""")
    os.chmod(folder, 0o755)
    pool = subprocess.Popen(["php-fpm8.2", "-F", "-y", folder + "/fpm.conf"], stderr=subprocess.DEVNULL)
    while not os.path.exists(folder + "/fpm.sock"):
        if pool.poll() is not None:
            sys.exit("php-fpm did not start: " + open(folder + "/fpm.log").read())
        time.sleep(0.05)
    return pool

def pages(folder):
    os.makedirs(folder + "/www/run")
    compiler = ["cc", "-O2", "-static", "-x", "c", "-", "-o", folder + "/www/run/hello.cgi"]
    subprocess.run(compiler, input=HELLO, text=True, check=True)
    with open(folder + "/www/run/page.cgi", "w") as script:
        script.write("#!/bin/sh\nprintf 'Content-Type: text/html\\nContent-Length: %s\\n\\n' \"$QUERY_STRING\"\n"
                     "head -c \"$QUERY_STRING\" /dev/zero | tr '\\0' x\n")
    os.chmod(folder + "/www/run/page.cgi", 0o755)
    random.seed(7)
    words = "the of and a web ant hill mountain server tiny journal".split()
    for name, size in [("p228", 228), ("p5100", 5100)] + [(f"f{k}k", k * 1024) for k in (1, 16, 64, 256, 512)]:
        head, tail, body = "<!DOCTYPE html>\n<html><pre>\n", "</pre></html>\n", []
        length = len(head) + len(tail)
        while length < size:
            word = random.choice(words) + random.choice(" \n")
            body.append(word)
            length += len(word)
        text = (head + "".join(body))[:size - len(tail)] + tail
        open(f"{folder}/www/{name}.html", "w").write(text)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                    "-keyout", folder + "/key.pem", "-out", folder + "/cert.pem", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)

def interval_of_median(values):
    """Returns the 95 % confidence interval of the median of sorted values, by the sign test; with fewer than 6
    values the smallest and the largest."""
    count = len(values)
    outside, rank = 0.5 ** count, 0
    while rank < count // 2 and outside + math.comb(count, rank + 1) * 0.5 ** count <= 0.025:
        rank += 1
        outside += math.comb(count, rank) * 0.5 ** count
    return values[rank], values[count - 1 - rank]

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--servers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--size", type=int, default=5100, help="bytes: 5100, or 1024 times 1, 16, 64, 256, 512")
    parser.add_argument("--conns", type=int, default=1500)
    parser.add_argument("--count", type=int, default=50000, help="requests of one round of `close`")
    parser.add_argument("--client", choices=CLIENTS, default="bench", help="client of scenarios with kept-alive connections")
    args = parser.parse_args()
    global CLIENT
    CLIENT = args.client
    # On SIGTERM the script ends its server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    both = {"workers": "anthill,anthill-2", "log": "anthill,anthill-log", "cgi": "anthill,lighttpd", "h3": "anthill,caddy", "h3held": "anthill,caddy",
            "cached": "anthill-cached", "cachedtls": "anthill-cached", "waiting": "anthill-proxy", "unanswered": "anthill-proxy"}
    names = (args.servers or both.get(args.scenario, "anthill,nginx")).split(",")
    resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
    os.sched_setaffinity(0, {1})
    folder = tempfile.mkdtemp(prefix="anthill-measure-")
    rounds = {name: [] for name in names}
    pool = None
    try:
        pages(folder)
        pool = php_fpm(folder) if args.scenario == "fastcgi" else None
        for number in range(args.rounds):
            for name in names if number % 2 == 0 else names[::-1]:
                # Two workers share CPU 0 as one worker does, and the comparison is of their CPU time.
                server = Server(name, folder)
                try:
                    rounds[name].append(scenario(args.scenario, server, args))
                finally:
                    server.stop()
    finally:
        if pool:
            pool.terminate()
            pool.wait()
        shutil.rmtree(folder)
    print(f"{args.scenario}, size {args.size}, {args.conns} connections, {args.rounds} rounds of {args.seconds} s")
    for name in names:
        line = []
        for key in rounds[name][0]:
            values = [r[key] for r in rounds[name]]
            line.append(f"{key} {statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})")
        print(f"  {name:12} " + "  ".join(line))
    first, last = ([r.get("us", 0) for r in rounds[n]] for n in (names[0], names[-1]))
    if all(first) and all(last) and len(names) > 1:
        ratios = sorted(a / b for a, b in zip(first, last))
        low, high = interval_of_median(ratios)
        print(f"  CPU per request, {names[0]} / {names[-1]}: median of {len(ratios)} ratios {statistics.median(ratios):.3f}, 95 % interval {low:.3f}-{high:.3f}")

if __name__ == "__main__":
    main()
