//! What the tests of other rooms share.

use super::run;
use crate::config::RunConfig;

/// Settings of one run, for the tests of other rooms.
pub(crate) struct Wish {
    task: &'static str,
    settings: Vec<(String, String)>,
}

impl Wish {
    pub fn of(task: &'static str, settings: &[(&str, &str)]) -> Self {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            task,
            settings: settings.iter().map(owned).collect(),
        }
    }

    pub fn set(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    /// Nothing, for closures.
    pub fn end(&self) {}

    pub fn run(&self) -> RunConfig {
        let settings = self.settings.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        run(self.task, &settings.collect::<Vec<_>>()).unwrap()
    }
}
