//! Checks the generated MQAR data against those of the released code, bit for bit.

use super::file::GoldenFile;
use super::Worst;
use crate::error::{Error, Result};
use crate::tasks::mqar::{numpy, MqarConfig};
use crate::tasks::{Generator, Task};
use sha2::{Digest, Sha256};

pub(super) fn check(file: &GoldenFile) -> Result<Worst> {
    let mut worst = Worst::default();
    for case in file.cases(".inputs") {
        let facts = file.object(&case)?;
        let seed = facts.size("seed")?;
        let config = MqarConfig {
            data: Generator::Numpy,
            data_seed: 0,
            vocab_size: facts.size("vocab")?,
            seq_len: facts.size("seq_len")?,
            test_seq_len: None,
            kv_pairs: facts.size("kv_pairs")?,
            key_tokens: 1,
            overwrites: 0,
            passes: 1,
            val_examples: 0,
            train_examples: facts.size("examples")?,
            fresh_examples: false,
            test_examples: 1,
        };
        config.check()?;
        let stored = file.tensor(&format!("{case}.inputs"))?.dims();
        if stored != [config.train_examples, config.seq_len] {
            let what = format!("{case}.inputs has shape {stored:?}, which contradicts its metadata");
            return Err(Error::usage(what));
        }
        let seed = u32::try_from(seed).map_err(|_| Error::usage("the seed exceeds 32 bits"))?;
        let data = numpy::segment(seed, &config, facts.number("power")?);
        let tokens = data.tokens().iter().map(|t| i64::from(*t)).collect();
        for (kind, got) in [("inputs", tokens), ("labels", data.dense_labels())] {
            let name = format!("{case}.{kind}");
            let wanted = file.tensor(&name)?.flatten_all()?.to_vec1::<i64>()?;
            let differing = if got.len() == wanted.len() {
                got.iter().zip(&wanted).filter(|(a, b)| a != b).count()
            } else {
                got.len().max(wanted.len())
            };
            worst.add(name, differing as f64, 0.5);
            let same = sha256(&got) == facts.text(&format!("sha256_{kind}"))?;
            worst.add(format!("{case}.sha256_{kind}"), if same { 0.0 } else { 1.0 }, 0.5);
        }
    }
    Ok(worst)
}

/// SHA-256 of the little-endian 64-bit integers.
fn sha256(values: &[i64]) -> String {
    let mut hash = Sha256::new();
    for value in values {
        hash.update(value.to_le_bytes());
    }
    hex::encode(hash.finalize())
}
