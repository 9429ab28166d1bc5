use super::super::tests::{folder, put, saved, tensors};
use super::*;
use crate::error::testing::Fails;
use crate::error::Diagnostic;
use crate::model::weights::tests::assert_same;
use crate::model::weights::Checkpoint;
use candle_core::Tensor;
use serde_json::{json, Map, Value};
use std::fs;

const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";

/// Model saved by `transformers`, cut into two files.
struct World {
    dir: tempfile::TempDir,
    shards: [Vec<(String, Tensor)>; 2],
    map: Map<String, Value>,
}

impl World {
    fn new() -> Self {
        let mut first = tensors();
        let second = first.split_off(9);
        let listed = |tensors: &[(String, Tensor)], shard: &str| -> Vec<(String, Value)> {
            tensors.iter().map(|(name, _)| (name.clone(), shard.into())).collect()
        };
        let map = [listed(&first, FIRST), listed(&second, SECOND)].concat();
        Self { dir: folder(), shards: [first, second], map: map.into_iter().collect() }
    }

    fn place(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Opens the current model.
    fn open(&self) -> Result<Checkpoint> {
        let index = json!({ "metadata": {}, "weight_map": self.map });
        self.open_by(&index.to_string())
    }

    /// Opens the model with another index.
    fn open_by(&self, index: &str) -> Result<Checkpoint> {
        for (name, tensors) in [FIRST, SECOND].into_iter().zip(&self.shards) {
            put(&self.place(name), tensors);
        }
        fs::write(self.place(INDEX), index).unwrap();
        Checkpoint::open(self.dir.path())
    }

    /// Error about the index for the current model.
    fn refusal(&self) -> Diagnostic {
        of_index(self.open())
    }
}

/// Asserts that the fault lies in the index, and gives it.
fn of_index(opened: Result<Checkpoint>) -> Diagnostic {
    let at = opened.fails("data");
    at.is_at(INDEX, None);
    at
}

#[test]
fn an_older_copy_in_a_file_that_the_index_does_not_name_is_not_read() {
    let wanted = Checkpoint::open(&saved()).unwrap();
    let mut world = World::new();
    assert_same(&world.open().unwrap(), &wanted);
    // Both orders of the files are tested.
    let zeros = |(name, tensor): &(String, Tensor)| (name.clone(), tensor.zeros_like().unwrap());
    let (early, late) = (zeros(&world.shards[0][0]), zeros(&world.shards[1][0]));
    world.shards[1].push(early);
    world.shards[0].push(late);
    assert_same(&world.open().unwrap(), &wanted);
}

#[test]
fn a_tensor_in_another_file_than_the_index_lists_is_named_with_that_file() {
    let mut world = World::new();
    let tensor = world.shards[0][0].0.clone();
    world.map[&tensor] = SECOND.into();
    world.refusal().names(&[&tensor, SECOND, FIRST]);
    world.map[&tensor] = FIRST.into();
    world.shards[0].remove(0);
    world.refusal().names(&[&tensor, FIRST]);
}

#[test]
fn a_tensor_that_the_index_does_not_list_is_refused() {
    let mut world = World::new();
    let tensor = world.shards[1][0].0.clone();
    world.map.remove(&tensor);
    world.refusal().names(&[&tensor, SECOND]);
}

#[test]
fn a_file_of_the_index_that_is_not_there_is_named() {
    let mut world = World::new();
    let absent = "model-00003-of-00003.safetensors";
    world.map.insert("embed_out.bias".to_owned(), absent.into());
    let at = world.open().fails("missing");
    at.is_at(world.place(absent), None).names(&[INDEX]);
}

#[test]
fn no_file_outside_the_folder_is_opened() {
    let mut world = World::new();
    let tensor = world.shards[0][0].0.clone();
    let outside = tempfile::NamedTempFile::new().unwrap();
    for shard in ["../x.safetensors", outside.path().to_str().unwrap(), "..", "a/../../x", ""] {
        world.map[&tensor] = shard.into();
        world.refusal().names(&[&tensor, &format!("`{shard}`")]);
    }
}

#[test]
fn an_invalid_index_is_refused_in_one_sentence() {
    let world = World::new();
    for (index, names) in [
        ("", &[][..]),
        ("{}", &["`weight_map`"]),
        // A byte-order mark is read over.
        ("\u{feff}{}", &["`weight_map`"]),
        (r#"{"weight_map": ["a"]}"#, &[]),
        (r#"{"weight_map": {"a": 1}}"#, &["`1`"]),
        (r#"{"weight_map": {"a": "b", "a": "c"}}"#, &[" a ", " b "]),
    ] {
        of_index(world.open_by(index)).names(names);
    }
    assert!(world.open_by(r#"{"weight_map": {}}"#).is_err());
}
