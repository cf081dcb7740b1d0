//! Scenarios of the guide's pages for users of other servers. [`crate::guide_examples`] describes their
//! environment.
//!
//! The other server runs with the printed configuration and answers a list of requests; anthill with the
//! printed counterpart answers the same list. The answers have to be equal in status, destination, chosen
//! fields and content. A permanent redirect may be a 301 or a 308.

use crate::guide_examples::scenarios;

scenarios! {
    a_site_of_nginx_answers_as_before("from-nginx.md", true) = r#"
        chmod 755 /srv; mkdir -p /srv/www/assets /srv/www/files /srv/www/intranet /srv/www/private /var/log/nginx /var/lib/nginx
        sed -i /anthill/d /etc/passwd /etc/group
        for page in index about not-found intranet/index private/index; do echo "<h1>$page</h1>" > /srv/www/$page.html; done
        echo 'a {}' > /srv/www/assets/a.css
        echo photo > /srv/www/files/ant.jpg
        echo '<?php echo "by PHP, ", $_SERVER["SCRIPT_NAME"], " ", $_GET["n"];' > /srv/www/page.php
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=example.org \
            -addext 'subjectAltName=DNS:example.org,DNS:www.example.org' \
            -keyout /etc/anthill/privkey.pem -out /etc/anthill/fullchain.pem 2> openssl.log
        @run useradd
        # nginx knows no bcrypt.
        printf 'alice:%s\n' "$(openssl passwd -apr1 secret)" > /etc/anthill/users.htpasswd
        rm -f /etc/php/8.2/fpm/pool.d/*
        printf '[www]\nuser = anthill\nlisten = /run/php/www.sock\nlisten.mode = 0666\npm = static\npm.max_children = 1\n' \
            > /etc/php/8.2/fpm/pool.d/www.conf
        php-fpm8.2 --nodaemonize > "$M/fpm.log" 2>&1 &
        until [ -S /run/php/www.sock ]; do kill -0 $! || { cat "$M/fpm.log"; false; }; sleep 0.05; done
        python3 -c 'import socket
        server = socket.create_server(("127.0.0.1", 9000))
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\napplication "
        for conn, _ in iter(server.accept, None): conn.sendall(head + conn.recv(65536).split()[1]), conn.close()' &
        answers() {
            site=https://www.example.org
            for address in / /about '/about?a=b' /assets/a.css /missing /missing/ '/old/a/b?c=d' /old/ /files \
                /intranet/ /private/ '/page.php?n=7' '/app/a?b=c' /app/ http://www.example.org/a?b=c http://example.org/a \
                https://example.org/a?b=c; do
                case $address in http*) url=$address;; *) url=$site$address;; esac
                answer "$url"
            done
            answer -u alice:secret $site/private/
            answer -u alice:wrong $site/private/
            curl -s $site/files/ | grep -o '>ant.jpg<'
            # The listing of one folder opens no other.
            curl -s $site/assets/ | grep -c a.css || true
        }
        { printf 'user root; events {} http { include mime.types; '; cat <<'END OF CONF'
        @run server {
        END OF CONF
        printf '}'; } > nginx.conf
        cp /etc/nginx/mime.types /etc/nginx/fastcgi_params .
        nginx -p "$PWD" -c nginx.conf -g 'daemon off; error_log stderr; pid nginx.pid;' > nginx.log 2>&1 &
        other=$!
        until curl -so "$M/output" https://www.example.org/; do kill -0 $other || { cat nginx.log; false; }; sleep 0.05; done
        answers > expected
        # A script in a guarded folder is open in nginx, as the guide says.
        cp /srv/www/page.php /srv/www/private/
        has 'by PHP' curl -s 'https://www.example.org/private/page.php?n=1'
        kill $other; wait $other || true
        @file /etc/anthill/anthill.toml [server]
        anthill check /etc/anthill
        anthill serve /etc/anthill
        answers > actual
        diff expected actual
        [ "$(grep -c '^200' actual)" -ge 8 ]
        has 'HTTP/2 401' curl -si 'https://www.example.org/private/page.php?n=1'
        until grep -q 'GET /about' /var/log/anthill/access.log; do sleep 0.05; done
    "#;

    a_site_of_caddy_answers_as_before("from-caddy.md", true) = r#"
        chmod 755 /srv; mkdir -p /srv/www/assets /srv/www/files /srv/www/intranet /srv/www/private /srv/www/shop
        sed -i /anthill/d /etc/passwd /etc/group
        @run useradd
        for page in index about not-found manual intranet/index private/index; do echo "<h1>$page</h1>" > /srv/www/$page.html; done
        echo 'a {}' > /srv/www/assets/a.css
        echo photo > /srv/www/files/ant.jpg
        echo '<?php echo "by PHP, ", $_SERVER["SCRIPT_NAME"], " ", $_GET["n"];' > /srv/www/shop/index.php
        cp /srv/www/shop/index.php /srv/www/shop/page.php
        rm -f /etc/php/8.2/fpm/pool.d/*
        printf '[www]\nuser = anthill\nlisten = /run/php/www.sock\nlisten.mode = 0666\npm = static\npm.max_children = 1\n' \
            > /etc/php/8.2/fpm/pool.d/www.conf
        php-fpm8.2 --nodaemonize > "$M/fpm.log" 2>&1 &
        until [ -S /run/php/www.sock ]; do kill -0 $! || { cat "$M/fpm.log"; false; }; sleep 0.05; done
        python3 -c 'import socket
        server = socket.create_server(("127.0.0.1", 9000))
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\napplication "
        for conn, _ in iter(server.accept, None): conn.sendall(head + conn.recv(65536).split()[1]), conn.close()' &
        answers() {
            site=https://www.example.org
            for address in / /about '/about?a=b' /assets/a.css /missing /missing/ /old/ /guide/ /guide/a/b /files \
                /intranet/ /private/ '/shop/page.php?n=7' '/shop/?n=8' '/app/a?b=c' /app/ \
                http://www.example.org/a?b=c https://example.org/a?b=c; do
                case $address in http*) url=$address;; *) url=$site$address;; esac
                answer "$url"
            done
            answer -u alice:secret $site/private/
            answer -u alice:wrong $site/private/
            curl -s $site/files/ | grep -q ant.jpg
        }
        @file Caddyfile {
        # No authority is in reach: certificates by Caddy's own.
        sed -i 's/email me@example.org/local_certs\nskip_install_trust/' Caddyfile
        XDG_DATA_HOME=$PWD caddy run --config Caddyfile > caddy.log 2>&1 < /dev/null &
        other=$!
        until curl -so "$M/output" https://www.example.org/ && curl -so "$M/output" https://example.org/; do
            kill -0 $other || { cat caddy.log; false; }; sleep 0.05
        done
        answers > expected
        kill $other; wait $other || true
        @file /etc/anthill/anthill.toml [server]
        @file /etc/anthill/users.htpasswd alice:
        anthill check /etc/anthill
        anthill serve /etc/anthill
        answers > actual
        diff expected actual
        [ "$(grep -c '^200' actual)" -ge 10 ]
        # The refused stranger of the page has access from the network.
        ip address add 192.168.0.7/32 dev lo
        has intranet/index curl -s --connect-to ::192.168.0.7: --interface 192.168.0.7 https://www.example.org/intranet/
    "#;

    an_application_of_caddy_answers_as_before("from-caddy.md", true) = r#"
        chmod 755 /srv; mkdir -p /srv/app /srv/media/a
        echo '<h1>the application</h1>' > /srv/app/index.html; echo 'a {}' > /srv/app/a.css; echo photo > /srv/media/a/ant.jpg
        for port in 9001 9002 9091; do
            python3 "$SUPPORT/echo_application.py" $port &
            until curl -so "$M/output" http://127.0.0.1:$port/; do kill -0 $!; sleep 0.05; done
        done
        answers() {
            site=https://app.example.org
            for path in / /deep/link /a.css /docs '/docs?a=b' /media/a/ant.jpg '/api/list?a=b' /api/ /admin/ /closed/ /closed/x \
                '/old-shop/cart?n=1' /old-shop/ '/wiki/ants?n=1'; do
                answer "$site$path"
            done
            answer -b user=alice $site/admin/x | grep -v '^cache-control: private'
            answer -d a=b $site/api/new
            curl -s -o body -D head --compressed $site/a.css; cat body
        }
        @file Caddyfile (common) {
        { printf '{\n\tlocal_certs\n\tskip_install_trust\n}\n'; cat Caddyfile; } > all.caddy
        XDG_DATA_HOME=$PWD caddy run --adapter caddyfile --config all.caddy > caddy.log 2>&1 < /dev/null &
        other=$!
        until curl -so "$M/output" https://app.example.org/; do kill -0 $other || { cat caddy.log; false; }; sleep 0.05; done
        answers > expected
        kill $other; wait $other || true
        @file app.toml [[site]]\nnames   = ["app.example.org"]
        site "$(cat app.toml)"
        answers > actual
        diff expected actual
        [ "$(grep -c '^200' actual)" = 11 ]
        # The bound of the content is that of the route.
        head -c 1000001 /dev/zero > large
        has 'HTTP/2 413' curl -si --data-binary @large https://app.example.org/api/new
    "#;

    a_site_of_stunnel_and_busybox_answers_as_before("from-stunnel.md", true) = r#"
        mkdir -p /srv/site/public/private; chmod 755 /srv; cd /srv/site
        mount -t proc proc /proc
        for page in index about not-found private/index; do echo "<h1>$page</h1>" > public/$page.html; done
        echo font > public/ant.woff
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=www.example.org \
            -addext 'subjectAltName=DNS:www.example.org' -keyout key.pem -out cert.pem 2> openssl.log
        cat cert.pem key.pem > combined.pem; chmod 600 combined.pem
        answers() {
            for path in / /index.html /about.html /ant.woff /missing /missing/ /private /private/; do
                answer https://www.example.org$path
            done
            answer -u alice:secret https://www.example.org/private/
            answer -u alice:wrong https://www.example.org/private/
        }
        @file stunnel.conf foreground
        @file httpd.conf H:
        {
        @run cd /srv/site\nbusybox
        } > stunnel.log 2>&1
        until curl -so "$M/output" https://www.example.org/; do sleep 0.05; done
        answers > expected
        @file watch #!/bin/sh
        kill $(pgrep -x stunnel4) $(pgrep -f 'busybox httpd')
        while pgrep -x stunnel4 || pgrep -f 'busybox httpd'; do sleep 0.05; done > "$M/output"
        sh watch > stunnel.log 2>&1 &
        until curl -so "$M/output" https://www.example.org/; do sleep 0.05; done
        answers | diff expected -
        kill $(pgrep -x stunnel4) $(pgrep -f 'busybox httpd')
        while pgrep -x stunnel4 || pgrep -f 'busybox httpd'; do sleep 0.05; done > "$M/output"
        @file anthill.toml [server]
        rm /usr/local/bin/anthill
        cp "$M/bin/anthill" /usr/local/bin/
        sed -i /anthill/d /etc/passwd /etc/group
        echo secret > password
        anthill() { /usr/local/bin/anthill "$@"; }
        {
        @run cd /srv/site\nuseradd
        } < password
        until curl -so "$M/output" https://www.example.org/; do sleep 0.05; done
        answers > actual
        diff expected actual
        [ "$(grep -c '^200' actual)" = 5 ]
        has TLSv1.3 curl -sv https://www.example.org/
        has 'Location: https://www.example.org/about.html' curl -si http://www.example.org/about.html
    "#;
}
