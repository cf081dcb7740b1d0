//! Replacement of the HTTP/3 module in a build without the feature `http3`: no socket is hosted, and no
//! connection is ever open.

use super::worker::Worker;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;

/// Empty replacement of the list of workers.
#[derive(Default)]
pub struct QuicWorkers;

/// Empty replacement of the state shared by a worker's HTTP/3 connections.
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
