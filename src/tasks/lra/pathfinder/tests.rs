use super::*;

const LEVEL: &str = "curv_contour_length_14";
use super::super::testing;
use crate::error::testing::Fails;
use crate::error::{Diagnostic, Position};
use picture::{encode, PIXELS};
use proptest::prelude::*;
use tempfile::TempDir;

fn config(train: usize, val: usize, test: usize) -> LraConfig {
    testing::config(LraDataset::Pathfinder, [train, val, test])
}

/// Folder of pictures, each of which has one gray value; the label is its lowest bit.
struct World(TempDir);

impl World {
    /// Creates the world in which folder k holds the pictures of row k.
    fn of(folders: &[&[u8]]) -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(world.file("metadata")).unwrap();
        for (k, values) in folders.iter().enumerate() {
            let folder = world.file(&format!("imgs/{k}"));
            fs::create_dir_all(folder).unwrap();
            let line = |(i, value): (usize, &u8)| {
                let picture = encode(32, ColorType::Grayscale, |_| *value);
                fs::write(world.picture(k, i), picture).unwrap();
                format!("imgs/{k} sample_{i}.png {i} {} 1.0 14 4 2 0.5 1 1\n", value & 1)
            };
            let lines: String = values.iter().enumerate().map(line).collect();
            world.write_metadata(k, lines.as_bytes());
        }
        world
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("pathfinder32").join(LEVEL).join(name)
    }

    fn picture(&self, k: usize, i: usize) -> PathBuf {
        self.file(&format!("imgs/{k}/sample_{i}.png"))
    }

    fn write_metadata(&self, k: usize, bytes: &[u8]) {
        fs::write(self.file(&format!("metadata/{k}.npy")), bytes).unwrap();
    }

    fn load(&self, train: usize, val: usize, test: usize) -> Result<LraSplits> {
        load(&config(train, val, test), self.0.path())
    }

    fn refusal(&self) -> Diagnostic {
        self.load(1, 0, 0).fails("data")
    }
}

/// Gray value of every picture of a split, checked against its label and size.
fn values(examples: &Documents) -> Vec<u8> {
    let value = |example| {
        let pixels = examples.document(example, 0);
        assert_eq!(pixels, [pixels[0]; PIXELS]);
        assert_eq!(examples.label(example), pixels[0] & 1);
        pixels[0]
    };
    (0..examples.len()).map(value).collect()
}

#[test]
fn the_parts_are_cut_from_the_permutation_in_order() {
    let world = World::of(&[&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]);
    let splits = world.load(8, 1, 1).unwrap();
    assert_eq!(values(&splits.train), [2, 6, 1, 8, 4, 5, 0, 9]);
    assert_eq!(values(&splits.val), [3]);
    assert_eq!(values(&splits.test), [7]);
    assert!(splits.warnings.is_empty());
    let fewer = world.load(3, 0, 1).unwrap();
    assert_eq!(values(&fewer.train), [2, 6, 1]);
    assert!(fewer.val.is_empty());
    assert_eq!(values(&fewer.test), [7]);
}

#[test]
fn folders_count_by_number_and_lines_as_they_stand() {
    let folders: [&[u8]; 11] = [&[0], &[1], &[2], &[3], &[4], &[5], &[6], &[7], &[8], &[], &[9]];
    let splits = World::of(&folders).load(8, 1, 1).unwrap();
    assert_eq!(values(&splits.train), [2, 6, 1, 8, 4, 5, 0, 9]);
}

#[test]
fn an_empty_file_is_left_out_with_a_warning() {
    let world = World::of(&[&[0, 1, 77, 2, 3, 4, 5, 6, 7, 8, 9]]);
    fs::write(world.picture(0, 2), b"").unwrap();
    let splits = world.load(8, 1, 1).unwrap();
    assert_eq!(values(&splits.train), [2, 6, 1, 8, 4, 5, 0, 9]);
    let name = world.picture(0, 2).display().to_string();
    assert_eq!(splits.warnings, [format!("{name} is empty and is left out")]);
}

#[test]
fn a_damaged_or_other_picture_is_named() {
    let wrong = [b"<html>".to_vec(), encode(64, ColorType::Grayscale, |_| 0), encode(32, ColorType::Rgb, |_| 0)];
    for bytes in wrong {
        let world = World::of(&[&[1]]);
        fs::write(world.picture(0, 0), bytes).unwrap();
        let at = world.refusal();
        at.is_at("sample_0.png", None).names(&["dsf data fetch lra --dataset pathfinder"]);
    }
}

#[test]
fn a_missing_picture_is_named() {
    let world = World::of(&[&[1, 2]]);
    fs::remove_file(world.picture(0, 1)).unwrap();
    world.load(1, 0, 0).fails("io").is_at("sample_1.png", None);
}

#[test]
fn a_line_that_lists_no_picture_is_named() {
    let good = b"imgs/0 sample_0.png 0 1 1.0\n";
    let wrong: [&[u8]; 8] = [
        b"imgs/0 sample_0.png 0",
        b"imgs/0 sample_0.png 0 2 1.0",
        b"imgs/0 sample_0.png 0 1.0 1.0",
        b"imgs/../.. sample_0.png 0 1",
        b"/etc passwd 0 1",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'}",
        b"imgs/0 sample_\xFF.png 0 1",
        b"imgs/0 sample_\x00.png 0 1",
    ];
    for line in wrong {
        let world = World::of(&[&[1]]);
        world.write_metadata(0, &[good, line].concat());
        world.refusal().is_at("0.npy", Position::Line(2));
    }
}

#[test]
fn lines_may_end_and_begin_as_in_windows_and_the_last_one_may_be_empty() {
    let world = World::of(&[&[1]]);
    for mark in [&b""[..], b"\xef\xbb\xbf"] {
        let lines = [mark, b"imgs/0 sample_0.png 0 1\r\n\r\n"].concat();
        world.write_metadata(0, &lines);
        assert_eq!(values(&world.load(1, 0, 0).unwrap().train), [1]);
    }
}

#[test]
fn a_name_without_a_number_is_refused_and_a_hidden_one_passed_over() {
    let world = World::of(&[&[1]]);
    fs::write(world.file("metadata/._0.npy"), b"\x00").unwrap();
    assert!(world.load(1, 0, 0).is_ok());
    fs::write(world.file("metadata/all.npy"), b"").unwrap();
    world.refusal().is_at("all.npy", None);
}

#[test]
fn missing_data_are_named_with_what_gets_them() {
    let dir = tempfile::tempdir().unwrap();
    let at = load(&config(1, 0, 0), dir.path()).fails("missing");
    at.is_at(dir.path(), None).names(&["curv_contour_length_14", "dsf data fetch lra"]);
}

#[test]
fn a_folder_without_metadata_is_refused() {
    let world = World::of(&[]);
    world.refusal().is_at("metadata", None).names(&["0.npy"]);
}

#[test]
fn sizes_beyond_what_was_found_are_refused_by_their_flag() {
    let world = World::of(&[&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]);
    let sizes =
        [((9, 1, 1), "--train-examples", "8"), ((8, 2, 1), "--val-examples", "1"), ((8, 1, 2), "--test-examples", "1")];
    for ((train, val, test), flag, found) in sizes {
        let at = world.load(train, val, test).refuses(flag);
        at.names(&[&format!("{flag} {found}")]);
    }
}

#[test]
fn real_pictures_are_dark_with_bright_paths() {
    let Some(dir) = std::env::var_os("DSF_TEST_DATA") else {
        println!("skipped: DSF_TEST_DATA is not set");
        return;
    };
    let dir = Path::new(&dir).join("pathfinder32-generated");
    let splits = load(&config(128, 16, 16), &dir).unwrap();
    let parts = [&splits.train, &splits.val, &splits.test];
    let examples = parts.map(|part| (0..part.len()).map(|i| (part.label(i), part.document(i, 0))));
    let all: Vec<(u8, &[u8])> = examples.into_iter().flatten().collect();
    let positive = all.iter().filter(|(label, _)| *label == 1).count();
    assert_eq!((all.len(), positive), (160, 82));
    let values = all.iter().flat_map(|(_, pixels)| *pixels);
    let mean = values.map(|&value| f64::from(value)).sum::<f64>() / (160 * PIXELS) as f64;
    assert!((mean - 20.0).abs() < 2.0, "{mean}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn changed_metadata_are_examples_or_a_sentence(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let world = World::of(&[&[0, 1, 2]]);
        let mut bytes = fs::read(world.file("metadata/0.npy")).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        world.write_metadata(0, &bytes);
        match world.load(1, 0, 0) {
            Ok(splits) => prop_assert_eq!(splits.train.len(), 1),
            Err(error) => {
                let at = error.diagnostic();
                let in_line = at.path.as_ref().is_some_and(|path| path.ends_with("0.npy")) && at.position.is_some();
                let in_level = at.path.as_ref().is_some_and(|path| path.to_string_lossy().contains(LEVEL));
                prop_assert!(in_line || in_level || at.flag.as_deref() == Some("--train-examples"), "{:?}", at);
            }
        }
    }

    #[test]
    fn a_changed_picture_is_pixels_or_a_sentence_with_its_name(
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let world = World::of(&[&[1]]);
        let mut bytes = fs::read(world.picture(0, 0)).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = value;
        bytes.truncate(1 + cut.index(bytes.len()));
        fs::write(world.picture(0, 0), bytes).unwrap();
        match world.load(1, 0, 0) {
            Ok(splits) => prop_assert_eq!(splits.train.tokens(), PIXELS),
            Err(error) => prop_assert!(error.diagnostic().path.unwrap().ends_with("sample_0.png")),
        }
    }
}
