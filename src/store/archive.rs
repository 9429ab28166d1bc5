//! Streaming writer of safetensors files. Only one tensor's bytes are in memory at a time: a checkpoint takes three
//! times the memory of the weights.

use candle_core::{Result as Computed, Tensor};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use safetensors::View;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::{self, Write};

/// Alignment of the end of the header, in bytes.
const ALIGNED: usize = 8;
/// Length of the field in front of the header that holds the header's length, in bytes.
const LENGTH: usize = 8;
/// Key of the metadata in a safetensors header.
const METADATA: &str = "__metadata__";
/// Metadata key of the SHA-256 over the rest of the header and all tensors.
const DIGEST: &str = "sha256";

/// A file of tensors that has not been written yet.
pub struct Archive<'a> {
    metadata: HashMap<String, String>,
    entries: Vec<ArchiveEntry<'a>>,
    digested: bool,
}

struct ArchiveEntry<'a> {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Box<dyn Fn() -> Computed<Vec<u8>> + 'a>,
}

impl<'a> Archive<'a> {
    /// Returns an archive without tensors whose header holds `metadata`.
    pub fn new<'b>(metadata: impl IntoIterator<Item = (&'b str, String)>) -> Self {
        let metadata = metadata.into_iter();
        Self {
            metadata: metadata.map(|(key, text)| (key.to_owned(), text)).collect(),
            entries: Vec::new(),
            digested: false,
        }
    }

    /// Adds a digest to the header, which [`check`] verifies. Each tensor is then read twice.
    pub fn digested(self) -> Self {
        Self { digested: true, ..self }
    }

    /// Adds a tensor of f32. Its little-endian bytes are requested when the file is written.
    pub fn add(&mut self, name: String, shape: &[usize], bytes: impl Fn() -> Computed<Vec<u8>> + 'a) {
        self.entries.push(ArchiveEntry { name, dtype: Dtype::F32, shape: shape.to_vec(), bytes: Box::new(bytes) });
    }

    /// Adds a tensor on the CPU with its own type.
    pub fn add_tensor(&mut self, name: String, tensor: Tensor) {
        let (dtype, shape) = (View::dtype(&tensor), tensor.dims().to_vec());
        let bytes = Box::new(move || Ok(tensor.data().into_owned()));
        self.entries.push(ArchiveEntry { name, dtype, shape, bytes });
    }

    /// Writes the file to `out`. The same tensors give the same bytes.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut header = self.header()?;
        if self.digested {
            let mut hash = Sha256::new_with_prefix(header.to_string());
            for entry in &self.entries {
                hash.update((entry.bytes)().map_err(io::Error::other)?);
            }
            header[METADATA][DIGEST] = hex::encode(hash.finalize()).into();
        }
        let mut header = header.to_string().into_bytes();
        header.resize(header.len().next_multiple_of(ALIGNED), b' ');
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for entry in &self.entries {
            out.write_all(&(entry.bytes)().map_err(io::Error::other)?)?;
        }
        Ok(())
    }

    fn header(&self) -> io::Result<Value> {
        let mut end = 0;
        let infos = self.entries.iter().map(|entry| {
            let start = end;
            end += entry.dtype.bitsize() / 8 * entry.shape.iter().product::<usize>();
            let info = TensorInfo { dtype: entry.dtype, shape: entry.shape.clone(), data_offsets: (start, end) };
            (entry.name.clone(), info)
        });
        let header = Metadata::new(Some(self.metadata.clone()), infos.collect());
        // `Value` sorts its keys; the map of metadata does not.
        Ok(serde_json::to_value(header.map_err(io::Error::other)?)?)
    }
}

/// Verifies a file written by [`Archive::digested`] against the digest in its header. A file without a digest passes:
/// other programs and earlier versions write such files.
///
/// # Errors
/// Returns a short description of the damage.
pub fn check(file: &[u8]) -> Result<(), &'static str> {
    let broken = "not a safetensors file";
    let (length, rest) = file.split_first_chunk::<LENGTH>().ok_or(broken)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| broken)?;
    let (header, tensors) = rest.split_at_checked(length).ok_or(broken)?;
    let mut header: Value = serde_json::from_slice(header).map_err(|_| broken)?;
    let metadata = header.get_mut(METADATA).and_then(Value::as_object_mut);
    let Some(wanted) = metadata.and_then(|metadata| metadata.remove(DIGEST)) else {
        return Ok(());
    };
    let found = Sha256::new_with_prefix(header.to_string()).chain_update(tensors);
    if wanted == hex::encode(found.finalize()) {
        Ok(())
    } else {
        Err("damaged: its contents do not have the digest that its header names")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    fn written() -> Vec<u8> {
        of(Archive::new([("run", "abc".to_owned()), ("epoch", "3".to_owned())]))
    }

    fn of(mut archive: Archive) -> Vec<u8> {
        archive.add("b".to_owned(), &[2, 1], || Ok(vec![1; 8]));
        archive.add("a".to_owned(), &[], || Ok(vec![2; 4]));
        archive.add("none".to_owned(), &[0, 3], || Ok(Vec::new()));
        let mut file = Vec::new();
        archive.write(&mut file).unwrap();
        file
    }

    #[test]
    fn the_library_reads_what_was_written() {
        let file = written();
        let (_, header) = SafeTensors::read_metadata(&file).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["run"], "abc");
        let read = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.len(), 3);
        let found = |name: &str| {
            let tensor = read.tensor(name).unwrap();
            (tensor.shape().to_vec(), tensor.data().to_vec())
        };
        assert_eq!(found("b"), (vec![2, 1], vec![1; 8]));
        assert_eq!(found("a"), (vec![], vec![2; 4]));
        assert_eq!(found("none"), (vec![0, 3], vec![]));
        assert!((0..20).all(|_| written() == file), "the order is fixed");
    }

    #[test]
    fn every_changed_byte_of_a_digested_file_is_noticed() {
        let mut file = of(Archive::new([("run", "abc".to_owned())]).digested());
        let read = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.tensor("b").unwrap().data(), [1; 8]);
        assert_eq!(check(&file), Ok(()));
        for at in 0..file.len() {
            let byte = file[at];
            for other in [byte ^ 1, byte.wrapping_add(1)] {
                file[at] = other;
                // Renaming the digest's key makes this a file without a digest; the library still checks its structure.
                let unnamed = !file.windows(DIGEST.len()).any(|w| w == DIGEST.as_bytes());
                // Whitespace after the header is the only byte without meaning.
                let blank = byte == b' ' && other.is_ascii_whitespace();
                let foreign = SafeTensors::read_metadata(&file).is_err();
                assert!(check(&file).is_err() || foreign || unnamed || blank, "byte {at}");
            }
            file[at] = byte;
        }
        for length in 0..file.len() {
            assert!(check(&file[..length]).is_err(), "cut to {length}");
        }
        assert_eq!(check(&written()), Ok(()), "a file without a digest passes");
    }

    #[test]
    fn a_tensor_that_cannot_be_read_fails_the_file() {
        let mut archive = Archive::new([]);
        archive.add("a".to_owned(), &[1], || candle_core::bail!("gone"));
        let failed = archive.write(&mut Vec::new()).unwrap_err();
        assert!(failed.to_string().contains("gone"), "{failed}");
    }
}
