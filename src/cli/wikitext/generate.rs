//! `dsf wikitext generate`: text generated from a prompt.

use super::chosen::Chosen;
use super::stream::Streamed;
use crate::cli::{exit, print, Global};
use crate::error::{ensure, Error, Result};
use crate::model::generate::{check_place, Continuation, Memory, Sampling, SamplingRule};
use crate::model::LanguageModel;
use crate::sweep::estimate::{counted, duration};
use crate::tasks::wikitext::Vocabulary;
use clap::Args;
use indicatif::DecimalBytes;
use serde_json::json;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  dsf wikitext generate --checkpoint results/runs/0123456789ab --prompt \"The state of\"\n  \
                  dsf wikitext generate --checkpoint pythia --prompt \"A recurrence\" --greedy --tokens 40\n  \
                  dsf wikitext generate --checkpoint w.safetensors --prompt - --top-p 0.9 < article.txt")]
pub(super) struct GenerateArguments {
    #[command(flatten)]
    chosen: Chosen,
    /// Prompt; `-` reads it from stdin.
    ///
    /// With --load-state it is optional, and follows the text of the state.
    ///
    /// A tokenizer.json whose post-processor adds special tokens, such as a beginning-of-text token, adds them here.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, required_unless_present = "load_state")]
    prompt: Option<String>,
    /// Write the state after the prompt to a file.
    ///
    /// The file is in the format of safetensors. With --load-state the prompt need not be read again. A file that is no saved
    /// state is not replaced.
    #[arg(long, value_name = "FILE")]
    save_state: Option<PathBuf>,
    /// Go on from a file of --save-state.
    ///
    /// The weights must be those that it was written with.
    #[arg(long, value_name = "FILE")]
    load_state: Option<PathBuf>,
    /// Maximum number of tokens to generate; the end-of-text token ends the text earlier.
    #[arg(long, value_name = "N", default_value_t = 100)]
    tokens: usize,
    #[command(flatten)]
    sampling: Sampling,
    /// Greedy decoding: always take the most likely token.
    #[arg(long, conflicts_with_all = ["temperature", "top_k", "top_p", "seed"])]
    greedy: bool,
}

impl GenerateArguments {
    fn choice(&self) -> SamplingRule {
        if self.greedy {
            SamplingRule::Greedy
        } else {
            SamplingRule::Sampled(Sampling { top_k: self.sampling.top_k.filter(|k| *k > 0), ..self.sampling })
        }
    }

    fn prompt(&self) -> Result<String> {
        let mut prompt = self.prompt.clone().unwrap_or_default();
        if prompt == "-" {
            prompt.clear();
            let read = io::stdin().lock().read_to_string(&mut prompt);
            read.map_err(Error::io("read", "stdin"))?;
        }
        ensure!(
            !prompt.is_empty() || self.load_state.is_some(),
            flag "--prompt", "empty: a text needs at least one token to go on from");
        Ok(prompt)
    }
}

pub(super) fn main(arguments: &GenerateArguments, global: &Global) -> Result<u8> {
    arguments.choice().check()?;
    if let Some(file) = &arguments.save_state {
        check_place(file)?;
    }
    let prompt = arguments.prompt()?;
    let (found, text) = arguments.chosen.open(global)?;
    let data_dir = arguments.chosen.data_dir.as_deref();
    let vocabulary = Vocabulary::of(&text, data_dir)?;
    let (device, _) = arguments.chosen.device(global)?;
    let model = found.model(&device)?;
    let clock = Instant::now();
    let sizes = (vocabulary.size, text.seq_len);
    let digest = || found.digest();
    let mut written = match &arguments.load_state {
        Some(file) => {
            let mut loaded = Continuation::load(file, &digest()?, &model, (arguments.choice(), sizes.0), &device)?;
            // Special tokens begin a text, and this one has begun.
            loaded.append(&vocabulary.encode(&prompt)?)?;
            loaded
        }
        None => Continuation::begin(&model, &vocabulary.encode_prompt(&prompt)?, arguments.choice(), sizes, &device)?,
    };
    if let Some(file) = &arguments.save_state {
        written.save(file, &digest()?)?;
    }
    let ids = written.ids().to_vec();
    let reading = clock.elapsed().as_secs_f64();
    let decode = |ids: &[u32]| vocabulary.decode(ids);
    let mut stream = Streamed::new(&ids, &decode);
    // JSON output is one object at the end; text is printed as it is generated.
    let say = |text: &str| if global.json { Ok(()) } else { print::raw(text.as_bytes()) };
    // The text of a loaded state was printed when it was written.
    say(&prompt)?;
    let (clock, mut made) = (Instant::now(), 0);
    let mut continued = String::new();
    while made < arguments.tokens {
        let id = written.next_token()?;
        if vocabulary.eos == Some(id) {
            break;
        }
        made += 1;
        let new = stream.push(id);
        say(&new)?;
        continued += &new;
    }
    let rest = stream.finish();
    say(&rest)?;
    say("\n")?;
    continued += &rest;
    let speed = made as f64 / clock.elapsed().as_secs_f64().max(1e-9);
    let memory = memory(&model, written.memory());
    if global.json {
        let bytes = match written.memory() {
            Memory::Held { bytes, .. } => Some(bytes),
            Memory::Reread(_) => None,
        };
        let said = json!({ "event": "text", "schema": 1, "prompt": prompt, "text": continued,
                           "ids": &written.ids()[ids.len()..], "tokens_per_s": speed, "state_bytes": bytes });
        print::line(&said)?;
    } else if !global.quiet {
        let (read, made) = (counted(ids.len(), "token"), counted(made, "token"));
        let prompt = format!("read {read} in {}", duration(reading));
        print::message(&format!("{prompt}, wrote {made}, {speed:.0} a second; {memory}"));
        if let Some(file) = arguments.save_state.as_deref().map(Path::display) {
            print::message(&format!("state after the prompt: {file}; --load-state {file} goes on from it"));
        }
        if written.ids().len() > text.seq_len {
            let trained = counted(text.seq_len, "token");
            print::message(&format!("the model was trained on windows of {trained}: this is longer"));
        }
    }
    Ok(exit::DONE)
}

/// Describes the memory that the context takes.
fn memory(model: &LanguageModel, memory: Memory) -> String {
    match memory {
        Memory::Held { bytes: held, read } => {
            let held = DecimalBytes(held as u64);
            // A state has the same size after two tokens; a cache grows.
            if model.state_size(1) == model.state_size(2) {
                format!("state: {held}, constant")
            } else {
                format!("cache: {held} after {}", counted(read, "token"))
            }
        }
        Memory::Reread(tokens) => {
            format!("no state: the last {} are read again for each", counted(tokens, "token"))
        }
    }
}
