//! Summary columns of settings, as part of the setting's row.

/// Placement of a setting in summaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summary {
    /// A column named and described like the flag. Settings that only recipes set follow from others and get no column.
    AsFlag,
    /// A column with a description of its own.
    Column(SettingColumn),
    /// The column of this name, which belongs to another setting; no run has both.
    In(&'static str),
}

/// Column of summary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingColumn {
    /// Name of the column if it differs from the flag; empty otherwise.
    pub name: &'static str,
    /// Unit; empty for counts, names and ratios.
    pub unit: &'static str,
    /// Use of the column in reports.
    pub role: Role,
    /// Meaning of a file that lacks the column.
    pub absent: Absent,
    /// Description in one line, understandable without knowledge of the program.
    pub meaning: &'static str,
}

impl SettingColumn {
    /// Column with the name of the flag.
    pub const fn new(absent: Absent, meaning: &'static str) -> Self {
        Self { name: "", unit: "", role: Role::Setting, absent, meaning }
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

/// Use of a column in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Identifier of the row.
    Id,
    /// A setting; runs with different values never share a cell.
    Setting,
    /// A setting that is usually an axis of a grid.
    Cell,
    /// A setting of which a cell shows the best value.
    Rate,
    /// A setting over which a cell averages.
    Seed,
    /// A result of the run.
    Result,
    /// Provenance: host, time and version.
    Origin,
}

/// Meaning of a missing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Invalid: every version has written the column, with a value in every row.
    Required,
    /// Not applicable, or unknown.
    Empty,
    /// This value.
    Is(&'static str),
    /// If the named column holds one of the texts (or any text, if there are none), the last text; otherwise not
    /// applicable.
    Where(&'static str, &'static [&'static str], &'static str),
}
