//! Areas to draw on, and sizes, measured and wrapped text, as used by all drawings.

use super::palette::{Dash, Marker, Pixels, PAPER};
use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{register_font, Color, FontDesc, FontFamily, FontStyle, RGBColor, ShapeStyle, TextStyle};
use std::fmt::Debug;
use std::sync::Once;

/// Width and height in units or pixels.
pub type PixelSize = (u32, u32);

/// Pixels per unit of length.
#[derive(Clone, Copy, Debug)]
pub struct Unit(pub u32);

/// Unit of SVG.
pub const PLAIN: Unit = Unit(1);
/// Unit of a bitmap, for high-density screens and print.
pub const DENSE: Unit = Unit(2);

impl Unit {
    pub fn px(self, units: u32) -> u32 {
        self.0 * units
    }

    pub fn at(self, units: i32) -> i32 {
        self.0 as i32 * units
    }

    /// Text style with a font of `size` units.
    pub fn text(self, size: u32, colour: RGBColor, (h, v): (HPos, VPos)) -> TextStyle<'static> {
        font(self.px(size)).color(&colour).pos(Pos::new(h, v))
    }

    /// Width of `text` in units.
    pub fn width(self, text: &str, size: u32) -> u32 {
        width(text, self.px(size)).div_ceil(self.0)
    }
}

/// An area to draw on. Positions are pixels from its top left; all sizes are units.
pub struct Canvas<B: DrawingBackend> {
    pub area: DrawingArea<B, Shift>,
    pub unit: Unit,
}

impl<B: DrawingBackend> Canvas<B> {
    /// The part with this top left and size, all in units.
    pub fn part(&self, (x, y): PixelSize, (width, height): PixelSize) -> Self {
        let [x, y, width, height] = [x, y, width, height].map(|units| self.unit.px(units) as i32);
        let (whole_width, whole_height) = self.area.dim_in_pixel();
        let area = self.area.margin(y, whole_height as i32 - y - height, x, whole_width as i32 - x - width);
        Self { area, unit: self.unit }
    }

    /// Draws a line of text.
    pub fn write(&self, text: &str, (size, colour): (u32, RGBColor), anchor: (HPos, VPos), at: Pixels) {
        drawn(self.area.draw_text(text, &self.unit.text(size, colour, anchor), at));
    }

    /// Draws a line of `width` units.
    pub fn line(&self, points: Vec<Pixels>, (colour, width, dash): (impl Color, u32, Dash)) {
        let style = self.outline(&colour, width);
        match dash.map(|dash| dash.map(|length| self.unit.px(length))) {
            None => drawn(self.area.draw(&PathElement::new(points, style))),
            Some([dash, gap]) => drawn(self.area.draw(&DashedPathElement::new(points, dash, gap, style))),
        }
    }

    pub fn polygon(&self, corners: Vec<Pixels>, colour: impl Color) {
        drawn(self.area.draw(&Polygon::new(corners, colour.filled())));
    }

    pub fn rectangle(&self, corners: [Pixels; 2], colour: RGBColor) {
        drawn(self.area.draw(&Rectangle::new(corners, colour.filled())));
    }

    /// Draws a marker around a point, as an outline if it is `hollow`.
    pub fn mark(&self, (x, y): Pixels, marker: Marker, colour: RGBColor, hollow: bool) {
        let radius = self.unit.at(4);
        match marker {
            Marker::Circle => {
                let style = if hollow { self.outline(&colour, 1) } else { colour.filled() };
                drawn(self.area.draw(&Circle::new((x, y), radius, style)));
            }
            Marker::Polygon(corners) => {
                let corner = |(right, down): &Pixels| (x + radius * right / 100, y + radius * down / 100);
                let mut corners: Vec<Pixels> = corners.iter().map(corner).collect();
                if hollow {
                    corners.push(corners[0]);
                    self.line(corners, (colour, 1, None));
                } else {
                    self.polygon(corners, colour);
                }
            }
        }
    }

    fn outline(&self, colour: &impl Color, width: u32) -> ShapeStyle {
        colour.stroke_width(self.unit.px(width))
    }
}

fn font(size: u32) -> FontDesc<'static> {
    static FONT: Once = Once::new();
    // Registered under the name that SVG uses: the viewer draws with its own font there, and this one only measures.
    FONT.call_once(|| {
        let registered = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
        assert!(registered.is_ok(), "the font of the crate is whole");
    });
    FontDesc::new(FontFamily::SansSerif, f64::from(size), FontStyle::Normal)
}

fn width(text: &str, size: u32) -> u32 {
    font(size).box_size(text).map_or(0, |(width, _)| width)
}

/// Wraps `text` to at most `room` pixels, at spaces, and inside words that are too long for a line.
pub fn lines(text: &str, size: u32, room: u32) -> Vec<String> {
    let fits = |text: &str| width(text, size) <= room;
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if fits(&longer) {
            line = longer;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            let longer = format!("{line}{c}");
            if !fits(&longer) && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    lines.extend(Some(line).filter(|line| !line.is_empty()));
    lines
}

/// `text`, cut with an ellipsis if it is wider than `room` pixels.
pub fn cut(text: &str, size: u32, room: u32) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut kept: String = text.to_owned();
    while !kept.is_empty() && width(&format!("{kept}…"), size) > room {
        kept.pop();
    }
    kept + "…"
}

/// Draws with `draw` into an SVG document of `size` units.
pub fn svg(size: PixelSize, draw: impl FnOnce(&Canvas<SVGBackend>)) -> String {
    let mut text = String::new();
    fill(SVGBackend::with_string(&mut text, size), PLAIN, draw);
    text
}

/// Draws with `draw` into an RGB bitmap of `size` pixels and three bytes per pixel.
pub fn bitmap(size: PixelSize, draw: impl FnOnce(&Canvas<BitMapBackend>)) -> Vec<u8> {
    let mut pixels = vec![0; 3 * size.0 as usize * size.1 as usize];
    fill(BitMapBackend::with_buffer(&mut pixels, size), DENSE, draw);
    pixels
}

fn fill<B: DrawingBackend>(backend: B, unit: Unit, draw: impl FnOnce(&Canvas<B>)) {
    let canvas = Canvas { area: backend.into_drawing_area(), unit };
    drawn(canvas.area.fill(&PAPER));
    draw(&canvas);
    drawn(canvas.area.present());
}

/// Unwraps the result of drawing into memory, which cannot fail with a registered font.
pub fn drawn<T, E: Debug>(result: Result<T, E>) -> T {
    result.expect("memory takes every drawing")
}
