//! `dsf data`, against a server on loopback.

#[expect(dead_code, reason = "its other half serves the tests of the library")]
#[path = "../../../fetch/tests/server.rs"]
mod server;
mod text;

use super::{Said, World};
use flate2::{write::GzEncoder, Compression};
use server::{Answer, Server};
use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `dsf` with `line`, in an environment in which nothing but `set` names a place.
fn command(world: &World, line: &str, set: &[(&str, &str)]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("dsf"));
    let unset = [
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "DSF_OFFLINE",
        "DSF_OUT",
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ];
    for name in unset {
        command.env_remove(name);
    }
    command
        .args(line.split_whitespace())
        .current_dir(world.path(""))
        .env("HF_HOME", world.path("home"))
        .envs(set.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn said(output: std::process::Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn dsf(world: &World, line: &str, set: &[(&str, &str)]) -> Said {
    said(command(world, line, set).output().unwrap())
}

/// The archive of the Long Range Arena with a little of listops in it.
fn release() -> Vec<u8> {
    let gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut tar = tar::Builder::new(gzip);
    for name in ["train", "val", "test"] {
        let path = format!("lra_release/lra_release/listops-1000/basic_{name}.tsv");
        let mut header = tar::Header::new_gnu();
        header.set_size(5);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, &b"12345"[..]).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn what_can_be_fetched_is_listed_with_sizes_and_licences() {
    let world = World::new();
    let out = dsf(&world, "data fetch lra", &[]).ok();
    for needle in ["listops", "7.7 GB", "170 MB", "Maas et al. 2011", "Krizhevsky 2009", "may not"] {
        assert!(out.contains(needle), "{out}");
    }
}

#[test]
fn an_archive_from_a_mirror_is_fetched_once_and_listed() {
    let body = release();
    let server = Server::start(move |request, _| Answer::file(request, &body, "v1"));
    let world = World::new();
    let line = format!("data fetch lra --dataset listops --url {}", server.url("x.gz"));
    let first = dsf(&world, &line, &[]);
    assert!(first.err.contains("unpacking"), "{}", first.err);
    assert!(first.ok().starts_with("listops: fetched, "));
    let again = dsf(&world, &format!("--json {line}"), &[]);
    let out = again.ok();
    assert!(out.contains("\"state\":\"is there already\""), "{out}");
    assert_eq!(server.seen().len(), 1);
    let below = "dsf/lra/lra_release/lra_release/listops-1000/basic_val.tsv";
    assert_eq!(fs::read(world.path("home").join(below)).unwrap(), b"12345");
    let list = dsf(&world, "data list", &[]).ok();
    let row = |name: &str| list.lines().find(|l| l.starts_with(name)).unwrap().to_owned();
    assert!(row("listops").contains("present"), "{list}");
    assert!(row("listops").contains("15 B"), "{list}");
    assert!(row("image").contains("absent"), "{list}");
}

#[test]
fn every_way_to_say_offline_opens_no_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let here = format!("http://{}", listener.local_addr().unwrap());
    let world = World::new();
    let text = "data fetch lra --dataset text";
    let archive = format!("data fetch lra --dataset retrieval --url {here}/x.gz");
    for line in [text, &archive] {
        let hub = ("HF_ENDPOINT", here.as_str());
        for (flag, set) in [
            (" --offline", vec![hub]),
            ("", vec![hub, ("DSF_OFFLINE", "1")]),
            ("", vec![hub, ("HF_HUB_OFFLINE", "True")]),
        ] {
            let fault = dsf(&world, &format!("--json {line}{flag}"), &set).fault();
            assert_eq!(fault.kind, "missing", "{fault:?}");
            fault.names(&["--offline", "DSF_OFFLINE", "HF_HUB_OFFLINE"]);
        }
    }
    let nobody = listener.accept().map(|_| ()).unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let world = World::new();
    for (line, set, flag, names) in [
        ("--dataset lisstops", vec![], "--dataset", &["listops"][..]),
        ("--dataset image --url ftp://x/y", vec![], "--url", &[]),
        ("--dataset image --url x.gz", vec![], "--url", &[]),
        ("--dataset image,listops --url http://x/y", vec![], "--url", &[]),
        ("--dataset text --url http://x/y", vec![], "--url", &["HF_ENDPOINT"]),
        ("--dataset text", vec![("HF_ENDPOINT", "hub")], "HF_ENDPOINT", &[]),
        ("--dataset text", vec![("HF_TOKEN", "a b")], "HF_TOKEN", &[]),
    ] {
        let line = format!("data fetch lra {line} --json");
        let fault = dsf(&world, &line, &set).fault();
        assert_eq!(fault.kind, "refused", "{line}: {fault:?}");
        fault.of(flag).names(names);
    }
}

#[test]
fn a_server_that_refuses_is_no_misuse() {
    let server = Server::start(|_, _| Answer::status(404));
    let hub = server.url("");
    let text = "data fetch lra --dataset text --json";
    let fault = dsf(&World::new(), text, &[("HF_ENDPOINT", &hub)]).fault();
    assert_eq!(fault.kind, "io", "{fault:?}");
    fault.names(&["404"]);
}

#[cfg(unix)]
#[test]
fn an_interrupt_on_a_silent_line_keeps_the_part_and_says_how_to_go_on() {
    let body = release();
    let half = body.len() / 2;
    let whole = body.clone();
    let server = Server::start(move |request, before| Answer {
        cut: (before == 0).then_some(half),
        hang: before == 0,
        ..Answer::file(request, &whole, "v1")
    });
    let world = World::new();
    let line = format!("data fetch lra --dataset listops --data-dir d --url {}", server.url("x"));
    let child = command(&world, &line, &[]).spawn().unwrap();
    let part = world.path("d/archives/lra_release.gz.part");
    let end = Instant::now() + Duration::from_secs(20);
    while fs::metadata(&part).map_or(0, |m| m.len()) < half as u64 {
        assert!(Instant::now() < end, "nothing was downloaded");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let stopped = said(child.wait_with_output().unwrap());
    assert_eq!(stopped.code, 75, "{}", stopped.err);
    let kept = format!("kept {half} bytes");
    assert!(stopped.err.contains(&kept), "{}", stopped.err);
    assert!(stopped.err.contains("the same command continues"), "{}", stopped.err);
    drop(server); // ends its silence
    assert_eq!(fs::metadata(&part).unwrap().len(), half as u64);
}
