//! Colours that readers with any colour vision can distinguish, and markers and line styles for print without colour.

use plotters::style::RGBColor;

/// Horizontal and vertical position in pixels, right and down.
pub type Pixels = (i32, i32);

/// Lengths of dashes and gaps in units; `None` for a solid line.
pub type Dash = Option<[u32; 2]>;

/// Colour of text and axes.
pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Colour of secondary text and lines.
pub const FAINT: RGBColor = RGBColor(0x66, 0x66, 0x66);
/// Colour of grid lines.
pub const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Background colour.
pub const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// Colour of a cell without a number.
pub const EMPTY: RGBColor = RGBColor(0xee, 0xee, 0xee);

/// The palette of Okabe and Ito (2008) without black, used for text, and yellow, illegible on white; brown is added.
pub const SERIES: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x8c, 0x6d, 0x31),
];

/// Dashes of lines.
const DASHES: [Dash; 4] = [None, Some([7, 3]), Some([2, 3]), Some([12, 4])];

/// The shape of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    Circle,
    /// A polygon with these corners, in hundredths of the radius.
    Polygon(&'static [Pixels]),
}

/// Shapes that can be distinguished when small.
#[rustfmt::skip]
pub const MARKERS: [Marker; 8] = [
    Marker::Circle,
    Marker::Polygon(&[(-85, -85), (85, -85), (85, 85), (-85, 85)]),
    Marker::Polygon(&[(0, -115), (105, 75), (-105, 75)]),
    Marker::Polygon(&[(0, -125), (125, 0), (0, 125), (-125, 0)]),
    Marker::Polygon(&[(0, 115), (105, -75), (-105, -75)]),
    Marker::Polygon(&[(-35, -110), (35, -110), (35, -35), (110, -35), (110, 35), (35, 35), (35, 110), (-35, 110), (-35, 35), (-110, 35), (-110, -35), (-35, -35)]),
    Marker::Polygon(&[(0, -130), (35, -40), (125, -40), (55, 20), (80, 110), (0, 55), (-80, 110), (-55, 20), (-125, -40), (-35, -40)]),
    Marker::Polygon(&[(-50, -100), (50, -100), (110, 0), (50, 100), (-50, 100), (-110, 0)]),
];

/// Colour, marker and dashes of the series at `key`. The first 56 differ in colour or marker.
pub fn look(key: usize) -> (RGBColor, Marker, Dash) {
    (SERIES[key % SERIES.len()], MARKERS[key % MARKERS.len()], DASHES[key % DASHES.len()])
}

/// Replacements of these colours on a dark page; colours that are not listed serve both.
pub const NIGHT: [(RGBColor, RGBColor); 7] = [
    (INK, RGBColor(0xe8, 0xe8, 0xe8)),
    (FAINT, RGBColor(0xa8, 0xa8, 0xa8)),
    (GRID, RGBColor(0x33, 0x36, 0x3d)),
    (PAPER, RGBColor(0x16, 0x18, 0x1c)),
    (EMPTY, RGBColor(0x2c, 0x2f, 0x36)),
    (SERIES[0], RGBColor(0x3d, 0x9b, 0xe0)),
    (SERIES[6], RGBColor(0xb8, 0x94, 0x4f)),
];

/// A colour in SVG notation.
pub fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Nine steps of viridis, from 0 to 1.
const VIRIDIS: [[f64; 3]; 9] = [
    [68.0, 1.0, 84.0],
    [71.0, 44.0, 122.0],
    [59.0, 81.0, 139.0],
    [44.0, 113.0, 142.0],
    [33.0, 144.0, 141.0],
    [39.0, 173.0, 129.0],
    [92.0, 200.0, 99.0],
    [170.0, 220.0, 50.0],
    [253.0, 231.0, 37.0],
];

/// The colour of `share`, from 0 to 1, in the viridis map, and a text colour legible on it.
pub fn shade(share: f64) -> (RGBColor, RGBColor) {
    let last = VIRIDIS.len() - 1;
    let place = share.clamp(0.0, 1.0) * last as f64;
    let step = (place as usize).min(last - 1);
    let between = place - step as f64;
    let [low, high] = [VIRIDIS[step], VIRIDIS[step + 1]];
    let [r, g, b] = [0, 1, 2].map(|i| (low[i] + between * (high[i] - low[i])).round() as u8);
    let light = 0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b) > 140.0;
    (RGBColor(r, g, b), if light { RGBColor(0x11, 0x11, 0x11) } else { RGBColor(0xfe, 0xfe, 0xfe) })
}
