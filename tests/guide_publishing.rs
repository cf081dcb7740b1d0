//! Scenarios of the guide's pages about publications. [`crate::guide_examples`] describes their environment.
//!
//! A program `ssh` stands in for the hosts. Like a key with a forced command, the program runs `anthill receive`
//! with a store for each host, and ignores the command of the publisher.

use crate::guide_examples::scenarios;

scenarios! {
    a_folder_is_published_to_hosts_as_printed("publishing.md", true) = r#"
        rm /usr/local/bin/anthill
        cp "$M/bin/anthill" "$PUBLISHER" /usr/local/bin/
        PATH=/usr/local/bin:$PATH
        cat > "$M/bin/ssh" <<'END OF SCRIPT'
        #!/bin/sh
        case $* in
        *pi@zero*) exec anthill receive www --store /var/lib/anthill/releases --rights publish;;
        *pi@one*) exec anthill receive www --store /srv/one --rights publish;;
        *deploy@vps*) exec anthill receive blog --store /srv/vps --rights publish;;
        esac
        exit 255
        END OF SCRIPT
        chmod 755 "$M/bin/ssh"
        # The host pi@zero has a server; the hosts pi@one and deploy@vps have a store alone.
        mkdir public; echo '<h1>one</h1>' > public/index.html
        site "$(printf '[[site]]\nnames = ["www.example.org"]\nrelease = "www"\n')"
        anthill publish public pi@zero > first
        echo '<h1>two</h1>' > public/index.html; echo 'a {}' > public/a.css
        {
        @run anthill publish public pi@zero\n
        } > actual 2>&1
        @file expected pi@zero: release
        shape() { sed -E 's/[0-9a-f]{12}/ID/; s/[0-9.]+ (KB|MB|B|s|ms)/SIZE/g; s/[0-9]+/N/g' "$1" > "$1.shape"; }
        shape actual; shape expected
        diff expected.shape actual.shape
        has '<h1>two</h1>' curl -s https://www.example.org/

        echo '<h1>three</h1>' > public/index.html
        {
        @run anthill publish public pi@zero pi@one
        } > actual 2>&1
        for host in pi@zero pi@one deploy@vps; do grep "^$host.*: release [0-9a-f]* of .*: published" actual; done
        has '<h1>three</h1>' curl -s https://www.example.org/
        [ -e /srv/vps/sites/blog/pointer ] && [ -e /srv/one/sites/www/pointer ]

        mkdir /srv/store
        mount -t tmpfs tmpfs /media; mkdir /media/usb
        echo '<h1>four</h1>' > public/index.html
        @run anthill publish public /media
        has '<h1>four</h1>' curl -s https://www.example.org/
        [ -e /srv/store/sites/www/pointer ]

        {
        @run anthill receive www --store
        } > actual
        @file expected restrict,command=
        shows expected actual
        # The forced command is one that runs.
        command=$(sed -n 's/^restrict,command="\(.*\)" KEY$/\1/p' actual)
        printf '#!/bin/sh\nexec %s\n' "$command" > "$M/bin/ssh"
        echo '<h1>five</h1>' > public/index.html
        anthill publish public pi@zero
        has '<h1>five</h1>' curl -s https://www.example.org/
        has ann anthill releases /var/lib/anthill/releases
    "#;

    a_file_names_the_folder_and_the_hosts_as_printed("publishing.md", true) = r#"
        ln -s "$PUBLISHER" "$M/bin/anthill-publish"
        cat > "$M/bin/ssh" <<'END OF SCRIPT'
        #!/bin/sh
        case $* in
        *pi@zero*) exec anthill receive www --store /var/lib/anthill/releases --rights publish;;
        *pi@one*) exec anthill receive www --store /srv/one --rights publish;;
        esac
        exit 255
        END OF SCRIPT
        printf '#!/bin/sh\n[ "$1" = --minify ] && mkdir -p public && cp page public/index.html\n' > "$M/bin/hugo"
        chmod 755 "$M/bin/ssh" "$M/bin/hugo"
        site "$(printf '[[site]]\nnames = ["www.example.org"]\nrelease = "www"\n')"
        mkdir -m 755 blog; cd blog
        @file publish.toml folder = "public"
        echo '<h1>one</h1>' > page
        ! anthill publish < /dev/null 2> "$M/question"
        has '  build   hugo --minify' cat "$M/question"
        [ ! -e public ]
        anthill publish --yes
        has '<h1>one</h1>' curl -s https://www.example.org/
        echo '<h1>two</h1>' > page
        @run anthill publish\n
        has '<h1>two</h1>' curl -s https://www.example.org/
        has 'label next' anthill releases /var/lib/anthill/releases
        [ -e /srv/one/sites/www/labels/next ]
    "#;

    fields_and_redirects_of_a_release_are_written_as_printed("publishing.md", false) = r#"
        ln -s "$PUBLISHER" "$M/bin/anthill-publish"
        mkdir -p public/fonts public/articles
        for page in index new lost articles/ants shop; do echo "<h1>$page</h1>" > public/$page.html; done
        mv public/shop.html public/shop; mv public/new.html public/new; mv public/articles/ants.html public/articles/ants
        echo font > public/fonts/ant.woff2
        @file public/_headers # All files
        @file public/_redirects # from
        site "$(printf 'releases = "/srv/store"\n[[site]]\nnames = ["www.example.org"]\nrelease = "www"\n')"
        anthill publish public /srv/store
        www=https://www.example.org
        until curl -s $www/ | grep -q '<h1>index'; do sleep 0.05; done
        has 'x-frame-options: DENY' curl -si $www/
        has 'access-control-allow-origin: *' curl -si $www/fonts/ant.woff2
        has 'x-frame-options: DENY' curl -si $www/fonts/ant.woff2
        answer $www/shop > answers; answer $www/blog/ants >> answers; answer $www/gone >> answers; answer $www/other >> answers
        cat answers
        grep '^301 https://shop.example/ ' answers
        grep '^302 https://www.example.org/articles/ants ' answers
        grep '^410 ' answers
        grep '^404 ' answers && grep '<h1>lost' answers
        has '<h1>articles/ants' curl -sL $www/blog/ants
        rm public/new; anthill publish public /srv/store
        until [ "$(curl -so content -w '%{http_code} %{redirect_url}' $www/old)" = "301 $www/new" ]; do sleep 0.05; done
    "#;

    a_store_is_shared_and_rolled_back_as_printed("publishing.md", true) = r#"
        ln -s "$PUBLISHER" "$M/bin/anthill-publish"
        groupadd publishers
        @run mkdir /srv/store
        [ "$(stat -c '%G %a' /srv/store)" = 'publishers 2770' ]
        mkdir public; echo '<h1>one</h1>' > public/index.html
        site "$(printf 'releases = "/srv/store"\n[[site]]\nnames = ["www.example.org"]\nrelease = "www"\n')"
        anthill publish public /srv/store
        [ "$(stat -c '%G %a' /srv/store/sites)" = 'publishers 2770' ]
        until curl -s https://www.example.org/ | grep -q '<h1>one'; do sleep 0.05; done
        echo '<h1>two</h1>' > public/index.html
        # The page changes after the second line, and again after the third.
        cat > commands <<'END OF COMMANDS'
        @run anthill publish --preview
        END OF COMMANDS
        sed -n 1p commands > preview; sed -n 2p commands > to-next; sed -n 3p commands > back
        . ./preview
        has '<h1>one' curl -s https://www.example.org/
        . ./to-next
        until curl -s https://www.example.org/ | grep -q '<h1>two'; do sleep 0.05; done
        . ./back
        until curl -s https://www.example.org/ | grep -q '<h1>one'; do sleep 0.05; done
        {
        @run anthill releases /srv/store\n
        } > list
        @file expected SEQUENCE
        # The list has the columns of the example, and a mark at the published release. Without a link to the
        # acknowledgments beside the store, no release is marked as served.
        [ "$(head -n 1 list | tr -s ' ')" = "$(head -n 1 expected | tr -s ' ')" ]
        [ "$(grep -c ' published' list)" = 1 ]
        {
        @run anthill publish --new-key
        } > actual
        [ "$(stat -c %a publisher.pem)" = 600 ]
        openssl pkey -in publisher.pem -noout
        # The key signed no release before this one.
        ! anthill rollback --key publisher.pem /srv/store > "$M/refused" 2>&1
        has 'the key signed no release' cat "$M/refused"
        echo signed > public/index.html
        anthill publish --key publisher.pem public /srv/store
        @run anthill rollback --key
    "#;

    publishers_see_the_served_release_as_printed("releases.md", true) = r#"
        ln -s "$PUBLISHER" "$M/bin/anthill-publish"
        groupadd publishers
        mkdir -p ~/.local/state/anthill
        @run chgrp publishers ~
        [ "$(stat -c '%G %a' ~/.local/state/anthill)" = 'publishers 710' ]
        mkdir public; echo '<h1>one</h1>' > public/index.html
        site "$(printf 'releases = "/srv/store"\n[[site]]\nnames = ["www.example.org"]\nrelease = "www"\npreview = "*.preview.example.org"\n')"
        @run ln -s /var/lib
        has 'served by all workers' anthill publish public /srv/store
        @file expected anthill served 1
        shape() { sed -E 's/[0-9a-f]{64}/ID/; s/sequence [0-9]+/sequence N/' "$1"; }
        shape expected > expected.shape
        shape /var/lib/anthill/served/www > actual.shape
        diff expected.shape actual.shape
    "#;

    a_push_publishes_a_release_as_printed("deployment.md", false) = r#"
        git init -q --bare /srv/git/tools/site.git
        mkdir public
        echo 'machine git.example.org login alice password secret' > .netrc
        echo secret | anthill passwd users.htpasswd alice
        @file deploy.toml [[site]]
        sed -i 's|^root  = "/srv/site/www"|release = "www"|' deploy.toml
        site "$(cat deploy.toml)"
        git clone -q https://git.example.org/tools/site.git 2> "$M/clone.log"
        cd site
        echo '<h1>The old page</h1>' > index.html; echo 'a {}' > a.css
        git add .; git commit -qm old; git push -q origin main
        echo '<h1>The new page</h1>' > index.html; git commit -qam new
        git push -q 2> "$M/output"
        # git ends a line of the host with spaces or a terminal's code.
        sed -nE 's/(\x1b\[K| )*$//; /^remote:/p' "$M/output" > "$M/actual"
        @file "$M/expected" $ git push\nremote: deployed 8fb1e94 to https://www.example.org/\nremote: release
        sed -i '/^\$/d' "$M/expected"
        shape() { sed -E 's/deployed [0-9a-f]{7}/deployed ID/; s/[0-9a-f]{12}/ID/; s/[0-9.]+ s$/SECONDS/; s/[0-9]+/N/g' "$1" > "$1.shape"; }
        shape "$M/actual"; shape "$M/expected"
        diff "$M/expected.shape" "$M/actual.shape"
        has 'The new page' curl -s https://www.example.org/
    "#;
}
