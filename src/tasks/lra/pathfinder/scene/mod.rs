//! Random scenes with the parameters of the Long Range Arena, and their pictures: two long snakes that wind about each
//! other (14 paddles in the hard set), short ones as distractors, and two discs, on one long snake or on both. A
//! picture is a function of (seed, number), so that threads may draw in any order.

use super::grid::{Mask, PixelCell};
use super::snake::Snake;
use super::stencil::{self, Pen};
use super::style::PictureStyle;
use super::LraConfig;
use crate::ops::rng::Rng;
use rayon::prelude::*;
use std::ops::Range;

/// Number of further attempts at a short snake before it is left out.
const RETRIES: usize = 4;
/// Picture and whether its discs are joined.
pub(super) struct JoinedPicture {
    pub pixels: Vec<u8>,
    pub label: u8,
    /// Pixels before and after a paddle.
    pub margin: i32,
}

/// Pictures with these numbers, in order.
pub(super) fn pictures(config: &LraConfig, numbers: Range<usize>) -> Vec<JoinedPicture> {
    let rng = Rng::new(config.data_seed, "lra/pathfinder", 0);
    let style = PictureStyle::of(config.dataset.side());
    let picture = |number: usize| {
        let scene = Scene::draw(rng.at(number as u64), style, config.contour_length());
        JoinedPicture { pixels: scene.pixels(), label: scene.label, margin: scene.pen.margin }
    };
    numbers.into_par_iter().map(picture).collect()
}

/// Two long snakes, some short ones, and discs at two ends of long ones.
#[derive(Clone)]
struct Scene {
    pen: &'static Pen,
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
    fn draw(mut rng: Rng, style: &'static PictureStyle, paddles: usize) -> Self {
        let short = paddles / 3;
        let pen = match Pen::of(style) {
            [only] => only,
            pens => &pens[rng.below(pens.len() as u32) as usize],
        };
        let label = rng.below(2) as u8;
        let (targets, mut mask) = loop {
            if let Some(pair) = pair(&mut rng, pen, paddles) {
                break pair;
            }
        };
        let mut distractors = Vec::new();
        for _ in 0..style.distracting / short {
            let snake = (0..=RETRIES).find_map(|_| Snake::grown(&mut rng, pen, &mask, short));
            if let Some((snake, with_it)) = snake {
                distractors.push(snake);
                mask = with_it;
            }
        }
        let from = rng.below(2) as usize;
        let to = if label == 1 { from } else { 1 - from };
        Self { pen, label, discs: [targets[from].tail(), targets[to].tip()], targets, distractors }
    }

    /// Gray values, (side, side); the brightest is 255.
    fn pixels(&self) -> Vec<u8> {
        let style = self.pen.style;
        let [target, distractor, disc] = style.contrasts;
        let mut levels = vec![0_u16; style.cells()];
        let mut brighten = |cell: usize, level: u8, contrast: u16| {
            levels[cell] = levels[cell].max(contrast * u16::from(level));
        };
        let targets = self.targets.iter().map(|snake| (snake, target));
        let distractors = self.distractors.iter().map(|snake| (snake, distractor));
        for (snake, contrast) in targets.chain(distractors) {
            for paddle in &snake.paddles {
                for (offset, level) in &self.pen.stencil(paddle.end).line {
                    if let Some(cell) = paddle.start.moved(*offset).cell(style.side) {
                        brighten(cell, *level, contrast);
                    }
                }
            }
        }
        for centre in self.discs {
            for (cell, level) in stencil::disc(centre, self.pen) {
                brighten(cell, level, disc);
            }
        }
        stretched(&levels)
    }
}

/// Two long snakes, grown alternately, and the mask that they occupy. The mask lacks the last paddle of the first
/// snake, as it did when the pictures of the task were made.
fn pair(rng: &mut Rng, pen: &Pen, paddles: usize) -> Option<([Snake; 2], Mask)> {
    let style = pen.style;
    let mut mask = Mask::framed(style.side, style.padding);
    let first = Snake::seed_inside(rng, pen)?;
    let second = Snake::seed_beside(rng, pen, first.tail(), f64::from(style.seed_distance))?;
    let mut snakes = [first, second];
    for _ in 1..paddles {
        for snake in &mut snakes {
            snake.extend(rng, pen, &mut mask)?;
        }
    }
    snakes[1].occupy(pen, &mut mask);
    Some((snakes, mask))
}

/// Levels scaled so that the highest becomes 255.
fn stretched(levels: &[u16]) -> Vec<u8> {
    let highest = u32::from(levels.iter().copied().max().unwrap_or(0).max(1));
    levels.iter().map(|&level| ((510 * u32::from(level) + highest) / (2 * highest)) as u8).collect()
}

#[cfg(test)]
mod tests;
