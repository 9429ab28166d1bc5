//! Sizes, measured and wrapped text, and drawing areas, as used by all drawings.

use super::palette::PAPER;
use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{register_font, FontDesc, FontFamily, FontStyle, RGBColor, TextStyle};
use std::fmt::Debug;
use std::sync::Once;

/// Width and height in pixels.
pub type Size = (u32, u32);

/// An area in pixels.
pub type Area<B> = DrawingArea<B, Shift>;

/// Pixels per unit of length.
#[derive(Clone, Copy, Debug)]
pub struct Unit(pub u32);

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

/// Draws with `draw` into an SVG document.
pub fn svg(size: Size, draw: impl FnOnce(&Area<SVGBackend>)) -> String {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        drawn(area.fill(&PAPER));
        draw(&area);
        drawn(area.present());
    }
    text
}

/// Draws with `draw` into an RGB bitmap of three bytes per pixel.
pub fn bitmap(size: Size, draw: impl FnOnce(&Area<BitMapBackend>)) -> Vec<u8> {
    let mut pixels = vec![0; 3 * size.0 as usize * size.1 as usize];
    {
        let area = BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area();
        drawn(area.fill(&PAPER));
        draw(&area);
        drawn(area.present());
    }
    pixels
}

/// Unwraps the result of drawing into memory, which cannot fail with a registered font.
pub fn drawn<T, E: Debug>(result: Result<T, E>) -> T {
    result.expect("memory takes every drawing")
}

/// Draws a line of text at (x, y) in pixels.
pub fn write<B: DrawingBackend>(area: &Area<B>, text: &str, style: &TextStyle, at: (i32, i32)) {
    drawn(area.draw_text(text, style, at));
}
