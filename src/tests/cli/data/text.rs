//! `dsf data` for texts.

use super::server::{Answer, Server};
use super::{dsf, World};
use std::fs;

/// The folders of a hub that has WikiText-2 and no other.
fn small_hub() -> Server {
    Server::start(|request, _| {
        let name = request.path.rsplit('/').next().unwrap_or("").to_owned();
        if request.path.starts_with("/cdn/") {
            return Answer::file(request, name.repeat(50).as_bytes(), "cdn");
        }
        if !request.path.contains("/Salesforce/wikitext/resolve/main/wikitext-2-v1/") {
            return Answer::status(404);
        }
        let here = request.header("host").unwrap().to_owned();
        Answer::redirect(format!("http://{here}/cdn/{name}"))
            .with("ETag", "\"of the pointer\"")
            .with("X-Linked-Etag", "\"abc\"".to_owned())
            .with("X-Repo-Commit", "0123456789abcdef0123456789abcdef01234567")
    })
}

#[test]
fn texts_and_the_tokenizer_are_listed_fetched_and_listed_as_there() {
    let world = World::new();
    let out = dsf(&world, "data fetch wikitext", &[]).ok();
    for needle in ["wikitext-103-raw", "315 MB", "CC BY-SA", "gpt-neox", "--corpus"] {
        assert!(out.contains(needle), "{out}");
    }
    assert!(!out.contains("listops"), "{out}");
    let server = small_hub();
    let hub = server.url("");
    let set = [("HF_ENDPOINT", hub.trim_end_matches('/'))];
    let fetched = dsf(&world, "data fetch wikitext --corpus wikitext-2", &set).ok();
    assert!(fetched.starts_with("wikitext-2: fetched, "), "{fetched}");
    let below = "dsf/wikitext/wikitext-2-v1/validation-00000-of-00001.parquet";
    assert!(world.path("home").join(below).is_file());
    let list = dsf(&world, "data list", &[]).ok();
    let row = |name: &str| {
        let mut rows = list.lines().filter(|l| l.split_whitespace().next() == Some(name));
        rows.next().unwrap().to_owned()
    };
    assert!(row("wikitext-2").contains("present"), "{list}");
    assert!(row("wikitext-2-raw").contains("absent"), "{list}");
    assert!(row("gpt-neox").contains("absent"), "{list}");
    assert!(row("image").contains("absent"), "{list}");
}

#[test]
fn what_belongs_to_another_task_is_refused() {
    let world = World::new();
    for (line, flag, name) in [
        ("lra --corpus wikitext-2", "--corpus", "--dataset"),
        ("wikitext --dataset listops", "--dataset", "--corpus"),
        ("wikitext --tokenizer --delete-archive", "--delete-archive", "wikitext"),
        ("wikitext --tokenizer --url http://x/y", "--url", "HF_ENDPOINT"),
        ("wikitext --corpus sample", "--corpus", "wikitext-2"),
    ] {
        let fault = dsf(&world, &format!("data fetch {line} --json"), &[]).fault();
        assert_eq!(fault.kind, "refused", "{line}: {fault:?}");
        fault.of(flag).names(&[name]);
    }
}

#[test]
fn tokens_are_made_ahead_and_counted() {
    let world = World::new();
    let texts = world.path("texts");
    fs::create_dir_all(&texts).unwrap();
    for name in ["train.txt", "valid.txt", "test.txt"] {
        fs::write(texts.join(name), " = A = \n \n a few words \n").unwrap();
    }
    let line = "data tokens --corpus text --tokenizer bytes --data-dir texts";
    let out = dsf(&world, line, &[]).ok();
    assert_eq!(out.lines().count(), 3, "{out}");
    assert!(out.starts_with("text train: 24 tokens, 6 words, 3 lines (W = 6), 24 B, "), "{out}");
    let file = out.lines().last().unwrap().rsplit(", ").next().unwrap();
    assert!(file.contains("home/dsf/wikitext/tokens/text-bytes-"), "{file}");
    assert!(fs::read(file).unwrap().starts_with(b"{\"format\":\"dsf tokens\""));
    let again = dsf(&world, &format!("--json {line} --eos-between-articles"), &[]);
    let out = again.ok();
    assert!(out.contains("\"tokens\":25"), "{out}");
    let missing = dsf(&world, "data tokens --corpus wikitext-2 --tokenizer bytes", &[]);
    assert_eq!(missing.code, 66, "{}", missing.err);
    assert!(missing.err.contains("`dsf data fetch wikitext --corpus wikitext-2`"), "{}", missing.err);
}
