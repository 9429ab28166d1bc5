//! The column of a setting in a summary, as a part of the setting's row.

/// How summaries show a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    /// In a column behind those of all others, named and explained as the flag is. A setting that recipes alone
    /// set follows from others, and has none.
    AsFlag,
    /// In a column that files have already.
    Column(SettingColumn),
    /// In the column of this name, which is another setting's: no run has both.
    In(&'static str),
}

/// A column that files have already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingColumn {
    /// Its place among the settings' columns, which stays: new settings come behind.
    pub order: usize,
    /// Its name where that is not the flag's; empty where it is.
    pub name: &'static str,
    /// Empty for counts, names and ratios without a unit.
    pub unit: &'static str,
    /// What a report does with it.
    pub role: Role,
    /// What a file without it meant.
    pub absent: Absent,
    /// One line for a stranger.
    pub meaning: &'static str,
}

impl SettingColumn {
    /// The column of a setting that no file has yet.
    pub const fn as_flag(help: &'static str) -> Self {
        Self::new(usize::MAX, Absent::Empty, help)
    }

    /// The column at `order`, with the name of the flag.
    pub(super) const fn new(order: usize, absent: Absent, meaning: &'static str) -> Self {
        Self {
            order,
            name: "",
            unit: "",
            role: Role::Setting,
            absent,
            meaning,
        }
    }

    pub(super) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(super) const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    pub(super) const fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }
}

/// What a report does with a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Names the row.
    Id,
    /// Runs that differ here are never in one cell.
    Setting,
    /// A setting that is usually an axis of a grid.
    Cell,
    /// A cell shows the best of these.
    Rate,
    /// A cell is a mean over these.
    Seed,
    /// What came out.
    Result,
    /// Where, when and by what.
    Origin,
}

/// What it means that a value is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The file is no summary: every version has written the column, and its settings in every row.
    Required,
    /// It does not apply, or is not known.
    Empty,
    /// This value.
    Is(&'static str),
    /// Where the column named first holds the second text (any, if that is empty), the third; else
    /// nothing.
    Where(&'static str, &'static str, &'static str),
}
