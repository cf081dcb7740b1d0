# Sourced by the scenarios of tests/service_managers.rs: a machine with the service managers of Debian, which
# tools/setup.sh unpacks, and with a site.
[ -e "$SERVICES/usr/sbin/cron" ] || {
    echo "$SERVICES has no service managers: make test unpacks them (setup_services in tools/setup.sh)"
    false
}
mount -t proc proc /proc
mount -t overlay overlay -o "lowerdir=/usr:$SERVICES/usr" /usr
mount -t tmpfs -o mode=755 tmpfs /usr/local
mkdir /usr/local/bin
touch /usr/local/bin/anthill
mount --bind "$ANTHILL" /usr/local/bin/anthill
cp -a --no-clobber "$SERVICES/etc/." /etc/
chmod 755 /srv /var/lib /var/log /run /home
anthill() { /usr/local/bin/anthill "$@"; }

# Makes a site in a folder, with ports that any account may use.
make_site() {
    mkdir -p "$1/public"
    echo hello > "$1/public/index.html"
    printf '[server]\nhttps = ["127.0.0.1:8443"]\nhttp = []\n' > "$1/anthill.toml"
    cd "$1"
}

# Waits until a command succeeds, for at most a minute.
await() {
    tries=0
    until "$@" > "$M/awaited" 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || { echo "waited for $*"; cat "$M/awaited"; return 1; }
        sleep 0.1
    done
}

serves() { has hello curl -s https://localhost:8443/; }
is_down() { ! curl -s -o "$M/page" https://localhost:8443/; }

# Prints the child of a process.
child_of() { tr -d ' ' < "/proc/$1/task/$1/children"; }

# Kills the server of a supervisor. The next connection waits for the next server: curl tries once.
heals() {
    server=$(child_of "$1")
    [ -n "$server" ]
    kill -KILL "$server"
    await [ ! -d "/proc/$server" ]
    serves
    [ -d "/proc/$1" ]
}

# Prints the processes of supervisors.
supervisors() {
    for process in /proc/[0-9]*; do
        [ "$(cat "$process/comm" 2> "$M/gone")" = anthill ] || continue
        ! tr '\0' '\n' < "$process/cmdline" | grep -qx -e --supervise || echo "${process#/proc/}"
    done
}
