//! Files of a hub, in the layout of its cache.

use super::server::{Answer, Request, Server};
use super::{bytes, sha256, FetchedDataset, World};
use crate::error::Diagnostic;
use crate::tasks::lra::LraDataset::{Listops, Text};
use crate::tasks::wikitext::Corpus;
use hf_hub::api::sync::ApiBuilder;
use hf_hub::Cache;
use std::fs;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::path::Path;

const COMMIT: &str = "e6281661ce1c48d982bc483cf8a173c1bbeb5d31";
const RESOLVE: &str = "/hub/datasets/stanfordnlp/imdb/resolve/main/plain_text/";
const FILES: [&str; 2] = ["train-00000-of-00001.parquet", "test-00000-of-00001.parquet"];

fn body(name: &str) -> Vec<u8> {
    bytes(if name.starts_with("train") { 9_000 } else { 5_000 })
}

/// Answer in the format of the hub: large files lie elsewhere, and their SHA-256 is in a header.
fn hub(request: &Request) -> Answer {
    if let Some(name) = request.path.strip_prefix(RESOLVE) {
        return Answer::redirect(format!("http://{}/cdn/{name}", request.header("host").unwrap()))
            .with("ETag", "\"of the pointer\"")
            .with("X-Linked-Etag", format!("\"{}\"", sha256(&body(name))))
            .with("X-Repo-Commit", COMMIT);
    }
    match request.path.strip_prefix("/cdn/") {
        Some(name) => Answer::file(request, &body(name), "cdn"),
        None => Answer::status(404),
    }
}

#[test]
fn reviews_come_through_the_cache_of_the_hub() {
    let server = Server::start(|request, _| hub(request));
    let mut world = World::new(&server, &[Text]);
    assert_eq!(world.fetch().unwrap(), [Text]);
    let cache = world.request.hub.cache.join("datasets--stanfordnlp--imdb");
    assert_eq!(fs::read_to_string(cache.join("refs/main")).unwrap(), COMMIT);
    for name in FILES {
        assert_eq!(fs::read(world.folder(Text).join(name)).unwrap(), body(name));
        let snapshot = cache.join("snapshots").join(COMMIT).join("plain_text").join(name);
        assert_eq!(fs::read(snapshot).unwrap(), body(name));
        let blob = cache.join("blobs").join(sha256(&body(name)));
        assert_eq!(fs::read(blob).unwrap(), body(name));
    }
    let record = fs::read_to_string(world.request.root.join("fetched/text.json")).unwrap();
    assert!(record.contains(COMMIT), "{record}");
    let asked = server.seen();
    let token = |r: &Request| r.header("authorization") == Some("Bearer secret");
    assert!(asked.iter().filter(|r| r.path.starts_with("/hub")).all(token));
    assert_eq!(world.fetch().unwrap(), []);
    world.request.root = world.dir.path().join("another");
    world.request.offline = true;
    assert_eq!(world.fetch().unwrap(), [Text], "out of the cache");
    assert_eq!(server.seen().len(), asked.len(), "without a request");
}

#[test]
fn a_file_of_the_hub_is_continued_too() {
    let server = Server::start(|request, _| {
        let whole = request.path.starts_with("/cdn/train") && request.range().is_none();
        let answer = hub(request);
        if whole {
            answer.cut(1_000)
        } else {
            answer
        }
    });
    let mut world = World::new(&server, &[Text]);
    world.fetch().unwrap();
    let rest = |r: &Request| r.path.starts_with("/cdn/train") && r.range() == Some((1_000, None));
    assert!(server.seen().iter().any(rest), "{:?}", server.seen());
    let train = world.folder(Text).join(FILES[0]);
    assert_eq!(fs::read(train).unwrap(), body(FILES[0]));
}

#[test]
fn texts_and_the_tokenizer_come_from_repositories_of_their_own() {
    const WIKITEXT: &str = "/hub/datasets/Salesforce/wikitext/resolve/main/wikitext-103-raw-v1/";
    const TOKENIZER: &str = "/hub/EleutherAI/gpt-neox-20b/resolve/main/tokenizer.json";
    let server = Server::start(|request, _| {
        let name = match request.path.as_str() {
            TOKENIZER => Some("tokenizer.json"),
            path => path.strip_prefix(WIKITEXT),
        };
        match name {
            Some(name) => hub(&request.at(format!("{RESOLVE}{name}"))),
            None => hub(request),
        }
    });
    let wanted = [FetchedDataset::Wikitext(Corpus::Wikitext103Raw), FetchedDataset::GptNeox];
    let mut world = World::new(&server, &wanted);
    assert_eq!(world.fetch_all().unwrap(), wanted);
    let folder = world.request.root.join("wikitext-103-raw-v1");
    for name in [
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
        "validation-00000-of-00001.parquet",
        "test-00000-of-00001.parquet",
    ] {
        assert_eq!(fs::read(folder.join(name)).unwrap(), body(name), "{name}");
    }
    let tokenizer = world.request.root.join("gpt-neox-20b-tokenizer/tokenizer.json");
    assert_eq!(fs::read(tokenizer).unwrap(), body("tokenizer.json"));
    let cached = world.request.hub.cache.join("models--EleutherAI--gpt-neox-20b/snapshots");
    assert!(cached.join(COMMIT).join("tokenizer.json").exists());
    for (name, page) in
        [("gpt-neox", "/hub/EleutherAI/gpt-neox-20b"), ("wikitext-103-raw", "/hub/datasets/Salesforce/wikitext")]
    {
        let record = world.request.root.join("fetched").join(format!("{name}.json"));
        let record = fs::read_to_string(record).unwrap();
        assert!(record.contains(&server.url(&page[1..])), "{record}");
        assert!(record.contains(COMMIT), "{record}");
    }
    assert_eq!(world.fetch_all().unwrap(), []);
}

/// Error for a hub that gives `answer` to every request.
fn refused(answer: Answer) -> Diagnostic {
    let server = Server::start(move |_, _| answer.clone());
    let mut world = World::new(&server, &[Text]);
    let at = world.fails("io");
    assert!(at.path.as_ref().unwrap().starts_with("http://"), "{at:?}");
    assert!(!world.folder(Text).exists());
    at
}

/// Answer for a file from a hub without large files.
fn small(etag: &str, commit: &str) -> Answer {
    let mut answer = Answer::ok(b"x");
    answer.status = 206;
    answer.with("Content-Range", "bytes 0-0/1").with("ETag", format!("\"{etag}\"")).with("X-Repo-Commit", commit)
}

#[test]
fn a_hub_that_refuses_or_is_none_is_one_sentence() {
    let mut nowhere = small("abc", COMMIT);
    nowhere.status = 302;
    for (answer, name) in [
        (Answer::status(404), "404"),
        (Answer::status(401), "401"),
        (Answer::ok(b"<html>"), "Hugging Face"),
        (Answer::status(500), "500"),
        (nowhere, ""),
        (small("../../../evil", COMMIT), "`../../../evil`"),
        (small("abc", "../.."), "`../..`"),
        (small("", COMMIT), ""),
    ] {
        refused(answer).names(&[name]);
    }
}

#[test]
fn a_file_that_is_not_the_one_that_the_hub_named_is_not_kept() {
    let server = Server::start(|request, _| {
        let answer = hub(request);
        match request.path.starts_with("/cdn/") {
            true => Answer::file(request, &vec![0; 9_000], "cdn"),
            false => answer,
        }
    });
    let mut world = World::new(&server, &[Text]);
    world.fails("io").names(&["SHA-256"]);
    assert!(!world.folder(Text).exists());
}

/// Defects of `hf_hub`'s download, for which this program has its own. If this test fails after an update, the own one
/// may become unnecessary.
#[test]
fn the_download_of_hf_hub_takes_names_and_lengths_on_trust() {
    let download = |server: &Server, cache: &Path| {
        let api = ApiBuilder::from_cache(Cache::new(cache.to_owned()))
            .with_endpoint(server.url("hub"))
            .with_progress(false)
            .build()
            .unwrap();
        let repository = api.dataset("a/b".to_owned());
        // It panics for a name that leads out of the cache, but only after the file has been written.
        std::panic::catch_unwind(AssertUnwindSafe(|| repository.download("file").ok()))
    };
    let server = Server::start(|_, _| small("../../../evil", COMMIT));
    let dir = tempfile::tempdir().unwrap();
    let _ = download(&server, &dir.path().join("cache"));
    assert_eq!(fs::read(dir.path().join("evil")).unwrap(), b"x");

    let server = Server::start(|request, before| match request.range() {
        Some((0, Some(0))) => {
            let mut facts = small("abc", COMMIT);
            facts.headers[0].1 = "bytes 0-0/10".to_owned();
            facts
        }
        _ if before < 2 => Answer::ok(b"0123456789").cut(4),
        _ => Answer::ok(b"0123456789"),
    });
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(download(&server, dir.path()).unwrap(), None);
    let got = download(&server, dir.path()).unwrap().unwrap();
    assert_eq!(fs::read(got).unwrap(), b"01230123456789");
}

#[test]
fn offline_opens_no_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let here = format!("http://{}", listener.local_addr().unwrap());
    let server = Server::start(|_, _| Answer::status(404));
    for dataset in [Text, Listops] {
        let mut world = World::new(&server, &[dataset]);
        world.request.offline = true;
        world.request.hub.endpoint.clone_from(&here);
        world.request.lra.url.clone_from(&here);
        world.fails("missing").names(&["--offline"]);
    }
    let nobody = listener.accept().map(|_| ()).unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}
