//! LaTeX tables, one per grid, with the rules of booktabs.

use super::super::{Grid, GridLine, Report};
use super::{rows, TextTarget};

pub(super) fn render(report: &Report, _screen: TextTarget) -> String {
    let mut blocks = vec!["% needs \\usepackage{booktabs}".to_owned()];
    for (i, grid) in report.grids.iter().enumerate() {
        let grid = &*grid.abridged();
        let about = format!("{}. {}", report.heading.replace('\n', " "), grid.title);
        let mut said = vec![about];
        said.extend(grid.notes.iter().cloned());
        // Notes on the whole report go into the last caption only.
        if i + 1 == report.grids.len() {
            said.extend(report.notes.iter().cloned());
        }
        let said: Vec<String> = said.iter().map(|text| escaped(text)).collect();
        blocks.push(format!(
            "\\begin{{table}}\n  \\centering\n  \\caption{{{}.}}\n{}\\end{{table}}",
            said.join(". "),
            table(grid)
        ));
    }
    blocks.join("\n\n") + "\n"
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
