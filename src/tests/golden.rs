//! The golden files of the project, each as `dsf check golden` judges it.

use dsf::golden::{check, files, FileVerdict};
use dsf::ops::rng::Rng;
use std::fs;
use std::path::Path;

#[test]
fn every_golden_file_passes() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let files = files(&dir).unwrap();
    assert_eq!(files.len(), 101, "a fixture came or went");
    let mut failures = Vec::new();
    for file in files {
        match check(&file) {
            FileVerdict::Pass(worst) => println!("{} {worst:?}", file.display()),
            other => failures.push(format!("{}: {other:?}", file.display())),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Tiny models of every architecture that is read, of which every step was computed in f64: by `transformers`, and for
/// flash-linear-attention's by recurrences of their own.
#[test]
fn every_pretrained_model_has_the_logits_of_its_reference() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let [transformers, fla] = ["pretrained", "fla"].map(|name| files(&dir.join(name)).unwrap());
    assert_eq!((transformers.len(), fla.len()), (10, 11), "a fixture came or went");
    for folder in transformers.into_iter().chain(fla) {
        match check(&folder) {
            FileVerdict::Pass(worst) => assert!(worst.count == 7, "{worst:?}"),
            other => panic!("{}: {other:?}", folder.display()),
        }
        assert_eq!(files(&folder).unwrap(), [folder]);
    }
}

/// One changed weight is found.
#[test]
fn a_pretrained_model_with_another_weight_fails() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden/pretrained/mamba");
    let copy = tempfile::tempdir().unwrap();
    for name in ["config.json", "expected.safetensors", "expected.json"] {
        fs::copy(dir.join(name), copy.path().join(name)).unwrap();
    }
    let mut weights = fs::read(dir.join("model.safetensors")).unwrap();
    let last = weights.len() - 1;
    weights[last] ^= 1 << 6; // the exponent of the last number
    fs::write(copy.path().join("model.safetensors"), weights).unwrap();
    assert!(matches!(check(copy.path()), FileVerdict::Fail(_)));
}

#[test]
fn what_a_file_manager_leaves_is_no_golden_file() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.safetensors", "._a.safetensors", ".DS_Store", "Thumbs.db"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    assert_eq!(files(dir.path()).unwrap(), [dir.path().join("a.safetensors")]);
}

/// Damage of every kind in the header and the numbers: a verdict each time, never a panic.
#[test]
fn damaged_files_are_judged_and_never_panic() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/golden");
    let world = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(1, "damage", 0);
    let names = ["lemma1", "lemma2", "qlstm_paper", "linear_attention_paper", "mqar_numpy"];
    for name in names.into_iter().chain(["trajectory_ssd", "s6_reference"]) {
        let file = world.path().join(format!("{name}.safetensors"));
        let whole = fs::read(dir.join(format!("{name}.safetensors"))).unwrap();
        let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
        for trial in 0..40 {
            let mut bytes = whole.clone();
            if trial % 8 == 0 {
                bytes.truncate(rng.below(whole.len() as u32) as usize);
            }
            for _ in 0..1 + trial % 3 {
                let at = rng.below(header as u32) as usize;
                // Digits become other digits, so that sizes stay sizes and lie.
                if let Some(byte) = bytes.get_mut(at) {
                    let digit = b'0' + rng.below(10) as u8;
                    *byte = if byte.is_ascii_digit() { digit } else { rng.next_u32() as u8 };
                }
            }
            fs::write(&file, &bytes).unwrap();
            check(&file);
        }
    }
}
