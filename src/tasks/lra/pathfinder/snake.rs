//! Dashed paths: paddles, each in nearly the direction of the one before, which do not overlap.

use super::grid::{Mask, PixelCell};
use super::stencil::{End, Pen, Stencil};
use crate::ops::rng::Rng;
use std::f64::consts::{FRAC_PI_2, PI};

/// Number of attempts at each choice that may fail.
const TRIES: usize = 3;
/// Upper bound of the sum of a mask and a footprint: 1.8 times 255.
const TOO_CLOSE: u16 = 459;

/// Short line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paddle {
    /// Outer end in a snake: the first paddle starts at the tail, the others at their tip.
    pub start: PixelCell,
    /// End relative to the start.
    pub end: End,
}

/// Path from its tail to its tip.
#[derive(Clone, Debug)]
pub(super) struct Snake {
    /// Paddles from the tail on.
    pub paddles: Vec<Paddle>,
    /// Joint after the last paddle.
    pivot: PixelCell,
    /// Direction from the pivot to the tip.
    angle: f64,
}

impl Snake {
    /// First point of the path.
    pub fn tail(&self) -> PixelCell {
        self.paddles[0].start
    }

    /// Last point of the path.
    pub fn tip(&self) -> PixelCell {
        self.paddles[self.paddles.len() - 1].start
    }

    /// Snake of one paddle at a random free place outside the mask, which includes the padding.
    fn seed(rng: &mut Rng, pen: &Pen, mask: &Mask) -> Option<Self> {
        Self::seed_at(rng, pen, |rng, stencil| one_of(rng, &mask.room_for(stencil.first.as_ref()?)))
    }

    /// Snake of one paddle at a random place of an empty picture, as far from its edges as long snakes begin.
    pub fn seed_inside(rng: &mut Rng, pen: &Pen) -> Option<Self> {
        Self::seed_at(rng, pen, |rng, stencil| one_of(rng, stencil.inside(pen.style)?))
    }

    /// Snake of one paddle in a random direction, whose tail `choose` places, given the stencil of the paddle.
    fn seed_at(rng: &mut Rng, pen: &Pen, choose: impl Fn(&mut Rng, &Stencil) -> Option<PixelCell>) -> Option<Self> {
        for _ in 0..TRIES {
            let angle = whole_degrees(rng);
            let tail = choose(rng, pen.stencil(pen.end(angle)))?;
            if let Some(snake) = Self::starting(pen, tail, angle) {
                return Some(snake);
            }
        }
        None
    }

    /// Snake of one paddle at `distance` from `tail`.
    pub fn seed_beside(rng: &mut Rng, pen: &Pen, tail: PixelCell, distance: f64) -> Option<Self> {
        (0..TRIES).find_map(|_| {
            let angle = whole_degrees(rng);
            let direction = whole_degrees(rng);
            let (sin, cos) = (libm::sin(direction), libm::cos(direction));
            let beside = PixelCell {
                y: libm::rint(f64::from(tail.y) + distance * sin) as i32,
                x: libm::rint(f64::from(tail.x) + distance * cos) as i32,
            };
            Self::starting(pen, beside, angle)
        })
    }

    fn starting(pen: &Pen, tail: PixelCell, angle: f64) -> Option<Self> {
        let head = tail.shift(angle, f64::from(pen.style.length));
        let pivot = head.shift(opposite(angle), f64::from(pen.step()));
        head.cell(pen.style.side).and(pivot.cell(pen.style.side))?;
        let end = pen.end(angle);
        Some(Self { paddles: vec![Paddle { start: tail, end }], pivot, angle })
    }

    /// Adds a paddle. The previous one is added to the mask only afterwards, since it would block the new one.
    pub fn extend(&mut self, rng: &mut Rng, pen: &Pen, mask: &mut Mask) -> Option<()> {
        let pivot = self.pivot.shift(self.angle, f64::from(pen.step() + pen.margin));
        let candidates = Candidates::around(pen, pivot, self.angle, mask)?;
        let (paddle, angle) = (0..TRIES).find_map(|_| {
            let (start, angle) = candidates.draw(rng);
            let paddle = Paddle { start, end: pen.end(opposite(angle)) };
            paddle.fits(pen, mask).then_some((paddle, angle))
        })?;
        self.occupy(pen, mask);
        self.paddles.push(paddle);
        (self.pivot, self.angle) = (pivot, angle);
        Some(())
    }

    /// Adds the last paddle to the mask.
    pub fn occupy(&self, pen: &Pen, mask: &mut Mask) {
        let paddle = &self.paddles[self.paddles.len() - 1];
        for (offset, level) in &pen.stencil(paddle.end).footprint {
            mask.raise(paddle.start.moved(*offset), *level);
        }
    }

    /// Snake of `paddles` paddles at a random place outside the mask, and the mask with the snake added.
    pub fn grown(rng: &mut Rng, pen: &Pen, mask: &Mask, paddles: usize) -> Option<(Self, Mask)> {
        if 100 * mask.free() < pen.style.cells() {
            return None;
        }
        let mut snake = Self::seed(rng, pen, mask)?;
        let mut mask = mask.clone();
        for _ in 1..paddles {
            snake.extend(rng, pen, &mut mask)?;
        }
        snake.occupy(pen, &mut mask);
        Some((snake, mask))
    }
}

impl Paddle {
    fn fits(&self, pen: &Pen, mask: &Mask) -> bool {
        pen.stencil(self.end).footprint.iter().copied().all(|(offset, level)| {
            let there = mask.at(self.start.moved(offset)).unwrap_or(0);
            u16::from(there) + u16::from(level) < TOO_CLOSE
        })
    }
}

/// Candidate positions of the next tip, with their weights.
struct Candidates {
    /// Tip, its direction from the pivot, and the cumulative weight up to it.
    places: Vec<(PixelCell, f64, f64)>,
}

impl Candidates {
    /// Candidates on a circle around `pivot`; `None` if the circle has no room.
    fn around(pen: &Pen, pivot: PixelCell, angle: f64, mask: &Mask) -> Option<Self> {
        let mut total = 0.0;
        let mut places = Vec::with_capacity(pen.circle.len());
        for &(offset, direction) in &pen.circle {
            let point = pivot.moved(offset);
            if point.cell(pen.style.side).is_some() {
                total += likelihood(direction, angle, pen.style.continuity) * room(pen, mask, point);
                places.push((point, direction, total));
            }
        }
        (total >= 1e-4).then_some(Self { places })
    }

    fn draw(&self, rng: &mut Rng) -> (PixelCell, f64) {
        let total = self.places[self.places.len() - 1].2;
        let mark = rng.uniform() * total;
        let place = self.places.partition_point(|place| place.2 <= mark);
        let (point, direction, _) = self.places[place.min(self.places.len() - 1)];
        (point, direction)
    }
}

/// Squared cosine of the turn times the continuity; 0 from a right angle on.
fn likelihood(direction: f64, last: f64, continuity: f64) -> f64 {
    let between = (direction - last).abs();
    let turn = (continuity * between.min(2.0 * PI - between)).min(FRAC_PI_2);
    libm::cos(turn).max(0.0).powi(2)
}

/// Free room at a cell: 1 if all cells within the margin are free, 0 if one of them is fully occupied.
fn room(pen: &Pen, mask: &Mask, point: PixelCell) -> f64 {
    1.0 - f64::from(mask.highest(point, &pen.around)) / 255.0
}

fn one_of(rng: &mut Rng, places: &[PixelCell]) -> Option<PixelCell> {
    (!places.is_empty()).then(|| places[rng.below(places.len() as u32) as usize])
}

/// Random angle in radians, uniform over the whole degrees.
fn whole_degrees(rng: &mut Rng) -> f64 {
    (f64::from(rng.below(360)) - 180.0) * PI / 180.0
}

fn opposite(angle: f64) -> f64 {
    if angle < 0.0 {
        angle + PI
    } else {
        angle - PI
    }
}
