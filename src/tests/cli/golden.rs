//! `dsf check golden`.

use super::World;
use std::fs;
use std::path::Path;

fn fixture(name: &str) -> std::path::PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    dir.join(format!("{name}.safetensors"))
}

/// The output of a check of `files`, as text and in JSON.
fn check(files: &[(&str, Vec<u8>)]) -> [super::Said; 2] {
    let world = World::new();
    fs::create_dir(world.path("dir")).unwrap();
    for (name, bytes) in files {
        fs::write(world.path("dir").join(format!("{name}.safetensors")), bytes).unwrap();
    }
    ["check golden dir", "check golden dir --json"].map(|line| world.dsf(line))
}

/// Compares a text with a file, but for the number that is worst, which is another one on another machine.
fn shows(name: &str, text: &str) {
    let mut settings = super::compared(true);
    settings.add_filter(r"worst of (\d+): .* off by", "worst of $1: [number] off by");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Counts of files that passed, failed and have no mixer.
fn counts(said: &super::Said) -> [u64; 3] {
    let end = said.object();
    ["passed", "failed", "not_implemented"].map(|count| end[count].as_u64().unwrap())
}

#[test]
fn a_good_file_passes_with_its_worst_error() {
    let bytes = fs::read(fixture("qlstm_paper")).unwrap();
    let [text, json] = check(&[("qlstm_paper", bytes)]);
    shows("golden-pass", &text.ok());
    let file = &json.objects()[0];
    assert_eq!(file["verdict"], "pass");
    assert!(file["worst"].is_object(), "{file}");
    assert_eq!(counts(&json), [1, 0, 0]);
}

#[test]
fn a_changed_number_fails_with_exit_code_4() {
    let mut bytes = fs::read(fixture("qlstm_paper")).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 0x55;
    let [text, json] = check(&[("qlstm_paper", bytes)]);
    assert_eq!(text.code, 4, "{}", text.out);
    assert_eq!(json.objects()[0]["verdict"], "fail");
    assert_eq!(counts(&json), [0, 1, 0]);
}

#[test]
fn an_unreadable_file_fails_and_the_rest_is_still_checked() {
    let good = fs::read(fixture("lemma2")).unwrap();
    let truncated = good[..good.len() / 2].to_vec();
    let garbage = vec![0xff; 100];
    let [text, json] = check(&[("qlstm_paper", truncated), ("s6_paper", garbage), ("lemma2", good)]);
    assert_eq!(text.code, 4, "{}", text.out);
    assert_eq!(counts(&json), [1, 2, 0]);
    assert!(!text.err.contains("panicked"), "{}", text.err);
}

#[test]
fn a_mixer_that_is_not_in_the_registry_fails_and_says_what_is_known() {
    let bytes = fs::read(fixture("qlstm_paper")).unwrap();
    let [text, json] = check(&[("nobody", bytes.clone()), ("qlstm_paper", bytes)]);
    assert_eq!(text.code, 4, "{}", text.out);
    shows("golden-of-no-mixer", &text.out);
    assert_eq!(counts(&json), [1, 0, 1]);
}

#[test]
fn a_folder_without_files_is_refused() {
    let none = World::new().fails("check golden .", "refused");
    none.at(".", None).names(&[".safetensors"]);
    let nowhere = World::new().fails("check golden nowhere", "refused");
    nowhere.at("nowhere", None);
}
