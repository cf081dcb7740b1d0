#!/bin/sh
# Prints the map of the code: for each room (a folder of modules) its files, each with the first sentence of its `//!`.
#
#     tools/map.sh                    all packages
#     tools/map.sh anthill-publish    one package, by its name or by its folder
#     tools/map.sh upstream           one room; upstream/member is a part of the room
#
# ARCHITECTURE.md says what each room is for and what a room may import. Files with tests alone are left out, except in
# the folders of the end-to-end tests and of the fuzz targets.
set -eu
cd "$(dirname "$0")/.."

# The sources, as lines "PACKAGE FOLDER FILE".
sources() {
    for manifest in */Cargo.toml */*/Cargo.toml; do
        top=${manifest%/Cargo.toml}
        case $top in
            target/* | '*'*) continue ;;
        esac
        name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
        folder=$top/src
        [ -d "$folder" ] || folder=$top/fuzz_targets
        find "$folder" -name '*.rs' ! -name tests.rs ! -name '*_tests.rs' ! -path '*/tests/*' |
            sed "s|^|$name $folder |"
    done
    find tests -name '*.rs' | sed 's|^|tests tests |'
}

sources | awk -v wanted="${1-}" '
    # Reads the first sentence of the `//!` of a file.
    function sentence(file,    line, text) {
        while ((getline line < file) > 0) {
            if (line ~ /^\/\/! ?./) {
                sub(/^\/\/! ?/, "", line)
                text = text == "" ? line : text " " line
            } else if (text != "" || (line != "" && line !~ /^(\/\/|#!\[)/)) {
                break
            }
        }
        close(file)
        if (match(text, /[.] [A-Z`\[]/)) {
            text = substr(text, 1, RSTART)
        }
        gsub(/\[`/, "`", text)
        gsub(/`\](\([^)]*\))?/, "`", text)
        return text == "" ? "(no sentence)" : text
    }
    {
        package = $1; top = $2; file = $3
        inside = substr(file, length(top) + 2)
        room = inside; name = inside
        if (index(inside, "/") > 0) {
            sub(/\/.*/, "", room)
            sub(/^[^\/]*\//, "", name)
        } else {
            room = ""
        }
        whole = room == "" ? top : top "/" room
        folder = top; sub(/\/[^\/]*$/, "", folder)
        crate = folder; sub(/^crates\//, "", crate)
        part = room "/" name; sub(/\.rs$/, "", part)
        is_wanted = wanted == "" || wanted == package || wanted == folder || wanted == crate || wanted == room || wanted == whole ||
            index(part "/", wanted "/") == 1
        if (!is_wanted) {
            next
        }
        # mod.rs and lib.rs sort before the files beside them, and files before folders with the same beginning.
        key = name; sub(/(mod|lib)\.rs$/, "!", key); sub(/\.rs$/, "", key)
        print whole "\t" key "\t" name "\t" sentence(file)
    }' | LC_ALL=C sort -t "$(printf '\t')" -k 1,1 -k 2,2 | awk -F '\t' -v wanted="${1-}" '
    $1 != room {
        print (NR == 1 ? "" : "\n") $1
        room = $1
    }
    {
        printf "  %-36s %s\n", $3, $4
        count++
    }
    END {
        if (count == 0) {
            print "map: no package and no room `" wanted "`; tools/map.sh | grep \"^[a-z]\" lists the rooms" > "/dev/stderr"
            exit 1
        }
    }'
