//! Services with the real service managers of Debian: runit, s6, OpenRC, System V and cron, each unpacked into a machine
//! of namespaces. `tests/systemd.rs` has systemd.
//!
//! Each scenario installs the service as the guide says, kills the server and then its supervisor, and removes the service.

use crate::guide_examples::scenarios;

scenarios! {
    runit_runs_the_service("service.md", true) = r#"
        . "$SUPPORT/service_managers.sh"
        make_site /srv/site
        # As the start of Debian's runit does; /etc/service is a link to the folder.
        ln -s default /etc/runit/runsvdir/current
        # The service manager is process 1, by which the installation recognises it.
        unshare --pid --fork --mount-proc --kill-child runsvdir -P /etc/service > "$M/runsvdir.log" 2>&1 &
        outside=$!
        has_begun() { [ -n "$(child_of $outside)" ]; }
        await has_begun
        manager=$(child_of $outside)
        inside() { nsenter --target "$manager" --pid --mount "$@"; }
        supervisor() { inside cat /etc/sv/anthill/supervise/pid; }
        installs() { inside /usr/local/bin/anthill service install /srv/site; }
        has 'serves /srv/site/anthill.toml now and after each boot (runit)' installs
        serves
        first=$(supervisor)
        inside sh -c 'cat /proc/[0-9]*/status' | grep "^Uid:.$(id -u anthill)"
        inside sh -c "kill -KILL \$(tr -d ' ' < /proc/$first/task/$first/children)"
        serves
        [ "$(supervisor)" = "$first" ]
        inside kill -KILL "$first"
        await serves
        [ "$(supervisor)" != "$first" ]
        # Another installation starts the service again.
        has 'sv -w 40 restart /etc/sv/anthill' installs
        serves
        inside sv stop anthill
        is_down
        inside sv start anthill
        serves
        has "removed /etc/sv/anthill/run" inside /usr/local/bin/anthill service remove
        is_down
        [ ! -e /etc/sv/anthill ] && [ ! -e /etc/service/anthill ]
        kill $outside
    "#;

    openrc_runs_the_service("service.md", true) = r#"
        . "$SUPPORT/service_managers.sh"
        make_site /srv/site
        mkdir -p /run/openrc /etc/init.d
        touch /run/openrc/softlevel /etc/insserv.conf
        echo 'rc_controller_cgroups="NO"' >> /etc/rc.conf
        rm -f /etc/runlevels/*/*
        printf '#!/sbin/openrc-run\ndepend() { provide net; }\nstart() { :; }\nstop() { :; }\n' > /etc/init.d/link
        chmod 755 /etc/init.d/link
        openrc sysinit > "$M/openrc.log" 2>&1
        openrc default > "$M/openrc.log" 2>&1
        has 'serves /srv/site/anthill.toml now and after each boot (OpenRC)' anthill service install
        await serves
        has started rc-service anthill status
        first=$(supervisors)
        heals "$first"
        # supervise-daemon starts the supervisor again.
        kill -KILL "$first"
        await [ ! -d "/proc/$first" ]
        await serves
        rc-service anthill stop
        is_down
        rc-service anthill start
        await serves
        has 'removed /etc/init.d/anthill' anthill service remove
        is_down
        [ -z "$(supervisors)" ]
        ! rc-update show default | grep anthill
    "#;

    a_classic_script_runs_the_service("service.md", true) = r#"
        . "$SUPPORT/service_managers.sh"
        make_site /srv/site
        has 'serves /srv/site/anthill.toml now and after each boot (an init script)' anthill service install --init sysv
        await serves
        heals "$(cat /run/anthill.pid)"
        /etc/init.d/anthill status
        has 'removed /etc/init.d/anthill' anthill service remove --init sysv
        is_down
        [ -z "$(supervisors)" ]
    "#;

    a_line_in_the_crontab_runs_the_service("service-managers.md", true) = r#"
        . "$SUPPORT/service_managers.sh"
        printf 'me:x:4711:4711::/home/me:/bin/sh\n' >> /etc/passwd
        printf 'me:x:4711:\ncrontab:x:4712:\n' >> /etc/group
        printf 'me:*:19000:0:99999:7:::\n' >> /etc/shadow
        make_site /home/me/site
        chown -R me:me /home/me
        as_me() { setpriv --reuid me --regid me --clear-groups env -i HOME=/home/me LOGNAME=me PATH="$PATH" "$@"; }
        chmod 755 "$M"
        # Without the program, a message says what to do.
        mkdir "$M/few"
        ln -s /usr/bin/env "$M/few/env"
        refuses() { ! "$@" > "$M/refused" 2>&1; }
        refuses as_me env PATH="$M/few" /usr/local/bin/anthill service install
        has 'install cron (Debian: apt install cron)' cat "$M/refused"
        cp "$SERVICES/usr/bin/crontab" /usr/local/bin/
        mount -t tmpfs -o mode=755 tmpfs /var/spool
        mkdir -p /var/spool/cron/crontabs
        chgrp crontab /usr/local/bin/crontab /var/spool/cron/crontabs
        chmod 2755 /usr/local/bin/crontab
        chmod 1730 /var/spool/cron/crontabs

        # Bytes, blanks and percent signs of the other lines stay.
        printf 'MAILTO=""\n# mine \377\n*/15 * * * *\ttrue  %%x \n' > /home/me/before
        as_me crontab /home/me/before
        has "serves /home/me/site/anthill.toml now and after each boot (crontab)" as_me /usr/local/bin/anthill service install
        serves
        as_me crontab -l > with
        head -n 3 with | cmp - /home/me/before
        [ "$(wc -l < with)" = 4 ]
        as_me /usr/local/bin/anthill service print > line
        # The line of the guide, for a program in the folder of the account.
        @file printed @reboot exec
        sed "s|/home/me/bin/|/usr/local/bin/|" printed | diff - line
        tail -n 1 with | diff - line
        heals "$(supervisors)"
        [ "$(stat -c %U "/proc/$(supervisors)")" = me ]
        # Another installation replaces the line, and starts the server again.
        first=$(supervisors)
        as_me /usr/local/bin/anthill service install
        serves
        [ "$(supervisors)" != "$first" ]
        as_me crontab -l | diff - with

        # cron starts the server at the next boot, with the logs in the state folder.
        as_me /usr/local/bin/anthill stop
        await is_down
        has_ended() { [ -z "$(supervisors)" ]; }
        await has_ended
        cron -f > "$M/cron.log" 2>&1 &
        cron=$!
        await serves
        heals "$(supervisors)"
        state=/home/me/.local/state/anthill
        grep ready $state/messages.log
        await grep '"GET / ' $state/access.log
        has 'messages.log' as_me /usr/local/bin/anthill log -n 1
        has stopped as_me /usr/local/bin/anthill service remove
        is_down
        as_me crontab -l | cmp - /home/me/before
        refuses as_me /usr/local/bin/anthill service remove
        has 'the crontab has no line of it' cat "$M/refused"

        # A server that does not start shows its messages, and an account without a crontab has none afterwards.
        as_me crontab -r
        echo 'lisiting = true' >> anthill.toml
        refuses as_me /usr/local/bin/anthill service install
        has lisiting cat "$M/refused"
        sed -i '$d' anthill.toml
        python3 -m http.server --bind 127.0.0.1 8443 > "$M/other.log" 2>&1 &
        other=$!
        await curl -s -o "$M/page" http://127.0.0.1:8443/
        refuses as_me /usr/local/bin/anthill service install
        has "127.0.0.1:8443" cat "$M/refused"
        has 'run `anthill service install` again' cat "$M/refused"
        kill $other
        wait $other || true
        as_me /usr/local/bin/anthill service install
        as_me /usr/local/bin/anthill service remove
        refuses as_me crontab -l
        kill $cron
    "#;

    s6_runs_the_service("service-managers.md", true) = r#"
        . "$SUPPORT/service_managers.sh"
        mkdir -p /etc/s6/anthill/data
        @file /etc/s6/anthill/run #!/bin/sh\nexec 2>&1
        @file /etc/s6/anthill/data/check #!/bin/sh\nexec anthill status
        @run chmod 755 /etc/s6
        make_site /etc/anthill
        s6-supervise /etc/s6/anthill > "$M/s6.log" 2>&1 &
        manager=$!
        await test -e /etc/s6/anthill/supervise/status
        @run s6-svwait
        serves
        first=$(s6-svstat -o pid /etc/s6/anthill)
        heals "$first"
        kill -KILL "$first"
        await serves
        [ "$(s6-svstat -o pid /etc/s6/anthill)" != "$first" ]
        @run s6-svc -h
        @run s6-svc -wd
        is_down
        s6-svc -x /etc/s6/anthill
        wait $manager
    "#;
}
