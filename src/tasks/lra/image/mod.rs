//! CIFAR-10 (Krizhevsky 2009) in grayscale, from its binary batches or from the Parquet files of Hugging Face.

use super::files::{self, BATCHES, PARQUET};
use super::parts::{first, permutation, tenth};
use super::picture::{self, PIXELS, SIDE};
use super::{Documents, LraConfig, LraDataset, LraSplits, Sources};
use crate::error::{Error, Position, Result};
use crate::files::read_bytes;
use crate::tasks::parquet;
use png::ColorType;
use rayon::prelude::*;
use std::path::Path;

/// Size in bytes of a record: a label, then the red, the green and the blue values of all pixels.
const RECORD: usize = 1 + 3 * PIXELS;

const CLASSES: u8 = 10;

/// Remedy in the messages on damaged files.
const REMEDY: &str = "download it again: dsf data fetch lra --dataset image";

/// Reads the images under `dir`. The training images are permuted as in the released code, and the last tenth of them
/// is the validation split. It equals the released one only for the binary batches, since the Parquet files have
/// another order. Each split is cut to its first examples, as many as `config` sets. Fails with the file and record if
/// a file is missing or invalid, and if there are fewer examples than requested.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<LraSplits> {
    let folder = files::find(LraDataset::Image, config.contour_length(), dir)?;
    let (rest, test) = read(&folder)?;
    let order = permutation(rest.len());
    let (train, val) = order.split_at(rest.len() - tenth(rest.len()));
    let tested: Vec<usize> = (0..test.len()).collect();
    let [train, val, tested] = first([train, val, &tested], config)?;
    let pick = |from: &Documents, examples: &[usize]| from.select(examples.iter().copied());
    Ok([pick(&rest, train), pick(&rest, val), pick(&test, tested)].into())
}

/// Files that [`read`] would read.
pub(super) fn sources(folder: &Path) -> Sources {
    match files::has(folder, &BATCHES) {
        true => files::named(folder, &BATCHES),
        false => files::named(folder, &PARQUET),
    }
}

/// Reads all training images and all test images, in the order of their files.
fn read(folder: &Path) -> Result<(Documents, Documents)> {
    if !files::has(folder, &BATCHES) {
        let [train, test] = PARQUET.map(|name| read_parquet(&folder.join(name)));
        return Ok((train?, test?));
    }
    let (mut train, mut test) = (Documents::new(1), Documents::new(1));
    let [batches @ .., last] = BATCHES;
    for batch in batches {
        read_batch(&folder.join(batch), &mut train)?;
    }
    read_batch(&folder.join(last), &mut test)?;
    Ok((train, test))
}

/// Appends the images and labels of a binary batch to `examples`.
fn read_batch(path: &Path, examples: &mut Documents) -> Result<()> {
    let bytes = read_bytes(path)?;
    let (records, rest) = bytes.as_chunks::<RECORD>();
    if records.is_empty() || !rest.is_empty() {
        let reason = format!("expected {RECORD} bytes, found {}; {REMEDY}", rest.len());
        let at = Position::Record(records.len() as u64);
        return Err(Error::data_at(path, at, reason));
    }
    for (number, record) in (0..).zip(records) {
        let (label, colors) = (record[0], &record[1..]);
        check_label(label.into(), path, number)?;
        let (red, rest) = colors.split_at(PIXELS);
        let (green, blue) = rest.split_at(PIXELS);
        let pixels: Vec<u8> =
            red.iter().zip(green).zip(blue).map(|((&red, &green), &blue)| gray([red, green, blue])).collect();
        examples.push(&[&pixels], label);
    }
    Ok(())
}

/// Reads a Parquet file, whose rows are PNG images with labels.
fn read_parquet(path: &Path) -> Result<Documents> {
    let rows = parquet::rows(path, "img.bytes")?;
    let pictures: Vec<Result<Vec<u8>, String>> =
        rows.par_iter().map(|(png, _)| picture::decode(png, SIDE, ColorType::Rgb)).collect();
    let mut examples = Documents::new(1);
    for (number, (colors, (_, label))) in pictures.into_iter().zip(rows).enumerate() {
        let label = check_label(label, path, number as u64)?;
        let colors = colors.map_err(|why| {
            let at = Position::Record(number as u64);
            Error::data_at(path, at, format!("{why}; {REMEDY}"))
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

/// Luma of ITU-R BT.601 in fixed point with 16 fractional bits, rounded.
fn gray([red, green, blue]: [u8; 3]) -> u8 {
    let [red, green, blue] = [red, green, blue].map(u32::from);
    ((19_595 * red + 38_470 * green + 7_471 * blue + 32_768) >> 16) as u8
}

#[cfg(test)]
mod tests;
