//! Correspondence between the tensors of a file in Hugging Face's layout and the parameters of this program.

use crate::error::{Error, Result};
use candle_core::{DType, Tensor};
use std::collections::HashMap;
use std::path::Path;

/// Name and shape of a tensor.
type NamedShape = (String, Vec<usize>);

/// Tensors of a file, and the parameters that hold the same numbers.
#[derive(Debug)]
pub(super) struct TensorMap {
    theirs: Vec<NamedShape>,
    ours: Vec<NamedShape>,
    order: ElementOrder,
}

/// Order in which the numbers of a file's tensors, one after the other, fill the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementOrder {
    /// The same order.
    Same,
    /// The last two axes of each tensor of the file are swapped.
    Transposed,
    /// The rows of the file's one tensor are grouped by head: first the head's rows of the first parameter, then of
    /// the second, and so on (GPT-NeoX).
    ByHead(usize),
    /// The rows of the file's one tensor are the halves of this number of heads, one after the other; those of the
    /// parameter alternate between both halves.
    Halves(usize),
}

/// Correspondence for all tensors of a model.
#[derive(Debug, Default)]
pub(super) struct TensorMaps {
    maps: Vec<TensorMap>,
    /// Prefixes of the names that are added.
    prefixes: [String; 2],
    /// Names of tensors that some files have in place of another, and that other name.
    synonyms: HashMap<String, String>,
}

impl TensorMaps {
    /// Sets the prefixes of this program's names and of the file's names that are added next.
    pub fn within(&mut self, ours: impl Into<String>, theirs: impl Into<String>) {
        self.prefixes = [ours.into(), theirs.into()];
    }

    /// Adds a parameter that is a tensor of the file.
    pub fn one(&mut self, ours: &str, theirs: &str, shape: &[usize]) {
        self.add(&[(theirs, shape)], &[(ours, shape)], ElementOrder::Same);
    }

    /// Adds one parameter with the numbers of one tensor of another shape.
    pub fn shaped(&mut self, (ours, shape): (&str, &[usize]), (theirs, of_theirs): (&str, &[usize])) {
        self.add(&[(theirs, of_theirs)], &[(ours, shape)], ElementOrder::Same);
    }

    /// Adds parameters with the numbers of these tensors, in this order.
    pub fn add(&mut self, theirs: &[(&str, &[usize])], ours: &[(&str, &[usize])], order: ElementOrder) {
        let named = |prefix: &str, list: &[(&str, &[usize])]| {
            list.iter().map(|(name, shape)| (format!("{prefix}{name}"), shape.to_vec())).collect()
        };
        let [of_ours, of_theirs] = &self.prefixes;
        self.maps.push(TensorMap { theirs: named(of_theirs, theirs), ours: named(of_ours, ours), order });
    }

    /// Says that some files call the tensor `theirs` by the name `other`.
    pub fn synonym(&mut self, other: &str, theirs: &str) {
        let [_, prefix] = &self.prefixes;
        self.synonyms.insert(format!("{prefix}{other}"), format!("{prefix}{theirs}"));
    }

    /// Name of the tensor that some files call `name`.
    pub fn usual<'a>(&'a self, name: &'a str) -> &'a str {
        self.synonyms.get(name).map_or(name, String::as_str)
    }

    /// Adds the norm `ours`, which is `theirs` in the file, with a bias or without.
    pub fn norm(&mut self, ours: &str, theirs: &str, d: usize, bias: bool) {
        self.affine(&format!("{ours}."), theirs, &[d], ("weight", bias.then_some("bias")));
    }

    /// Adds a weight and possibly a bias of the first axis of `shape`: the parameters `prefix` + `weight` and
    /// `prefix` + `bias`, which are `theirs.weight` and `theirs.bias` in the file.
    pub fn affine(&mut self, prefix: &str, theirs: &str, shape: &[usize], (weight, bias): (&str, Option<&str>)) {
        self.one(&format!("{prefix}{weight}"), &format!("{theirs}.weight"), shape);
        if let Some(bias) = bias {
            self.one(&format!("{prefix}{bias}"), &format!("{theirs}.bias"), &shape[..1]);
        }
    }

    /// Names of the file's tensors.
    pub fn theirs(&self) -> impl Iterator<Item = &str> {
        self.maps.iter().flat_map(|map| &map.theirs).map(|(name, _)| name.as_str())
    }

    /// Names of the parameters, each with its number of elements and the place of its map in this list and of the
    /// parameter in its map.
    pub fn ours(&self) -> impl Iterator<Item = (&str, usize, [usize; 2])> {
        self.maps.iter().enumerate().flat_map(|(map, of)| {
            let named = of.ours.iter().enumerate();
            named.map(move |(part, (name, shape))| (name.as_str(), shape.iter().product(), [map, part]))
        })
    }

    /// Fails with the name of a tensor that is missing in `place` or has another shape than `shape_of` gives.
    pub fn check(&self, shape_of: impl Fn(&str) -> Option<Vec<usize>>, place: &Path) -> Result<()> {
        for (name, wanted) in self.maps.iter().flat_map(|map| &map.theirs) {
            match shape_of(name) {
                Some(found) if found == *wanted => {}
                Some(found) => {
                    let why = format!("tensor {name} has the shape {found:?}, but its config.json asks for {wanted:?}");
                    return Err(Error::data(place, why));
                }
                None => return Err(Error::data(place, format!("tensor {name} is missing"))),
            }
        }
        Ok(())
    }

    /// Parameters of map number `map`, whose tensors `read` gives by name.
    pub fn read(
        &self,
        map: usize,
        read: impl Fn(&str) -> candle_core::Result<Tensor>,
    ) -> candle_core::Result<Vec<Tensor>> {
        let map = &self.maps[map];
        let found: Vec<Tensor> = map.theirs.iter().map(|(name, _)| read(name)).collect::<candle_core::Result<_>>()?;
        let found = of_one_dtype(found)?;
        rearranged(found, map.ours.iter().map(|(_, shape)| shape.as_slice()).collect(), map.order)
    }

    /// Tensors of the file, each by its name and shape with a function that makes it from parameters.
    pub fn write(
        &self,
    ) -> impl Iterator<Item = (&NamedShape, impl Fn(&[&Tensor]) -> candle_core::Result<Tensor> + '_, Vec<&str>)> {
        self.maps.iter().flat_map(|map| {
            let names: Vec<&str> = map.ours.iter().map(|(name, _)| name.as_str()).collect();
            map.theirs
                .iter()
                .enumerate()
                .map(move |(index, named)| (named, move |ours: &[&Tensor]| map.theirs_at(index, ours), names.clone()))
        })
    }
}

impl TensorMap {
    /// Tensor `index` of the file for the parameters `ours`.
    fn theirs_at(&self, index: usize, ours: &[&Tensor]) -> candle_core::Result<Tensor> {
        let shape = &self.theirs[index].1;
        let flat = match self.order {
            ElementOrder::ByHead(heads) => by_head(ours, heads)?.flatten_all()?,
            ElementOrder::Halves(heads) => {
                let pairs = ours[0].reshape((heads, shape[0] / heads / 2, 2, ()))?;
                pairs.transpose(1, 2)?.contiguous()?.flatten_all()?
            }
            ElementOrder::Same | ElementOrder::Transposed => {
                let flat: Vec<Tensor> =
                    ours.iter().map(|part| part.flatten_all()).collect::<candle_core::Result<_>>()?;
                Tensor::cat(&flat, 0)?
            }
        };
        let count = |(_, shape): &NamedShape| shape.iter().product::<usize>();
        let part = flat.narrow(0, self.theirs[..index].iter().map(count).sum(), shape.iter().product())?;
        match self.order {
            ElementOrder::Transposed => {
                let (mut turned, last) = (shape.clone(), shape.len() - 1);
                turned.swap(last - 1, last);
                part.reshape(turned)?.t()?.contiguous()
            }
            ElementOrder::Same | ElementOrder::ByHead(_) | ElementOrder::Halves(_) => part.reshape(shape.as_slice()),
        }
    }
}

/// `found` in f64 if one of them is, and else in f32, unless they have one dtype already.
fn of_one_dtype(found: Vec<Tensor>) -> candle_core::Result<Vec<Tensor>> {
    if found.iter().all(|tensor| tensor.dtype() == found[0].dtype()) {
        return Ok(found);
    }
    let wide = found.iter().any(|tensor| tensor.dtype() == DType::F64);
    found.iter().map(|tensor| tensor.to_dtype(if wide { DType::F64 } else { DType::F32 })).collect()
}

/// Parts of the given shapes with the numbers of `found`.
fn rearranged(found: Vec<Tensor>, shapes: Vec<&[usize]>, order: ElementOrder) -> candle_core::Result<Vec<Tensor>> {
    if let ([tensor], [shape], ElementOrder::Same) = (&found[..], &shapes[..], order) {
        return Ok(vec![tensor.reshape(*shape)?]);
    }
    let flat = match order {
        ElementOrder::ByHead(heads) => {
            let tensor = &found[0];
            let (rows, rest) = (tensor.dim(0)?, tensor.elem_count() / tensor.dim(0)?);
            let by_head = tensor.reshape((heads, shapes.len(), rows / heads / shapes.len(), rest))?;
            by_head.transpose(0, 1)?.contiguous()?.flatten_all()?
        }
        ElementOrder::Halves(heads) => {
            let halves = found[0].reshape((heads, 2, found[0].dim(0)? / heads / 2, ()))?;
            halves.transpose(1, 2)?.contiguous()?.flatten_all()?
        }
        ElementOrder::Same | ElementOrder::Transposed => {
            let flat = found.into_iter().map(|tensor| match order {
                ElementOrder::Transposed => tensor.t()?.contiguous()?.flatten_all(),
                _ => tensor.flatten_all(),
            });
            Tensor::cat(&flat.collect::<candle_core::Result<Vec<_>>>()?, 0)?
        }
    };
    let mut start = 0;
    let parts = shapes.into_iter().map(|shape| {
        let count: usize = shape.iter().product();
        start += count;
        // A copy, so that a part does not keep the whole alive.
        flat.narrow(0, start - count, count)?.force_contiguous()?.reshape(shape)
    });
    parts.collect()
}

/// Rows of `parts`, grouped by head.
fn by_head(parts: &[&Tensor], heads: usize) -> candle_core::Result<Tensor> {
    let grouped = parts.iter().map(|part| part.reshape((heads, part.dim(0)? / heads, ())));
    Tensor::stack(&grouped.collect::<candle_core::Result<Vec<_>>>()?, 1)
}

/// Whether `name` is a buffer of older files, whose values follow from the config.
pub(super) fn is_buffer(name: &str) -> bool {
    [".attention.bias", ".attn.bias", ".attention.masked_bias", ".attn.masked_bias", ".inv_freq"]
        .iter()
        .any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use std::collections::HashMap;

    fn rows(values: &[f32], shape: &[usize]) -> Tensor {
        Tensor::from_slice(values, shape, &Device::Cpu).unwrap()
    }

    fn values(x: &Tensor) -> Vec<f32> {
        x.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    }

    /// Reads `theirs`, compares the parts and writes them back.
    fn both_ways(theirs: &[(&str, Tensor)], ours: &[(&str, &[usize])], order: ElementOrder, expected: &[&[f32]]) {
        let mut maps = TensorMaps::default();
        let shapes: Vec<(&str, &[usize])> = theirs.iter().map(|(name, t)| (*name, t.dims())).collect();
        maps.add(&shapes, ours, order);
        let of = |name: &str| theirs.iter().find(|(other, _)| *other == name).unwrap().1.clone();
        maps.check(|name| Some(of(name).dims().to_vec()), Path::new("a")).unwrap();
        let parts = maps.read(0, |name| Ok(of(name))).unwrap();
        let found: HashMap<&str, Tensor> = maps.ours().map(|(name, _, _)| name).zip(parts).collect();
        for ((name, shape), expected) in ours.iter().zip(expected) {
            assert_eq!((found[*name].dims(), values(&found[*name])), (*shape, expected.to_vec()));
        }
        for ((name, shape), make, names) in maps.write() {
            let parts: Vec<&Tensor> = names.iter().map(|name| &found[*name]).collect();
            let written = make(&parts).unwrap();
            let original = &theirs.iter().find(|(other, _)| other == name).unwrap().1;
            assert_eq!((written.dims(), values(&written)), (shape.as_slice(), values(original)));
        }
    }

    #[test]
    fn tensors_are_split_stacked_and_transposed_and_written_back() {
        let stacked = rows(&[0., 1., 2., 3., 4., 5.], &[3, 2]);
        both_ways(
            &[("w", stacked.clone())],
            &[("a", &[1, 2]), ("b", &[2, 2])],
            ElementOrder::Same,
            &[&[0., 1.], &[2., 3., 4., 5.]],
        );
        let other = rows(&[6., 7.], &[1, 2]);
        both_ways(
            &[("w", stacked.clone()), ("v", other)],
            &[("a", &[2, 4])],
            ElementOrder::Same,
            &[&[0., 1., 2., 3., 4., 5., 6., 7.]],
        );
        both_ways(
            &[("w", stacked)],
            &[("a", &[1, 3]), ("b", &[1, 3])],
            ElementOrder::Transposed,
            &[&[0., 2., 4.], &[1., 3., 5.]],
        );
        let rows_of_heads = rows(&[0., 1., 2., 3., 10., 11., 12., 13.], &[8, 1]);
        both_ways(
            &[("w", rows_of_heads)],
            &[("a", &[8, 1])],
            ElementOrder::Halves(2),
            &[&[0., 2., 1., 3., 10., 12., 11., 13.]],
        );
        let blocks = rows(&[0., 1., 2., 3., 4., 5., 6., 7.], &[2, 2, 2]);
        both_ways(&[("w", blocks)], &[("a", &[4, 2])], ElementOrder::Transposed, &[&[0., 2., 1., 3., 4., 6., 5., 7.]]);
    }

    #[test]
    fn tensors_of_unlike_dtypes_are_stacked() {
        let mut maps = TensorMaps::default();
        maps.add(&[("a", &[2]), ("b", &[1])], &[("c", &[3])], ElementOrder::Same);
        let of = |name: &str| match name {
            "a" => rows(&[1., 2.], &[2]).to_dtype(DType::BF16),
            _ => Ok(rows(&[3.5], &[1])),
        };
        assert_eq!(values(&maps.read(0, of).unwrap()[0]), [1., 2., 3.5]);
    }

    #[test]
    fn each_head_owns_its_q_then_its_k_then_its_v() {
        // Two heads of two rows; hundreds are the head, tens are q, k or v, and ones the row.
        let fused = rows(&[0., 1., 10., 11., 20., 21., 100., 101., 110., 111., 120., 121.], &[12]);
        let parts: [&[f32]; 3] = [&[0., 1., 100., 101.], &[10., 11., 110., 111.], &[20., 21., 120., 121.]];
        let ours: [(&str, &[usize]); 3] = [("q", &[4]), ("k", &[4]), ("v", &[4])];
        both_ways(&[("qkv", fused.clone())], &ours, ElementOrder::ByHead(2), &parts);
        let matrix = fused.reshape((12, 1)).unwrap().broadcast_as((12, 2)).unwrap().contiguous().unwrap();
        let twice: Vec<Vec<f32>> = parts.iter().map(|p| p.iter().flat_map(|x| [*x; 2]).collect()).collect();
        let ours: [(&str, &[usize]); 3] = [("q", &[4, 2]), ("k", &[4, 2]), ("v", &[4, 2])];
        both_ways(
            &[("qkv", matrix)],
            &ours,
            ElementOrder::ByHead(2),
            &twice.iter().map(Vec::as_slice).collect::<Vec<_>>(),
        );
    }

    #[test]
    fn buffers_of_older_files_are_known() {
        assert!(is_buffer("gpt_neox.layers.3.attention.bias"));
        assert!(is_buffer("transformer.h.3.attn.masked_bias"));
        assert!(is_buffer("gpt_neox.layers.3.attention.rotary_emb.inv_freq"));
        assert!(!is_buffer("gpt_neox.layers.3.attention.dense.bias"));
    }
}
