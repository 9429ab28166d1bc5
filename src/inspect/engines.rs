//! Compares several algorithms for one map: step by step as in decoding, over the whole sequence as in training, and by
//! all pairs of tokens. Reports the differences of their outputs, and their speed.

use super::products::median;
use super::subject::Subject;
use super::table::{panels, record, shown};
use super::verify::{apart, rows, scale, stepped, tolerance};
use crate::error::Result;
use crate::mixers::{Core, Family};
use crate::nn::Cx;
use crate::ops::{with_pairs, Pairs};
use crate::report::{Cell, Grid, GridLine, PanelForm, Report, Style};
use crate::store::{gigabytes, memory_limit, MemoryLimit};
use candle_core::Tensor;
use serde_json::json;
use std::time::{Duration, Instant};

/// Rounds in which every engine runs once.
const ROUNDS: usize = 9;
/// Rounds that are run regardless of the time that they take.
const LEAST_ROUNDS: usize = 3;
/// Time after which no further round begins.
const ENOUGH: Duration = Duration::from_secs(2);

/// An algorithm for a mixer's map.
struct Engine {
    name: &'static str,
    run: fn(&Subject) -> candle_core::Result<Option<Tensor>>,
    /// Bytes that it needs in addition to those of a pass over the sequence.
    extra_bytes: fn(&Subject) -> f64,
}

/// The recurrence, step by step through a state.
const STEPS: Engine = Engine { name: "step by step", run: stepped, extra_bytes: |_| 0.0 };

/// All pairs of tokens, for mixers whose sum over tokens can also be computed in chunks.
const DIRECT: Engine =
    Engine { name: "all pairs", run: |subject| with_pairs(Pairs::Direct, || pass(subject)), extra_bytes: |_| 0.0 };

/// All pairs of tokens, weighted by products of decays: the dual form of a system.
const DUAL: Engine = Engine {
    name: "all pairs, the dual form",
    run: |subject| match subject.mixer.ltv(&subject.u)? {
        Some(system) => system.by_pairs(&subject.u),
        None => match subject.mixer.inner(&subject.u)? {
            Some(inner) => inner.system.by_pairs(&inner.input),
            None => Ok(None),
        },
    },
    extra_bytes: |subject| subject.sizes().system(),
};

/// The pass over whole sequences.
const fn whole(name: &'static str) -> Engine {
    Engine { name, run: |subject| with_pairs(Pairs::Chunked, || pass(subject)), extra_bytes: |_| 0.0 }
}

/// The engines of a mixer, the one used in training first. If the pass over a sequence is the only one besides the
/// steps, also the reason.
fn engines_of(subject: &Subject) -> (Vec<Engine>, Option<&'static str>) {
    let entry = subject.entry;
    match entry.work(&subject.model).map(|work| work.core) {
        Some(Core::ChunkedScan) if entry.family == Family::LinearAttention => {
            (vec![whole("in chunks"), DIRECT, STEPS], None)
        }
        Some(Core::ChunkedScan) => (vec![whole("in chunks"), DUAL, STEPS], None),
        Some(Core::MatrixScan) => (
            vec![whole("matrix scan"), STEPS],
            Some("the pass over a sequence is the same recurrence as the steps, with the state of a head in the cache"),
        ),
        Some(Core::LongConvolution) => (
            vec![whole("convolution"), STEPS],
            Some("the pass over a sequence is a convolution with the kernel of the system"),
        ),
        Some(Core::SelectiveScan) => (
            vec![whole("selective scan"), STEPS],
            Some(
                "every state decays by its own factor, so that a chunk of the sequence is no product of matrices: the pass is a \
                 scan, the same recurrence as the steps",
            ),
        ),
        Some(Core::GatedScan) => (
            vec![whole("gated scan"), STEPS],
            Some(
                "with one state per channel, a chunk has nothing to share: the pass is a scan, the same recurrence as the \
                 steps",
            ),
        ),
        Some(Core::SoftmaxAttention) => (
            vec![whole("all pairs"), STEPS],
            Some("it has no state of finite size (Lemma 1): the steps keep all keys and values"),
        ),
        Some(Core::SparseAttention(_)) => (
            vec![whole("pairs of the pattern"), STEPS],
            Some("it has no state of finite size: the steps keep the keys and values that are still attended to"),
        ),
        None => (
            vec![whole("over the sequence"), STEPS],
            Some("the pass is step by step too, since each step reads the previous output"),
        ),
    }
}

fn pass(subject: &Subject) -> candle_core::Result<Option<Tensor>> {
    subject.mixer.forward(&subject.u.unsqueeze(0)?, &Cx::eval())?.squeeze(0).map(Some)
}

struct Timed {
    name: &'static str,
    /// Difference from the first engine, in units of the largest output.
    off: f64,
    /// Median duration of a run over the input.
    seconds: f64,
}

/// Runs the engines of `subject` in turn, so that other load on the machine affects all of them equally.
fn timed(subject: &Subject, engines: &[Engine]) -> Result<Vec<Timed>> {
    let mut outputs = Vec::new();
    for engine in engines {
        if let Some(y) = (engine.run)(subject)? {
            outputs.push((engine, rows(&y)?));
        }
    }
    let mut times = vec![Vec::new(); outputs.len()];
    let begun = Instant::now();
    for round in 0..ROUNDS {
        if round >= LEAST_ROUNDS && begun.elapsed() > ENOUGH {
            break;
        }
        for ((engine, _), times) in outputs.iter().zip(&mut times) {
            let start = Instant::now();
            (engine.run)(subject)?;
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let first = &outputs[0].1;
    let each = outputs.iter().zip(&mut times).map(|((engine, y), times)| {
        times.sort_by(f64::total_cmp);
        Timed { name: engine.name, off: apart(y, first) / scale(first), seconds: median(times).unwrap_or(f64::NAN) }
    });
    Ok(each.collect())
}

/// Splits off the engines that do not fit into `room`; returns the others, and a note for each that is left out.
fn fitting(subject: &Subject, engines: Vec<Engine>, room: Option<MemoryLimit>) -> (Vec<Engine>, Vec<String>) {
    let Some(room) = room else { return (engines, Vec::new()) };
    let needed = |engine: &Engine| subject.sizes().pass() + (engine.extra_bytes)(subject);
    let fits = |engine: &Engine| needed(engine) <= room.bytes as f64;
    let (kept, left): (Vec<Engine>, Vec<Engine>) = engines.into_iter().partition(fits);
    let left = left
        .iter()
        .map(|engine| {
            format!(
                "{}: `{}` is left out: it needs about {} of memory, and {} is {}",
                subject.name,
                engine.name,
                gigabytes(needed(engine)),
                room.of,
                gigabytes(room.bytes as f64)
            )
        })
        .collect();
    (kept, left)
}

/// Reports the engines of `subjects` that fit into memory, and whether their outputs are equal.
pub fn engines(heading: String, subjects: &[Subject]) -> Result<(Report, bool)> {
    let (mut grids, mut notes, mut hold) = (Vec::new(), Vec::new(), true);
    for subject in subjects {
        let (engines, why) = engines_of(subject);
        let (engines, left) = fitting(subject, engines, memory_limit());
        notes.extend(left);
        let timed = timed(subject, &engines)?;
        let tolerance = tolerance(subject);
        let equal = timed.iter().all(|engine| engine.off <= tolerance);
        let is = if equal { "equal" } else { "NOT equal" };
        notes.push(format!(
            "{}: the outputs of all algorithms are {is} to {tolerance:.0e} of the largest output",
            subject.name
        ));
        notes.extend(why.map(|why| format!("{}: {why}", subject.name)));
        hold &= equal;
        grids.push(grid(subject, &timed));
    }
    notes.push(format!(
        "times are medians of up to {ROUNDS} alternating runs over one sequence; differences are from the first algorithm, in \
         units of the largest output"
    ));
    Ok((panels(heading, grids, notes), hold))
}

fn grid(subject: &Subject, timed: &[Timed]) -> Grid {
    let tokens = subject.seq_len() as f64;
    let columns = ["difference", "milliseconds", "tokens/s"];
    let numbers = |engine: &Timed| [engine.off, 1e3 * engine.seconds, tokens / engine.seconds];
    let mut records = Vec::new();
    for engine in timed {
        for (column, value) in columns.iter().zip(numbers(engine)) {
            let at = [None, Some(json!(engine.name))];
            records.push(record(&subject.name, column, at, Some(value)));
        }
    }
    let line = |engine: &Timed| GridLine::new(engine.name, numbers(engine).map(|x| Cell::text(shown(x))).to_vec());
    Grid {
        form: PanelForm::Table,
        records,
        ..Grid::new(
            format!("{}: algorithms", subject.name),
            columns,
            timed.iter().map(line).collect(),
            Style::Measured("number"),
        )
    }
}
