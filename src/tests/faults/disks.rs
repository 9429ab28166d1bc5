//! Disks that are full or cannot be written to, where the test may mount one.

use super::{look_at, worth};
use crate::cli::World;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const RUN: &str = "mqar --preset smoke --d 32 --train-examples 96 --test-examples 32 --epochs 3 --threads 1 -q";

/// A file system in memory, until it is dropped.
struct Disk(PathBuf);

impl Disk {
    /// None where the test may not mount one.
    fn mounted(at: PathBuf, options: &str) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let path = at.to_str().unwrap();
        let mount = ["-t", "tmpfs", "-o", options, "tmpfs", path];
        let mounted = Command::new("mount").args(mount).output();
        match mounted.is_ok_and(|said| said.status.success()) {
            true => Some(Self(at)),
            false => {
                println!("skipped: this test may not mount a file system");
                None
            }
        }
    }

    fn change(&self, options: &str) {
        let path = self.0.to_str().unwrap();
        let options = format!("remount,{options}");
        let done = Command::new("mount").args(["-o", &options, path]).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_run_on_a_full_disk_says_so_and_goes_on_when_there_is_room() {
    let whole = World::new();
    whole.dsf(RUN).ok();
    let wanted = worth(&whole.only_run("results"));
    // Room for nothing, for the config, for some of the checkpoint and of the weights.
    for kilobytes in [4, 16, 32, 48, 64, 96] {
        let world = World::new();
        let Some(disk) = Disk::mounted(world.path("results"), &format!("size={kilobytes}k")) else {
            return;
        };
        let said = world.dsf(RUN);
        assert!(!said.err.contains("panicked"), "{}", said.err);
        assert!(said.code == 0 || said.err.contains("error: "), "{}: {}", said.code, said.err);
        look_at(&world, "results");
        disk.change("size=10m");
        world.dsf(RUN).ok();
        assert_eq!(worth(&world.only_run("results")), wanted, "{kilobytes} kB");
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused_and_can_be_looked_at() {
    let world = World::new();
    let Some(disk) = Disk::mounted(world.path("results"), "size=10m") else {
        return;
    };
    world.dsf(RUN).ok();
    disk.change("ro");
    for line in [RUN, "sweep --preset smoke --mixer ssd -q"] {
        world.refuses(line, "--out").gives("results");
    }
    assert!(world.dsf("report").ok().contains("1 run"), "its report needs no room");
    look_at(&world, "results");
    disk.change("rw");
    world.dsf("sweep --preset smoke --mixer ssd -q").ok();
}

#[test]
fn a_cache_that_cannot_be_written_to_is_refused_with_what_helps() {
    let world = World::new();
    let Some(disk) = Disk::mounted(world.path("home"), "size=1m") else {
        return;
    };
    fs::create_dir(world.path("texts")).unwrap();
    for name in ["train.txt", "valid.txt", "test.txt"] {
        fs::write(world.path("texts").join(name), "a few words\n").unwrap();
    }
    let words = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "few": 1, "words": 2}, "unk_token": "a"}}"#;
    fs::write(world.path("words.json"), words).unwrap();
    disk.change("ro");
    for line in [
        "data tokens --corpus text --data-dir texts --tokenizer bytes",
        "data tokens --corpus text --data-dir texts --tokenizer words.json",
        "data fetch wikitext --corpus wikitext-2",
        "wikitext --preset smoke --corpus text --data-dir texts --seq-len 4",
        "data generate listops --train-examples 4 --val-examples 2 --test-examples 2",
    ] {
        world.fails(line, "io").names(&["HF_HOME"]);
    }
}
