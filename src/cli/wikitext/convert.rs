//! `dsf wikitext import` and `dsf wikitext export`: conversion from and to models of Hugging Face.

use crate::cli::{exit, print, weights, Global};
use crate::error::{ensure, Result};
use crate::model::weights::Checkpoint;
use crate::sweep::estimate::grouped;
use crate::tasks::wikitext::{known_eos, tokenizer_file, Tokenizer};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(after_help = "Example, after `hf download EleutherAI/pythia-70m --local-dir pythia`:\n  \
                  dsf wikitext import --from pythia --to pythia.safetensors\n  \
                  dsf wikitext eval --checkpoint pythia.safetensors --seq-len 1024")]
pub(super) struct Import {
    /// Folder with config.json and model.safetensors, in one file or in shards; or such a file.
    #[arg(long, value_name = "DIR|FILE")]
    from: PathBuf,
    /// File to write, which must not exist.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
}

#[derive(Args)]
#[command(after_help = "Example:\n  \
                  dsf wikitext export --checkpoint results/runs/0123456789ab --to pythia\n\n\
                  and in Python:\n  \
                  transformers.AutoModelForCausalLM.from_pretrained(\"pythia\")")]
pub(super) struct Export {
    /// File of weights, run folder, or id of a run (its best weights, or else its last).
    #[arg(long, value_name = "FILE|DIR|RUN")]
    checkpoint: PathBuf,
    /// Folder to write config.json and model.safetensors to.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Folder of the tokenizer's file, which is copied to the model [default: the folder of `dsf data fetch`].
    #[arg(long, value_name = "DIR", env = "DSF_DATA", hide_env_values = true)]
    data_dir: Option<PathBuf>,
}

pub(super) fn import(arguments: &Import, global: &Global) -> Result<u8> {
    free(&arguments.to)?;
    let found = Checkpoint::open(&arguments.from)?;
    let parameters = found.check()?;
    found.save(&arguments.to)?;
    let next = format!("dsf wikitext eval --checkpoint {}", arguments.to.display());
    said(&found, parameters, &arguments.to, &next, global)
}

pub(super) fn export(arguments: &Export, global: &Global) -> Result<u8> {
    for name in ["config.json", "model.safetensors"] {
        free(&arguments.to.join(name))?;
    }
    let found = weights::open(&arguments.checkpoint, global)?;
    let parameters = found.check()?;
    let name = found.text()?.tokenizer;
    let tokenizer = match &name {
        Tokenizer::Bytes => None,
        file => match tokenizer_file(file, arguments.data_dir.as_deref()) {
            Ok(found) => Some(found),
            Err(e) => {
                let lost = match known_eos(&name) {
                    Some(_) => "no tokenizer.json is",
                    None => "neither tokenizer.json nor an end-of-text token is",
                };
                print::message(&format!("warning: {lost} written: {e}"));
                None
            }
        },
    };
    let eos = tokenizer.as_ref().map_or(known_eos(&name), |file| file.eos);
    let class = found.export(&arguments.to, tokenizer.as_ref(), eos)?;
    let path = arguments.to.display();
    // Importing fla registers its models.
    let import = if class.library == "transformers" { "" } else { "import fla; " };
    let next = format!("{import}transformers.AutoModelForCausalLM.from_pretrained(\"{path}\")");
    said(&found, parameters, &arguments.to, &next, global)
}

/// Returns an error if `path` exists.
fn free(path: &Path) -> Result<()> {
    ensure!(
        !path.exists(),
        flag "--to" = path.display(), "exists already: remove it, or give another name");
    Ok(())
}

fn said(found: &Checkpoint, parameters: usize, to: &Path, next: &str, global: &Global) -> Result<u8> {
    let (model, text) = (&found.config.model, found.text()?);
    let event = json!({ "event": "written", "schema": 1, "path": to, "parameters": parameters,
                        "mixer": model.mixer, "vocab_size": text.vocab_size, "seq_len": text.seq_len,
                        "tokenizer": text.tokenizer.to_string(), "run": found.origin.run });
    let mut line = format!(
        "{}: {} parameters, d = {}, {} layers, {} heads, V = {} ({}), L = {}",
        to.display(),
        grouped(parameters as u64),
        model.d_model,
        model.n_layers,
        model.n_heads,
        text.vocab_size,
        text.tokenizer,
        text.seq_len,
    );
    if !global.quiet {
        line += &format!("\nnext:    {next}");
    }
    global.emit(&event, &line)?;
    Ok(exit::DONE)
}
