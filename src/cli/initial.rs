//! Trained weights that runs start from.

use super::{hub, weights, Global};
use crate::config::InitialWeights;
use crate::error::{Error, Result};
use crate::model::weights::Checkpoint;
use crate::recipes::{Flags, InitialModel};
use crate::sweep::{Experiment, Plan};
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

/// Setting that names the weights.
const FROM: &str = "from";

/// Opens the weights that runs of `flags` start from, or grids of `experiments` under them, and keeps their models in
/// `flags`. Fails if weights are missing, damaged or not those of a language model.
pub(super) fn open_all(flags: &mut Flags, experiments: &[Experiment], global: &Global) -> Result<()> {
    let of_files = experiments.iter().flat_map(|experiment| experiment.list(FROM));
    let names: Vec<String> = of_files.chain(flags.list(FROM)).cloned().collect();
    for name in names {
        if let Entry::Vacant(free) = flags.initial.entry(name) {
            let model = model(free.key(), global)?;
            free.insert(model);
        }
    }
    Ok(())
}

/// Runs of all grids of the experiments at `paths` under `flags`, whose weights are opened first.
pub(super) fn plan_of(paths: &[PathBuf], mut flags: Flags, global: &Global) -> Result<Plan> {
    let experiments: Vec<Experiment> = paths.iter().map(|path| Experiment::read(path)).collect::<Result<_>>()?;
    open_all(&mut flags, &experiments, global)?;
    Experiment::plan_of(&experiments, &flags)
}

fn model(name: &str, global: &Global) -> Result<InitialModel> {
    let path = Path::new(name);
    let place = weights::place(path, "--from", global)?;
    let found = Checkpoint::open(&place)?;
    found.check()?;
    // A run is opened by its folder, since workers may have another results folder.
    let name = if path.exists() || !weights::is_id(name) { name.to_owned() } else { place.display().to_string() };
    InitialModel::new(InitialWeights { name, digest: found.digest()? }, &found.config)
}

/// Opens the weights of a run that starts from them. Fails if they are missing or others now.
pub(super) fn open(from: &InitialWeights) -> Result<Checkpoint> {
    let path = Path::new(&from.name);
    let place = if path.exists() { Some(path.to_owned()) } else { hub::pretrained(path, true)? };
    let place = place.ok_or_else(|| Error::missing_at(path, "missing, and the run starts from its weights"))?;
    let found = Checkpoint::open(&place)?;
    let digest = found.digest()?;
    if digest != from.digest {
        let reason = format!(
            "its weights have the digest {digest}, but those that the run starts from have {}: restore them, or start a new run \
             with --from",
            from.digest
        );
        return Err(Error::missing_at(path, reason));
    }
    Ok(found)
}
