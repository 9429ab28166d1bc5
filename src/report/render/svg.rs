//! A picture as an SVG document, with its numbers in words for screen readers.

use super::super::{panels, picture, Report};
use super::html::escaped;
use super::TextTarget;

pub(super) fn render(report: &Report, _screen: TextTarget) -> String {
    let drawn = panels::picture(report);
    let panels = drawn.panels.iter().flatten();
    let words: Vec<String> = panels.map(|panel| panel.words(&drawn.names)).collect();
    let (title, words) = (escaped(&drawn.title), escaped(&words.join("\n")));
    let described = format!("<title>{title}</title>\n<desc>{words}</desc>\n");
    let document = picture::svg(&drawn);
    // Inserts the description after the opening tag of the document.
    let inside = document.find('>').map_or(0, |end| end + 1);
    let (head, body) = document.split_at(inside);
    format!("{head}\n{described}{}\n", body.trim())
}
