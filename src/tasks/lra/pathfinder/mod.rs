//! Pathfinder (Linsley et al. 2018; Houtkamp and Roelfsema 2010) on 32 x 32 pixels, on 128 x 128 (Path-X) and on
//! 256 x 256, in the format of the released archive: pictures in numbered folders, and one text file per folder that
//! lists their labels; and generated pictures in the same format.

mod grid;
mod lanczos;
mod scene;
mod snake;
mod stencil;
mod style;

use super::parts::{first, permutation, tenth};
use super::picture;
use super::{files, Documents, ExamplesMade, LraConfig, LraDataset, LraSplits, Sources};
use crate::error::{Error, Position, Result};
use crate::files::{is_hidden, read_bytes, BOM};
use png::ColorType;
use rayon::prelude::*;
use scene::pictures;
use std::fmt::Write;
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use style::PictureStyle;

/// Number of pictures decoded before they are appended to the split.
const DECODED_AT_ONCE: usize = 4096;

/// Number of pictures drawn, some seconds of work at the largest size, before a run looks whether it is to stop.
const DRAWN_AT_ONCE: usize = 64;

/// Number of pictures per written folder.
const PICTURES_A_FOLDER: usize = 1000;

/// Advice for damaged files of `dataset`.
fn remedy(dataset: LraDataset) -> String {
    format!("download them again: dsf data fetch lra --dataset {}", dataset.name())
}

/// Picture listed in the metadata.
struct ListedPicture {
    path: PathBuf,
    label: u8,
}

/// Reads the released pictures under `dir`: 80 % for training, 10 % for validation and 10 % for testing, split as in
/// the released code. Of each split, the first examples are used, as many as `config` sets. Empty files are left out
/// before, with a warning. Fails with the file and line if a file is missing or invalid, and if there are fewer
/// examples than requested.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<LraSplits> {
    let level = files::find(config.dataset, config.contour_length(), dir)?;
    let (listed, warnings) = without_empty(list(&level, config.dataset)?)?;
    let order = permutation(listed.len());
    let tenth = tenth(listed.len());
    let (train, rest) = order.split_at(listed.len() - 2 * tenth);
    let (val, test) = rest.split_at(tenth);
    let [train, val, test] = first([train, val, test], config)?.map(|part| decode(&listed, part, config.dataset));
    Ok(LraSplits { warnings, ..[train?, val?, test?].into() })
}

/// Metadata files of `level` and the pictures that they list.
pub(super) fn sources(level: &Path, dataset: LraDataset) -> Result<Sources> {
    let mut sources = Sources::default();
    let metadata = metadata_files(&level.join("metadata"), dataset)?;
    let pictures = list(level, dataset)?.into_iter().map(|picture| picture.path);
    for path in metadata.into_iter().chain(pictures) {
        let name = path.strip_prefix(level).unwrap_or(&path);
        sources.push(name.to_string_lossy(), path.clone());
    }
    Ok(sources)
}

/// Pictures in the order of their metadata files' numbers and of the lines in them.
fn list(level: &Path, dataset: LraDataset) -> Result<Vec<ListedPicture>> {
    let mut listed = Vec::new();
    for metadata in metadata_files(&level.join("metadata"), dataset)? {
        let bytes = read_bytes(&metadata)?;
        let text = bytes.strip_prefix(BOM).unwrap_or(&bytes);
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let (picture, label) = parse(line).ok_or_else(|| {
                let reason = format!(
                    "expected a folder, a file, a number and a label of 0 or 1, \
                     as in `imgs/0 sample_0.png 0 1`; {}",
                    remedy(dataset)
                );
                Error::data_at(&metadata, Position::Line(number as u64 + 1), reason)
            })?;
            let path = level.join(picture);
            listed.push(ListedPicture { path, label });
        }
    }
    Ok(listed)
}

/// Files `<k>.npy` by ascending k.
fn metadata_files(folder: &Path, dataset: LraDataset) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let entry = entry.map_err(Error::io("read", folder))?;
        let (path, name) = (entry.path(), entry.file_name());
        if is_hidden(&name) {
            continue;
        }
        let name = name.to_string_lossy();
        let Some(stem) = name.strip_suffix(".npy") else { continue };
        let unnumbered = |_| Error::data(&path, format!("expected a number before `.npy`; {}", remedy(dataset)));
        let k: u64 = stem.parse().map_err(unnumbered)?;
        files.push((k, path));
    }
    if files.is_empty() {
        return Err(Error::data(folder, format!("expected files 0.npy, 1.npy and so on; {}", remedy(dataset))));
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Picture and label of a line `imgs/0 sample_0.png 0 1 ..`; `None` unless the path only leads down and is printable.
fn parse(line: &[u8]) -> Option<(PathBuf, u8)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (folder, file) = (fields.next()?, fields.next()?);
    let picture = Path::new(folder).join(file);
    let leads_down = |part| matches!(part, Component::Normal(_));
    let printable = |name: &str| !name.contains(char::is_control);
    if !picture.components().all(leads_down) || !printable(folder) || !printable(file) {
        return None;
    }
    let label = match fields.nth(1)? {
        "0" => 0,
        "1" => 1,
        _ => return None,
    };
    Some((picture, label))
}

/// Returns the non-empty pictures, and a warning for each of the others. The release is known to contain an empty file.
fn without_empty(listed: Vec<ListedPicture>) -> Result<(Vec<ListedPicture>, Vec<String>)> {
    let sizes: Vec<Result<u64>> = listed
        .par_iter()
        .map(|picture| Ok(fs::metadata(&picture.path).map_err(Error::io("read", &picture.path))?.len()))
        .collect();
    let mut whole = Vec::with_capacity(listed.len());
    let mut warnings = Vec::new();
    for (picture, size) in listed.into_iter().zip(sizes) {
        if size? == 0 {
            let path = picture.path.display();
            warnings.push(format!("{path} is empty and is left out"));
        } else {
            whole.push(picture);
        }
    }
    Ok((whole, warnings))
}

/// Decodes the pictures at `indices`, in that order.
fn decode(listed: &[ListedPicture], indices: &[usize], dataset: LraDataset) -> Result<Documents> {
    let mut examples = Documents::new(1);
    for indices in indices.chunks(DECODED_AT_ONCE) {
        let pixels = |&index: &usize| pixels(&listed[index].path, dataset);
        let decoded: Vec<Result<Vec<u8>>> = indices.par_iter().map(pixels).collect();
        for (&index, pixels) in indices.iter().zip(decoded) {
            examples.push(&[&pixels?], listed[index].label);
        }
    }
    Ok(examples)
}

fn pixels(path: &Path, dataset: LraDataset) -> Result<Vec<u8>> {
    let bytes = read_bytes(path)?;
    picture::decode(&bytes, dataset.side() as u32, ColorType::Grayscale)
        .map_err(|why| Error::data(path, format!("{why}; {}", remedy(dataset))))
}

/// Generates the pictures in order: training, validation, test. A pixel's gray value is its token.
pub(super) fn generated(config: &LraConfig, made: ExamplesMade) -> Result<LraSplits> {
    let sizes = config.examples();
    let (mut first, all) = (0, sizes.iter().sum());
    let mut splits = sizes.map(|_| Documents::new(1));
    for (examples, size) in splits.iter_mut().zip(sizes) {
        let end = first + size;
        while first < end {
            let some = end.min(first + DRAWN_AT_ONCE);
            for picture in pictures(config, first..some) {
                examples.push(&[&picture.pixels], picture.label);
            }
            first = some;
            made(first, all)?;
        }
    }
    Ok(splits.into())
}

/// Folder of the files of a level under a data folder.
pub(super) fn folder(config: &LraConfig) -> PathBuf {
    let size = format!("pathfinder/pathfinder{}", config.dataset.side());
    Path::new(&size).join(files::level(config.contour_length()))
}

/// Writes the pictures of `config` under `folder`: `imgs/<k>/sample_<i>.png`, a thousand for each k, and
/// `metadata/<k>.npy`, which is a text file.
pub(super) fn write(config: &LraConfig, folder: &Path, progress: &mut dyn FnMut(usize) -> Result<()>) -> Result<()> {
    let metadata = folder.join("metadata");
    fs::create_dir_all(&metadata).map_err(Error::io("create", &metadata))?;
    let pictures: usize = config.examples().iter().sum();
    for (k, first) in (0..pictures).step_by(PICTURES_A_FOLDER).enumerate() {
        let end = pictures.min(first + PICTURES_A_FOLDER);
        write_folder(config, k, first..end, folder)?;
        progress(end - first)?;
    }
    Ok(())
}

fn write_folder(config: &LraConfig, k: usize, numbers: Range<usize>, folder: &Path) -> Result<()> {
    let images = folder.join(format!("imgs/{k}"));
    fs::create_dir_all(&images).map_err(Error::io("create", &images))?;
    let (paddles, short) = (config.contour_length(), config.contour_length() / 3);
    let style = PictureStyle::of(config.dataset.side());
    let PictureStyle { continuity, length, thickness, .. } = style;
    let mut table = String::new();
    for (i, picture) in pictures(config, numbers).iter().enumerate() {
        let name = format!("sample_{i}.png");
        let path = images.join(&name);
        let png = picture::encode(style.side as u32, ColorType::Grayscale, |cell| picture.pixels[cell]);
        fs::write(&path, png).map_err(Error::io("write", &path))?;
        // The last columns are continuity, paddles of long and of short snakes, length, thickness, margin and
        // contrasts.
        let (label, margin) = (picture.label, picture.margin);
        let row = format_args!(
            "imgs/{k} {name} {i} {label} {continuity:?} {paddles} {short} {length} {thickness:?} {margin} 1"
        );
        writeln!(table, "{row}").expect("a string takes every text");
    }
    let path = folder.join(format!("metadata/{k}.npy"));
    fs::write(&path, table).map_err(Error::io("write", &path))
}

#[cfg(test)]
mod tests;
