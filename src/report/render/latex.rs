//! LaTeX tables, one per grid, with the rules of booktabs.

use super::super::{Grid, GridLine, Report};
use super::{rows, TextTarget};

pub(super) fn render(report: &Report, _screen: TextTarget) -> String {
    // Notes on the runs, from their number on, are for the author and not for the readers of the table.
    let runs = report.coverage.runs();
    let first = report.notes.iter().position(|note| *note == runs).unwrap_or(report.notes.len());
    let (legend, about_runs) = report.notes.split_at(first);
    // How rates were chosen is part of the method.
    let is_method = |note: &&String| note.starts_with("learning rates") || note.starts_with("held out");
    let is_warning = |note: &&String| note.starts_with("warning:");
    let warnings = report.grids.iter().flat_map(|grid| &grid.notes).filter(is_warning);
    let comments = about_runs
        .iter()
        .filter(|note| !is_method(note))
        .chain(warnings)
        .map(|note| format!("\n% {}", note.replace('\n', " ")));
    let mut blocks = vec![format!("% needs \\usepackage{{booktabs}}{}", comments.collect::<String>())];
    for (i, grid) in report.grids.iter().enumerate() {
        let grid = &*grid.abridged();
        let mut said = vec![report.heading.replace('\n', " "), grid.title.clone()];
        said.extend(grid.notes.iter().filter(|note| !is_warning(note)).map(|note| capitalised(note)));
        // Notes on the whole report go into the last caption only.
        if i + 1 == report.grids.len() {
            said.extend(legend.iter().chain(about_runs.iter().filter(is_method)).map(|note| capitalised(note)));
        }
        let said = said.iter().filter(|text| !text.is_empty());
        let said: Vec<String> = said.map(|text| escaped(text.trim_end_matches('.'))).collect();
        blocks.push(format!(
            "\\begin{{table}}\n  \\centering\n  \\caption{{{}.}}\n{}\\end{{table}}",
            said.join(". "),
            table(grid)
        ));
    }
    blocks.join("\n\n") + "\n"
}

/// A note as a sentence of its own.
fn capitalised(note: &str) -> String {
    let mut letters = note.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn table(grid: &Grid) -> String {
    let sides = "r".repeat(grid.columns.len());
    let titles = grid.columns.iter().map(|tick| escaped(&tick.title));
    let titles: Vec<String> = std::iter::once(escaped(&grid.corner())).chain(titles).collect();
    let rows: String = rows(grid).map(|(line, cells)| row(line, &cells)).collect();
    format!(
        "  \\begin{{tabular}}{{l{sides}}}\n    \\toprule\n    {} \\\\\n    \\midrule\n{rows}    \\bottomrule\n  \
         \\end{{tabular}}\n",
        titles.join(" & ")
    )
}

fn row(line: &GridLine, cells: &[[String; 2]]) -> String {
    let name = if line.printed { format!("\\emph{{{}}}", escaped(line.name())) } else { escaped(line.name()) };
    let cells = cells.iter().map(|[label, marks]| match marks.as_str() {
        "" => escaped(label),
        marks => format!("{}\\textsuperscript{{{}}}", escaped(label), escaped(marks)),
    });
    let cells: Vec<String> = std::iter::once(name).chain(cells).collect();
    format!("    {} \\\\\n", cells.join(" & "))
}

/// TeX's special characters, and characters that its fonts lack.
#[rustfmt::skip]
const SIGNS: [(char, &str); 23] = [
    ('\\', "\\textbackslash{}"), ('{', "\\{"), ('}', "\\}"), ('$', "\\$"), ('&', "\\&"), ('%', "\\%"), ('#', "\\#"),
    ('_', "\\_"), ('^', "\\textasciicircum{}"), ('~', "\\textasciitilde{}"), ('<', "$<$"), ('>', "$>$"), ('|', "$|$"),
    ('±', "$\\pm$"), ('·', "$\\cdot$"), ('×', "$\\times$"), ('†', "$\\dagger$"), ('‡', "$\\ddagger$"),
    ('°', "$^\\circ$"), ('≥', "$\\geq$"), ('≤', "$\\leq$"), ('λ', "$\\lambda$"), ('Λ', "$\\Lambda$"),
];

fn escaped(text: &str) -> String {
    super::escaped(text, &SIGNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tex_would_take_for_something_else_is_escaped() {
        assert_eq!(escaped("n \\ d_x, 5 % ± {1}"), "n \\textbackslash{} d\\_x, 5 \\% $\\pm$ \\{1\\}");
    }
}
