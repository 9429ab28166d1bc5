//! Pathfinder-32 of the released archive: pictures in numbered folders, and a text
//! file a folder that lists their labels.

use super::permutation::{first, permutation, tenth};
use super::{picture, place, Documents, LraConfig, LraDataset, Splits};
use crate::error::{Error, Position, Result};
use png::ColorType;
use rayon::prelude::*;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The folder of a level, by the paddles of its long paths.
pub(super) fn level(contour_length: usize) -> String {
    match contour_length {
        6 => "curv_baseline".to_owned(),
        paddles => format!("curv_contour_length_{paddles}"),
    }
}

/// Pictures that are decoded before they are moved to where they stay.
const AT_ONCE: usize = 4096;

/// What brings files that are whole.
const REMEDY: &str = "fetch them again: dsf data fetch lra --dataset pathfinder";

/// A picture that the metadata list.
struct Listed {
    path: PathBuf,
    label: u8,
}

/// The released pictures under `dir`: 80 % for training, 10 % for validation and 10 % for testing, as
/// the released code deals them out. Of each part the first examples are taken, as many as `config` says;
/// files without any content are left out before, with a warning.
///
/// # Errors
/// A file that is missing or is not what it should be, by its name and line; sizes beyond what was found.
pub(super) fn load(config: &LraConfig, dir: &Path) -> Result<Splits> {
    let level = find(dir, config.contour_length())?;
    let (listed, warnings) = without_empty(list(&level)?)?;
    let order = permutation(listed.len());
    let tenth = tenth(listed.len());
    let (train, rest) = order.split_at(listed.len() - 2 * tenth);
    let (val, test) = rest.split_at(tenth);
    let train = first(train, "--train-examples", config.train_examples)?;
    let val = first(val, "--val-examples", config.val_examples)?;
    let test = first(test, "--test-examples", config.test_examples)?;
    Ok(Splits {
        train: decode(&listed, train)?,
        val: decode(&listed, val)?,
        test: decode(&listed, test)?,
        warnings,
    })
}

/// The folder of a level at or below `dir`.
pub(super) fn find(dir: &Path, contour_length: usize) -> Result<PathBuf> {
    let level = level(contour_length);
    Ok(place::find(dir, LraDataset::Pathfinder, &[&level])?.join(level))
}

/// The pictures in the order of the numbers of their metadata files and of the lines in them.
fn list(level: &Path) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for metadata in metadata_files(&level.join("metadata"))? {
        let bytes = fs::read(&metadata).map_err(Error::io("read", &metadata))?;
        for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let (picture, label) = parse(line).ok_or_else(|| {
                let reason = format!(
                    "expected a folder, a file, a number and a label of 0 or 1, \
                     as in `imgs/0 sample_0.png 0 1`; {REMEDY}"
                );
                Error::data_at(&metadata, Position::Line(number as u64 + 1), reason)
            })?;
            let path = level.join(picture);
            listed.push(Listed { path, label });
        }
    }
    Ok(listed)
}

/// `<k>.npy` by ascending k. What the system hides begins with a dot.
fn metadata_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(stem) = name.strip_suffix(".npy").filter(|s| !s.starts_with('.')) else {
            continue;
        };
        let k: u64 = stem.parse().map_err(|_| {
            Error::data(&path, format!("expected a number before `.npy`; {REMEDY}"))
        })?;
        files.push((k, path));
    }
    if files.is_empty() {
        let reason = format!("expected files 0.npy, 1.npy and so on; {REMEDY}");
        return Err(Error::data(folder, reason));
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Picture and label of a line `imgs/0 sample_0.png 0 1 ..`, whose path leads down only and can be printed.
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

/// Those with content, and a sentence on each of the others: the release is known to hold an empty file.
fn without_empty(listed: Vec<Listed>) -> Result<(Vec<Listed>, Vec<String>)> {
    let sizes: Vec<Result<u64>> = listed
        .par_iter()
        .map(|picture| {
            let metadata = fs::metadata(&picture.path);
            Ok(metadata.map_err(Error::io("read", &picture.path))?.len())
        })
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

/// The pictures at `indices`, in their order.
fn decode(listed: &[Listed], indices: &[usize]) -> Result<Documents> {
    let mut examples = Documents::new(1);
    for indices in indices.chunks(AT_ONCE) {
        let decoded: Vec<Result<Vec<u8>>> = indices
            .par_iter()
            .map(|&index| pixels(&listed[index].path))
            .collect();
        for (&index, pixels) in indices.iter().zip(decoded) {
            examples.push(&[&pixels?], listed[index].label);
        }
    }
    Ok(examples)
}

fn pixels(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    picture::decode(&bytes, ColorType::Grayscale)
        .map_err(|why| Error::data(path, format!("{why}; {REMEDY}")))
}

#[cfg(test)]
mod tests;
