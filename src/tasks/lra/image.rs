//! CIFAR-10 (Krizhevsky 2009) in gray, from its binary batches or from the parquet files of Hugging
//! Face.

use super::permutation::{first, permutation, tenth};
use super::picture::{self, PIXELS};
use super::{place, Documents, LraConfig, LraDataset, Splits};
use crate::error::{Error, Position, Result};
use crate::tasks::parquet;
use png::ColorType;
use rayon::prelude::*;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// A label, then the red, the green and the blue of every pixel.
const RECORD: usize = 1 + 3 * PIXELS;

const CLASSES: u8 = 10;

/// The binary batches in the order of the released code, those for training first.
const BATCHES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

/// The files of Hugging Face, that for training first.
const PARQUET: [&str; 2] = [
    "train-00000-of-00001.parquet",
    "test-00000-of-00001.parquet",
];

/// What brings files that are whole.
const REMEDY: &str = "fetch it again: dsf data fetch lra --dataset image";

/// The pictures under `dir`: of those for training, nine tenths train and the last one validates, in the
/// permutation of the released code. Its split is that of the binary batches; the parquet files have an
/// order of their own. Of each part the first examples are taken, as many as `config` says.
///
/// # Errors
/// A file that is missing or is not what it should be, by its name and record; sizes beyond what was found.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<Splits> {
    let (rest, test) = read(dir)?;
    let order = permutation(rest.len());
    let (train, val) = order.split_at(rest.len() - tenth(rest.len()));
    let tested: Vec<usize> = (0..test.len()).collect();
    let train = first(train, "--train-examples", config.train_examples)?;
    let val = first(val, "--val-examples", config.val_examples)?;
    let tested = first(&tested, "--test-examples", config.test_examples)?;
    Ok(Splits {
        train: rest.select(train.iter().copied()),
        val: rest.select(val.iter().copied()),
        test: test.select(tested.iter().copied()),
        warnings: Vec::new(),
    })
}

/// A folder of pictures, in one of two forms.
pub(super) enum Edition {
    Batches(PathBuf),
    Parquet(PathBuf),
}

/// The edition at or below `dir`; of two the binary one.
pub(super) fn find(dir: &Path) -> Result<Edition> {
    place::find(dir, LraDataset::Image, &BATCHES)
        .map(Edition::Batches)
        .or_else(|missing| {
            let parquet = place::look(dir, LraDataset::Image, &PARQUET);
            parquet.map(Edition::Parquet).ok_or(missing)
        })
}

/// All pictures for training and all for testing, in the order of their files.
fn read(dir: &Path) -> Result<(Documents, Documents)> {
    match find(dir)? {
        Edition::Batches(folder) => {
            let (mut train, mut test) = (Documents::new(1), Documents::new(1));
            let [one, two, three, four, five, last] = BATCHES.map(|batch| folder.join(batch));
            for batch in [one, two, three, four, five] {
                read_batch(&batch, &mut train)?;
            }
            read_batch(&last, &mut test)?;
            Ok((train, test))
        }
        Edition::Parquet(folder) => {
            let [train, test] = PARQUET.map(|name| read_parquet(&folder.join(name)));
            Ok((train?, test?))
        }
    }
}

/// Adds the records of a binary batch.
fn read_batch(path: &Path, examples: &mut Documents) -> Result<()> {
    let file = File::open(path).map_err(Error::io("read", path))?;
    let size = file.metadata().map_err(Error::io("read", path))?.len();
    let (records, rest) = (size / RECORD as u64, size % RECORD as u64);
    if records == 0 || rest > 0 {
        let reason = format!("expected {RECORD} bytes, found {rest}; {REMEDY}");
        return Err(Error::data_at(path, Position::Record(records), reason));
    }
    let mut file = BufReader::new(file);
    let mut record = [0; RECORD];
    for number in 0..records {
        file.read_exact(&mut record)
            .map_err(Error::io("read", path))?;
        let (label, colors) = (record[0], &record[1..]);
        check_label(label.into(), path, number)?;
        let (red, rest) = colors.split_at(PIXELS);
        let (green, blue) = rest.split_at(PIXELS);
        let pixels: Vec<u8> = red
            .iter()
            .zip(green)
            .zip(blue)
            .map(|((&red, &green), &blue)| gray([red, green, blue]))
            .collect();
        examples.push(&[&pixels], label);
    }
    Ok(())
}

/// The rows of a parquet file of PNG pictures.
fn read_parquet(path: &Path) -> Result<Documents> {
    let rows = parquet::rows(path, "img.bytes", usize::MAX)?;
    let pictures: Vec<Result<Vec<u8>, String>> = rows
        .par_iter()
        .map(|(png, _)| picture::decode(png, ColorType::Rgb))
        .collect();
    let mut examples = Documents::new(1);
    for (number, (colors, (_, label))) in pictures.into_iter().zip(rows).enumerate() {
        let label = check_label(label, path, number as u64)?;
        let colors = colors.map_err(|why| {
            Error::data_at(
                path,
                Position::Record(number as u64),
                format!("{why}; {REMEDY}"),
            )
        })?;
        let (colors, _) = colors.as_chunks();
        let pixels: Vec<u8> = colors.iter().map(|&color| gray(color)).collect();
        examples.push(&[&pixels], label);
    }
    Ok(examples)
}

fn check_label(label: i64, path: &Path, record: u64) -> Result<u8> {
    let class = u8::try_from(label).ok().filter(|&class| class < CLASSES);
    class.ok_or_else(|| {
        let reason = format!("expected a label of 0 to 9, found {label}; {REMEDY}");
        Error::data_at(path, Position::Record(record), reason)
    })
}

/// The luma of ITU-R BT.601 in 16 bits behind the point, rounded.
fn gray([red, green, blue]: [u8; 3]) -> u8 {
    let [red, green, blue] = [red, green, blue].map(u32::from);
    ((19_595 * red + 38_470 * green + 7_471 * blue + 32_768) >> 16) as u8
}

#[cfg(test)]
mod tests;
