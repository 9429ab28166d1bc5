//! Speed and memory of a language model that reads token by token, after contexts of different lengths.

use super::machine::Machine;
use super::row::{Details, Measurement, MeasurementKind, MeasurementReport};
use super::timer::Repetitions;
use crate::config::RunConfig;
use crate::error::{ensure, Result};
use crate::model::{Decoder, Io, LanguageModel};
use crate::nn::Params;
use crate::ops::rng::Rng;
use crate::store;
use candle_core::{DType, Tensor};
use serde_json::json;
use std::cell::RefCell;

/// Longest context in tokens.
const LONGEST: usize = 1 << 20;

/// Repetitions of one decoded token: short ones are grouped into rounds of a twentieth of a second, if the context allows.
const REPETITIONS: Repetitions = Repetitions { warm_up: 2, rounds: 5, round_seconds: 0.05, most_calls: 256 };

/// Decoding of one model: the time of the next token of each of several sequences after a context.
#[derive(Clone, Debug)]
pub struct Decoding {
    /// Config of the model; its weights are random.
    pub config: RunConfig,
    /// Number of tokens that are read before.
    pub context: usize,
    /// Numbers of sequences that are decoded together, each of which is timed.
    pub batches: Vec<usize>,
}

/// A model that has read a context.
struct ContextRead {
    model: LanguageModel,
    /// Its memory of one sequence; `None` if it cannot be read token by token.
    decoder: Option<Decoder>,
    vocab_size: usize,
    parameters: usize,
}

impl Decoding {
    /// Fails if the sizes are out of range or the states would not fit into memory.
    pub fn new(config: RunConfig, context: usize, batches: &[usize]) -> Result<Self> {
        ensure!((1..=LONGEST).contains(&context), flag "--context" = context, "must be 1 to {LONGEST}");
        for batch in batches {
            ensure!((1..=4096).contains(batch), flag "--batch" = batch, "must be 1 to 4096");
        }
        let most = batches.iter().copied().max().unwrap_or(0);
        let model = &config.model;
        let state = LanguageModel::new(
            model,
            Io { seq_len: context, ..Io::of(&config.task)? },
            &Params::without_values(DType::F32),
        )?;
        // The states of one sequence and of all, and the inputs of a few layers while the context is read.
        let read = 16 * context * model.d_model;
        let needed = 4.0 * ((most + 1) * state.state_size(context) + read) as f64;
        store::check_memory(needed, "decoding", "give a smaller --batch or --context")?;
        Ok(Self { config, context, batches: batches.to_vec() })
    }

    /// Returns whether a model is read token by token with a state of one size at every context.
    pub fn is_recurrent(config: &RunConfig) -> Result<bool> {
        let io = Io { seq_len: Self::LONG, ..Io::of(&config.task)? };
        let model = LanguageModel::new(&config.model, io, &Params::without_values(DType::F32))?;
        Ok(model.state_size(Self::LONG) == model.state_size(2 * Self::LONG) && model.begin(1)?.is_some())
    }

    /// A context beyond every window of the defaults.
    const LONG: usize = 1024;

    /// Times the decoding of each number of sequences, and passes each to `out` with that number. The context is read
    /// once, at one go, and its state repeated for all sequences.
    pub fn reports(
        &self,
        machine: &Machine,
        mut out: impl FnMut(usize, MeasurementReport) -> Result<()>,
    ) -> Result<()> {
        let (model, mut known) = (&self.config.model, None);
        for batch in self.batches.iter().copied() {
            let case = format!("{} {batch},{},{},{}", model.mixer, self.context, model.d_model, model.d_state);
            let row = Measurement::new(MeasurementKind::Decode, case, DType::F32.as_str());
            let report = machine.report(row, |row| {
                let read = match known.take() {
                    Some(read) => read,
                    None => self.read(machine)?,
                };
                self.measure(row, machine, known.insert(read), batch)
            })?;
            out(batch, report)?;
        }
        Ok(())
    }

    fn read(&self, machine: &Machine) -> Result<ContextRead> {
        let device = &machine.device;
        let io = Io { seq_len: self.context + REPETITIONS.calls(), ..Io::of(&self.config.task)? };
        let params = Params::seeded(self.config.seed, DType::F32, device).detached();
        let model = LanguageModel::new(&self.config.model, io, &params)?;
        let mut decoder = model.begin(1)?;
        if let Some(decoder) = &mut decoder {
            let mut rng = Rng::new(self.config.seed, "bench/decode", 0);
            let tokens: Vec<u32> = (0..self.context).map(|_| rng.below(io.vocab_size as u32)).collect();
            model.read(&Tensor::from_vec(tokens, (1, self.context), device)?, decoder)?;
        }
        Ok(ContextRead { model, decoder, vocab_size: io.vocab_size, parameters: params.count() })
    }

    fn measure(&self, row: &mut Measurement, machine: &Machine, read: &ContextRead, batch: usize) -> Result<Details> {
        let (config, model) = (&self.config.model, &read.model);
        let Some(decoder) = &read.decoder else {
            row.note = format!("`{}` cannot be read token by token", config.mixer);
            return Ok(Details::default());
        };
        let known = decoder.repeated(batch)?;
        let next = Tensor::zeros(batch, DType::U32, &machine.device)?;
        let bytes = known.bytes();
        // Each round goes on from the context, by a small part of its length, so that a cache has about that size.
        let schedule = Repetitions { most_calls: (self.context / 8).clamp(8, REPETITIONS.most_calls), ..REPETITIONS };
        let decoder = RefCell::new(known.clone());
        let step = || {
            model.step(&next, &mut decoder.borrow_mut())?;
            Ok(())
        };
        let mut begin = || {
            *decoder.borrow_mut() = known.clone();
            // The first token after a copy makes the room of a cache.
            step()
        };
        let ((), timing) = machine.time_after(&schedule, &mut begin, &mut || step())?;
        row.tokens = Some(batch as f64);
        row.elements = Some(bytes as f64 / DType::F32.size_in_bytes() as f64);
        row.timed(&timing);
        let details = json!({
            "mixer": config.mixer,
            "variant": config.variant,
            "d": config.d_model,
            "n": config.d_state,
            "heads": config.n_heads,
            "layers": config.n_layers,
            "vocab_size": read.vocab_size,
            "batch_size": batch,
            "context": self.context,
            "state_bytes": bytes,
            "parameters": read.parameters,
        });
        Ok(details.as_object().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::testing::Fails;
    use crate::recipes;

    fn decoding(mixer: &str, context: usize, batch: usize) -> Result<Decoding> {
        Decoding::new(recipes::run("wikitext", &[("preset", "smoke"), ("mixer", mixer)])?, context, &[1, batch])
    }

    fn reported(mixer: &str, context: usize, batch: usize) -> Vec<MeasurementReport> {
        let mut all = Vec::new();
        let keep = |_, report| {
            all.push(report);
            Ok(())
        };
        decoding(mixer, context, batch).unwrap().reports(&Machine::cpu(1), keep).unwrap();
        all
    }

    fn state_bytes(mixer: &str, context: usize, batch: usize) -> u64 {
        let reports = reported(mixer, context, batch);
        assert!(reports.iter().all(|report| report.row.tokens_per_second.unwrap() > 0.0));
        assert_eq!(reports[1].row.tokens, Some(batch as f64));
        reports[1].details["state_bytes"].as_u64().unwrap()
    }

    /// The cache of attention grows with the context, a state does not; each sequence of a batch has its own.
    #[test]
    fn a_cache_grows_with_the_context_and_a_state_does_not() {
        let of = |mixer, context| state_bytes(mixer, context, 1);
        assert_eq!(of("softmax", 96), 3 * of("softmax", 32));
        assert_eq!(of("mamba", 96), of("mamba", 32));
        assert_eq!(state_bytes("mamba", 32, 3), 3 * of("mamba", 32));
    }

    #[test]
    fn a_mixer_without_a_step_is_noted_and_sizes_out_of_range_are_refused() {
        let report = reported("hyena", 16, 1).remove(0);
        assert!(report.row.note.contains("hyena") && report.row.seconds.is_none(), "{}", report.row.note);
        decoding("mamba", 0, 1).refuses("--context");
        decoding("mamba", 16, 0).refuses("--batch");
        decoding("softmax", 1 << 20, 4096).fails("refused").names(&["--batch"]);
    }
}
