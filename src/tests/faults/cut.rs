//! A file that is cut while it is mapped: the system ends the process, which says why.

use crate::cli::recovery::wait_for_an_epoch;
use crate::cli::World;
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn a_token_file_that_is_cut_while_it_is_used_ends_the_run_with_a_sentence() {
    let world = World::new();
    fs::create_dir(world.path("text")).unwrap();
    let text = "some words of a page\n".repeat(20_000);
    for name in ["train.txt", "valid.txt", "test.txt"] {
        fs::write(world.path("text").join(name), &text).unwrap();
    }
    let line = "wikitext --preset smoke --corpus text --data-dir text --epochs 1000 --threads 1";
    let said = fs::File::create(world.path("said")).unwrap();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("dsf"))
        .args(line.split_whitespace())
        .current_dir(world.path(""))
        .env("HF_HOME", world.path("home"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .unwrap();
    wait_for_an_epoch(&world, "results");
    let folders = fs::read_dir(world.path("home/dsf/wikitext/tokens")).unwrap();
    let folder = folders.map(|entry| entry.unwrap().path()).find(|path| path.is_dir());
    let tokens = folder.unwrap().join("train.tokens");
    fs::File::options().write(true).open(tokens).unwrap().set_len(4096).unwrap();
    let status = child.wait().unwrap();
    let said = fs::read_to_string(world.path("said")).unwrap();
    assert_eq!(status.code(), Some(65), "{said}");
    assert!(said.contains("error: a token file was cut"), "{said}");
    // It is as damaged for whoever comes next, who is told the file.
    let next = world.fails(line, "corrupt");
    assert!(next.path.unwrap().ends_with("train.tokens"));
}
