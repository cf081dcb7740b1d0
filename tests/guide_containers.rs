//! The image of examples/container, and the page docs/src/containers.md.
//!
//! The test needs no builder of images: the folder of the image is made by the lines `COPY` of the Containerfile, and the
//! program runs there as its last lines say, as a user without a name and without privileges, on a read-only root.

use std::fmt::Write;

use crate::guide_examples::{run_in_machine, scenarios};
use crate::lifecycle::is_root;
use crate::papers::paper;

const EXAMPLE: &str = "examples/container/Containerfile";

/// Shell code that runs the image as `image COMMAND…`, with the words of `CMD` for no command.
const RUN: &str = r#"
mkdir -p image/proc image/dev image/site
for library in $(ldd image/usr/local/bin/anthill 2> ldd.log | grep -o '/[^ ]*'); do
    mkdir -p "image$(dirname "$library")"; cp -L "$library" "image$library"
done
mount --bind image image
mount -o remount,ro,bind image
mount -t proc proc image/proc
mount --bind /dev image/dev
mount --bind "$EXAMPLE/site" image/site
mount -o remount,ro,bind image/site
mount -t tmpfs -o uid=65532,gid=65532,mode=700 tmpfs image/var/lib/anthill
sh image.sh serve --supervise /site > access.log 2> error.log < /dev/null &
until grep -q '^ready' error.log; do kill -0 $! || { cat error.log; false; }; sleep 0.05; done
server=$!
[ "$(ls -n -d image/var/lib/anthill/*.sock | cut -d' ' -f3)" = 65532 ]
has 'Hello from a container' curl -s --connect-to ::127.0.0.1:8443 https://localhost/
# The ports of the machine, and not those of the container.
has 'Location: https://localhost/a' curl -si --connect-to ::127.0.0.1:8080 http://localhost/a
has 'alt-svc: h3=":443"' curl -si --connect-to ::127.0.0.1:8443 https://localhost/
has 'is valid' image check /site
image reload
has 'no problems found' image status
# The supervisor starts a killed server again, without a refused connection.
kill -KILL "$(tr -d ' ' < "image/proc/$server/task/$server/children")"
until grep -q 'the server ended (signal 9 (SIGKILL)), and starts again at once' error.log; do sleep 0.05; done
has 'Hello from a container' curl -s --connect-to ::127.0.0.1:8443 https://localhost/
kill $server
wait $server
"#;

#[test]
fn the_image_serves_as_a_user_without_privileges() {
    if !is_root() {
        return;
    }
    let text = paper(EXAMPLE);
    let (_, image) = text.split_once("\nFROM scratch\n").expect("the image");
    let example = format!("{}/../examples/container", env!("CARGO_MANIFEST_DIR"));
    let mut script = format!("EXAMPLE='{example}'\n");
    let mut variables = String::new();
    let (mut user, mut entry) = ("", String::new());
    for line in image.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["COPY", .., from, to] => {
                let from = if from == "anthill" { "$ANTHILL" } else { from };
                // The first stage makes the folders.
                let copy = format!(
                    "mkdir -p \"image$(dirname {to})\"\n\
                     if [ -f \"{from}\" ]; then cp -L \"{from}\" image{to}; else mkdir -p image{to}; fi\n"
                );
                script += &copy;
            }
            ["USER", name] => user = name,
            ["ENV", ref settings @ ..] => variables = settings.join(" "),
            ["ENTRYPOINT", list] => entry = list.replace(['[', ']', '"'], ""),
            ["CMD", "[\"serve\",", "\"--supervise\",", "\"/site\"]"]
            | ["VOLUME" | "EXPOSE" | "#", ..]
            | [] => {}
            _ => panic!("a line that the test does not know: {line}"),
        }
    }
    assert_eq!((user, &*entry), ("65532:65532", "anthill"));
    let run = format!("/usr/sbin/chroot --userspec={user} --groups= image {entry} \"$@\"");
    writeln!(script, "echo 'exec env -i {variables} {run}' > image.sh").expect("a line");
    script += "image() { sh image.sh \"$@\"; }\n";
    let done = run_in_machine(&(script + RUN));
    assert_eq!(done.code, Some(0), "{}\n{}", done.stdout, done.stderr);
}

scenarios! {
    the_page_about_containers_has_the_files_of_the_example("containers.md", false) = r#"
        @file compose.yaml services:\n  anthill:\n    image: anthill\n    restart
        sed '/^#/d' "$SUPPORT/../../examples/container/compose.yaml" | diff compose.yaml -
        @file page.toml [server]\nhttps       = [":8443"]
        uncommented() { sed -e 's/^# \(.* = \|\[tls\]\)/\1/' -e '/^#/d' -e 's/ *#.*//' "$1" | tr -s ' ' | grep .; }
        uncommented page.toml > page
        uncommented "$SUPPORT/../../examples/container/site/anthill.toml" | diff page -
    "#;
}
