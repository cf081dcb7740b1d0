//! Scenarios of the recipes for applications. [`crate::guide_examples`] describes their environment.
//!
//! The applications are the real programs: Django, gunicorn and Synapse from PyPI (`setup_recipes` in tools/setup.sh), and
//! Node with `ws` from Debian. Each scenario does what a user does first: a login, an upload, a stream, a WebSocket.

use crate::guide_examples::scenarios;

scenarios! {
    a_user_of_django_logs_in_uploads_and_reads_a_stream("recipes-applications.md", true) = r#"
        mkdir -p /srv/django/media /srv/django/static; chmod 755 /srv
        cd /srv/django
        ln -s "$RECIPES" venv
        venv/bin/django-admin startproject mysite .
        cp "$SUPPORT/django_urls.py" mysite/urls.py
        @file settings.py ALLOWED_HOSTS
        sed -i 's/^DEBUG = True/DEBUG = False/' mysite/settings.py
        cat settings.py >> mysite/settings.py
        {
        @run cd /srv/django
        } > "$M/django.log" 2>&1 &
        django=$!
        until curl -so "$M/output" http://127.0.0.1:8000/; do kill -0 $django || { cat "$M/django.log"; false; }; sleep 0.1; done
        DJANGO_SUPERUSER_PASSWORD=seven-ants venv/bin/python manage.py createsuperuser --noinput --username alice --email a@example.org
        mkdir ~/site; cd ~/site
        @file django.toml [[site]]\nnames = ["app.example.org"]\ncache = "hashed"                                 # names of Manifest
        site "$(printf 'user = "anthill"\n'; cat django.toml)"
        app=https://app.example.org
        has "$app/about/ 127.0.0.1" curl -s -H 'X-Forwarded-Proto: http' -H 'X-Forwarded-For: 192.0.2.7' $app/about/
        # The login, with the cookie and the token of a form.
        asks() { curl -s -b jar -c jar -H "Origin: $app" -e $app/admin/login/ "$@"; }
        token() { sed -n 's/.*csrfmiddlewaretoken" value="\([^"]*\)".*/\1/p' "$1"; }
        asks $app/admin/login/ > login
        has 'HTTP/2 403' curl -si -d 'username=alice&password=seven-ants' $app/admin/login/
        has 'HTTP/2 302' asks -i -d "csrfmiddlewaretoken=$(token login)&username=alice&password=seven-ants" "$app/admin/login/?next=/admin/"
        has 'Site administration' asks $app/admin/
        # The cookie is for HTTPS alone.
        grep -P '^#HttpOnly_app.example.org\tFALSE\t/\tTRUE\t.*\tsessionid\t' jar
        # The style has a hash in its name.
        style=$(grep -o '/static/admin/css/base\.[0-9a-f]*\.css' login)
        has 'cache-control: max-age=31536000, immutable' curl -si $app$style
        ! curl -si $app/static/admin/css/base.css | grep -i cache-control
        # An upload, which anthill sends back.
        head -c 3000000 /dev/urandom > photo.jpg
        asks $app/upload/ > form
        has 'location: /media/photo.jpg' asks -i -F "csrfmiddlewaretoken=$(token form)" -F file=@photo.jpg $app/upload/
        curl -s $app/media/photo.jpg | cmp - photo.jpg
        # The first part of a stream arrives before the second is made.
        curl -sN $app/stream/ > stream &
        stream=$!
        until grep -q first stream; do kill -0 $stream; sleep 0.05; done
        ! grep second stream
        touch /srv/django/go-on
        wait $stream
        grep second stream
        kill $django
    "#;

    an_application_of_node_has_sockets_and_events("recipes-applications.md", false) = r#"
        mkdir -p /srv/app/assets
        echo 'run()' > /srv/app/assets/index-BdT9ax1Q.js
        NODE_PATH=/usr/share/nodejs node "$SUPPORT/node_application.js" > "$M/node.log" 2>&1 &
        node=$!
        until curl -so "$M/output" http://127.0.0.1:3000/; do kill -0 $node || { cat "$M/node.log"; false; }; sleep 0.1; done
        @file node.toml [[site]]\nnames = ["app.example.org"]\ncache = "hashed"                                 # names such as
        site "$(cat node.toml)"
        app=https://app.example.org
        has immutable curl -si $app/assets/index-BdT9ax1Q.js
        has 'HTTP/2 404' curl -si $app/assets/other.js
        has ok "$CLIENTS/bin/python" "$SUPPORT/websocket_client.py" wss://app.example.org/socket
        # Each event arrives while the stream goes on.
        curl -sN $app/events > events &
        until grep -q hello events; do kill -0 $!; sleep 0.05; done
        head -c 3000000 /dev/zero > upload
        has "3000000 bytes for $app/upload from 127.0.0.1" curl -s --data-binary @upload -H 'X-Forwarded-For: 192.0.2.7' $app/upload
        until grep -q 'data: /upload' events; do kill -0 $!; sleep 0.05; done
    "#;

    a_user_of_matrix_writes_into_a_room_with_a_slash("recipes-applications.md", true) = r#"
        ip address add 192.0.2.9/32 dev lo
        mkdir -p /srv/matrix /srv/www/.well-known/matrix; chmod 755 /srv
        @file /srv/www/.well-known/matrix/server { "m.server"
        @file /srv/www/.well-known/matrix/client { "m.homeserver"
        cd /srv/matrix
        "$RECIPES/bin/python" -m synapse.app.homeserver --server-name example.org --config-path homeserver.yaml \
            --data-directory /srv/matrix --generate-config --report-stats=no > "$M/matrix.log" 2>&1
        @file recipe.yaml public_baseurl
        "$RECIPES/bin/python" -m synapse.app.homeserver -c homeserver.yaml -c recipe.yaml >> "$M/matrix.log" 2>&1 &
        matrix=$!
        until curl -so "$M/output" http://127.0.0.1:8008/; do kill -0 $matrix || { tail -n 20 "$M/matrix.log"; false; }; sleep 0.1; done
        "$RECIPES/bin/register_new_matrix_user" -u ant -p seven-ants --no-admin -c homeserver.yaml http://127.0.0.1:8008
        mkdir ~/site; cd ~/site
        @file matrix.toml [[site]]\nnames = ["matrix.example.org"]
        site "$(cat matrix.toml)"
        # Where a client and another server look for the server of example.org.
        curl -si https://example.org/.well-known/matrix/client > known
        has 'content-type: application/json' cat known
        has 'access-control-allow-origin: *' cat known
        has 'https://matrix.example.org' cat known
        has 'matrix.example.org:443' curl -s https://example.org/.well-known/matrix/server
        client=https://matrix.example.org/_matrix/client/v3
        value() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
        asks() { curl -sS --interface 192.0.2.9 --connect-to ::192.0.2.9: -H "Authorization: Bearer $token" "$@"; }
        token=none
        user='"identifier": { "type": "m.id.user", "user": "ant" }'
        token=$(asks -d "{ \"type\": \"m.login.password\", $user, \"password\": \"seven-ants\" }" $client/login | value access_token)
        # The alias of the room has a slash, which the path of a request contains as %2F.
        room=$(asks -d '{ "room_alias_name": "ants/nest" }' $client/createRoom | value room_id)
        [ "$(asks $client/directory/room/%23ants%2Fnest%3Aexample.org | value room_id)" = "$room" ]
        # A request that waits for news.
        since=$(asks "$client/sync" | value next_batch)
        asks "$client/sync?timeout=30000&since=$since" > news &
        news=$!
        asks -X PUT -d '{ "msgtype": "m.text", "body": "a crumb" }' "$client/rooms/$room/send/m.room.message/1" > sent
        wait $news
        has 'a crumb' cat news
        head -c 3000000 /dev/zero > upload
        has mxc://example.org/ asks -H 'Content-Type: image/png' --data-binary @upload https://matrix.example.org/_matrix/media/v3/upload
        has '"last_seen_ip":"192.0.2.9"' asks $client/devices
        has 'HTTP/2 404' curl -si https://matrix.example.org/_synapse/admin/v1/server_version
        kill $matrix
    "#;
}
