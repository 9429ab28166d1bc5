//! Tensors on their way into a safetensors file, the bytes of one of them in memory at a time: those of a
//! checkpoint together are three times the weights.

use candle_core::Result;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::HashMap;
use std::io::{self, Write};

/// Where its alignment has the header end.
const ALIGNED: usize = 8;

/// A file of f32 tensors that is not written yet.
pub struct Archive<'a> {
    metadata: HashMap<String, String>,
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    name: String,
    shape: Vec<usize>,
    bytes: Box<dyn Fn() -> Result<Vec<u8>> + 'a>,
}

impl<'a> Archive<'a> {
    /// No tensors, and `metadata` for the header.
    pub fn new<'b>(metadata: impl IntoIterator<Item = (&'b str, String)>) -> Self {
        let metadata = metadata.into_iter();
        Self {
            metadata: metadata.map(|(key, text)| (key.to_owned(), text)).collect(),
            entries: Vec::new(),
        }
    }

    /// Adds a tensor, whose little-endian bytes are asked for when they are written.
    pub fn add(&mut self, name: String, shape: &[usize], bytes: impl Fn() -> Result<Vec<u8>> + 'a) {
        self.entries.push(Entry {
            name,
            shape: shape.to_vec(),
            bytes: Box::new(bytes),
        });
    }

    /// The file, written to `out`: the same bytes for the same tensors.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let header = self.header()?;
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for entry in &self.entries {
            out.write_all(&(entry.bytes)().map_err(io::Error::other)?)?;
        }
        Ok(())
    }

    fn header(&self) -> io::Result<Vec<u8>> {
        let mut end = 0;
        let infos = self.entries.iter().map(|entry| {
            let start = end;
            end += 4 * entry.shape.iter().product::<usize>();
            let info = TensorInfo {
                dtype: Dtype::F32,
                shape: entry.shape.clone(),
                data_offsets: (start, end),
            };
            (entry.name.clone(), info)
        });
        let header = Metadata::new(Some(self.metadata.clone()), infos.collect());
        // By way of a value: its keys are sorted, those of the metadata are not.
        let header = serde_json::to_value(header.map_err(io::Error::other)?)?;
        let mut header = header.to_string().into_bytes();
        header.resize(header.len().next_multiple_of(ALIGNED), b' ');
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    fn written() -> Vec<u8> {
        let mut archive = Archive::new([("run", "abc".to_owned()), ("epoch", "3".to_owned())]);
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
    fn a_tensor_that_cannot_be_read_fails_the_file() {
        let mut archive = Archive::new([]);
        archive.add("a".to_owned(), &[1], || candle_core::bail!("gone"));
        let failed = archive.write(&mut Vec::new()).unwrap_err();
        assert!(failed.to_string().contains("gone"), "{failed}");
    }
}
