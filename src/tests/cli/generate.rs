//! `dsf data generate`, at sizes of a moment.

use super::{shows, World};
use std::fs;

const LISTOPS: &str = "data generate listops --data-dir d --train-examples 20 --val-examples 5 \
                       --test-examples 5 --seq-len 256";

#[test]
fn listops_are_written_as_the_released_files_and_the_next_command_is_named() {
    let world = World::new();
    let said = world.dsf(LISTOPS).ok();
    shows!("generate-listops", said);
    for (name, rows) in [("train", 20), ("val", 5), ("test", 5)] {
        let path = world.path(&format!("d/listops/basic_{name}.tsv"));
        let text = fs::read_to_string(path).unwrap();
        assert_eq!(text.matches("\r\n").count(), rows + 1);
    }
    let entries = fs::read_dir(world.path("d/listops")).unwrap();
    assert_eq!(entries.count(), 3, "nothing but the files");
}

#[test]
fn the_same_seed_writes_the_same_files_on_any_number_of_threads() {
    let world = World::new();
    world.dsf(&format!("{LISTOPS} --threads 1")).ok();
    let path = world.path("d/listops/basic_train.tsv");
    let first = fs::read(&path).unwrap();
    world.dsf(&format!("{LISTOPS} --threads 3 --force")).ok();
    assert_eq!(fs::read(&path).unwrap(), first);
    world.dsf(&format!("{LISTOPS} --data-seed 1 --force")).ok();
    assert_ne!(fs::read(&path).unwrap(), first);
}

#[test]
fn pathfinder_is_written_as_the_released_folders() {
    let world = World::new();
    let line = "data generate pathfinder --data-dir d --examples 30";
    let said = world.dsf(line).ok();
    shows!("generate-pathfinder", said);
    let level = world.path("d/pathfinder/pathfinder32/curv_contour_length_14");
    let table = fs::read_to_string(level.join("metadata/0.npy")).unwrap();
    assert_eq!(table.lines().count(), 30);
    assert!(table.starts_with("imgs/0 sample_0.png 0 "), "{table}");
    assert_eq!(fs::read_dir(level.join("imgs/0")).unwrap().count(), 30);
    let fault = world.fails(line, "refused");
    assert!(fault.path.unwrap().starts_with("d/pathfinder"));
}

#[test]
fn path_x_is_written_trained_on_and_refused_at_other_sizes() {
    let world = World::new();
    let said = world.dsf("data generate pathfinder --side 128 --data-dir d --examples 10").ok();
    assert!(said.contains("dsf lra --dataset path-x --data files"), "{said}");
    let level = world.path("d/pathfinder/pathfinder128/curv_contour_length_14");
    let table = fs::read_to_string(level.join("metadata/0.npy")).unwrap();
    let margin = |line: &str| line.split(' ').nth(9).unwrap().to_owned();
    assert!(table.lines().all(|line| ["2", "3"].contains(&margin(line).as_str())), "{table}");
    assert!(table.lines().all(|line| line.contains(" 1.8 14 4 5 1.5 ")), "{table}");
    let sizes = "--train-examples 8 --val-examples 1 --test-examples 1 --epochs 1";
    let line = format!("lra --preset smoke --dataset path-x --mixer s6 --data files --data-dir d {sizes}");
    // Table 3 has no column for it: the grid shows it.
    let told = world.dsf(&line).ok();
    assert!(told.contains("next:    dsf report") && !told.contains("--table"), "{told}");
    assert!(world.dsf("report").ok().contains("path-x"));
    let larger = fs::read(world.path("d/pathfinder/pathfinder128/curv_contour_length_14/imgs/0/sample_3.png")).unwrap();
    world.dsf("data generate pathfinder --data-dir small --examples 10").ok();
    let other = world.path("small/pathfinder/pathfinder32/curv_contour_length_14/imgs/0/sample_3.png");
    fs::write(&other, larger).unwrap();
    let line = format!("lra --preset smoke --dataset pathfinder --mixer s6 --data files --data-dir small {sizes}");
    world.fails(&line, "data").names(&["expected a PNG of 32 x 32 pixels", "found 128 x 128 pixels"]);
    world.fails("data generate pathfinder --side 64 --examples 10", "refused").names(&["32, 128 or 256"]);
}

#[test]
fn what_is_there_is_replaced_by_force_alone() {
    let world = World::new();
    world.dsf(LISTOPS).ok();
    let fault = world.fails(LISTOPS, "refused");
    fault.names(&["--force"]);
    assert!(fault.path.unwrap().ends_with("basic_train.tsv"));
    world.dsf(&format!("{LISTOPS} --force")).ok();
}

#[test]
fn sizes_without_sense_are_refused_by_their_flag_and_make_nothing() {
    let refused = [
        ("listops --seq-len 20000", Some("--seq-len")),
        ("listops --seq-len 3", Some("--seq-len")),
        ("listops --train-examples 0", Some("--train-examples")),
        ("pathfinder --examples 9", Some("--examples")),
        ("text", None),
    ];
    for (arguments, flag) in refused {
        let world = World::new();
        let line = format!("data generate {arguments}");
        let fault = world.fails(&format!("{line} --data-dir d"), "refused");
        assert_eq!(fault.flag.as_deref(), flag, "{fault:?}");
        assert!(!world.path("d").exists(), "{line}");
    }
}
