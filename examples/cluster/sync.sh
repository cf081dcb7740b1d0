#!/bin/sh
# Replaces the pages of all members, one member at a time: sync.sh PAGES [ANTHILL], in the folder of start.sh.
# Each member is drained first, so that no request fails.
set -eu

pages=$1
anthill=${2:-anthill}
for n in 1 2 3 4; do
    member=127.0.0.1$n:8080
    "$anthill" balancer drain rpicluster "$member" balancer.toml --wait
    rm -rf "node$n/public.old"
    cp -R "$pages" "node$n/public.new"
    mv "node$n/public" "node$n/public.old"
    mv "node$n/public.new" "node$n/public"
    "$anthill" balancer enable rpicluster "$member" balancer.toml
    echo "$member has the new pages"
done
