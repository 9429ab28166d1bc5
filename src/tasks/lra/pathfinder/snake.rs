//! Dashed paths: paddles, each in nearly the direction of the one before, which do not overlap.

use super::grid::{Mask, PixelCell, CELLS, LENGTH, MARGIN};
use super::stencil::End;
use crate::ops::rng::Rng;
use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::LazyLock;

/// Number of attempts at each choice that may fail.
const TRIES: usize = 3;
/// Distance from the start of a paddle to the pivot on its other side.
const STEP: i32 = LENGTH + MARGIN;
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

    /// Snake of one paddle at a random free place outside the mask and a frame of `frame` cells.
    pub fn seed(rng: &mut Rng, mask: &Mask, frame: usize) -> Option<Self> {
        let mut taken = mask.clone();
        taken.add_frame(frame);
        for _ in 0..TRIES {
            let angle = whole_degrees(rng);
            let first = End::towards(angle).stencil().first.as_ref()?;
            let places = taken.room_for(first);
            if places.is_empty() {
                return None;
            }
            let tail = places[rng.below(places.len() as u32) as usize];
            if let Some(snake) = Self::starting(tail, angle) {
                return Some(snake);
            }
        }
        None
    }

    /// Snake of one paddle at `distance` from `tail`.
    pub fn seed_beside(rng: &mut Rng, tail: PixelCell, distance: f64) -> Option<Self> {
        (0..TRIES).find_map(|_| {
            let angle = whole_degrees(rng);
            let direction = whole_degrees(rng);
            let (sin, cos) = (libm::sin(direction), libm::cos(direction));
            let beside = PixelCell {
                y: libm::rint(f64::from(tail.y) + distance * sin) as i32,
                x: libm::rint(f64::from(tail.x) + distance * cos) as i32,
            };
            Self::starting(beside, angle)
        })
    }

    fn starting(tail: PixelCell, angle: f64) -> Option<Self> {
        let head = tail.shift(angle, f64::from(LENGTH));
        let pivot = head.shift(opposite(angle), f64::from(STEP));
        head.cell().and(pivot.cell())?;
        let end = End::towards(angle);
        Some(Self { paddles: vec![Paddle { start: tail, end }], pivot, angle })
    }

    /// Adds a paddle. The previous one is added to the mask only afterwards, since it would block the new one.
    pub fn extend(&mut self, rng: &mut Rng, mask: &mut Mask) -> Option<()> {
        let pivot = self.pivot.shift(self.angle, f64::from(LENGTH + 2 * MARGIN));
        let candidates = Candidates::around(pivot, self.angle, mask)?;
        let (paddle, angle) = (0..TRIES).find_map(|_| {
            let (start, angle) = candidates.draw(rng);
            let end = End::towards(opposite(angle));
            let paddle = Paddle { start, end };
            paddle.fits(mask).then_some((paddle, angle))
        })?;
        self.occupy(mask);
        self.paddles.push(paddle);
        (self.pivot, self.angle) = (pivot, angle);
        Some(())
    }

    /// Adds the last paddle to the mask.
    pub fn occupy(&self, mask: &mut Mask) {
        let paddle = &self.paddles[self.paddles.len() - 1];
        for (offset, level) in &paddle.end.stencil().footprint {
            mask.raise(paddle.start.moved(*offset), *level);
        }
    }

    /// Snake of `paddles` paddles at a random place outside the mask, and the mask with the snake added.
    pub fn grown(rng: &mut Rng, mask: &Mask, paddles: usize) -> Option<(Self, Mask)> {
        if 100 * mask.free() < CELLS {
            return None;
        }
        let mut snake = Self::seed(rng, mask, 1)?;
        let mut mask = mask.clone();
        for _ in 1..paddles {
            snake.extend(rng, &mut mask)?;
        }
        snake.occupy(&mut mask);
        Some((snake, mask))
    }
}

impl Paddle {
    fn fits(&self, mask: &Mask) -> bool {
        self.end.stencil().footprint.iter().copied().all(|(offset, level)| {
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
    fn around(pivot: PixelCell, angle: f64, mask: &Mask) -> Option<Self> {
        let mut total = 0.0;
        let mut places = Vec::with_capacity(CIRCLE.len());
        for &(offset, direction) in CIRCLE.iter() {
            let point = pivot.moved(offset);
            if point.cell().is_some() {
                total += likelihood(direction, angle) * room(mask, point);
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

/// Distinct cells on a circle of radius [`STEP`], one point per pixel of arc, with their directions.
static CIRCLE: LazyLock<Vec<((i32, i32), f64)>> = LazyLock::new(|| {
    let radius = f64::from(STEP);
    let points = (2.0 * PI * radius).ceil() as i32;
    let cell = |i: i32| {
        let angle = f64::from(i) / radius;
        let coordinate = |c: f64| (radius * c).floor() as i32;
        (coordinate(libm::sin(angle)), coordinate(libm::cos(angle)))
    };
    let mut cells: Vec<(i32, i32)> = (0..points).map(cell).collect();
    cells.sort_unstable();
    cells.dedup();
    let direction = |(dy, dx): (i32, i32)| libm::atan2(f64::from(dy), f64::from(dx));
    cells.into_iter().map(|c| (c, direction(c))).collect()
});

/// Squared cosine of the turn; 0 from a right angle on.
fn likelihood(direction: f64, last: f64) -> f64 {
    let between = (direction - last).abs();
    let turn = between.min(2.0 * PI - between).min(FRAC_PI_2);
    libm::cos(turn).max(0.0).powi(2)
}

/// Free room at a cell: 1 if it and its four neighbours are free, 0 if one of them is fully occupied.
fn room(mask: &Mask, point: PixelCell) -> f64 {
    const CROSS: [(i32, i32); 5] = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)];
    1.0 - f64::from(mask.highest(point, &CROSS)) / 255.0
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
