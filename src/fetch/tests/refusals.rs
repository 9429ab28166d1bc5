//! Downloads that must fail, their errors and the files that they leave.

use super::downloads::Target;
use super::server::{Answer, Server};
use super::{bytes, sha256};
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::fetch::download::PublishedChecksum;
use std::net::TcpListener;
use std::path::Path;

/// Asserts that nothing comes of a download, and gives the error.
fn fails(target: &mut Target, server: &Server) -> Diagnostic {
    let url = server.url("file");
    let at = target.get(&url).fails("io");
    assert_eq!(at.path.as_deref(), Some(Path::new(&url)), "{at:?}");
    assert!(!target.path().exists());
    at
}

#[test]
fn a_wrong_sum_is_named_beside_the_right_one_and_nothing_is_kept() {
    let server = Server::start(|request, _| Answer::file(request, &bytes(99), "v1"));
    let found = sha256(&bytes(99));
    for (expected, found) in [
        (PublishedChecksum::Sha256("00ff".to_owned()), found.as_str()),
        (PublishedChecksum::Md5("00ff".to_owned()), "MD5"),
    ] {
        let mut target = Target::new();
        target.checksum = expected;
        fails(&mut target, &server).names(&[found, "00ff"]);
        assert_eq!(target.names(), [""; 0]);
    }
}

#[test]
fn the_right_sums_pass() {
    let server = Server::start(|request, _| Answer::file(request, b"abc", "v1"));
    let mut target = Target::new();
    target.checksum = PublishedChecksum::Md5("900150983cd24fb0d6963f7d28e17f72".to_owned());
    target.get(&server.url("file")).unwrap();
    target.checksum = PublishedChecksum::Sha256(sha256(b"abc"));
    target.get(&server.url("file")).unwrap();
}

#[test]
fn what_is_not_there_is_asked_for_once() {
    let server = Server::start(|_, _| Answer::status(404));
    fails(&mut Target::new(), &server).names(&["404"]);
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_server_that_stays_broken_is_given_up() {
    let server = Server::start(|_, _| Answer::status(500));
    fails(&mut Target::new(), &server).names(&["500"]);
    assert_eq!(server.seen().len(), 4);
}

#[test]
fn a_body_that_is_always_cut_leaves_a_part_to_continue() {
    let server = Server::start(|_, _| Answer::ok(&bytes(90_000)).cut(40_000));
    let mut target = Target::new();
    fails(&mut target, &server).names(&["40000", "90000"]);
    assert!(target.recorder.said("kept 40000 bytes"), "{:?}", target.recorder.said);
    assert_eq!(target.part(), 40_000);
}

#[test]
fn a_file_of_another_length_than_published_is_refused_before_it_is_read() {
    let server = Server::start(|request, _| Answer::file(request, &bytes(90), "v1"));
    let mut target = Target::new();
    target.bytes = Some(91);
    fails(&mut target, &server).names(&["90", "91"]);
}

#[test]
fn a_redirection_without_end_is_given_up() {
    let server = Server::start(|_, _| Answer::redirect("/file".to_owned()));
    fails(&mut Target::new(), &server);
}

#[test]
fn an_address_without_a_server_is_an_error_of_one_sentence() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = format!("http://{port}/file");
    let mut target = Target::new();
    let at = target.get(&gone).fails("io");
    assert_eq!(at.path.as_deref(), Some(Path::new(&gone)), "{at:?}");
}

#[test]
fn a_folder_that_takes_no_file_is_named() {
    let server = Server::start(|_, _| Answer::ok(b"abc"));
    let mut target = Target::new();
    std::fs::create_dir(target.path().with_extension("part")).unwrap();
    let at = target.get(&server.url("file")).fails("io");
    at.is_at("file.part", None);
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn an_address_of_a_proxy_that_is_none_is_refused_by_the_name_of_its_variable() {
    let set = |wanted: &'static str, address: &'static str| {
        crate::fetch::refuse_bad_proxies(move |name| (name == wanted).then(|| address.to_owned()))
    };
    set("https_proxy", "no proxy at all").refuses("https_proxy").gives("no proxy at all");
    for address in ["", "http://127.0.0.1:3128", "socks5://host:1080", "host:80"] {
        set("ALL_PROXY", address).unwrap();
    }
}
