//! Tests of the construction of a World: a build leaves the ledgers and the disk as they are.

use super::*;
use crate::config::{ConfigSource, Overrides};
use base::log::LogDestination;
use data_plane::upstream::{Backend, BackendAddress, ReusePolicy};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Folder with a site, and the configuration in the folder.
struct Setup {
    folder: TempDir,
    config: Config,
    resources: SharedResources,
}

/// Site with an access log, hit counts and a backend; `more` is appended to the configuration.
fn setup(more: &str) -> Setup {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("public")).unwrap();
    fs::write(folder.path().join("people"), "").unwrap();
    let config = read(&folder, "keep = 2", more);
    let resources = SharedResources::in_memory(&config, 0).unwrap();
    Setup {
        folder,
        config,
        resources,
    }
}

fn read(folder: &TempDir, keep: &str, more: &str) -> Config {
    let text = format!(
        "[server]\nhttps = []\nhttp = [\"127.0.0.1:0\"]\nstate = \"state\"\n\
         [log]\naccess = \"access.log\"\n\
         [[site]]\nnames = [\"a.test\"]\nroot = \"public\"\nhttp = \"serve\"\nhits = true\n\
         log = \"a.log\"\n\
         [[site.route]]\npath = \"/stats/\"\nhits = true\n\
         [[site.route]]\npath = \"/one/\"\nfastcgi = \"unix:app.sock\"\n{keep}\n\
         [[site.route]]\npath = \"/two/\"\nfastcgi = \"unix:app.sock\"\n{keep}\n{more}"
    );
    let file = folder.path().join("anthill.toml");
    fs::write(&file, text).unwrap();
    let source = ConfigSource::File(file);
    source.read(&Overrides::default()).unwrap()
}

/// Second site, with the backend of the first site and another number of connections.
const CONFLICT: &str = "[[site]]\nnames = [\"b.test\"]\nroot = \"public\"\nhits = true\n\
     [[site.route]]\npath = \"/\"\nfastcgi = \"unix:app.sock\"\nkeep = 7\n";

impl Setup {
    fn build(&self, previous: Option<&World>) -> World {
        build(&self.config, &self.resources, previous, 0).unwrap()
    }

    /// Opens the logs of a World and registers the entries.
    fn publish(&self, world: &World) {
        open_access_logs(world, &self.config, &self.resources.sinks).unwrap();
        let ledgers = &self.resources;
        world.register(
            &ledgers.backends,
            &ledgers.balancers,
            &ledgers.hits,
            &ledgers.routes,
        );
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns true for the log sinks, the backend and the hit counts of a World that are in the ledgers.
    fn registered(&self, world: &World) -> [bool; 4] {
        let is_open = |log: &Option<data_plane::world::AccessLog>, name: &str| {
            let destination = LogDestination::File(self.file(name));
            let found = self.resources.sinks.find_or_new(&destination, &[]);
            log.as_ref().unwrap().sink.is_same(&found)
        };
        let host = world.hosts.iter().next().unwrap();
        let (backend, (counts, _)) = (backend(world), &world.counts[0]);
        let known = &self.resources.backends;
        let known = known.find_or_new(&backend.address, ReusePolicy::Never);
        [
            is_open(&world.access, "access.log"),
            is_open(&host.access, "a.log"),
            Arc::ptr_eq(backend, &known),
            Arc::ptr_eq(counts, &self.resources.hits.find_or_new("a.test")),
        ]
    }
}

fn backend(world: &World) -> &Arc<Backend> {
    assert_eq!(world.backends.len(), 1, "one backend of two routes");
    &world.backends[0].backend
}

#[test]
fn a_build_opens_no_log_and_registers_nothing() {
    let setup = setup("");
    let world = setup.build(None);
    assert_eq!(setup.registered(&world), [false; 4]);
    assert!(!setup.file("access.log").exists() && !setup.file("a.log").exists());
    setup.publish(&world);
    assert_eq!(setup.registered(&world), [true; 4]);
    assert!(setup.file("access.log").exists() && setup.file("a.log").exists());
}

#[test]
fn reloads_share_the_registered_entries() {
    let mut setup = setup("");
    let first = setup.build(None);
    setup.publish(&first);
    let host = first.hosts.iter().next().unwrap();
    assert!(Arc::ptr_eq(host.hits.as_ref().unwrap(), &first.counts[0].0));
    // A World that is not published leaves no trace.
    drop(setup.build(Some(&first)));
    setup.config = read(&setup.folder, "keep = 3", "");
    let second = setup.build(Some(&first));
    assert_eq!(second.backends[0].keep, ReusePolicy::UpTo(3));
    let policy = |world: &World| backend(world).reuse_policy_for(false);
    assert_eq!(policy(&second), ReusePolicy::UpTo(2), "not served yet");
    setup.publish(&second);
    assert_eq!(policy(&first), ReusePolicy::UpTo(3));
    let third = setup.build(Some(&second));
    setup.publish(&third);
    for world in [&first, &second, &third] {
        assert_eq!(setup.registered(world), [true; 4]);
    }
}

#[test]
fn a_refused_configuration_registers_nothing() {
    let setup = setup(CONFLICT);
    let error = build(&setup.config, &setup.resources, None, 0).err();
    let error = error.expect("routes with different values of `keep`");
    assert!(error.to_string().contains("`keep = 7`"), "{error}");
    assert!(!setup.file("access.log").exists());
    let known = &setup.resources.backends;
    let address = BackendAddress::Unix(setup.file("app.sock"));
    let found = || known.find_or_new(&address, ReusePolicy::Never);
    assert!(!Arc::ptr_eq(&found(), &found()));
    let counts = || setup.resources.hits.find_or_new("a.test");
    assert!(!Arc::ptr_eq(&counts(), &counts()));
}

#[test]
fn a_log_that_cannot_be_opened_is_found_before_the_registration() {
    let setup = setup("");
    let world = setup.build(None);
    fs::create_dir(setup.file("a.log")).unwrap();
    let error = open_access_logs(&world, &setup.config, &setup.resources.sinks).err();
    let error = error.expect("a folder is no log").to_string();
    assert!(error.contains("a.log can't be opened"), "{error}");
    assert_eq!(setup.registered(&world)[1..], [false; 3]);
}

#[test]
fn networks_of_proxies_are_parsed() {
    let mut setup = setup("");
    let parse = |trust: &str| {
        let text = format!("[server]\nhttp = [\"127.0.0.1:0\"]\ntrust = [{trust}]\n");
        config::parse(&text, Path::new("/srv/anthill.toml"))
    };
    let parsed = parse("\"10.0.0.0/8\", \"::1\"").unwrap();
    setup.config.server.trust = parsed.server.trust;
    let world = setup.build(None);
    let trusts = |address: &str| world.trust.contains(address.parse().unwrap());
    assert!(trusts("10.1.2.3") && trusts("::1") && trusts("::ffff:10.1.2.3"));
    assert!(!trusts("11.1.2.3"));

    let error = parse("\"10.0.0.1/8\"").expect_err("an address within a network");
    let error = error.to_string();
    assert!(error.contains("3 | trust = [\"10.0.0.1/8\"]"), "{error}");
    assert!(error.contains("`10.0.0.0/8` is the network"), "{error}");
}
