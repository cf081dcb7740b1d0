#!/bin/sh
# Replaces the pages of all members, one member at a time: sync.sh PAGES [ANTHILL], in the folder of start.sh.
# PAGES is a folder with the new pages. Each member is drained first, so that no request fails. After a failure,
# the member at hand keeps or gets whole pages, and is enabled again.
set -eu

pages=${1-}
anthill=${2:-anthill}
fail() {
    echo "sync.sh: $1" >&2
    exit 1
}
[ -n "$pages" ] || fail 'name a folder with the new pages: sync.sh PAGES [ANTHILL]'
[ -d "$pages" ] || fail "$pages is not a folder with pages"
[ -f balancer.toml ] && [ -d node1 ] || fail 'run the script in the folder of start.sh, with balancer.toml'

# Puts the old pages of the drained member back if the new pages did not get into place, and enables the member.
drained=
finish() {
    [ -n "$drained" ] || return 0
    [ -d "$node/public" ] || mv "$node/public.old" "$node/public"
    "$anthill" balancer enable rpicluster "$drained" balancer.toml
    drained=
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

for n in 1 2 3 4; do
    node=node$n
    # A run that was broken off may have left a part of a copy.
    rm -rf "$node/public.new"
    mkdir "$node/public.new"
    cp -R "$pages/." "$node/public.new/"

    drained=127.0.0.1$n:8080
    "$anthill" balancer drain rpicluster "$drained" balancer.toml --wait
    if [ -d "$node/public" ]; then
        rm -rf "$node/public.old"
        mv "$node/public" "$node/public.old"
    fi
    mv "$node/public.new" "$node/public"
    finish
    echo "127.0.0.1$n:8080 has the new pages"
done
