//! Reviews as one file each: `neg/<n>_<rating>.txt` and `pos/<n>_<rating>.txt`.

use super::Review;
use crate::error::{Error, Result};
use std::fs;
use std::path::Path;

/// The reviews of `dir/neg`, then those of `dir/pos`, each in the order of their numbers.
pub(super) fn read(dir: &Path) -> Result<Vec<Review>> {
    let mut reviews = Vec::new();
    for (label, name) in [(0, "neg"), (1, "pos")] {
        let dir = dir.join(name);
        for (_, path) in files(&dir, label)? {
            let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
            let text = String::from_utf8(bytes)
                .map_err(|e| Error::data(&path, format!("not UTF-8: {e}")))?;
            reviews.push(Review { text, label });
        }
    }
    Ok(reviews)
}

type File = ((u64, u8), std::path::PathBuf);

fn files(dir: &Path, label: u8) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let path = entry.map_err(Error::io("read", dir))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some((number, rating)) = number_and_rating(&name) else {
            return Err(Error::data(
                &path,
                "expected are files named NUMBER_RATING.txt alone",
            ));
        };
        let fits = if label == 1 { 7..=10 } else { 1..=4 };
        if !fits.contains(&rating) {
            let (least, most) = (fits.start(), fits.end());
            let reason = format!("a rating of {rating}; ratings here are {least} to {most}");
            return Err(Error::data(&path, reason));
        }
        files.push(((number, rating), path));
    }
    files.sort_unstable();
    Ok(files)
}

fn number_and_rating(name: &str) -> Option<(u64, u8)> {
    let (number, rating) = name.strip_suffix(".txt")?.split_once('_')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(number) || !digits(rating) {
        return None;
    }
    Some((number.parse().ok()?, rating.parse().ok()?))
}
