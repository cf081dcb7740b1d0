#!/bin/sh
# systemd_machine.sh WORK TREE PROGRAMS: a machine with systemd as process 1, for tests/support/systemd_machine.rs. Run by
# root as
#
#   unshare --mount --propagation private systemd_machine.sh WORK TREE PROGRAMS
#
# TREE is a folder with a Debian system and stays unchanged: WORK, an empty folder, gets the changes in memory, so a machine
# that starts again finds its files. PROGRAMS is a folder whose files are copied to /usr/local/bin.
#
# systemd deletes all files of /tmp at its start and changes /run and /dev, so it must never see the folders of the machine
# that runs the test: systemd gets namespaces of its own with the tree as its root, and only file systems mounted below.
#
# Commands on standard input: `boot` starts systemd and prints the number of its process, `wait` waits for its end and
# prints `down`. The end of the input ends systemd with all processes of the machine.
set -eu

if [ "$1" = inside ]; then
    root=$2
    cd "$root"
    for folder in run tmp var/tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
    chmod 1777 tmp var/tmp
    for device in null zero full random urandom tty; do
        touch "dev/$device"
        mount --bind "/dev/$device" "dev/$device"
    done
    mkdir dev/shm dev/pts
    mount -t tmpfs tmpfs dev/shm
    mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    for number in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${number%:*}" "dev/${number#*:}"; done
    mount -t proc proc proc
    mount --bind proc/sys proc/sys
    mount -o remount,bind,ro proc/sys
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mkdir -p oldroot
    pivot_root . oldroot
    cd /
    umount -l /oldroot
    # The root is another file system than before, and nothing of the former root is in reach.
    [ "$(stat -f -c '%T' / /tmp /run | sort -u | tr '\n' ' ')" = 'overlayfs tmpfs ' ] || exit 1
    [ -z "$(ls -A /tmp)$(ls -A /oldroot)" ] || exit 1
    hostname machine
    # Rights to the kernel that all namespaces share.
    dropped=-sys_module,-sys_time,-sys_rawio,-syslog,-audit_control,-audit_read,-audit_write,-mac_admin,-mac_override
    dropped=$dropped,-wake_alarm,-block_suspend,-sys_pacct,-sys_tty_config
    exec env -i container=anthill-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        setpriv --bounding-set "$dropped" --inh-caps "$dropped" \
        /lib/systemd/systemd --system --log-target=console --show-status=no
fi

work=$1 tree=$2 programs=$3
mkdir "$work/changes" "$work/cgroup" "$work/root"
mount -t tmpfs -o mode=755 tmpfs "$work/changes"
mkdir -p "$work/changes/upper" "$work/changes/work" "$work/changes/upper/usr/local/bin"
install -m 755 "$programs"/* "$work/changes/upper/usr/local/bin"
mount -t overlay overlay -o "lowerdir=$tree,upperdir=$work/changes/upper,workdir=$work/changes/work" "$work/root"
# systemd gets a control group of its own, and sees no other.
mount -t cgroup2 cgroup2 "$work/cgroup"
group=$work/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/anthill-systemd-$$
mkdir "$group"

is_running() { [ -n "${machine:-}" ] && kill -0 "$machine" 2> /dev/null; }

remove() {
    # `unshare` ends systemd together with itself, and the kernel ends the other processes of the machine.
    if is_running; then kill -KILL "$machine"; wait "$machine" || :; fi
    tries=0
    until find "$group" -depth -type d -exec rmdir {} + 2> /dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || { echo "$group stays: it has processes" >&2; exit 1; }
        sleep 0.05
    done
}
trap remove EXIT

while read -r command; do
    case $command in
    boot)
        sh -euc 'echo 0 > "$0/cgroup.procs"; exec "$@"' "$group" \
            unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child=SIGKILL --propagation private \
            sh "$0" inside "$work/root" < /dev/null >&2 &
        machine=$!
        until process=$(cat "/proc/$machine/task/$machine/children") && [ -n "$process" ] &&
            [ "$(cat "/proc/${process% }/comm")" = systemd ]; do
            is_running || { echo "systemd did not start" >&2; exit 1; }
            sleep 0.02
        done
        echo "${process% }"
        ;;
    wait)
        wait "$machine" || :
        machine=
        echo down
        ;;
    esac
done
