//! Files around the program: manual pages, completions, licences, workflows, readers that leave early.

use super::{shows, World};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether a program is there, with a word where it is not.
fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: no {program} here");
    }
    found
}

fn sh(world: &World, shell: &str, script: &str) -> String {
    let said = Command::new(shell).args(["-c", script]).current_dir(world.path("")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{script}: {out}{err}");
    format!("{out}{err}")
}

#[test]
fn every_command_has_a_manual_page() {
    let world = World::new();
    let said = world.dsf("man --to pages").ok();
    shows!("manual-pages", said);
    let pages: BTreeSet<String> = fs::read_dir(world.path("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["dsf", "dsf-mqar", "dsf-lra", "dsf-sweep-status", "dsf-data-fetch", "dsf-wikitext-eval", "dsf-man"] {
        assert!(pages.contains(&format!("{name}.1")), "{name}: {pages:?}");
    }
    assert!(!pages.iter().any(|page| page.contains("worker") || page.contains("help")), "{pages:?}");
    let page = world.dsf("man sweep status").ok();
    assert_eq!(page, fs::read_to_string(world.path("pages/dsf-sweep-status.1")).unwrap());
    // Flags that another task alone takes are in no page of this one.
    let flags = |page: &str| -> [bool; 2] {
        let text = fs::read_to_string(world.path(&format!("pages/dsf-{page}.1"))).unwrap();
        ["\\-\\-kv\\-pairs", "\\-\\-contour\\-length"].map(|flag| text.contains(flag))
    };
    assert_eq!((flags("mqar"), flags("lra")), ([true, false], [false, true]));
    world.fails("man swep", "refused").names(&["`sweep`"]);
}

/// The words that call each command: a page a command, whose name is those of the commands above it and its own.
fn commands(pages: &BTreeSet<String>) -> Vec<String> {
    let names: BTreeSet<&str> = { pages.iter() }.map(|page| page.strip_suffix(".1").unwrap()).collect();
    let above = |name: &str| {
        let ends = name.rmatch_indices('-').map(|(end, _)| end);
        let mut above = ends.filter(|end| names.contains(&name[..*end]));
        above.next()
    };
    let words = |name: &&str| {
        let (mut rest, mut words) = (*name, Vec::new());
        while let Some(end) = above(rest) {
            words.insert(0, &rest[end + 1..]);
            rest = &rest[..end];
        }
        words.join(" ")
    };
    names.iter().map(words).collect()
}

#[test]
fn the_help_of_every_command_is_reviewed() {
    let world = World::new();
    world.dsf("man --to pages").ok();
    let pages = fs::read_dir(world.path("pages")).unwrap();
    let pages = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let mut settings = super::compared(false);
    settings.set_snapshot_path("snapshots/help");
    for words in commands(&pages.collect()) {
        for (flag, length) in [("-h", "short"), ("--help", "long")] {
            let help = world.dsf(&format!("{words} {flag}")).ok();
            let name = format!("dsf-{words}").replace(' ', "-");
            let name = format!("{}.{length}", name.trim_end_matches('-'));
            settings.bind(|| insta::assert_snapshot!(name, help));
        }
    }
}

#[test]
fn manual_pages_are_rendered_without_a_complaint() {
    if !has("groff") {
        return;
    }
    let world = World::new();
    world.dsf("man --to pages").ok();
    let script = "for page in pages/*.1; do groff -K utf8 -man -Tutf8 -ww -z \"$page\" || exit 1; done";
    assert_eq!(sh(&world, "sh", script), "");
    let shown = sh(&world, "sh", "groff -K utf8 -man -Tutf8 -P-cbou pages/dsf-mqar.1");
    let sections: Vec<&str> = { shown.lines() }.filter(|line| line.starts_with(char::is_uppercase)).collect();
    assert!(sections.contains(&"SYNOPSIS"), "{sections:?}");
    let flag = |line: &str| line.trim().starts_with("--mixer");
    assert!(shown.lines().any(flag), "{shown}");
}

#[test]
fn bash_completes_mixers_tasks_and_experiments() {
    if !has("bash") {
        return;
    }
    let world = World::new();
    fs::write(world.path("dsf.bash"), world.dsf("completions bash").ok()).unwrap();
    let completed = |words: &str, last: &str| {
        let script = format!(
            "source dsf.bash; COMP_WORDS=({words} '{last}'); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _dsf dsf '{last}' \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let said = sh(&world, "bash", &script);
        said.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let names = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|n| (*n).to_owned()).collect() };
    assert_eq!(completed("dsf mqar --mixer", "ql"), names(&["qlstm", "qlstm-reversed"]));
    assert_eq!(completed("dsf sweep --mixer", "al"), names(&["alibi", "all"]));
    assert_eq!(completed("dsf report --mixer", "sof"), names(&["softmax"]));
    assert_eq!(completed("dsf sweep --task", "wiki"), names(&["wikitext"]));
    assert!(completed("dsf sweep", "figure2").contains("figure2-small-matched"));
    assert_eq!(completed("dsf experiments", "tab"), names(&["table1", "table1-short", "table2", "table3"]));
    assert_eq!(completed("dsf mixers", "rg"), names(&["rg-lru"]));
    assert!(completed("dsf", "exp").is_superset(&names(&["experiments", "export"])));
}

#[test]
fn completions_of_other_shells_know_the_names_and_are_read_by_these() {
    let world = World::new();
    for (shell, file) in [("zsh", "_dsf"), ("fish", "dsf.fish")] {
        let script = world.dsf(&format!("completions {shell}")).ok();
        for name in ["normalized-sigmoid", "wikitext", "figure2-small-matched"] {
            assert!(script.contains(name), "{shell}: {name}");
        }
        fs::write(world.path(file), script).unwrap();
        if has(shell) {
            sh(&world, shell, &format!("{shell} -n {file}"));
        }
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let world = World::new();
    world.dsf("mqar --preset smoke --epochs 1 --train-examples 64 -q").ok();
    let run = world.only_run("results");
    let id = run.file_name().unwrap().to_str().unwrap();
    let show = format!("show {id}");
    for line in [
        "mixers",
        "mixers s6 --json",
        "experiments",
        "experiments figure7",
        "report",
        "report --columns",
        "report --claims --format json",
        "report --format png",
        &show,
        "inspect --mixer linear",
        "completions bash",
        "man",
        "licenses",
        "--help",
        "mqar --help",
        "doctor",
        "data list",
        "sweep status",
        "compare results results",
        "export --format jsonl",
        "mqar --preset smoke --epochs 1 --train-examples 64",
        "mqar --explain",
        "check --help",
        "sweep --preset smoke --mixer ssd --epochs 1 --train-examples 64 --json",
    ] {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("dsf"))
            .args(line.split_whitespace())
            .current_dir(world.path(""))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let said = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(0), "{line}: {err}");
        assert!(!err.contains("panicked") && !err.contains("error"), "{line}: {err}");
    }
}

#[test]
fn workflows_call_targets_and_scripts_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    let mut called = Vec::new();
    for workflow in fs::read_dir(root.join(".github/workflows")).unwrap() {
        let text = fs::read_to_string(workflow.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let words: Vec<&str> = line.split([' ', '"', '(', ')']).filter(|word| !word.is_empty()).collect();
            let targets = words.iter().skip_while(|word| **word != "make").skip(1).find(|word| !word.starts_with('-'));
            called.extend(targets.map(|target| (*target).to_owned()));
            let script = words.iter().find(|word| word.starts_with(".ci/"));
            assert!(script.is_none_or(|script| root.join(script).exists()), "{line}");
        }
    }
    assert!(called.len() > 4, "{called:?}");
    for target in called {
        assert!(makefile.contains(&format!("\n{target}:")), "the Makefile has no target {target}");
    }
}

/// `make notes` gives a release the section of its version.
#[test]
fn the_changelog_begins_with_the_version() {
    let changes = include_str!("../../../.github/CHANGELOG.md");
    let first = changes.lines().find(|line| line.starts_with("## ")).unwrap();
    assert!(first.starts_with(&format!("## {}", env!("CARGO_PKG_VERSION"))), "{first}");
}

#[test]
fn every_crate_of_the_lock_file_is_listed_with_its_licence() {
    let lock: toml::Table = toml::from_str(include_str!("../../../Cargo.lock")).unwrap();
    let listed = include_str!("../../../.github/THIRD-PARTY.md");
    let rows: Vec<Vec<&str>> = listed
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let mut known = BTreeSet::new();
    for package in lock["package"].as_array().unwrap() {
        if package.get("source").is_none() {
            continue; // our own
        }
        let (name, version) = (package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
        let row = rows.iter().find(|row| row[1] == name && row[2] == version);
        let row = row.unwrap_or_else(|| panic!(".github/THIRD-PARTY.md has no row for {name} {version}"));
        assert!(!row[3].is_empty() && !row[4].is_empty(), "{name}");
        known.insert((name, version));
    }
    // The head and the rule beneath it are no crates.
    let stale: Vec<_> = rows[1..].iter().filter(|row| !known.contains(&(row[1], row[2]))).collect();
    assert!(stale.is_empty(), "no longer in Cargo.lock: {stale:?}");
    assert_eq!(World::new().dsf("licenses").ok(), listed);
}
