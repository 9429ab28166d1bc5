//! A self-contained HTML page of pictures, numbers and data, in light and dark, for any screen width.

use super::super::picture::{self, Picture};
use super::super::{panels, Grid, GridLine, Report};
use super::{csv, rows, TextTarget};
use percent_encoding::{utf8_percent_encode, NON_ALPHANUMERIC};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

pub(super) fn render(report: &Report, screen: TextTarget) -> String {
    let title = title(report);
    page(&title, &format!("<h1>{title}</h1>\n{}", section("report", report, "", screen)))
}

/// Renders `reports` on one page. `formats` are names of formats with their file extensions.
pub(super) fn index(reports: &[(String, Report)], formats: &[(&str, &str)]) -> String {
    let mut body = String::from("<h1>Results</h1>\n<nav aria-label=\"Figures and tables\"><ul>\n");
    for (name, report) in reports {
        let _ = writeln!(body, "<li><a href=\"#{name}\">{}</a></li>", title(report));
    }
    body += "</ul></nav>\n";
    for (name, report) in reports {
        let others: Vec<String> =
            formats.iter().map(|(format, extension)| format!("<a href=\"{name}.{extension}\">{format}</a>")).collect();
        let head = format!("<h2>{}</h2>\n", title(report));
        let files = format!("<p class=\"files\">As {}</p>\n", others.join(", "));
        body += &section(name, report, &(head + &files), TextTarget::default());
    }
    page("Results", &body)
}

/// The heading on one line.
fn title(report: &Report) -> String {
    escaped(&report.heading.replace('\n', " "))
}

fn page(title: &str, body: &str) -> String {
    let mut night = String::new();
    for (day, dark) in picture::night() {
        let _ =
            writeln!(night, "  svg [fill=\"{day}\"] {{ fill: {dark} }} svg [stroke=\"{day}\"] {{ stroke: {dark} }}");
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n\
         {STYLE}@media (prefers-color-scheme: dark) {{\n{night}}}\n</style>\n</head>\n<body>\n<main>\n{body}</main>\n\
         </body>\n</html>\n"
    )
}

/// One report below its `head`: legend, panels, caption, data, numbers.
fn section(name: &str, report: &Report, head: &str, screen: TextTarget) -> String {
    let drawn = panels::picture(report);
    let data = utf8_percent_encode(&csv::render(report, screen), NON_ALPHANUMERIC).to_string();
    let said: String = drawn.caption.iter().map(|line| format!("<p>{}</p>\n", escaped(line))).collect();
    let tables: String = report.grids.iter().map(table).collect();
    format!(
        "<section id=\"{name}\">\n{head}{}<div class=\"caption\">\n{said}</div>\n\
         <p><a download=\"{name}.csv\" href=\"data:text/csv;charset=utf-8,{data}\">Data as CSV</a></p>\n\
         <details>\n<summary>Numbers</summary>\n{tables}</details>\n</section>\n",
        pictures(&drawn)
    )
}

fn pictures(drawn: &Picture) -> String {
    let parts = picture::parts(drawn);
    let mut html = String::new();
    if !parts.legend.is_empty() {
        html += "<ul class=\"legend\">\n";
        for (sign, name) in &parts.legend {
            let label = match name.as_str() {
                "" => " role=\"img\" aria-label=\"scale from 0 to 100 %\"",
                _ => " aria-hidden=\"true\"",
            };
            let _ = writeln!(html, "<li><span{label}>{}</span>{}</li>", sign.trim(), escaped(name));
        }
        html += "</ul>\n";
    }
    let _ = writeln!(html, "<div class=\"panels\" style=\"--across:{}\">", drawn.across);
    for (panel, document) in drawn.panels.iter().zip(&parts.panels) {
        let (Some(panel), Some((width, document))) = (panel, document) else {
            html += "<div class=\"none\"></div>\n";
            continue;
        };
        let words = escaped(&panel.words(&drawn.names));
        let _ = writeln!(
            html,
            "<figure><figcaption>{}</figcaption><div class=\"panel\" role=\"img\" aria-label=\"{words}\" \
             style=\"--width:{width}px\">{}</div></figure>",
            escaped(&panel.title),
            document.trim()
        );
    }
    html + "</div>\n"
}

fn table(grid: &Grid) -> String {
    let grid = &*grid.abridged();
    let titles: String =
        grid.columns.iter().map(|tick| format!("<th scope=\"col\">{}</th>", escaped(&tick.title))).collect();
    let rows: String = rows(grid).map(|(line, cells)| row(line, &cells)).collect();
    let notes: String = grid.notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
    format!(
        "<div class=\"table\" tabindex=\"0\"><table>\n<caption>{}</caption>\n<thead><tr><th scope=\"col\">{}</th>{titles}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n<ul class=\"notes\">{notes}</ul>\n",
        escaped(&grid.title),
        escaped(&grid.corner())
    )
}

fn row(line: &GridLine, cells: &[[String; 2]]) -> String {
    let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(&cell.concat()))).collect();
    let class = if line.printed { " class=\"printed\"" } else { "" };
    format!("<tr{class}><th scope=\"row\">{}</th>{cells}</tr>\n", escaped(line.name()))
}

/// Escapes text for use between tags or in quoted attributes.
pub(super) fn escaped(text: &str) -> String {
    super::escaped(text, &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_end_a_tag_or_a_quote() {
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
