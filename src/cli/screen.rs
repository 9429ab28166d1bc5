//! Output while a run trains: one live line in a terminal, plain lines elsewhere.

use super::print::{self, Console};
use super::run::RunEvent;
use super::{perplexity, Global};
use crate::config::RunConfig;
use crate::error::Result;
use crate::store::EpochRow;
use crate::sweep::estimate::duration;
use crate::tasks::{NoSkill, TaskEntry};
use std::time::{Duration, Instant};

/// Longest interval between plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(30);

pub(super) struct RunScreen {
    console: Console,
    epochs: usize,
    steps: usize,
    accuracy: Option<f64>,
    /// Whether perplexities are shown in place of accuracies.
    perplexity: bool,
    /// Accuracy without the skill that the task tests.
    without_skill: Option<NoSkill>,
    tokens_per_step: f64,
    /// Steps and seconds at the first step that this process made.
    origin: Option<(usize, f64)>,
    last_plain: Instant,
}

impl RunScreen {
    pub fn new(config: &RunConfig, task: &TaskEntry, tokens_per_step: usize, global: &Global) -> Self {
        let bar = || print::bar("{bar:24} {msg}", Some(0));
        Self {
            console: Console::new(global.silent(), bar),
            epochs: config.train.epochs,
            steps: 0,
            accuracy: None,
            perplexity: task.objective.is_language_model(),
            without_skill: without_skill(config),
            tokens_per_step: tokens_per_step as f64,
            origin: None,
            last_plain: Instant::now(),
        }
    }

    pub fn show(&mut self, event: &RunEvent) -> Result<()> {
        match event {
            RunEvent::Start { steps_per_epoch, done, .. } => {
                self.steps = *steps_per_epoch;
                if let Some(bar) = self.console.bar() {
                    bar.set_length((self.steps * self.epochs) as u64);
                }
                if *done > 0 {
                    self.say(&format!("continuing after epoch {done} from a checkpoint"));
                }
            }
            RunEvent::Examples { made, of } => self.examples(*made, *of),
            RunEvent::Step { epoch, step, loss, seconds } => self.step(*epoch, *step, *loss, *seconds),
            RunEvent::Epoch(row) => {
                self.accuracy = Some(row.accuracy);
                self.say(&format!(
                    "epoch {:>3}/{}  {}  {:.0} tokens/s  {}",
                    row.epoch,
                    self.epochs,
                    if self.perplexity { perplexity::epoch(row) } else { answers(row, self.without_skill.as_ref()) },
                    row.tokens_per_s,
                    duration(row.seconds)
                ));
            }
            RunEvent::Warning(text) => self.say(&format!("warning: {text}")),
        }
        Ok(())
    }

    /// Prints a line, above the bar if there is one.
    pub fn say(&mut self, text: &str) {
        self.console.say(text);
        self.last_plain = Instant::now();
    }

    /// Clears the live line.
    pub fn finish(&self) {
        self.console.finish();
    }

    fn examples(&mut self, made: usize, of: usize) {
        let line = format!("generated {made} of {of} examples");
        match &self.console {
            Console::Bar(bar) => bar.set_message(line),
            Console::Plain if self.last_plain.elapsed() >= PLAIN_EVERY => self.say(&line),
            Console::Plain | Console::Quiet => {}
        }
    }

    fn step(&mut self, epoch: usize, step: usize, loss: f64, seconds: f64) {
        let done = (epoch - 1) * self.steps + step;
        let (first, start) = *self.origin.get_or_insert((done, seconds));
        let pace = (seconds - start) / (done - first).max(1) as f64;
        let left = pace * (self.steps * self.epochs - done) as f64;
        let so_far = match (self.perplexity, self.accuracy) {
            (true, _) => format!("ppl {:.2}", loss.exp()),
            (false, Some(a)) => format!("test accuracy {:.1} %", 100.0 * a),
            (false, None) => "test accuracy -".to_owned(),
        };
        let rate = if pace > 0.0 { self.tokens_per_step / pace } else { 0.0 };
        let line = format!(
            "epoch {epoch}/{}  loss {loss:.4}  {so_far}  {rate:.0} tokens/s  \
             at most {} left",
            self.epochs,
            duration(left)
        );
        match &self.console {
            Console::Bar(bar) => {
                bar.set_position(done as u64);
                bar.set_message(line);
            }
            Console::Plain if self.last_plain.elapsed() >= PLAIN_EVERY => self.say(&line),
            Console::Plain | Console::Quiet => {}
        }
    }
}

/// Returns the accuracy without the skill that the task of `config` tests.
pub(super) fn without_skill(config: &RunConfig) -> Option<NoSkill> {
    config.task.read().ok()?.without_skill()
}

/// Formats the accuracies of an epoch.
fn answers(row: &EpochRow, without: Option<&NoSkill>) -> String {
    let validation =
        row.val_accuracy.map_or(String::new(), |accuracy| format!("  validation {:>5.1} %", 100.0 * accuracy));
    let without = without
        .map_or(String::new(), |without| format!(" (without {} {:.1})", without.skill(), 100.0 * without.accuracy));
    let classes =
        row.macro_accuracy.map_or(String::new(), |accuracy| format!("  by class {:>5.1} %", 100.0 * accuracy));
    format!("loss {:.4}  test accuracy {:>5.1} %{without}{classes}{validation}", row.train_loss, 100.0 * row.accuracy)
}
