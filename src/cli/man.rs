//! `dsf man`: manual pages, generated from the same table of commands as help and completions.

use super::{exit, print, Global};
use crate::error::{ensure, unknown, Error, Result};
use crate::files::write_atomic;
use clap::{Args, Command};
use clap_mangen::Man;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Version in the footer of a page.
const VERSION: &str = concat!("dsf ", env!("CARGO_PKG_VERSION"));

#[derive(Args)]
#[command(after_help = "Examples:\n  dsf man sweep status | man -l -\n  dsf man --to ~/.local/share/man/man1")]
pub(super) struct ManArguments {
    /// Command to print the page of, such as `sweep status` [default: dsf itself].
    #[arg(value_name = "COMMAND", conflicts_with = "to")]
    command: Vec<String>,
    /// Write one page per command to a folder.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

pub(super) fn main(arguments: &ManArguments, mut tree: Command, global: &Global) -> Result<u8> {
    tree.build();
    match &arguments.to {
        Some(folder) => write(&tree, folder, global)?,
        None => print::bytes(&page(&named(&tree, &arguments.command)?)?)?,
    }
    Ok(exit::DONE)
}

/// Finds the command with these names, each a subcommand of the previous one.
fn named(tree: &Command, names: &[String]) -> Result<Command> {
    let mut command = tree;
    for name in names {
        let known = shown(command).map(Command::get_name);
        command = command.find_subcommand(name).ok_or_else(|| unknown("command", name, known))?;
    }
    Ok(command.clone())
}

/// Returns the subcommands of `command` that help lists.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let inner = command.get_subcommands();
    inner.filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

/// Returns `command` and all commands below it.
fn all(command: &Command) -> Vec<&Command> {
    let mut found = vec![command];
    found.extend(shown(command).flat_map(all));
    found
}

/// Names of `command` and its parents, joined: `dsf-sweep-status`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone()).title(name(command)).manual("dsf");
    man.source(VERSION).render(&mut page).map_err(Error::io("write", "a manual page"))?;
    Ok(page)
}

fn write(tree: &Command, folder: &Path, global: &Global) -> Result<()> {
    ensure!(
        !folder.is_file(),
        flag "--to" = folder.display(), "is a file: give a folder, such as ~/.local/share/man/man1");
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let mut files = Vec::new();
    for command in all(tree) {
        let file = folder.join(format!("{}.1", name(command)));
        write_atomic(&file, &page(command)?)?;
        files.push(file);
    }
    let text = format!("{} manual pages in {}", files.len(), folder.display());
    let event = json!({ "event": "manual", "schema": 1, "files": files });
    global.emit(&event, &text)
}
