//! In place of HTTP/3 in a build without it: nothing is hosted, so nothing is ever open.

use super::worker::Worker;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;

/// Where nothing is dealt.
#[derive(Default)]
pub struct QuicWorkers;

/// Where nothing is kept.
#[derive(Default)]
pub struct H3Context;

impl H3Context {
    pub(super) fn open(&self) -> usize {
        0
    }

    pub(super) fn tell(&self) {}
}

pub(super) fn begin(_: &Rc<Worker>) {}

pub(super) fn host(_: &Rc<Worker>, _: UdpSocket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn configure(_: &Rc<Worker>) {}

pub(super) fn unlisten(_: &Worker, _: SocketAddr) {}

pub(super) fn leave(_: &Worker) {}

pub(super) async fn end(_: &Worker) {}
