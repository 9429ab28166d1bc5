//! Random scenes with the parameters of the Long Range Arena, and their pictures: two long snakes that wind about each
//! other (14 paddles in the hard set), short ones as distractors, and two discs, on one long snake or on both. A
//! picture is a function of (seed, number), so that threads may draw in any order.

use super::grid::{Mask, PixelCell, CELLS};
use super::snake::Snake;
use super::{stencil, LraConfig};
use crate::ops::rng::Rng;
use rayon::prelude::*;
use std::ops::Range;

/// Total number of paddles of the short snakes, each of which has a third of the paddles of a long one.
const DISTRACTING: usize = 20;
/// Number of further attempts at a short snake before it is left out.
const RETRIES: usize = 4;
/// Distance between the tails of the long snakes.
const SEED_DISTANCE: u8 = 7;

/// Contrasts of long snakes, short ones and discs: 1.5, 2 and 1, in units of 1/2.
const TARGET: u16 = 3;
const DISTRACTOR: u16 = 4;
const DISC: u16 = 2;

/// Picture and whether its discs are joined.
pub(super) struct JoinedPicture {
    pub pixels: [u8; CELLS],
    pub label: u8,
}

/// Pictures with these numbers, in order.
pub(super) fn pictures(config: &LraConfig, numbers: Range<usize>) -> Vec<JoinedPicture> {
    let rng = Rng::new(config.data_seed, "lra/pathfinder", 0);
    let picture = |number: usize| {
        let scene = Scene::draw(rng.at(number as u64), config.contour_length());
        JoinedPicture { pixels: scene.pixels(), label: scene.label }
    };
    numbers.into_par_iter().map(picture).collect()
}

/// Two long snakes, some short ones, and discs at two ends of long ones.
#[derive(Clone, Debug)]
struct Scene {
    /// Label: 1 if the discs are at the ends of the same snake.
    label: u8,
    /// Long snakes.
    targets: [Snake; 2],
    /// Short snakes.
    distractors: Vec<Snake>,
    /// Positions of the discs.
    discs: [PixelCell; 2],
}

impl Scene {
    /// Draws the scene of `rng` with long snakes of `paddles` paddles.
    fn draw(mut rng: Rng, paddles: usize) -> Self {
        let short = paddles / 3;
        let label = rng.below(2) as u8;
        let (targets, mut mask) = loop {
            if let Some(pair) = pair(&mut rng, paddles) {
                break pair;
            }
        };
        let mut distractors = Vec::new();
        for _ in 0..DISTRACTING / short {
            let snake = (0..=RETRIES).find_map(|_| Snake::grown(&mut rng, &mask, short));
            if let Some((snake, with_it)) = snake {
                distractors.push(snake);
                mask = with_it;
            }
        }
        let from = rng.below(2) as usize;
        let to = if label == 1 { from } else { 1 - from };
        Self { label, discs: [targets[from].tail(), targets[to].tip()], targets, distractors }
    }

    /// Gray values, (32, 32); the brightest is 255.
    fn pixels(&self) -> [u8; CELLS] {
        let mut levels = [0_u16; CELLS];
        let mut brighten = |cell: usize, level: u8, contrast: u16| {
            levels[cell] = levels[cell].max(contrast * u16::from(level));
        };
        let targets = self.targets.iter().map(|snake| (snake, TARGET));
        let distractors = self.distractors.iter().map(|snake| (snake, DISTRACTOR));
        for (snake, contrast) in targets.chain(distractors) {
            for paddle in &snake.paddles {
                for (offset, level) in &paddle.end.stencil().line {
                    if let Some(cell) = paddle.start.moved(*offset).cell() {
                        brighten(cell, *level, contrast);
                    }
                }
            }
        }
        for centre in self.discs {
            for (cell, level) in stencil::disc(centre).into_iter().enumerate() {
                brighten(cell, level, DISC);
            }
        }
        stretched(&levels)
    }
}

/// Two long snakes, grown alternately, and the mask that they occupy. The mask lacks the last paddle of the first
/// snake, as it did when the pictures of the task were made.
fn pair(rng: &mut Rng, paddles: usize) -> Option<([Snake; 2], Mask)> {
    let mut mask = Mask::framed(1);
    let first = Snake::seed(rng, &mask, 2 * usize::from(SEED_DISTANCE))?;
    let second = Snake::seed_beside(rng, first.tail(), f64::from(SEED_DISTANCE))?;
    let mut snakes = [first, second];
    for _ in 1..paddles {
        for snake in &mut snakes {
            snake.extend(rng, &mut mask)?;
        }
    }
    snakes[1].occupy(&mut mask);
    Some((snakes, mask))
}

/// Levels scaled so that the highest becomes 255.
fn stretched(levels: &[u16; CELLS]) -> [u8; CELLS] {
    let highest = u32::from(levels.iter().copied().max().unwrap_or(0).max(1));
    levels.map(|level| ((510 * u32::from(level) + highest) / (2 * highest)) as u8)
}

#[cfg(test)]
mod tests;
