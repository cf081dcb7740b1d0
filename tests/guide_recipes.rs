//! Scenarios of the guide's recipes and of its page about the installation. [`crate::guide_examples`]
//! describes their environment.
//!
//! Small PHP sites with the folders of WordPress and DokuWiki stand in for the applications, which are not
//! part of Debian. A script of a stand-in prints its account and the variables that the application reads.

use crate::guide_examples::scenarios;

scenarios! {
    a_folder_is_served_from_nothing_as_printed("installation.md", false) = r#"
        mkdir checkout; cd checkout
        # Stands in for `make release`.
        built=target/$(uname -m)-unknown-linux-musl/release
        mkdir -p $built; ln -s "$M/bin/anthill" $built/anthill
        rm /usr/local/bin/anthill
        {
        @run sudo install -m 755
        } > "$M/version"
        cmp "$ANTHILL" /usr/local/bin/anthill
        has 'anthill 0' cat "$M/version"
        @run mkdir -p ~/public
        # On a terminal, curl shows no progress.
        echo silent >> ~/.curlrc
        @console $ curl --insecure
    "#;

    a_service_is_installed_and_removed_as_printed("installation.md", true) = r#"
        mount -t proc proc /proc
        rm /usr/local/bin/anthill
        cp "$M/bin/anthill" /usr/local/bin/
        mkdir mysite; cd mysite; mkdir public; echo '[server]' > anthill.toml
        /usr/local/bin/anthill service install
        until curl -so "$M/output" https://localhost:8443/; do sleep 0.05; done
        anthill() { /usr/local/bin/anthill "$@"; }
        @run sudo anthill service remove
        ! curl -so "$M/output" https://localhost:8443/
        [ ! -e /usr/local/bin/anthill ] && [ ! -e /etc/init.d/anthill ] && [ -d /var/lib/anthill ]
    "#;

    the_configuration_of_the_recipes_becomes_a_service_as_printed("recipes.md", true) = r#"
        mount -t proc proc /proc
        rm /usr/local/bin/anthill
        cp "$M/bin/anthill" /usr/local/bin/
        sed -i /anthill/d /etc/passwd /etc/group
        @file /etc/anthill/anthill.toml [server]\nhttps = [":443"]\nhttp  = [":80"]\nuser  = "anthill"                        #
        mkdir /etc/anthill/public; echo hello > /etc/anthill/public/index.html
        anthill() { /usr/local/bin/anthill "$@"; }
        # The service is ready before its first reload.
        sudo() { "$@"; until curl -so "$M/output" https://localhost/; do sleep 0.05; done; }
        @run cd /etc/anthill\nsudo anthill service
        has hello curl -s https://localhost/
    "#;

    the_recipe_of_a_blog_runs_as_printed("recipes.md", true) = r#"
        cd /etc/anthill
        mkdir -p /srv/blog/assets
        for page in index about 404; do echo "<h1>$page</h1>" > /srv/blog/$page.html; done
        echo '<feed/>' > /srv/blog/feed.xml
        echo 'a {}' > /srv/blog/assets/main.css
        # A style of Hugo has the whole hash behind a point; the style of Jekyll's theme has no hash in its name.
        hugo=main.min.c37b09c89e4de25c3d9b67ba8b5f15a1f0e2c0c2c2b0ab4a91ba9cd6c5c6b8f0.css
        cp /srv/blog/assets/main.css /srv/blog/$hugo
        @file head.toml [server]\nhttps = [":443"]\nhttp  = [":80"]\nuser  = "anthill"                        #
        @file blog.toml [[site]]\nnames  = ["www.example.org", "example.org"]      # the first
        cat head.toml blog.toml > anthill.toml
        anthill serve
        has '<h1>about</h1>' curl -s https://www.example.org/about
        has 'location: https://www.example.org/about' curl -si https://example.org/about
        curl -si https://www.example.org/missing > missing
        has 'HTTP/2 404' cat missing
        has '<h1>404</h1>' cat missing
        has 'cache-control: max-age=31536000, immutable' curl -si https://www.example.org/$hugo
        curl -si https://www.example.org/assets/main.css > style
        has 'HTTP/2 200' cat style
        ! grep -i cache-control style
        has 'cache-control: max-age=300' curl -si https://www.example.org/about
        has 'x-content-type-options: nosniff' curl -si https://www.example.org/
        has 'strict-transport-security:' curl -si https://www.example.org/
        has 'location: /feed.xml' curl -si https://www.example.org/feed/
    "#;

    the_recipe_of_an_application_in_the_browser_runs_as_printed("recipes.md", false) = r#"
        mkdir -p /srv/app/assets
        echo '<script src=/assets/index-BdT9ax1Q.js>' > /srv/app/index.html
        echo 'run()' > /srv/app/assets/index-BdT9ax1Q.js
        echo 'run()' > /srv/app/assets/plain.js
        python3 -c 'import socket
        server = socket.create_server(("127.0.0.1", 3000))
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\napi "
        for conn, _ in iter(server.accept, None): conn.sendall(head + conn.recv(65536).split()[1]), conn.close()' &
        until curl -so "$M/output" http://127.0.0.1:3000/; do sleep 0.05; done
        @file app.toml [[site]]\nnames = ["app.example.org"]
        site "$(cat app.toml)"
        for path in / /inbox /inbox/7; do has '/assets/index-' curl -s https://app.example.org$path; done
        has 'cache-control: no-cache' curl -si https://app.example.org/inbox
        has immutable curl -si https://app.example.org/assets/index-BdT9ax1Q.js
        ! curl -si https://app.example.org/assets/plain.js | grep -i cache-control
        has 'HTTP/2 404' curl -si https://app.example.org/assets/old.js
        has 'api /api/mails?unread' curl -s 'https://app.example.org/api/mails?unread'
    "#;

    the_recipe_of_wordpress_closes_the_uploads("recipes.md", true) = r#"
        cd /srv; mkdir -p wordpress/wp-admin wordpress/wp-content/uploads/2026 wordpress/wp-content/themes/ant
        chmod 755 /srv
        tells='<?php echo posix_getpwuid(posix_geteuid())["name"], " ", $_SERVER["SCRIPT_NAME"], " ", $_SERVER["REQUEST_URI"];'
        for file in index wp-login xmlrpc wp-admin/index wp-content/uploads/evil wp-content/uploads/2026/EVIL; do
            echo "$tells" > wordpress/$file.php
        done
        echo '<?php $password = "secret";' > wordpress/wp-config.php
        echo ant > wordpress/wp-content/uploads/2026/ant.jpg
        mv wordpress/wp-content/uploads/2026/EVIL.php wordpress/wp-content/uploads/2026/EVIL.PHP
        echo 'a {}' > wordpress/wp-content/themes/ant/style.css
        cp wordpress/wp-content/uploads/evil.php wordpress/wp-content/uploads/.hidden.php
        rm -f /etc/php/8.2/fpm/pool.d/*
        printf '#!/bin/sh\n[ "$*" = "reload php8.2-fpm" ] || exit 1\nphp-fpm8.2 --nodaemonize > "$M/fpm.log" 2>&1 &\n' > "$M/bin/systemctl"
        chmod 755 "$M/bin/systemctl"
        @run name=wordpress
        until [ -S /run/php/wordpress.sock ]; do sleep 0.05; done
        @run chmod 640
        cd /etc/anthill
        @file wordpress.toml [[site]]\nnames = ["blog.example.org"]
        site "$(printf 'user = "anthill"\n'; cat wordpress.toml)"
        has 'wordpress /index.php /2026/11/ants/?page=2' curl -s 'https://blog.example.org/2026/11/ants/?page=2'
        has 'wordpress /index.php /' curl -s https://blog.example.org/
        has 'wordpress /wp-login.php' curl -s https://blog.example.org/wp-login.php
        has 'wordpress /wp-admin/index.php' curl -s https://blog.example.org/wp-admin/
        has 'a {}' curl -s https://blog.example.org/wp-content/themes/ant/style.css
        has ant curl -s https://blog.example.org/wp-content/uploads/2026/ant.jpg
        for path in uploads/evil.php uploads/2026/EVIL.PHP uploads/evil.php/x.jpg uploads/2026/../evil.php uploads/.hidden.php; do
            curl -s --path-as-is -o answer -w '%{http_code}\n' "https://blog.example.org/wp-content/$path" > code
            grep -qx -e 403 -e 404 code || { cat code answer; false; }
            ! grep -e '<?php' -e wordpress answer
        done
        for attempt in 1 2 3 4 5 6 7 8 9 10 11 12; do curl -so answer -w '%{http_code}\n' https://blog.example.org/wp-login.php; done > codes
        grep -qx 200 codes && grep -qx 429 codes
        for path in xmlrpc.php wp-config.php; do has 'HTTP/2 403' curl -si https://blog.example.org/$path; done
        until grep -q 'evil.php .*R510' "$M/access.log"; do sleep 0.05; done

        # The page cache of the recipe: users, comments and carts get pages of their own, all others share one.
        echo '<?php header("Vary: Cookie"); echo hrtime(true), " ", implode(",", array_keys($_COOKIE));' > /srv/wordpress/now.php
        @file cached.toml [[site.route]]\npath    = "/"                                    # with the page cache
        python3 -c 'text, cached = (open(name).read() for name in ("wordpress.toml", "cached.toml"))
        tables = text.split("\n\n"); tables[1] = cached.strip(); open("all.toml", "w").write("\n\n".join(tables))'
        printf '[server]\nhttps = [":443"]\nhttp = [":80"]\nworkers = 1\nuser = "anthill"\n%s\n' "$(cat all.toml)" > anthill.toml
        anthill reload
        now() { curl -s -H "Cookie: $1" https://blog.example.org/now.php; }
        shared=$(now _ga=1)
        [ -n "$shared" ] && ! echo "$shared" | grep _ga
        for cookie in '' '_ga=2; wp_lang=de' wp-settings-time-1=7; do [ "$(now "$cookie")" = "$shared" ]; done
        for name in wordpress_logged_in_7a wordpress_sec_7a wp-postpass_7a comment_author_email_7a \
            woocommerce_items_in_cart woocommerce_cart_hash wp_woocommerce_session_7a
        do
            own=$(now "_ga=1; $name=1")
            echo "$own" | grep "_ga,$name"; [ "$(now "_ga=1; $name=1")" != "$own" ]
        done
        [ "$(now _ga=3)" = "$shared" ]
        anthill purge blog.example.org '/*'
        [ "$(now _ga=1)" != "$shared" ]
    "#;

    the_recipe_of_dokuwiki_closes_its_folders("recipes.md", true) = r#"
        cd /srv; chmod 755 /srv
        mkdir -p dokuwiki/lib/exe dokuwiki/lib/tpl dokuwiki/data/media dokuwiki/conf dokuwiki/bin dokuwiki/inc dokuwiki/vendor
        tells='<?php ksort($_GET); echo posix_getpwuid(posix_geteuid())["name"], " ", $_SERVER["SCRIPT_NAME"], " ", http_build_query($_GET);'
        for file in doku install lib/exe/fetch lib/exe/detail data/media/evil bin/dwpage inc/init vendor/autoload; do
            echo "$tells" > dokuwiki/$file.php
        done
        echo 'users' > dokuwiki/conf/users.auth.php
        echo 'a {}' > dokuwiki/lib/tpl/style.css
        @file settings.php $conf['userewrite']
        { echo '<?php'; cat settings.php; } > dokuwiki/conf/local.php
        rm -f /etc/php/8.2/fpm/pool.d/*
        printf '#!/bin/sh\nphp-fpm8.2 --nodaemonize > "$M/fpm.log" 2>&1 &\n' > "$M/bin/systemctl"
        chmod 755 "$M/bin/systemctl"
        cat > account.sh <<'END OF SCRIPT'
        @run name=wordpress
        END OF SCRIPT
        sed -i 's/^name=wordpress/name=dokuwiki/' account.sh
        . ./account.sh
        until [ -S /run/php/dokuwiki.sock ]; do sleep 0.05; done
        cd /etc/anthill
        @file dokuwiki.toml [[site]]\nnames = ["wiki.example.org"]
        site "$(printf 'user = "anthill"\n'; cat dokuwiki.toml)"
        wiki=https://wiki.example.org
        has 'dokuwiki /doku.php ' curl -s $wiki/
        has 'dokuwiki /doku.php do=edit&id=ants%2Fnest' curl -s "$wiki/ants/nest?do=edit"
        has 'dokuwiki /lib/exe/fetch.php media=ants%2Fqueen.jpg&w=200' curl -s "$wiki/_media/ants/queen.jpg?w=200"
        has 'dokuwiki /lib/exe/detail.php media=ants%2Fqueen.jpg' curl -s $wiki/_detail/ants/queen.jpg
        has 'dokuwiki /doku.php do=export_xhtml&id=ants%2Fnest' curl -s $wiki/_export/xhtml/ants/nest
        has 'a {}' curl -s $wiki/lib/tpl/style.css
        has 'dokuwiki /lib/exe/fetch.php' curl -s $wiki/lib/exe/fetch.php
        for path in data/media/evil.php conf/users.auth.php conf/local.php bin/dwpage.php inc/init.php vendor/autoload.php install.php; do
            has 'HTTP/2 403' curl -si $wiki/$path
        done
    "#;

    the_recipe_of_nextcloud_closes_what_the_manual_closes("recipes.md", true) = r#"
        cd /srv; chmod 755 /srv
        mkdir -p nextcloud/core/css nextcloud/data nextcloud/config nextcloud/lib nextcloud/3rdparty nextcloud/templates nextcloud/apps
        tells='<?php echo $_SERVER["SCRIPT_NAME"], " ", $_SERVER["PATH_INFO"] ?? "", " ", $_SERVER["front_controller_active"];'
        for file in index remote status config/config lib/base console autotest indie_x; do echo "$tells" > nextcloud/$file.php; done
        echo '<schema/>' > nextcloud/db_structure.xml
        for file in data/nextcloud.log templates/a.css 3rdparty/a.js occ issue_template.md; do echo secret > nextcloud/$file; done
        echo 'a {}' > nextcloud/core/css/a.css
        rm -f /etc/php/8.2/fpm/pool.d/*
        printf '[nextcloud]\nuser = anthill\nlisten = /run/php/nextcloud.sock\nlisten.mode = 0666\npm = static\npm.max_children = 1\n' \
            > /etc/php/8.2/fpm/pool.d/nextcloud.conf
        php-fpm8.2 --nodaemonize > "$M/fpm.log" 2>&1 &
        until [ -S /run/php/nextcloud.sock ]; do kill -0 $! || { cat "$M/fpm.log"; false; }; sleep 0.05; done
        cd /etc/anthill
        @file nextcloud.toml [[site]]\nnames = ["cloud.example.org"]
        site "$(printf 'user = "anthill"\n'; cat nextcloud.toml)"
        cloud=https://cloud.example.org
        for path in db_structure.xml autotest.php autotest.php/a indie_x.php issue_template.md occ console.php lib/base.php \
            config/config.php data/nextcloud.log data templates/a.css 3rdparty/a.js %64b_structure.xml //occ; do
            curl -s --path-as-is -o answer -w '%{http_code}\n' "$cloud/$path" > code
            grep -qx 404 code || { echo $path; cat code answer; false; }
            ! grep -e secret -e schema -e index.php answer
        done
        has '/index.php /apps/files/ true' curl -s $cloud/apps/files/
        has '/index.php /.well-known/webfinger true' curl -s $cloud/.well-known/webfinger
        has '/remote.php /dav/files/ant/a true' curl -s -X PROPFIND $cloud/remote.php/dav/files/ant/a
        has 'location: /remote.php/dav/' curl -si $cloud/.well-known/caldav
        has 'location: /remote.php/webdav/a' curl -si $cloud/remote/webdav/a
        curl -si $cloud/core/css/a.css > style
        has 'cache-control: max-age=15724800' cat style
        has 'x-robots-tag: noindex, nofollow' cat style
    "#;

    names_and_addresses_at_home_answer_as_the_page_says("names-at-home.md", true) = r#"
        cd /etc/anthill; mkdir -p /srv/www; chmod 755 /srv; echo hello > /srv/www/index.html
        for address in 192.168.0.7 192.0.2.9; do ip address add $address/32 dev lo; done
        @file anthill.toml [server]\nhttps = [":443"]\nhttp  = [":80"]\nuser  = "anthill"\n\n[tls]
        at_home() { curl -si --resolve raspberrypi.local:443:192.168.0.7 --interface 192.168.0.7 "$@"; }
        anthill serve
        server=$!
        for url in https://192.168.0.7/ https://raspberrypi.local/ https://www.example.org/; do has hello at_home $url; done
        has hello curl -s --interface 192.0.2.9 https://www.example.org/
        has 'HTTP/2 403' curl -si --interface 192.0.2.9 https://192.168.0.7/
        kill $server; wait $server || true
        site "$(printf '[[site]]\nnames = ["www.example.org"]\nroot = "/srv/www"\n')"
        server=$!
        has 'HTTP/2 421' at_home https://192.168.0.7/
        ! at_home https://raspberrypi.local/
        has '404 Not Found' at_home http://192.168.0.7/
        kill $server; wait $server || true
        site "$(printf '[[site]]\nnames = ["www.example.org", "raspberrypi.local"]\nroot = "/srv/www"\n')"
        has 'location: https://www.example.org/' at_home https://raspberrypi.local/
    "#;

    the_recipe_of_git_runs_as_printed("recipes.md", true) = r#"
        cd /etc/anthill; mkdir -p /srv/git /srv/www
        @file git.toml [[site]]\nnames = ["git.example.org"]
        echo secret > password
        echo '[server]' > anthill.toml; echo 'user = "anthill"' >> anthill.toml
        {
        @run git init --bare
        } < password
        site "$(printf 'user = "anthill"\n'; cat git.toml)"
        has hammer curl -s https://git.example.org/git/
        cd
        {
        @run git clone https
        } 2> "$M/clone.log"
        cd hammer
        echo 1 > a; git add a; git commit -qm 'A first commit'
        ! git push -q origin main 2> "$M/push.log"
        echo 'machine git.example.org login alice password secret' > ~/.netrc
        git push -q origin main
        has 'A first commit' curl -s https://git.example.org/git/hammer/
    "#;

    the_recipe_of_a_private_area_runs_as_printed("recipes.md", true) = r#"
        cd /etc/anthill; mkdir -p /srv/www/intranet /srv/www/family /srv/files
        for folder in www www/intranet www/family; do echo "$folder" > /srv/$folder/index.html; done
        echo photo > /srv/files/ant.jpg
        ip address add 192.168.0.7/32 dev lo
        echo secret > password
        echo '[server]' > anthill.toml; echo 'user = "anthill"' >> anthill.toml
        {
        @run anthill passwd family.htpasswd
        } < password
        @file private.toml [[site]]\nnames = ["www.example.org"]\nroot  = "/srv/www"\n\n[[site.route]]\npath  = "/intranet/"
        site "$(printf 'user = "anthill"\n'; cat private.toml)"
        has www curl -s https://www.example.org/
        has 'HTTP/2 403' curl -si https://www.example.org/intranet/
        has www/intranet curl -s --connect-to ::192.168.0.7: --interface 192.168.0.7 https://www.example.org/intranet/
        has 'HTTP/2 401' curl -si https://www.example.org/family/
        has 'HTTP/2 401' curl -si -u alice:wrong https://www.example.org/family/
        has www/family curl -s -u alice:secret https://www.example.org/family/
        has 'HTTP/2 401' curl -si https://files.example.org/
        has ant.jpg curl -s -u alice:secret https://files.example.org/
    "#;

    the_recipe_behind_cloudflare_runs_as_printed("recipes.md", true) = r#"
        cd /etc/anthill; mkdir -p /srv/www; echo hello > /srv/www/index.html
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=example.org \
            -addext 'subjectAltName=DNS:example.org,DNS:www.example.org' -keyout key.pem -out cert.pem 2> openssl.log
        cat cert.pem key.pem > origin.pem; chmod 600 origin.pem
        @run chgrp anthill
        # An address of Cloudflare and one of a stranger.
        for address in 173.245.48.7 192.0.2.9; do ip address add $address/32 dev lo; done
        @file anthill.toml [server]\nhttps = [":443"]\nhttp  = [":80"]\nuser  = "anthill"\ntrust = [
        anthill check
        anthill serve
        asks() {
            from=$1; shift
            curl -s -o answer -w '%{http_code}\n' --connect-to "::$from:" --interface "$from" "$@" > code
        }
        asks 173.245.48.7 -H 'X-Forwarded-For: 203.0.113.5' -H 'X-Forwarded-Proto: https' https://www.example.org/a
        asks 192.0.2.9 -H 'X-Forwarded-For: 203.0.113.6' -H 'X-Forwarded-Proto: https' https://www.example.org/b
        # With the mode "Flexible", Cloudflare connects by plain HTTP: no redirect for ever.
        asks 173.245.48.7 -H 'X-Forwarded-For: 203.0.113.5' -H 'X-Forwarded-Proto: https' http://www.example.org/
        grep -qx 200 code
        until grep -q 'GET /a ' "$M/access.log" && grep -q 'GET /b ' "$M/access.log"; do sleep 0.05; done
        grep '^203\.0\.113\.5 .*GET /a ' "$M/access.log"
        grep '^192\.0\.2\.9 .*GET /b ' "$M/access.log"
    "#;

    the_recipe_behind_a_router_runs_as_printed("recipes.md", false) = r#"
        mkdir -p /srv/www; echo hello > /srv/www/index.html
        @file anthill.toml [server]\nhttps       = [":8443"]
        anthill serve
        has 'Location: https://home.example.org/a' curl -si http://home.example.org:8080/a
        ! grep ':8443' "$M/output"
        has hello curl -s --connect-to home.example.org:443:127.0.0.1:8443 https://home.example.org/
    "#;

    the_recipe_of_a_second_machine_runs_as_printed("recipes.md", false) = r#"
        mkdir -p /srv/www /srv/shop first second third
        echo '<h1>the shop</h1>' > /srv/shop/index.html
        for address in 10.0.0.1 10.0.0.2 10.0.0.3 192.0.2.9; do ip address add $address/32 dev lo; done
        # Three machines: connections to 10.0.0.2 and 10.0.0.3 come from 10.0.0.1.
        for machine in 10.0.0.2 10.0.0.3; do ip route replace local $machine dev lo src 10.0.0.1 table local; done
        @file second/anthill.toml [server]\nhttp        = ["10.0.0.2:8080"]
        sed 's/10.0.0.2/10.0.0.3/' second/anthill.toml > third/anthill.toml
        for machine in second third; do
            command anthill serve $machine > $machine.log 2> $machine.err < /dev/null &
            until grep -q '^ready' $machine.err; do kill -0 $! || { cat $machine.err; false; }; sleep 0.05; done
        done
        third=$!
        @file first/proxy.toml [[site]]\nnames = ["shop.example.org"]\nroot  = "/srv/www"\n\n[[site.route]]\npath  = "/"\nproxy
        @file first/balancer.toml [[site]]\nnames = ["shop.example.org"]\nroot  = "/srv/www"\n\n[[site.route]]\npath    = "/"\nbalance
        cd first
        site "$(cat proxy.toml)"
        first=$!
        has 'the shop' curl -s --interface 192.0.2.9 --connect-to ::192.0.2.9: https://shop.example.org/
        until grep '^192\.0\.2\.9 ' ../second.log; do sleep 0.05; done
        has 'Location: https://shop.example.org/' curl -si http://shop.example.org/
        kill $first; wait $first || true
        site "$(cat balancer.toml)"
        # The first checks pass.
        until anthill balancer --json > checks && [ "$(grep -o '"passed":true' checks | wc -l)" = 2 ]; do sleep 0.05; done
        ! grep doubted "$M/error.log"
        has 'no problems found' anthill status
        for i in 1 2 3 4; do has 'the shop' curl -s https://shop.example.org/; done
        kill $third; wait $third || true
        for i in 1 2 3 4; do has 'the shop' curl -s https://shop.example.org/; done
    "#;

    the_recipe_of_a_maintenance_runs_as_printed("recipes.md", false) = r#"
        mkdir -p /srv/shop
        echo '<h1>the shop</h1>' > /srv/shop/index.html
        echo '<h1>back at six</h1>' > /srv/shop/maintenance.html
        @file maintenance.toml [[site]]\nnames   = ["shop.example.org"]
        site "$(cat maintenance.toml)"
        for path in / /index.html /cart; do
            curl -si https://shop.example.org$path > answer
            grep -q 'HTTP/2 503' answer && test "$(grep -ci '^retry-after: 3600' answer)" = 1 && grep -q 'back at six' answer
        done
    "#;
}
