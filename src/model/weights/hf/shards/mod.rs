//! Models in several files, and the index that lists which file holds which tensor.

use super::tensors::is_buffer;
use super::Mapped;
use crate::error::{Error, Result};
use crate::files;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Component, Path};

/// File that lists the tensors of all others.
pub(super) const INDEX: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
struct Index {
    #[serde(deserialize_with = "each_once")]
    weight_map: BTreeMap<String, String>,
}

/// Opens the files that the index in `folder` names, and returns the number of the file of each tensor. Older copies in
/// other files are ignored. Fails if the index is malformed or leads out of the folder, if a file is missing, or if a
/// tensor is not in its listed file or is not listed.
pub(super) fn open(folder: &Path) -> Result<(Vec<Mapped>, HashMap<String, usize>)> {
    let place = folder.join(INDEX);
    let index = index(&place)?;
    let names: BTreeSet<&String> = index.values().collect();
    let shards = names.into_iter().map(|shard| Ok((shard, open_shard(folder, shard)?)));
    let shards: BTreeMap<&String, Mapped> = shards.collect::<Result<_>>()?;
    check(&index, &shards).map_err(|why| Error::data(&place, why))?;
    let numbers: BTreeMap<&String, usize> = shards.keys().enumerate().map(|(number, name)| (*name, number)).collect();
    let place = index.iter().map(|(tensor, shard)| (tensor.clone(), numbers[shard])).collect();
    Ok((shards.into_values().collect(), place))
}

/// Reads the index: the name of the file that holds each tensor.
fn index(place: &Path) -> Result<BTreeMap<String, String>> {
    let refused = |why: String| Error::data(place, why);
    let index: Index = serde_json::from_str(&files::read_text(place)?)
        .map_err(|e| refused(format!("not an index of tensors: {e}")))?;
    for (tensor, shard) in &index.weight_map {
        let mut parts = Path::new(shard).components();
        if shard.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(refused(format!("tensor {tensor} is listed in `{shard}`, which is not a file of this folder")));
        }
    }
    Ok(index.weight_map)
}

fn open_shard(folder: &Path, shard: &str) -> Result<Mapped> {
    let path = folder.join(shard);
    if !path.exists() {
        return Err(Error::missing_at(
            &path,
            format!("missing, but {INDEX} lists it as a part of the model: get it too"),
        ));
    }
    Mapped::open(&path)
}

/// Checks that `shards` hold the tensors of the index and no others.
fn check(index: &BTreeMap<String, String>, shards: &BTreeMap<&String, Mapped>) -> Result<(), String> {
    for (tensor, shard) in index {
        if shards[&shard].has(tensor) {
            continue;
        }
        let other = shards.iter().find(|(_, other)| other.has(tensor));
        let place = other.map_or("no file of the index has it".to_owned(), |(name, _)| format!("{name} has it"));
        return Err(format!("tensor {tensor} is listed in {shard}, which does not have it; {place}"));
    }
    for (shard, file) in shards {
        let unlisted = |name: &&String| !index.contains_key(*name) && !is_buffer(name);
        if let Some(tensor) = file.names.iter().find(unlisted) {
            return Err(format!("{shard} has tensor {tensor}, which the index does not list"));
        }
    }
    Ok(())
}

/// Deserialises an object of strings and rejects duplicate keys, of which `serde_json` would keep the last.
fn each_once<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("names of tensors, each with the name of a file")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((tensor, shard)) = pairs.next_entry::<String, String>()? {
                if let Some(before) = map.insert(tensor.clone(), shard) {
                    let why = format!("tensor {tensor} is listed twice, first in {before}");
                    return Err(A::Error::custom(why));
                }
            }
            Ok(map)
        }
    }
    from.deserialize_map(Pairs)
}

#[cfg(test)]
mod tests;
