//! Experiments that are part of the program, so that `dsf sweep figure1-small` works in any folder.

use std::path::Path;

/// An experiment file of this project.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// File name without extension, e.g. `figure1-small`.
    pub name: &'static str,
    /// Contents of the file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(Shipped {
            name: $name,
            text: include_str!(concat!("../../experiments/", $name, ".toml")),
        }),*]
    };
}

/// Every experiment; those that a laptop can finish come first.
pub static SHIPPED: &[Shipped] = shipped! {
    "smoke" "lra-smoke" "wikitext-smoke"
    "figure1-small" "figure2-small" "figure2-small-matched" "figure2-small-steps" "figure3-small" "survey"
    "mad-small" "state-tracking" "copying" "hybrids-small" "h3-table1" "recall-parts-small" "frontier-small"
    "heads-small" "states-small" "hippo-small"
    "figure7-cell" "figure7-init" "figure1" "figure2" "figure3" "figure7"
    "table1" "table1-short" "table2" "table3" "frontier" "mad"
};

impl Shipped {
    /// Finds the experiment that `path` names: `figure7`, `figure7.toml` or `experiments/figure7.toml`.
    pub fn find(path: &Path) -> Option<&'static Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let here = folder.is_none_or(|folder| folder == Path::new("experiments"));
        let toml = path.extension().is_none_or(|ending| ending == "toml");
        let name = path.file_stem().filter(|_| here && toml)?;
        SHIPPED.iter().find(|shipped| name == shipped.name)
    }

    /// Purpose of the experiment: the comment at the head of the file.
    pub fn about(&self) -> String {
        let lines: Vec<&str> = self
            .text
            .lines()
            .map(|line| line.trim_start_matches('#').trim())
            .take_while(|line| !line.is_empty())
            .collect();
        lines.join(" ")
    }

    /// Returns a line of the head of the file, such as `Cost`.
    pub fn line(&self, name: &str) -> Option<&'static str> {
        let head = format!("# {name}:");
        self.text.lines().find_map(|line| line.strip_prefix(&head)).map(str::trim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn every_file_of_the_folder_is_part_of_the_program() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files: BTreeSet<String> =
            files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        let names: BTreeSet<String> = SHIPPED.iter().map(|shipped| shipped.name.to_owned()).collect();
        assert_eq!(names, files);
    }

    #[test]
    fn the_guide_lists_every_experiment() {
        let guide = include_str!("../guide/sweeps.md");
        for Shipped { name, .. } in SHIPPED {
            let named = [format!("`experiments/{name}.toml`"), format!("`{name}`")];
            assert!(
                guide.lines().any(|line| line.starts_with('|') && named.iter().any(|n| line.contains(n))),
                "{name}"
            );
        }
    }

    #[test]
    fn an_experiment_has_three_names_and_a_head() {
        for shipped in SHIPPED {
            let name = shipped.name;
            for path in [name.to_owned(), format!("{name}.toml"), format!("experiments/{name}.toml")] {
                assert_eq!(Shipped::find(Path::new(&path)).unwrap().name, name);
            }
            assert!(shipped.about().len() > 40, "{name}");
            assert!(shipped.line("Runs").is_some(), "{name}");
            assert!(shipped.line("Cost").unwrap().contains("steps"), "{name}");
        }
        for path in ["figure8", "elsewhere/figure7.toml", "figure7.txt"] {
            assert!(Shipped::find(Path::new(path)).is_none(), "{path}");
        }
    }
}
