//! Files of a continuation: the tokens read so far and the states after them, so that a prompt is read once.

use super::{Continuation, DecodingForm, SamplingRule};
use crate::error::{ensure, refuse, Error, Result};
use crate::files::{self, write_atomic_by};
use crate::model::{Decoder, LanguageModel};
use crate::store::{check_archive, Archive};
use candle_core::{DType, Device, Tensor};
use safetensors::tensor::Metadata;
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::path::Path;

// Names of two tensors, and the key of the digest of the weights in the header.
const IDS: &str = "ids";
const LOGITS: &str = "logits";
const WEIGHTS: &str = "weights";

/// Fails if `path` is a file that [`Continuation::save`] must not replace, since it is no saved state.
pub fn check_place(path: &Path) -> Result<()> {
    let is_state = |bytes: &[u8]| {
        let header = SafeTensors::read_metadata(bytes);
        header.is_ok_and(|(_, header)| weights_of(&header).is_some() && header.info(IDS).is_some())
    };
    ensure!(
        !path.exists() || files::map(path).is_ok_and(|file| is_state(&file)),
        flag "--save-state" = path.display(), "is a file already, and no saved state: name another, or remove it");
    Ok(())
}

/// The digest of the weights in the header of a saved state.
fn weights_of(header: &Metadata) -> Option<&String> {
    header.metadata().as_ref()?.get(WEIGHTS)
}

impl<'a> Continuation<'a> {
    /// Writes the tokens and the states to a safetensors file with a digest of its contents; `weights` is the digest of the
    /// model's weights. Fails for a model that holds no state, and if writing fails.
    pub fn save(&self, path: &Path, weights: &str) -> Result<()> {
        let DecodingForm::Recurrent(decoder) = &self.form else {
            refuse!(flag "--save-state" = path.display(), "this model holds no state: it reads its last tokens again for each");
        };
        let count = self.written.len();
        let mut archive = Archive::new([(WEIGHTS, weights.to_owned())]).digested();
        for (name, tensor) in decoder.tensors()? {
            archive.add_tensor(name, tensor);
        }
        archive.add_tensor(IDS.to_owned(), Tensor::from_slice(&self.written, count, &Device::Cpu)?);
        archive.add_tensor(LOGITS.to_owned(), Tensor::from_slice(&self.logits, self.logits.len(), &Device::Cpu)?);
        write_atomic_by(path, |out| archive.write(out))
    }

    /// Goes on from a file that [`Self::save`] wrote for the same model. Fails if the file is damaged or not such a file, if
    /// it was written for other weights, or if its tensors are not the states of `model`.
    pub fn load(
        path: &Path,
        weights: &str,
        model: &'a LanguageModel,
        (choice, tokens): (SamplingRule, usize),
        device: &Device,
    ) -> Result<Self> {
        choice.check()?;
        if !path.exists() {
            return Err(Error::missing_at(path, "no such file; --load-state takes one that --save-state wrote"));
        }
        let bytes = files::read_bytes(path)?;
        let wrong = |why: String| Error::corrupt(path.display().to_string(), format!("not a saved state: {why}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| wrong(e.to_string()))?;
        check_archive(&bytes).map_err(|why| Error::corrupt(path.display().to_string(), why))?;
        match weights_of(&header) {
            None => return Err(wrong(format!("it has no `{WEIGHTS}` in its header"))),
            Some(found) if found != weights => refuse!(
                flag "--load-state" = path.display(),
                "the state was written for weights with the digest {found}, and these have {weights}: give the model that wrote it to \
                 --checkpoint"
            ),
            Some(_) => {}
        }
        let mut tensors = candle_core::safetensors::load_buffer(&bytes, device)?;
        let mut take = |name: &str| tensors.remove(name).ok_or_else(|| wrong(format!("no tensor `{name}`")));
        let written: Vec<u32> = take(IDS)?.to_vec1()?;
        let logits: Vec<f32> = take(LOGITS)?.to_dtype(DType::F32)?.to_vec1()?;
        ensure!(!written.is_empty(), path path, "the state has read no token");
        let Some(mut decoder) = model.begin(1)? else {
            refuse!(flag "--load-state" = path.display(), "this model holds no state");
        };
        decoder.restore(&mut tensors, written.len()).map_err(wrong)?;
        let form = DecodingForm::Recurrent(decoder);
        Ok(Self { model, device: device.clone(), choice, tokens, written, unread: 0, form, logits })
    }

    /// Reads further tokens of the text.
    pub fn append(&mut self, ids: &[u32]) -> Result<()> {
        self.written.extend(ids);
        self.unread += ids.len();
        self.read()
    }
}

impl Decoder {
    /// Tensors of the states by name, `LAYER.NUMBER` and `LAYER.previous`.
    fn tensors(&self) -> candle_core::Result<Vec<(String, Tensor)>> {
        let mut all = Vec::new();
        for (layer, state) in self.states.iter().enumerate() {
            for (name, tensor) in state.named() {
                all.push((format!("{layer}.{name}"), tensor.contiguous()?.to_device(&Device::Cpu)?));
            }
        }
        Ok(all)
    }

    /// Replaces the states by those in `tensors`, which were written after `read` tokens. Fails with a sentence if one is
    /// missing or left over, or has another type or another number of axes.
    fn restore(&mut self, tensors: &mut HashMap<String, Tensor>, read: usize) -> Result<(), String> {
        for (layer, state) in self.states.iter_mut().enumerate() {
            state
                .restore(&mut |name: &str| tensors.remove(&format!("{layer}.{name}")))
                .map_err(|why| format!("layer {layer}: {why}"))?;
        }
        self.read = read;
        match tensors.keys().next() {
            Some(name) => Err(format!("`{name}` belongs to no layer of this model")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::samples::pythia;
    use crate::config::Rotary;
    use crate::error::testing::Fails;
    use crate::model::Io;
    use crate::nn::Params;
    use std::path::PathBuf;
    use tempfile::TempDir;

    const V: usize = 40;
    const PROMPT: [u32; 7] = [3, 9, 27, 1, 0, 39, 5];

    fn model(mixer: &str) -> LanguageModel {
        let rotary = if mixer == "softmax" { Rotary::Pre } else { Rotary::None };
        let params = Params::seeded(5, DType::F32, &Device::Cpu);
        LanguageModel::new(&pythia(mixer, rotary), Io { vocab_size: V, seq_len: 32 }, &params).unwrap()
    }

    fn begun(model: &LanguageModel) -> Continuation<'_> {
        Continuation::begin(model, &PROMPT, SamplingRule::Greedy, (V, 32), &Device::Cpu).unwrap()
    }

    /// A state of `model` after the prompt, for weights with the digest 0123, in a folder of its own.
    fn kept(model: &LanguageModel) -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.safetensors");
        begun(model).save(&path, "0123").unwrap();
        (dir, path)
    }

    fn loaded<'a>(model: &'a LanguageModel, path: &Path, weights: &str) -> Result<Continuation<'a>> {
        Continuation::load(path, weights, model, (SamplingRule::Greedy, V), &Device::Cpu)
    }

    fn next(text: &mut Continuation) -> Vec<u32> {
        (0..6).map(|_| text.next_token().unwrap()).collect()
    }

    /// The text goes on as if the prompt had been read, also after further tokens.
    #[test]
    fn a_loaded_state_goes_on_where_the_prompt_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.safetensors");
        for mixer in ["softmax", "linear", "mamba", "lstm"] {
            let model = model(mixer);
            let mut whole = begun(&model);
            whole.save(&path, "0123").unwrap();
            let mut again = loaded(&model, &path, "0123").unwrap();
            assert_eq!((again.ids(), again.memory()), (&PROMPT[..], whole.memory()), "{mixer}");
            assert_eq!(next(&mut again), next(&mut whole), "{mixer}");
            let mut longer = loaded(&model, &path, "0123").unwrap();
            longer.append(&[8, 2]).unwrap();
            let mut read = begun(&model);
            read.append(&[8, 2]).unwrap();
            assert_eq!(next(&mut longer), next(&mut read), "{mixer}");
        }
    }

    /// A changed bit of a state, of a token or of a logit is noticed.
    #[test]
    fn a_damaged_state_is_refused() {
        let linear = model("linear");
        let (_dir, path) = kept(&linear);
        let whole = std::fs::read(&path).unwrap();
        let (header, _) = SafeTensors::read_metadata(&whole).unwrap();
        let logits = 4 * V;
        for at in [header + 8, header + (whole.len() - header) / 2, whole.len() - logits - 1, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            loaded(&linear, &path, "0123").fails("corrupt").names(&["damaged"]);
        }
    }

    #[test]
    fn a_state_of_other_weights_or_another_model_is_refused() {
        let linear = model("linear");
        let (dir, path) = kept(&linear);
        loaded(&linear, &path, "4567").refuses("--load-state").names(&["0123", "4567", "--checkpoint"]);
        loaded(&model("mamba"), &path, "0123").fails("corrupt").names(&["layer 0"]);
        check_place(&path).unwrap();
        std::fs::write(&path, [0; 50]).unwrap();
        check_place(&path).refuses("--save-state").gives(&path.display().to_string());
        loaded(&linear, &path, "0123").fails("corrupt").names(&["header"]);
        let none = dir.path().join("none");
        check_place(&none).unwrap();
        loaded(&linear, &none, "0123").fails("missing");
        let hyena = model("hyena");
        begun(&hyena).save(&path, "0123").refuses("--save-state");
    }
}
