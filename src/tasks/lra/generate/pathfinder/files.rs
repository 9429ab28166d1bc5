//! The files of the release.

use super::grid::SIDE;
use super::{pictures, Picture, Progress};
use crate::error::{Error, Result};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const PICTURES_A_FOLDER: usize = 1000;

/// Writes the pictures 0 .. `pictures`, long snakes having `paddles` paddles, under `folder`: `imgs/<k>/sample_<i>.png`, a thousand to each
/// k, and `metadata/<k>.npy`, which is text.
pub fn write(
    (seed, paddles): (u64, usize),
    pictures: usize,
    folder: &Path,
    progress: Progress,
) -> Result<()> {
    let metadata = folder.join("metadata");
    fs::create_dir_all(&metadata).map_err(Error::io("create", &metadata))?;
    for (k, first) in (0..pictures).step_by(PICTURES_A_FOLDER).enumerate() {
        let end = pictures.min(first + PICTURES_A_FOLDER);
        write_folder((seed, paddles), k, first..end, folder)?;
        progress(end - first)?;
    }
    Ok(())
}

fn write_folder(
    (seed, paddles): (u64, usize),
    k: usize,
    numbers: std::ops::Range<usize>,
    folder: &Path,
) -> Result<()> {
    let images = folder.join(format!("imgs/{k}"));
    fs::create_dir_all(&images).map_err(Error::io("create", &images))?;
    let mut table = String::new();
    for (i, picture) in pictures(seed, paddles, numbers).iter().enumerate() {
        let name = format!("sample_{i}.png");
        let path = images.join(&name);
        fs::write(&path, png(picture)).map_err(Error::io("write", &path))?;
        // Continuity, paddles of long and of short snakes, length, thickness, margin, contrasts.
        let label = picture.label;
        let short = paddles / 3;
        let row = format_args!("imgs/{k} {name} {i} {label} 1.0 {paddles} {short} 2 0.5 1 1");
        writeln!(table, "{row}").expect("a string takes every text");
    }
    let path = folder.join(format!("metadata/{k}.npy"));
    fs::write(&path, table).map_err(Error::io("write", &path))
}

/// An 8-bit gray PNG.
fn png(picture: &Picture) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, SIDE as u32, SIDE as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&picture.pixels))
        .expect("memory takes a picture of this size");
    bytes
}
