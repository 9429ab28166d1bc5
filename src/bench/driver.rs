//! Driver of a list of cases: each fills a row, alone or alternating with a peer.

use super::check::relative_difference;
use super::machine::Machine;
use super::peers::{losses, MissingPeer, Peer};
use super::row::{Details, Measurement};
use super::step::DataCache;
use crate::error::{Error, Result};
use crate::ops::{prefer, Route};
use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Fills a row, and returns the details for which the row has no column. If a path is given, the inputs for a peer are
/// written to it as a safetensors file, and dropout is off.
type BenchWork = dyn Fn(&mut Measurement, &Bench, Option<&Path>) -> Result<Details>;

/// A measurement to be made.
pub struct BenchCase {
    pub(super) row: Measurement,
    pub(super) work: Box<BenchWork>,
    /// Whether the measurement uses dropout, which exporting turns off.
    pub(super) drops: bool,
    peer: Option<Peer>,
}

impl BenchCase {
    pub(super) fn new(
        row: Measurement,
        work: impl Fn(&mut Measurement, &Bench, Option<&Path>) -> Result<Details> + 'static,
    ) -> Self {
        Self { row, work: Box::new(work), drops: false, peer: None }
    }

    /// Returns the same case alternating with a peer.
    pub(super) fn beside(mut self, peer: Peer) -> Self {
        self.row.peer.clone_from(&peer.name);
        self.peer = Some(peer);
        self
    }

    /// Title of its row, see [`Measurement::title`].
    pub fn title(&self) -> String {
        self.row.title()
    }
}

/// Settings of a benchmark.
pub struct Bench {
    /// Machine under test.
    pub machine: Machine,
    /// Number of rounds per case; a round measures this program, then the peer.
    pub rounds: usize,
    /// Time after which no case is begun.
    pub time: Duration,
    /// Whether an error becomes the note of its row; otherwise it ends the list.
    pub keep_going: bool,
    pub(super) data: DataCache,
}

/// The first line of an error; Candle's continue with a backtrace.
pub(super) fn first_line(error: &Error) -> String {
    error.to_string().lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

impl Bench {
    /// Returns one round per case on `machine`, without a time limit.
    pub fn new(machine: Machine) -> Self {
        Self { machine, rounds: 1, time: Duration::MAX, keep_going: false, data: DataCache::default() }
    }

    /// Returns the titles of those `rows` that need not be measured again: rows of this machine and of this commit,
    /// without uncommitted changes, that have a time and did not fail.
    pub fn held(&self, rows: &[Measurement]) -> HashSet<String> {
        let mut here = Measurement::default();
        self.machine.describe(&mut here);
        if here.commit.is_empty() || here.commit.ends_with("-dirty") {
            return HashSet::new();
        }
        let of = |row: &Measurement| {
            let machine = [&row.commit, &row.device, &row.processor].map(String::clone);
            (machine, row.threads)
        };
        let here = of(&here);
        let measured = |row: &Measurement| !row.failed() && (row.is_check() || row.seconds.is_some());
        rows.iter().filter(|row| of(row) == here && measured(row)).map(Measurement::title).collect()
    }

    /// Measures until no case is left or the time is over. `on_progress` receives messages, `done` every row; an error
    /// of `done` ends the list. Returns the titles of the cases that were left out.
    ///
    /// Ops in this process take their fused form, regardless of the previous setting.
    pub fn run(
        &self,
        cases: &[BenchCase],
        on_progress: &mut dyn FnMut(&str),
        done: &mut dyn FnMut(Measurement) -> Result<()>,
    ) -> Result<Vec<String>> {
        prefer(Route::Fused);
        let (start, count) = (Instant::now(), cases.len());
        for (index, case) in cases.iter().enumerate() {
            if start.elapsed() >= self.time {
                return Ok(cases[index..].iter().map(BenchCase::title).collect());
            }
            on_progress(&format!("{} of {count}  {}", index + 1, case.title()));
            done(self.measure(case, on_progress)?)?;
        }
        Ok(Vec::new())
    }

    pub(super) fn measure(&self, case: &BenchCase, on_progress: &mut dyn FnMut(&str)) -> Result<Measurement> {
        let mut row = case.row.clone();
        self.machine.describe(&mut row);
        match self.fill(case, &mut row, on_progress) {
            Err(e) if self.keep_going => {
                row.passed = Some(false);
                row.note = first_line(&e);
            }
            filled => filled?,
        }
        Ok(row)
    }

    fn fill(&self, case: &BenchCase, row: &mut Measurement, on_progress: &mut dyn FnMut(&str)) -> Result<()> {
        let folder = tempfile::tempdir().map_err(Error::io("create", "a temporary folder"))?;
        let file = folder.path().join("work.safetensors");
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        if let Some(peer) = case.peer.as_ref().filter(|peer| !peer.own_data) {
            on_progress("    the same results?");
            let details = (case.work)(row, self, Some(&file))?;
            let answer = match peer.call(row, &details, &file)? {
                Ok(answer) => answer,
                Err(MissingPeer(why)) => {
                    row.note = format!("absent: {why}");
                    return Ok(());
                }
            };
            answer.describe(row);
            row.compared(
                relative_difference(&answer.losses, &losses(&details)),
                self.machine.peer_tolerance(&row.dtype),
            );
            if row.failed() {
                row.note = "the peer computes something else".to_owned();
                return Ok(());
            }
            // Without dropout, the comparison of results counts as a round.
            if !case.drops {
                ours.extend(row.seconds);
                theirs.push(answer.seconds);
            }
        }
        while ours.len() < self.rounds {
            if self.rounds > 1 || case.peer.is_some() {
                on_progress(&format!("    round {} of {}", ours.len() + 1, self.rounds));
            }
            let details = (case.work)(row, self, None)?;
            let Some(seconds) = row.seconds else { return Ok(()) };
            ours.push(seconds);
            if let Some(peer) = &case.peer {
                let answer = peer.call(row, &details, &file)?.map_err(|MissingPeer(why)| Error::usage(why))?;
                theirs.push(answer.seconds);
                answer.describe(row);
            }
        }
        row.took_by_turns(&ours, &theirs);
        Ok(())
    }
}
