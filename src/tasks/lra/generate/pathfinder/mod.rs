//! Pathfinder (Linsley et al. 2018; Houtkamp and Roelfsema 2010) at 32 x 32 pixels with the
//! parameters of the Long Range Arena: two snakes, of 14 paddles in the hard set, that wind about each
//! other, short ones that distract, and two discs, on one snake or on both.

mod files;
mod grid;
mod lanczos;
mod scene;
mod snake;
mod stencil;
#[cfg(test)]
mod tests;

pub use files::write;

use super::Progress;
use crate::error::Result;
use crate::ops::rng::Stream;
use crate::tasks::lra::LraConfig;
use crate::tasks::lra::{pathfinder, Documents, Splits};
use grid::CELLS;
use rayon::prelude::*;
use scene::Scene;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where the files of a level lie under a data folder.
pub fn folder(contour_length: usize) -> PathBuf {
    Path::new("pathfinder/pathfinder32").join(pathfinder::level(contour_length))
}

/// Length of a paddle and free space before and behind it, in pixels.
const LENGTH: i32 = 2;
const MARGIN: i32 = 1;

/// A picture and whether its discs are joined.
struct Picture {
    pixels: [u8; CELLS],
    label: u8,
}

/// The pictures with these numbers, in order.
fn pictures(seed: u64, paddles: usize, numbers: Range<usize>) -> Vec<Picture> {
    let stream = Stream::new(seed, "lra/pathfinder", 0);
    let picture = |number: usize| {
        let scene = Scene::draw(stream.at(number as u64), paddles);
        Picture {
            pixels: scene.pixels(),
            label: scene.label,
        }
    };
    numbers.into_par_iter().map(picture).collect()
}

/// Pictures in order: training, validation, test. A pixel's gray value is its token.
pub(super) fn splits(config: &LraConfig) -> Result<Splits> {
    let mut first = 0;
    let mut split = |size: usize| {
        let mut examples = Documents::new(1);
        for picture in pictures(
            config.data_seed,
            config.contour_length(),
            first..first + size,
        ) {
            examples.push(&[&picture.pixels], picture.label);
        }
        first += size;
        examples
    };
    Ok(Splits {
        train: split(config.train_examples),
        val: split(config.val_examples),
        test: split(config.test_examples),
        warnings: Vec::new(),
    })
}
