//! Settings of the generator at each size of picture, those of the Long Range Arena's builder (Tay et al. 2021) and, where
//! it names none, the defaults of the program that it calls (Linsley et al. 2018).

/// Settings of all pictures of one size.
#[derive(Debug)]
pub(super) struct PictureStyle {
    /// Side of a picture in pixels.
    pub side: usize,
    /// Pixels on every side that stay free of paths.
    pub padding: usize,
    /// Length of a paddle in pixels.
    pub length: i32,
    /// Thickness of a paddle in pixels.
    pub thickness: f64,
    /// Pixels before and after a paddle; a picture has one of them for all of its paddles.
    pub margins: &'static [i32],
    /// Factor of the angle between paddles, whose likelihood falls with it.
    pub continuity: f64,
    /// Distance between the tails of the long snakes.
    pub seed_distance: u8,
    /// Radius of a disc in pixels.
    pub disc_radius: f64,
    /// Total number of paddles of the short snakes, each of which has a third of the paddles of a long one.
    pub distracting: usize,
    /// Contrasts of long snakes, short ones and discs, in one unit.
    pub contrasts: [u16; 3],
}

/// Settings at 32 x 32, 128 x 128 (Path-X) and 256 x 256 pixels.
pub(super) static STYLES: [PictureStyle; 3] = [
    PictureStyle {
        side: 32,
        padding: 1,
        length: 2,
        thickness: 0.5,
        margins: &[1],
        continuity: 1.0,
        seed_distance: 7,
        disc_radius: 1.5,
        distracting: 20,
        contrasts: [3, 4, 2], // 1.5, 2 and 1
    },
    PictureStyle {
        side: 128,
        padding: 1,
        length: 5,
        thickness: 1.5,
        margins: &[2, 3],
        continuity: 1.8,
        seed_distance: 20,
        disc_radius: 3.0,
        distracting: 35,
        contrasts: [9, 9, 10],
    },
    PictureStyle {
        side: 256,
        padding: 22,
        length: 5,
        thickness: 2.0,
        margins: &[3],
        continuity: 1.8,
        seed_distance: 27,
        disc_radius: 5.0,
        distracting: 30,
        contrasts: [1, 1, 1],
    },
];

impl PictureStyle {
    /// The settings of pictures of `side` x `side` pixels, which must be one of the known sizes.
    pub fn of(side: usize) -> &'static Self {
        STYLES.iter().find(|style| style.side == side).expect("the side is that of a dataset")
    }

    /// Number of pixels.
    pub fn cells(&self) -> usize {
        self.side * self.side
    }
}
