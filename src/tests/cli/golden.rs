//! `dsf check golden`.

use super::World;
use std::fs;
use std::path::Path;

fn fixture(name: &str) -> std::path::PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    dir.join(format!("{name}.safetensors"))
}

fn check(files: &[(&str, Vec<u8>)]) -> super::Said {
    let world = World::new();
    fs::create_dir(world.path("dir")).unwrap();
    for (name, bytes) in files {
        fs::write(world.path("dir").join(format!("{name}.safetensors")), bytes).unwrap();
    }
    world.dsf("check golden dir")
}

#[test]
fn a_good_file_passes_with_its_worst_error() {
    let bytes = fs::read(fixture("qlstm_paper")).unwrap();
    let said = check(&[("qlstm_paper", bytes)]).ok();
    assert!(said.starts_with("qlstm_paper  pass"), "{said}");
    assert!(said.contains("tolerance"), "{said}");
    assert!(
        said.ends_with("1 passed, 0 failed, 0 not implemented\n"),
        "{said}"
    );
}

#[test]
fn a_changed_number_fails_with_exit_code_4() {
    let mut bytes = fs::read(fixture("qlstm_paper")).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 0x55;
    let said = check(&[("qlstm_paper", bytes)]);
    assert_eq!(said.code, 4, "{}", said.out);
    assert!(said.out.contains("FAIL"), "{}", said.out);
}

#[test]
fn an_unreadable_file_fails_and_the_rest_is_still_checked() {
    let good = fs::read(fixture("lemma2")).unwrap();
    let truncated = good[..good.len() / 2].to_vec();
    let garbage = vec![0xff; 100];
    let said = check(&[
        ("qlstm_paper", truncated),
        ("s6_paper", garbage),
        ("lemma2", good),
    ]);
    assert_eq!(said.code, 4, "{}", said.out);
    assert!(said.out.contains("1 passed, 2 failed"), "{}", said.out);
    assert!(!said.err.contains("panicked"), "{}", said.err);
}

#[test]
fn a_mixer_that_is_not_in_the_registry_fails_and_says_what_is_known() {
    let bytes = fs::read(fixture("qlstm_paper")).unwrap();
    let said = check(&[("nobody", bytes.clone()), ("qlstm_paper", bytes)]);
    assert_eq!(said.code, 4, "{}", said.out);
    assert!(
        said.out.contains("1 passed, 0 failed, 1 not implemented"),
        "{}",
        said.out
    );
    assert!(
        said.out
            .contains("no mixer of the registry has golden files named so"),
        "{}",
        said.out
    );
}

#[test]
fn a_folder_without_files_is_refused() {
    let message = World::new().dsf("check golden .").refused();
    assert!(message.contains(".safetensors"), "{message}");
    assert!(World::new()
        .dsf("check golden nowhere")
        .refused()
        .contains("nowhere"));
}
