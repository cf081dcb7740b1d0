//! Tests of the wrappers with the real kernel.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

#[test]
fn sendfile_and_pread_work_at_an_offset() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"0123456789").unwrap();
    let (out, mut back) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(sendfile(out.as_fd(), file.as_fd(), 3, 4).unwrap(), 4);
    assert_eq!(sendfile(out.as_fd(), file.as_fd(), 10, 4).unwrap(), 0);
    let mut got = [0; 4];
    back.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"3456");

    let mut buf = [0; 16];
    assert_eq!(pread(file.as_fd(), &mut buf, 8).unwrap(), 2);
    assert_eq!(&buf[..2], b"89");
    // The bytes were just written and are therefore in memory. A file system may still report that the read
    // would block.
    match pread_nowait(file.as_fd(), &mut buf, 1).unwrap() {
        Some(read) => assert_eq!(&buf[..read], b"123456789"),
        None => assert_eq!(pread(file.as_fd(), &mut buf, 1).unwrap(), 9),
    }
}

#[test]
fn inotify_reports_changes_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inotify = Inotify::new().unwrap();
    let watch = inotify.watch(folder.path(), Inotify::FOLDER).unwrap();
    assert!(inotify.read().unwrap().is_empty());
    let opened = fs::File::open(folder.path()).unwrap();
    assert_eq!(
        inotify.watch_fd(opened.as_fd(), Inotify::FOLDER).unwrap(),
        watch
    );

    fs::write(folder.path().join("a"), b"x").unwrap();
    fs::rename(folder.path().join("a"), folder.path().join("b")).unwrap();
    let events = inotify.read().unwrap();
    let of = |flag: ReadFlags| {
        events
            .iter()
            .find(|event| event.flags.contains(flag))
            .unwrap()
    };
    assert!(events.iter().all(|event| event.watch == watch));
    assert_eq!(
        of(ReadFlags::CLOSE_WRITE).name.as_deref(),
        Some("a".as_ref())
    );
    let (from, to) = (of(ReadFlags::MOVED_FROM), of(ReadFlags::MOVED_TO));
    assert_eq!(from.cookie, to.cookie);
    assert_eq!(to.name.as_deref(), Some("b".as_ref()));
    assert!(!to.is_overflow());

    inotify.remove(watch).unwrap();
    let gone = inotify.read().unwrap();
    assert!(gone[0].flags.contains(ReadFlags::IGNORED));
    assert_eq!(gone[0].name, None);
    assert!(
        inotify
            .watch(&folder.path().join("b"), Inotify::FOLDER)
            .is_err()
    );
}

#[test]
fn listeners_share_a_port_only_with_reuse_port() {
    let any = "127.0.0.1:0".parse().unwrap();
    let first = listen(any, true, 16, false).unwrap();
    let address = socket_address(first.as_fd()).unwrap();
    let _second = listen(address, true, 16, false).unwrap();
    let refused = listen(address, false, 16, false).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    assert_eq!(
        is_free(address, false).unwrap_err().kind(),
        io::ErrorKind::AddrInUse
    );
}

#[test]
fn socket_options_are_set_and_the_peer_is_known() {
    let listener =
        TcpListener::from(listen("127.0.0.1:0".parse().unwrap(), false, 1, false).unwrap());
    listener.set_nonblocking(false).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let socket = server.as_fd();
    set_nodelay(socket).unwrap();
    set_keepalive(socket, Duration::from_secs(60)).unwrap();
    set_quickack(socket, true).unwrap();
    assert_eq!(peer_address(socket).unwrap(), client.local_addr().unwrap());
    shutdown_write(client.as_fd()).unwrap();
    assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
    shutdown_read(server.as_fd()).unwrap();
    shutdown_both(server.as_fd()).unwrap();
}

#[test]
fn an_ipv4_peer_of_an_ipv6_socket_is_ipv4() {
    if !has_ipv6() {
        return;
    }
    let listener = TcpListener::from(listen("[::]:0".parse().unwrap(), false, 1, false).unwrap());
    listener.set_nonblocking(false).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (server, _) = listener.accept().unwrap();
    assert_eq!(
        peer_address(server.as_fd()).unwrap(),
        client.local_addr().unwrap()
    );
}

#[test]
fn local_addresses_are_not_loopback_addresses() {
    for address in local_addresses() {
        assert!(!address.is_loopback() && !address.is_unspecified());
    }
    let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
                     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.1.2.0\n        /24 link UNICAST\n\
                     |-- 10.1.2.3\n        /32 host LOCAL\n";
    assert_eq!(first_local_v4(trie), Some(Ipv4Addr::new(10, 1, 2, 3)));
}

#[test]
fn passed_in_sockets_are_taken_only_with_the_own_pid() {
    let count = |pid: &str, fds: &str| listen_fds_count(Some(pid.as_ref()), Some(fds.as_ref()), 7);
    assert_eq!(count("7", "2"), Some(2));
    for (pid, fds) in [("8", "2"), ("7", "0"), ("7", "-1"), ("7", "x"), ("", "1")] {
        assert_eq!(count(pid, fds), None, "{pid} {fds}");
    }
    assert_eq!(listen_fds_count(None, Some("1".as_ref()), 7), None);
}

#[test]
fn users_are_found_with_their_groups() {
    let passwd =
        "root:x:0:0::/root:/bin/sh\nant:x:1001:1002:An ant:/home/ant:/bin/sh\nbad:x:y:1::/:\n";
    let group =
        "root:x:0:\nant:x:1002:\nssl-cert:x:110:ant,bee\nhive:x:111:bee\nagain:x:1002:ant\n";
    let ant = find_user("ant", passwd, group).unwrap();
    assert_eq!(
        ant,
        UserIds {
            uid: 1001,
            gid: 1002,
            groups: vec![1002, 110]
        }
    );
    assert_eq!(find_user("bee", passwd, group), None);
    assert_eq!(find_user("bad", passwd, group), None);
    assert_eq!(find_user("", passwd, group), None);
    assert!(
        lookup_user("root")
            .unwrap()
            .is_some_and(|user| user.uid == 0)
    );
}

#[test]
fn dropped_privileges_stay_dropped() {
    if !is_root() {
        return;
    }
    // The kernel changes one thread only, so only the thread of the test loses its privileges.
    std::thread::spawn(|| {
        let user = UserIds {
            uid: 65534,
            gid: 65534,
            groups: vec![65534],
        };
        drop_thread_privileges(&user).unwrap();
        assert!(!is_root());
        assert_eq!(rustix::process::getegid().as_raw(), 65534);
        assert!(
            drop_thread_privileges(&UserIds {
                uid: 0,
                gid: 0,
                groups: vec![]
            })
            .is_err()
        );
    })
    .join()
    .unwrap();
    // The tests run in several threads, so the call must fail.
    let other = std::thread::spawn(|| {
        let user = UserIds {
            uid: 65534,
            gid: 65534,
            groups: vec![],
        };
        drop_privileges(&user).is_err()
    });
    assert!(other.join().unwrap());
}

#[test]
fn limits_of_the_machine_are_read() {
    assert!(raise_nofile_limit() >= 64);
    assert!(cpu_count() >= 1);
    assert!(memory_limit_bytes().unwrap() > 1 << 20);
    the_lowest_priority_applies_to_one_thread();
}

fn the_lowest_priority_applies_to_one_thread() {
    std::thread::spawn(|| {
        lowest_priority_thread();
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), 19);
    })
    .join()
    .unwrap();
}

#[test]
fn the_memory_limit_is_the_smallest_limit_of_all_groups() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    assert_eq!(memory_limit_below(root.path()), None);
    put("proc/meminfo", "MemTotal:        1024 kB\nMemFree: 1 kB\n");
    assert_eq!(memory_limit_below(root.path()), Some(1 << 20));
    put(
        "proc/self/cgroup",
        "5:cpu,memory:/a/b\n4:pids:/x\n0::/s/t\n",
    );
    put(
        "sys/fs/cgroup/memory/memory.limit_in_bytes",
        "9223372036854771712\n",
    );
    put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "500000\n");
    assert_eq!(memory_limit_below(root.path()), Some(500_000));
    put("sys/fs/cgroup/s/t/memory.max", "max\n");
    put("sys/fs/cgroup/s/memory.max", "400000\n");
    assert_eq!(memory_limit_below(root.path()), Some(400_000));
    put("sys/fs/cgroup/memory.max", "300000\n");
    assert_eq!(memory_limit_below(root.path()), Some(300_000));
}

#[test]
fn a_moved_key_seals_and_opens() {
    for aead in [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        let bytes = vec![7; aead.key_bytes()];
        assert!(AeadKey::new(aead, &bytes[1..]).is_none());
        let key = AeadKey::new(aead, &bytes).unwrap();
        let moved: Vec<(u64, AeadKey)> = [(1, key)].into();
        let (nonce, key) = ([9; NONCE_BYTES], &moved[0].1);
        let mut sealed = *b"anthill";
        let tag = key.seal(nonce, b"header", &mut sealed).unwrap();
        assert_ne!(&sealed, b"anthill");
        let sealed = [&sealed[..], &tag].concat();
        let opened = |associated: &[u8], mut sealed: Vec<u8>| {
            let key = AeadKey::new(aead, &bytes).unwrap();
            let len = key.open(nonce, associated, &mut sealed)?;
            sealed.truncate(len);
            Some(sealed)
        };
        assert_eq!(opened(b"header", sealed.clone()).unwrap(), b"anthill");
        assert_eq!(opened(b"another", sealed.clone()), None);
        assert_eq!(opened(b"header", sealed[1..].to_vec()), None);
        assert_eq!(opened(b"header", vec![0; TAG_BYTES - 1]), None);
    }
}

#[test]
fn chacha20_poly1305_matches_the_test_vector_of_the_rfc() {
    // Test vector of RFC 8439 §2.8.2.
    let key: Vec<u8> = (0x80..0xa0).collect();
    let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
    let associated = [
        0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
    ];
    let mut text = *b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
    let key = AeadKey::new(Aead::ChaCha20Poly1305, &key).unwrap();
    let tag = key.seal(nonce, &associated, &mut text).unwrap();
    assert_eq!(text[..4], [0xd3, 0x1a, 0x8d, 0x34]);
    assert_eq!(tag[..4], [0x1a, 0xe1, 0x0b, 0x59]);
}

#[test]
fn the_watchdog_time_counts_for_the_process_it_is_meant_for() {
    let time = |micros: &str, pid: Option<&str>| {
        watchdog_time_in(micros.to_owned(), pid.map(str::to_owned), 42)
    };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(time("30000000", None), seconds(30));
    assert_eq!(time("30000000", Some("42")), seconds(30));
    assert_eq!(time("30000000", Some("41")), None);
    assert_eq!(time("0", None), None);
    assert_eq!(time("soon", None), None);
}
