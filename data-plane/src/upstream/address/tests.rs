//! Tests of the windows of connections with the real kernel, Linux 5.14 or later, and of the causes of failed connections.

use super::*;
use crate::limits::{MEMBER_RECEIVE_BYTES, MEMBER_RECEIVE_BYTES_MIN, MEMBER_WINDOW_BYTES};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Returns the client's and the server's end of a connection with a receive buffer for the client.
fn connection(receive_bytes: u32) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = BackendAddress::Tcp(listener.local_addr().unwrap());
    let options = ConnectOptions {
        from: None,
        receive_bytes: Some(receive_bytes),
    };
    let (client, _) = address.begin_connecting_with(options).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    (TcpStream::from(client), server)
}

/// Sends bytes as far as the kernel takes bytes; returns the number of bytes that the kernel has received for the
/// client a moment later.
fn received_ahead(client: &TcpStream, server: &mut TcpStream) -> usize {
    let bytes = vec![b'x'; 1 << 20];
    while server.write(&bytes).is_ok() {}
    thread::sleep(Duration::from_millis(5));
    match client.peek(&mut vec![0; 1 << 20]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        peeked => peeked.unwrap(),
    }
}

#[test]
fn a_new_connection_receives_few_bytes_ahead() {
    let (client, mut server) = connection(MEMBER_RECEIVE_BYTES_MIN);
    let ahead = (0..40).map(|_| received_ahead(&client, &mut server)).max();
    let bytes_max = 2 * MEMBER_RECEIVE_BYTES_MIN as usize;
    assert!((1..=bytes_max).contains(&ahead.unwrap()), "{ahead:?}");
}

#[test]
fn the_window_can_be_raised_beyond_64_kib() {
    let (mut client, mut server) = connection(MEMBER_RECEIVE_BYTES_MIN);
    sys::raise_receive_buffer(client.as_fd(), MEMBER_RECEIVE_BYTES).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let ahead = (0..2_000).find_map(|_| {
        let ahead = received_ahead(&client, &mut server);
        if ahead > 64 * 1024 {
            return Some(ahead);
        }
        let _ = client.read(&mut buffer);
        None
    });
    let ahead = ahead.expect("the window stays at 64 KiB: the kernel has no SO_BUF_LOCK");
    assert!(ahead <= MEMBER_WINDOW_BYTES, "{ahead}");
}

#[test]
fn shortages_of_this_machine_are_no_faults_of_the_member() {
    let table = [
        (Errno::CONNREFUSED, false, ConnectFault::Member),
        (Errno::HOSTUNREACH, false, ConnectFault::Member),
        (Errno::AGAIN, true, ConnectFault::Backlog),
        (Errno::ADDRNOTAVAIL, false, ConnectFault::LocalPorts),
        (Errno::MFILE, false, ConnectFault::LocalDescriptors),
        (Errno::NFILE, true, ConnectFault::LocalDescriptors),
        (Errno::NOBUFS, false, ConnectFault::LocalMemory),
        (Errno::NOMEM, false, ConnectFault::LocalMemory),
        (Errno::PERM, false, ConnectFault::LocalRule),
        (Errno::ACCESS, false, ConnectFault::LocalRule),
        (Errno::ACCESS, true, ConnectFault::Member),
    ];
    for (errno, is_unix, fault) in table {
        assert_eq!(ConnectFault::of(&errno.into(), is_unix), fault, "{errno}");
    }
    let from = IpAddr::from([192, 0, 2, 1]);
    let missing = bind_error(Errno::ADDRNOTAVAIL.into(), from);
    assert_eq!(
        ConnectFault::of(&missing, false),
        ConnectFault::LocalAddress
    );
    let other = bind_error(Errno::NOMEM.into(), from);
    assert_eq!(ConnectFault::of(&other, false), ConnectFault::LocalMemory);
    let unknown = io::Error::from(io::ErrorKind::AddrNotAvailable);
    assert_eq!(ConnectFault::of(&unknown, false), ConnectFault::Member);
}
