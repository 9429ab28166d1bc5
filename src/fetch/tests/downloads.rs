//! Downloads of one file: whole, in parts, and from servers whose file changes.

use super::server::{Answer, Request, Server};
use super::{bytes, names, sha256, Listener};
use crate::error::{Error, Result};
use crate::fetch::download::{download, Download, PublishedChecksum};
use crate::files;
use sha2::Sha256;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const LEN: usize = 600_000;
/// Number of bytes after which connections break.
const CUT: usize = 250_000;

pub(super) struct Target {
    dir: TempDir,
    pub recorder: Listener,
    pub bytes: Option<u64>,
    pub checksum: PublishedChecksum,
}

impl Target {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            recorder: Listener::default(),
            bytes: None,
            checksum: PublishedChecksum::Unknown,
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("file")
    }

    pub fn get(&mut self, url: &str) -> Result<String> {
        let target = self.path();
        let wanted = Download {
            url,
            target: &target,
            bytes: self.bytes,
            checksum: self.checksum.clone(),
            token: Some("secret"),
        };
        self.recorder.context(|context| download(&wanted, context))?;
        files::digest::<Sha256>(&target, || Ok(()))
    }

    pub fn names(&self) -> Vec<String> {
        names(self.dir.path())
    }

    pub fn part(&self) -> u64 {
        fs::metadata(self.dir.path().join("file.part")).unwrap().len()
    }
}

/// Server of [`bytes`] whose first connection breaks.
fn breaks_once() -> Server {
    Server::start(|request, before| {
        let answer = Answer::file(request, &bytes(LEN), "v1");
        if before == 0 {
            answer.cut(CUT)
        } else {
            answer
        }
    })
}

fn ranges(server: &Server) -> Vec<Option<usize>> {
    let first = |r: &Request| r.range().map(|(first, _)| first);
    server.seen().iter().map(first).collect()
}

#[test]
fn a_file_comes_whole_with_one_request_and_leaves_no_part() {
    let server = Server::start(|request, _| Answer::file(request, &bytes(LEN), "v1"));
    let mut target = Target::new();
    let sum = target.get(&server.url("file")).unwrap();
    assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
    assert_eq!(sum, sha256(&bytes(LEN)));
    assert_eq!(target.names(), ["file"]);
    assert_eq!(ranges(&server), [None]);
}

#[test]
fn after_a_dropped_connection_only_the_rest_is_asked_for() {
    let server = breaks_once();
    let mut target = Target::new();
    target.get(&server.url("file")).unwrap();
    assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
    assert_eq!(ranges(&server), [None, Some(CUT)]);
    assert_eq!(server.seen()[1].header("if-range"), Some("\"v1\""));
    assert!(target.recorder.said("broke off after 250000 of 600000 bytes"));
}

#[test]
fn what_a_signal_interrupted_is_continued_by_the_next_call() {
    let server = Server::start(|request, _| Answer::file(request, &bytes(LEN), "v1"));
    let mut target = Target::new();
    target.recorder.stop_at = Some(100_000);
    let stopped = target.get(&server.url("file"));
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    assert!(target.recorder.said("the same command continues"));
    let part = target.part();
    assert!((100_000..LEN as u64).contains(&part), "{part}");
    target.recorder.stop_at = None;
    target.get(&server.url("file")).unwrap();
    assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
    assert_eq!(ranges(&server), [None, Some(part as usize)]);
    assert_eq!(target.names(), ["file"]);
}

#[test]
fn a_server_that_ignores_ranges_starts_over_cleanly() {
    let server = Server::start(|_, before| match before {
        0 => Answer::ok(&bytes(LEN)).with("ETag", "\"v1\"").cut(CUT),
        _ => Answer::ok(&bytes(LEN)),
    });
    let mut target = Target::new();
    target.get(&server.url("file")).unwrap();
    assert_eq!(ranges(&server), [None, Some(CUT)]);
    assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
}

#[test]
fn a_file_that_changed_in_between_is_not_sewn_to_the_old_one() {
    let server = Server::start(|request, before| match before {
        0 => Answer::file(request, &vec![7; LEN], "v1").cut(CUT),
        _ => Answer::file(request, &bytes(LEN), "v2"),
    });
    let mut target = Target::new();
    target.get(&server.url("file")).unwrap();
    assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
}

#[test]
fn a_part_from_another_address_is_not_continued() {
    let server = breaks_once();
    let mut target = Target::new();
    target.recorder.stop_at = Some(1);
    target.get(&server.url("one")).unwrap_err();
    target.recorder.stop_at = None;
    target.get(&server.url("other")).unwrap();
    assert_eq!(ranges(&server), [None, None]);
}

#[test]
fn bytes_without_a_version_beside_them_are_not_continued() {
    let server = Server::start(|request, _| Answer::file(request, &bytes(LEN), "v1"));
    for version in [None, Some("{"), Some("{}"), Some("\u{0}")] {
        let mut target = Target::new();
        fs::write(target.path().with_extension("part"), b"abc").unwrap();
        if let Some(text) = version {
            fs::write(target.path().with_extension("part.json"), text).unwrap();
        }
        target.get(&server.url("file")).unwrap();
        assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
    }
}

#[test]
fn a_range_past_the_end_and_a_range_from_elsewhere_both_start_over() {
    for wrong in [Answer::status(416), Answer::status(206), Answer::status(206).with("Content-Range", "bytes 7-9/10")] {
        let server = Server::start(move |request, before| match before {
            0 => Answer::file(request, &bytes(LEN), "v1").cut(CUT),
            1 => wrong.clone(),
            _ => Answer::file(request, &bytes(LEN), "v1"),
        });
        let mut target = Target::new();
        target.get(&server.url("file")).unwrap();
        assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
        assert_eq!(ranges(&server), [None, Some(CUT), None]);
    }
}

#[test]
fn a_file_without_a_length_ends_with_its_connection() {
    let server = Server::start(|_, _| Answer { lengthless: true, ..Answer::ok(&bytes(LEN)) });
    let mut target = Target::new();
    target.get(&server.url("file")).unwrap();
    assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
}

#[test]
fn an_empty_file_is_a_file() {
    let server = Server::start(|_, _| Answer::ok(b""));
    let mut target = Target::new();
    target.get(&server.url("file")).unwrap();
    assert_eq!(fs::read(target.path()).unwrap(), b"");
}

#[test]
fn a_redirection_is_followed_and_the_token_stays_at_home() {
    let mirror = Server::start(|request, _| Answer::file(request, &bytes(LEN), "v1"));
    let there = format!("http://localhost:{}/there", mirror.port());
    let server = Server::start(move |_, _| Answer::redirect(there.clone()));
    let mut target = Target::new();
    target.get(&server.url("file")).unwrap();
    assert_eq!(fs::read(target.path()).unwrap(), bytes(LEN));
    let token = |server: &Server| server.seen()[0].header("authorization").map(str::to_owned);
    assert_eq!(token(&server).as_deref(), Some("Bearer secret"));
    assert_eq!(token(&mirror), None);
}

#[test]
fn a_server_that_recovers_is_forgiven() {
    let server = Server::start(|request, before| match before {
        0 | 1 => Answer::status(503),
        _ => Answer::file(request, &bytes(LEN), "v1"),
    });
    let mut target = Target::new();
    target.get(&server.url("file")).unwrap();
    assert_eq!(server.seen().len(), 3);
}
