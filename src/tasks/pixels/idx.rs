//! The published files of MNIST, in the IDX format: a header of big-endian numbers, then bytes.

use super::digits::SIDE;
use super::CLASSES;
use crate::error::{Error, Result};
use crate::files::read_bytes;
use crate::tasks::{Documents, Sources, TrainValTest};
use flate2::read::GzDecoder;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Pictures and labels for training, then for testing.
const NAMES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

/// First numbers of files of pictures and of labels: unsigned bytes along three axes, or along one.
const PICTURES: u32 = 0x0803;
const LABELS: u32 = 0x0801;

/// Largest size in bytes of a file that is decompressed: that of the training pictures, with some room.
const LARGEST: u64 = 64 << 20;

const REMEDY: &str = "get a new copy of MNIST's files";

/// Reads the splits: training and validation from the training files, which have 60,000 pictures, and test from the test
/// files; the first pictures of each, except that validation begins after the last training picture.
pub(super) fn load(data_dir: Option<&Path>, [train, val, test]: [usize; 3]) -> Result<TrainValTest<Documents>> {
    let files = find(data_dir)?;
    let (of_training, of_test) = (read(&files[0], &files[1])?, read(&files[2], &files[3])?);
    let enough = |flag: &'static str, wanted: usize, found: &Documents, file: &Path| match found.len() {
        count if count >= wanted => Ok(()),
        count => {
            let reason = format!("this file has {count} pictures, so give {flag} {count} or less");
            Err(Error::flag_value(flag, wanted, reason).in_file(file, None))
        }
    };
    enough("--train-examples", train, &of_training, &files[0])?;
    let left = of_training.len() - train;
    if val > left {
        let reason =
            format!("{left} of the training pictures are left for validation: give --val-examples {left} or less");
        return Err(Error::flag_value("--val-examples", val, reason).in_file(&files[0], None));
    }
    enough("--test-examples", test, &of_test, &files[2])?;
    Ok([of_training.select(0..train), of_training.select(train..train + val), of_test.select(0..test)].into())
}

/// Files that [`load`] reads.
pub(super) fn sources(data_dir: Option<&Path>) -> Result<Sources> {
    let mut sources = Sources::default();
    for (name, path) in NAMES.into_iter().zip(find(data_dir)?) {
        sources.push(name, path);
    }
    Ok(sources)
}

/// Returns the four files at or below a folder, plain or compressed, as published and as torchvision keeps them.
fn find(data_dir: Option<&Path>) -> Result<[PathBuf; 4]> {
    let Some(dir) = data_dir else {
        return Err(Error::missing(
            "MNIST is not downloaded here: give the folder of its four IDX files with --data-dir DIR, or draw digits with \
             --data native",
        ));
    };
    let folders = ["", "mnist", "MNIST", "MNIST/raw", "raw"].map(|folder| dir.join(folder));
    let file = |folder: &Path, name: &str| {
        let dotted = name.replacen("-idx", ".idx", 1);
        let forms = [name.to_owned(), format!("{name}.gz"), dotted.clone(), format!("{dotted}.gz")];
        forms.into_iter().map(|form| folder.join(form)).find(|path| path.exists())
    };
    let folder = folders.iter().find(|folder| file(folder, NAMES[0]).is_some()).unwrap_or(&folders[0]);
    let mut found = Vec::new();
    for name in NAMES {
        found.push(file(folder, name).ok_or_else(|| {
            let reason =
                format!("{name} of MNIST is not in this folder: give the one of its four IDX files with --data-dir");
            Error::missing_at(folder, reason)
        })?);
    }
    Ok(found.try_into().expect("one file for each name"))
}

/// Reads pictures and their labels.
fn read(pictures: &Path, labels: &Path) -> Result<Documents> {
    let pixels = body(pictures, PICTURES, &[SIDE as u32, SIDE as u32])?;
    let classes = body(labels, LABELS, &[])?;
    if pixels.len() != SIDE * SIDE * classes.len() {
        let reason = format!("{} labels, but {} pictures; {REMEDY}", classes.len(), pixels.len() / (SIDE * SIDE));
        return Err(Error::data(labels, reason));
    }
    if let Some(at) = classes.iter().position(|&class| usize::from(class) >= CLASSES) {
        return Err(Error::data(labels, format!("label {} of picture {at} is none of 0 to 9; {REMEDY}", classes[at])));
    }
    let mut examples = Documents::new(1);
    for (pixels, class) in pixels.chunks_exact(SIDE * SIDE).zip(classes) {
        examples.push(&[pixels], class);
    }
    Ok(examples)
}

/// Bytes after the header of a file of `kind`, whose axes after the first have the sizes `rest`.
fn body(path: &Path, kind: u32, rest: &[u32]) -> Result<Vec<u8>> {
    let mut bytes = read_bytes(path)?;
    if path.extension().is_some_and(|ending| ending == "gz") {
        let mut plain = Vec::new();
        let read = GzDecoder::new(&bytes[..]).take(LARGEST).read_to_end(&mut plain);
        read.map_err(|why| Error::data(path, format!("damaged gzip data ({why}); {REMEDY}")))?;
        bytes = plain;
    }
    let header: Vec<u32> =
        bytes.chunks_exact(4).map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]])).collect();
    let axes = 1 + rest.len();
    let refused = |reason: String| Err(Error::data(path, format!("{reason}; {REMEDY}")));
    if header.first() != Some(&kind) || header.len() < 1 + axes {
        return refused(format!("expected an IDX file that begins with the number {kind}"));
    }
    if header[2..1 + axes] != *rest {
        return refused(format!("expected pictures of {SIDE} x {SIDE} pixels, found {:?}", &header[2..1 + axes]));
    }
    let (start, size) = (4 * (1 + axes), header[1..1 + axes].iter().map(|&n| n as usize).product::<usize>());
    if bytes.len() != start + size {
        return refused(format!("expected {} bytes, found {}", start + size, bytes.len()));
    }
    Ok(bytes.split_off(start))
}
