//! Command line: one file per subcommand. Results go to stdout, all other messages to stderr.

mod bench;
mod check;
mod compare;
mod completions;
mod data;
mod device;
mod doctor;
mod experiments;
mod export;
mod help;
mod hub;
mod initial;
mod inspect;
mod man;
mod mixers;
mod model;
mod overview;
mod perplexity;
mod print;
mod progress;
mod report;
mod results;
mod run;
mod screen;
mod show;
mod signals;
mod single;
mod stack;
mod sweep;
#[cfg(test)]
mod tests;
mod tour;
mod version;
mod weights;
mod wikitext;
mod worker;

use crate::error::{exit, refuse, Error, Position};
use crate::ops::{self, simd, Route, Simd};
use crate::recipes::{all_quoted, quoted, task, TaskRow, TASKS};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use serde_json::{json, Value};
use signals::{check_stop, is_set, stop_flag};
pub use stack::in_thread;
use std::any::TypeId;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Train and compare sequence mixers (attention, state space models, RNNs) under one protocol, each as h_i = Λ_i h_{i-1} +
/// B_i u_i, y_i = C_i h_i + D_i u_i.
#[derive(Parser)]
#[command(
    name = "dsf",
    version,
    after_long_help = "Exit codes:\n    0  done\n    1  the system, the network or a computation failed\n    2  wrong usage\n    \
                  3  some runs of a sweep failed\n    4  a check failed (report --check, compare --check, inspect --verify and\n       \
                  --engines, bench --device, check, doctor)\n   65  a data file is invalid, or a file of dsf is damaged\n   \
                  66  data are missing\n   69  another process is training the run\n   75  stopped by a signal after a \
                  checkpoint; the same command continues\n  130  stopped at once by a second Ctrl-C\n\nDSF_SIMD=amx, \
                  avx512-bf16, avx512, avx2 or baseline (neon on ARM) forces a lower instruction\nset than the best one of the \
                  processor, for matrix products too."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    global: Global,
}

/// Crates that the program contains, with their licences and the texts of these.
const LICENCES: &str = include_str!("../../.github/THIRD-PARTY.md");

/// Parsed command: one run of a task of the table, or anything else.
enum Command {
    Train(TaskRow, Box<single::SingleArguments>),
    Other(Box<Other>),
}

impl FromArgMatches for Command {
    fn from_arg_matches(found: &ArgMatches) -> Result<Self, clap::Error> {
        let name = found.subcommand().filter(|(name, _)| !Other::has_subcommand(name));
        match name.and_then(|(name, rest)| Some((task(name).ok()?, rest))) {
            Some((task, rest)) => {
                let arguments = single::SingleArguments::from_arg_matches(rest)?;
                Ok(Self::Train(task, Box::new(arguments)))
            }
            None => Other::from_arg_matches(found).map(|other| Self::Other(Box::new(other))),
        }
    }

    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(found)?;
        Ok(())
    }
}

impl Subcommand for Command {
    fn augment_subcommands(tree: clap::Command) -> clap::Command {
        let tasks = TASKS.iter().filter(|task| !Other::has_subcommand(task.name)).map(|task| {
            let about = format!("Train and test one model on {}", task.about);
            let brief = about.split(':').next().unwrap_or_default().to_owned();
            // Set last, since flattened flags would override the description.
            single::SingleArguments::augment_args(clap::Command::new(task.name)).about(brief).long_about(about)
        });
        Other::augment_subcommands(tree.subcommands(tasks))
    }

    fn augment_subcommands_for_update(tree: clap::Command) -> clap::Command {
        Self::augment_subcommands(tree)
    }

    fn has_subcommand(name: &str) -> bool {
        Other::has_subcommand(name) || task(name).is_ok()
    }
}

/// Commands that do more than one run of a task.
#[derive(Subcommand)]
enum Other {
    /// Train, use and convert language models on WikiText.
    Wikitext(wikitext::WikitextArguments),
    /// Train, draw and inspect a tiny model, step by step.
    ///
    /// Runs a few commands in under a minute, and prints each with an explanation, so that you can repeat and vary it. All
    /// files are written to one folder; a tour that is repeated or was interrupted continues there.
    Tour(tour::TourArguments),
    /// Train a grid of models; finished runs are skipped.
    Sweep(sweep::SweepArguments),
    /// List the built-in experiments, or print one.
    Experiments(experiments::ExperimentsArguments),
    /// Report results: grids, figures, tables, curves, verdicts.
    Report(report::ReportArguments),
    /// Compare two sets of results beyond the noise of seeds.
    ///
    /// Compares cell by cell, and says which differences exceed the noise of seeds.
    Compare(compare::CompareArguments),
    /// Show one run: settings, epochs, the command that repeats it.
    Show(show::ShowArguments),
    /// Export runs for TensorBoard, or as Parquet or JSON.
    ///
    /// Writes the curves, results and settings of runs for other programs.
    Export(export::ExportArguments),
    /// Show mixers as dynamical systems.
    ///
    /// Writes trained or fresh mixers as linear time-varying systems, and measures and verifies their matrices Λ, B, C
    /// and Φ.
    Inspect(inspect::InspectArguments),
    /// List the mixers, or describe some of them.
    Mixers(mixers::MixersArguments),
    /// Show and check trained and pretrained models.
    Model(model::ModelArguments),
    /// Compare this build with reference numbers.
    Check(check::CheckArguments),
    /// Download, generate, tokenize and list data.
    Data(data::DataArguments),
    /// Time training steps and single ops.
    Bench(bench::BenchArguments),
    /// Check this machine and the results folder.
    ///
    /// Lists what they provide for training, and how to get what is missing.
    Doctor,
    /// Print shell completions.
    Completions(completions::CompletionsArguments),
    /// Print a manual page, or write all of them.
    Man(man::ManArguments),
    /// Print the licences of third-party code.
    Licenses,
    /// Train the run whose config is the first line of stdin, or with --host every run that a line asks for; end with
    /// stdin.
    #[command(hide = true)]
    Worker(worker::WorkerArguments),
}

/// Flags that every subcommand takes.
#[derive(Args, Clone)]
struct Global {
    /// Folder of results.
    #[arg(short, long, global = true, value_name = "DIR", default_value = "results", env = "DSF_OUT")]
    out: PathBuf,
    /// Number of threads [default: all cores].
    ///
    /// Results do not depend on the number of threads.
    #[arg(long, global = true, value_name = "N", hide_short_help = true)]
    threads: Option<usize>,
    /// Implementation of the ops.
    #[arg(
        long,
        global = true,
        value_enum,
        hide_short_help = true,
        default_value_t = Ops::Fused,
        env = Ops::VARIABLE,
        hide_env_values = true
    )]
    ops: Ops,
    /// Print JSON on stdout, one object per line.
    #[arg(long, global = true)]
    json: bool,
    /// Print only results and errors.
    #[arg(short, long, global = true, hide_short_help = true)]
    quiet: bool,
    /// Colour the output.
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, hide_short_help = true)]
    color: Colour,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ops {
    /// Optimised ops with hand-written backward passes.
    Fused,
    /// Plain tensor ops, slow; the fused ops are tested against them.
    Reference,
}

impl Ops {
    const VARIABLE: &str = "DSF_OPS";

    /// Decides for this process and for the workers that it starts.
    fn prefer(self) {
        let (route, name) = match self {
            Ops::Fused => (Route::Fused, "fused"),
            Ops::Reference => (Route::Reference, "reference"),
        };
        std::env::set_var(Self::VARIABLE, name);
        ops::prefer(route);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Colour {
    /// In a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Colour {
    /// Name as typed.
    fn name(self) -> &'static str {
        match self {
            Colour::Auto => "auto",
            Colour::Always => "always",
            Colour::Never => "never",
        }
    }

    fn choice(self) -> anstream::ColorChoice {
        match self {
            Colour::Auto => anstream::ColorChoice::Auto,
            Colour::Always => anstream::ColorChoice::Always,
            Colour::Never => anstream::ColorChoice::Never,
        }
    }
}

impl Global {
    /// Number of threads to use, at least one.
    fn threads(&self) -> Result<usize, Error> {
        let all = || std::thread::available_parallelism().map_or(1, usize::from);
        match self.threads {
            Some(n) if !(1..=1024).contains(&n) => {
                refuse!(flag "--threads" = n, "must be 1 to 1024")
            }
            given => Ok(given.unwrap_or_else(all)),
        }
    }

    /// Returns the `--out` flag for a command to be typed; empty if it is the default.
    fn out_flag(&self) -> String {
        match self.out.to_str() {
            Some("results") => String::new(),
            _ => format!(" --out {}", quoted(&self.out.to_string_lossy())),
        }
    }

    /// Whether only results are printed.
    fn silent(&self) -> bool {
        self.quiet || self.json
    }

    /// Prints a result on stdout: `event` for programs, or `text` for people.
    fn emit(&self, event: &Value, text: &str) -> Result<(), Error> {
        if self.json {
            print::line(event)
        } else {
            print::line(text)
        }
    }

    /// Whether stdout is coloured.
    fn coloured(&self) -> bool {
        anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
    }
}

/// Returns all commands. Help of a task's command omits settings of other tasks.
fn tree() -> clap::Command {
    let tree = reading_numbers(Cli::command()).mut_subcommand("sweep", help::of_sweep);
    // A timed step belongs to a single run.
    let tree = tree.mut_subcommand("bench", |bench| bench.mut_subcommand("step", help::of_one_run));
    TASKS.iter().fold(tree, |tree, task| {
        // Defaults are resolved when the command is called, and only for that command.
        tree.mut_subcommand(task.name, |command| command.defer(help::of_task))
    })
}

/// Lets every option of `command` take negative numbers, so that its own check refuses them and not the parser of words,
/// and says of a count what it must be.
fn reading_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        if arg.get_long().is_none() || !arg.get_action().takes_values() {
            return arg;
        }
        let counts = arg.get_value_parser().type_id() == TypeId::of::<usize>();
        let arg = arg.allow_negative_numbers(true);
        if counts {
            arg.value_parser(|text: &str| text.parse::<usize>().map_err(|_| "must be a whole number, 0 or more"))
        } else {
            arg
        }
    });
    let inner: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    inner.into_iter().fold(command, |command, name| command.mut_subcommand(name, reading_numbers))
}

/// Executes the command line of the process, and returns the exit code.
pub fn main() -> u8 {
    forget_empty_variables();
    execute(&std::env::args_os().collect::<Vec<_>>())
}

/// Executes a command line, whose first word is the name of the program, and returns the exit code.
fn execute(words: &[OsString]) -> u8 {
    let parsed = tree().try_get_matches_from(words);
    let json = words.iter().any(|word| word == "--json");
    let Cli { command, global } = match parsed.and_then(|found| Cli::from_arg_matches(&found)) {
        Ok(cli) => cli,
        Err(e) if json && e.kind() == ErrorKind::DisplayVersion => {
            return supported_simd().and_then(|()| version::main()).unwrap_or_else(|e| failed(&e, json));
        }
        Err(e) => {
            if e.use_stderr() && json {
                let _ = print::line(error_event(&Error::misuse(&e)));
            }
            // A closed pipe is no error.
            let _ = e.print();
            return e.exit_code() as u8;
        }
    };
    global.color.choice().write_global();
    global.ops.prefer();
    let result = signals::let_large_writes_fail().and_then(|()| supported_simd());
    let result = result.and_then(|()| match command {
        None => overview::main(&global),
        Some(Command::Train(task, arguments)) => single::main(*arguments, task, &global),
        Some(Command::Other(other)) => other.run(&global),
    });
    let stop = |e| match e {
        Error::Stopped => stopped("stopped by a signal", &global),
        e => Err(e),
    };
    result.or_else(stop).unwrap_or_else(|e| failed(&e, global.json))
}

/// Returns an error if the environment names an instruction set that this processor lacks.
fn supported_simd() -> Result<(), Error> {
    let set = std::env::var(simd::VARIABLE).unwrap_or_default();
    Simd::chosen().map(drop).map_err(|why| Error::flag_value(simd::VARIABLE, set, why))
}

/// Prints the error that ends a command, as an event too if `json`, and returns its exit code.
fn failed(error: &Error, json: bool) -> u8 {
    if json {
        let _ = print::line(error_event(error));
    }
    print::message(&format!("error: {error}"));
    error.exit_code()
}

/// Returns the event of an error that ends the command.
fn error_event(error: &Error) -> Value {
    let at = error.diagnostic();
    let (mut line, mut row) = (None, None);
    match at.position {
        Some(Position::Line(number)) => line = Some(number),
        Some(Position::Row(number) | Position::Record(number)) => row = Some(number),
        None => {}
    }
    json!({ "event": "error", "schema": 1, "kind": error.kind(), "code": error.exit_code(), "flag": at.flag,
            "value": at.value, "path": at.path.map(|path| path.display().to_string()), "line": line, "row": row, "reason": at.reason,
            "text": error.to_string() })
}

/// An environment variable that is empty, as scripts leave them, is one that is not set.
fn forget_empty_variables() {
    for name in [Ops::VARIABLE, simd::VARIABLE, "DSF_OUT", "DSF_DATA"] {
        if std::env::var_os(name).is_some_and(|value| value.is_empty()) {
            std::env::remove_var(name);
        }
    }
}

impl Other {
    fn run(self, global: &Global) -> Result<u8, Error> {
        match self {
            Self::Tour(arguments) => tour::main(&arguments, global, &execute),
            Self::Wikitext(arguments) => wikitext::main(arguments, global),
            Self::Sweep(arguments) => sweep::main(arguments, global),
            Self::Experiments(arguments) => experiments::main(&arguments, global),
            Self::Report(arguments) => report::main(arguments, global),
            Self::Compare(arguments) => compare::main(arguments, global),
            Self::Show(arguments) => show::main(&arguments, global),
            Self::Export(arguments) => export::main(&arguments, global),
            Self::Mixers(arguments) => mixers::main(&arguments, global),
            Self::Inspect(arguments) => inspect::main(arguments, global),
            Self::Check(arguments) => check::main(arguments, global),
            Self::Model(arguments) => model::main(&arguments, global),
            Self::Data(arguments) => data::main(arguments, global),
            Self::Bench(arguments) => bench::main(arguments, global),
            Self::Doctor => doctor::main(global),
            Self::Worker(arguments) => worker::main(arguments, global),
            Self::Completions(arguments) => completions::main(&arguments, tree()),
            Self::Man(arguments) => man::main(&arguments, tree(), global),
            Self::Licenses => {
                print::result(LICENCES)?;
                Ok(exit::DONE)
            }
        }
    }
}

/// Returns the command line, quoted for a shell; a worker returns that of its sweep.
fn typed_command() -> String {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let own = || all_quoted(&words.collect::<Vec<_>>());
    std::env::var(TYPED).unwrap_or_else(|_| own())
}

/// Environment variable in which a sweep passes its command line to workers.
const TYPED: &str = "DSF_TYPED";

/// Reports that work was stopped because of `why`, and the command that resumes it.
fn stopped(why: &str, global: &Global) -> Result<u8, Error> {
    let command = typed_command();
    if global.json {
        print::line(json!({ "event": "stopped", "schema": 1, "why": why, "command": command }))?;
    }
    print::message(&format!("{why}; the same command continues from there:\n  {command}"));
    Ok(exit::STOPPED)
}
