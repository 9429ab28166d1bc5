//! Token files: the ids of a split, made once and mapped from then on.

use super::folders::{Folders, SPLITS};
use super::plain;
use super::rows::{self, Encoder, IdWriter};
use super::vocabulary::{FoundTokenizer, Vocabulary};
use super::{Corpus, Tokenizer, WikitextConfig};
use crate::cache;
use crate::error::{Error, Result};
use crate::files;
use crate::tasks::{sha256, IdWidth, Ids, PreparationProgress, TextSize, TokenizedText, Watch};
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fs;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Offset of the ids in bytes: a multiple of the page size, which keeps them aligned.
const HEADER: usize = 4096;

/// Format name in the header of a token file.
const FORMAT: &str = "dsf tokens";

/// Version of the format. It is raised when the same text would give other ids or another layout.
const VERSION: u32 = 3;

/// Largest number of source files that a header names individually.
const NAMED: usize = 4;

/// Token files of one config.
pub(super) struct Tokens<'a> {
    config: &'a WikitextConfig,
    /// Splits that are made and read.
    wanted: [bool; 3],
    sources: [Vec<PathBuf>; 3],
    /// File of the tokenizer; `None` for bytes.
    tokenizer: Option<FoundTokenizer>,
    folder: PathBuf,
}

impl<'a> Tokens<'a> {
    /// Locates the token files. Texts of different content and different tokenizers have different folders. The text of
    /// a split that is not `wanted` may be missing.
    pub(super) fn of(config: &'a WikitextConfig, place: &Folders, wanted: [bool; 3]) -> Result<Self> {
        let sources = place.sources(config.corpus, wanted)?;
        let tokenizer = match &config.tokenizer {
            Tokenizer::Bytes => None,
            file => Some(FoundTokenizer::find(file, place)?),
        };
        let text = super::sources_of(&sources).digest()?;
        let ids = tokenizer.as_ref().map_or("", |found| &found.sha256);
        let stamp = sha256(format!("{VERSION} {ids} {text}").as_bytes());
        let folder = place.tokens(config, &stamp[..12]);
        Ok(Self { config, wanted, sources, tokenizer, folder })
    }

    /// Path of the file of each split.
    pub(super) fn paths(&self) -> [PathBuf; 3] {
        SPLITS.map(|split| self.folder.join(format!("{split}.tokens")))
    }

    /// Wanted files that are missing, with the index of their split.
    fn absent(&self) -> Vec<(usize, PathBuf)> {
        let all = self.paths().into_iter().enumerate();
        all.filter(|(split, path)| self.wanted[*split] && !path.is_file()).collect()
    }

    /// Makes the wanted files that are missing. A lock ensures that only one process does so.
    pub(super) fn make(&self, watch: Watch) -> Result<()> {
        match self.absent().is_empty() {
            true => Ok(()),
            false => self.make_absent(watch).map_err(cache::with_remedy),
        }
    }

    fn make_absent(&self, watch: Watch) -> Result<()> {
        let all = rows::bytes(&self.sources.concat())?;
        let waiting = || watch(PreparationProgress { split: "", done: 0, total: all });
        let _lock = files::lock(&self.folder.with_extension("lock"), waiting)?;
        let absent = self.absent();
        if absent.is_empty() {
            return Ok(()); // another process has made them
        }
        fs::create_dir_all(&self.folder).map_err(Error::io("create", &self.folder))?;
        files::remove_unfinished(&self.folder)?;
        let vocabulary = match &self.tokenizer {
            None => Vocabulary::bytes(),
            Some(found) => found.vocabulary()?,
        };
        let encoder = Encoder::new(vocabulary, self.config)?;
        for (split, path) in absent {
            self.make_split(split, &path, &encoder, watch)?;
        }
        Ok(())
    }

    fn make_split(&self, split: usize, path: &Path, encoder: &Encoder, watch: Watch) -> Result<()> {
        let total = rows::bytes(&self.sources[split])?;
        let mut at = |done| watch(PreparationProgress { split: SPLITS[split], done, total });
        let sources = digests(&self.sources[split], || at(0))?;
        let (failed, width) = (|| Error::io("write", path), encoder.vocabulary.width());
        let mut file = files::begin(path)?;
        file.write_all(&[b' '; HEADER]).map_err(failed())?;
        let mut tally = IdWriter::new(BufWriter::with_capacity(1 << 20, file), width);
        let byte_order_mark = self.encode(split, path, encoder, &mut tally, &mut at)?;
        let mut header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            corpus: self.config.corpus,
            split: SPLITS[split].to_owned(),
            tokenizer: self.config.tokenizer.clone(),
            tokenizer_sha256: self.tokenizer.as_ref().map(|found| found.sha256.clone()),
            eos_between_articles: self.config.eos_between_articles,
            tokens: tally.tokens,
            counts: tally.counts,
            articles: tally.articles,
            largest: tally.largest,
            wide: width == IdWidth::Four,
            byte_order_mark,
            sha256: String::new(),
            sources,
        };
        let (writer, sha256) = tally.end();
        header.sha256 = sha256;
        let mut file = writer.into_inner().map_err(|e| failed()(e.into_error()))?;
        file.seek(SeekFrom::Start(0)).map_err(failed())?;
        file.write_all(&header.to_bytes()).map_err(failed())?;
        files::publish(file, path)
    }

    /// Writes the ids of a split to `tally`, and returns whether a byte-order mark was removed. `path` names the token
    /// file in errors.
    fn encode<W: Write>(
        &self,
        split: usize,
        path: &Path,
        encoder: &Encoder,
        tally: &mut IdWriter<W>,
        at: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<bool> {
        let (failed, files) = (|| Error::io("write", path), &self.sources[split]);
        if self.config.corpus == Corpus::Text {
            let whole = plain::encode(files, encoder, |ids, done| {
                tally.push_ids(ids).map_err(failed())?;
                at(done)
            })?;
            (tally.counts, tally.articles) = (whole.counts, whole.articles);
            return Ok(whole.byte_order_mark);
        }
        rows::read(
            files,
            |row| encoder.row(row),
            |row, done| {
                tally.push(&row).map_err(failed())?;
                at(done)
            },
        )?;
        Ok(false)
    }

    /// Maps and checks the wanted splits, and returns them with warnings.
    pub(super) fn load(&self) -> Result<([Option<TokenizedText>; 3], Vec<String>)> {
        let (mut texts, mut marked) = ([None, None, None], Vec::new());
        for (split, path) in self.paths().iter().enumerate() {
            if self.wanted[split] {
                let (text, header) = self.open(split, path)?;
                texts[split] = Some(text);
                let sources = header.sources.into_iter().map(|source| source.name);
                marked.extend(sources.filter(|_| header.byte_order_mark));
            }
        }
        let warning = (!marked.is_empty()).then(|| {
            let files = marked.join(", ");
            format!("the byte-order mark at the beginning of {files} is left out: it is no part of the text")
        });
        Ok((texts, warning.into_iter().collect()))
    }

    fn open(&self, split: usize, path: &Path) -> Result<(TokenizedText, Header)> {
        let map = files::map(path)?;
        let header = self.check(split, &map).map_err(|why| {
            Error::corrupt(path, format!("damaged or outdated: {why}; delete it, and dsf makes it again"))
        })?;
        super::check_ids(self.config, split, header.largest)?;
        let ids = Ids::Mapped(Arc::new(map), HEADER, header.width());
        let text = super::cut(ids, header.counts, self.config, split);
        Ok((text.with_digest(header.sha256.clone()), header))
    }

    /// Returns the header of a split's file, or a description of the defect.
    fn check(&self, split: usize, map: &Mmap) -> Result<Header, String> {
        let header = Header::parse(map)?;
        let ours = header.split == SPLITS[split]
            && header.corpus == self.config.corpus
            && header.tokenizer == self.config.tokenizer
            && header.tokenizer_sha256 == self.tokenizer.as_ref().map(|f| f.sha256.clone())
            && header.eos_between_articles == self.config.eos_between_articles;
        if !ours {
            return Err("it belongs to another text or tokenizer".to_owned());
        }
        match sha256(&map[HEADER..]) == header.sha256 {
            true => Ok(header),
            false => Err("its ids do not match the digest in its header".to_owned()),
        }
    }
}

/// Header of a token file: its first 4,096 bytes, one line of JSON padded with blanks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    version: u32,
    corpus: Corpus,
    /// Split: `train`, `val` or `test`.
    split: String,
    tokenizer: Tokenizer,
    /// SHA-256 of the tokenizer's file, if it has one.
    tokenizer_sha256: Option<String>,
    eos_between_articles: bool,
    /// Number of ids in the file, little-endian.
    tokens: u64,
    /// Sizes of the text before tokenization.
    counts: TextSize,
    /// Number of headings of the first level.
    articles: u64,
    largest: u32,
    /// Whether ids have four bytes each; otherwise they have two.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    wide: bool,
    /// Whether a byte-order mark before the text was removed.
    byte_order_mark: bool,
    /// SHA-256 of all ids as they are stored.
    sha256: String,
    sources: Vec<TextSource>,
}

/// Text file from which the ids were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct TextSource {
    name: String,
    bytes: u64,
    sha256: String,
}

/// Merges the sources into one entry if there are too many to name.
fn merge_sources(sources: Vec<TextSource>) -> Vec<TextSource> {
    if sources.len() <= NAMED {
        return sources;
    }
    let digests: String = sources.iter().map(|s| s.sha256.as_str()).collect();
    vec![TextSource {
        name: format!("{} files, {} and on", sources.len(), sources[0].name),
        bytes: sources.iter().map(|s| s.bytes).sum(),
        sha256: sha256(digests.as_bytes()),
    }]
}

impl Header {
    fn width(&self) -> IdWidth {
        if self.wide {
            IdWidth::Four
        } else {
            IdWidth::Two
        }
    }

    /// Bytes of the header in the file. Names of sources are truncated elsewhere so that it always fits.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = files::sealed_text(self).into_bytes();
        bytes.resize(HEADER - 1, b' ');
        bytes.push(b'\n');
        bytes
    }

    /// Parses the first bytes of a token file, or returns a description of the defect.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let first = bytes.get(..HEADER).ok_or("it is shorter than a header")?;
        let none = |e| format!("its header is invalid: {e}");
        let mut header = serde_json::from_slice(first).map_err(none)?;
        let whole = files::unseal(&mut header) == Some(true);
        let header: Self = serde_json::from_value(header).map_err(none)?;
        if (header.format.as_str(), header.version) != (FORMAT, VERSION) {
            let (format, version) = (&header.format, header.version);
            return Err(format!("its format is `{format}` {version}, not `{FORMAT}` {VERSION}"));
        }
        if !whole {
            return Err("its header has been changed".to_owned());
        }
        let length = HEADER as u64 + header.width().bytes() as u64 * header.tokens;
        if bytes.len() as u64 != length {
            return Err(format!("it has {} bytes of {length}", bytes.len()));
        }
        Ok(header)
    }
}

fn digests(sources: &[PathBuf], mut check_stopped: impl FnMut() -> Result<()>) -> Result<Vec<TextSource>> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().chars().take(60).collect();
    let sources = sources.iter().map(|path| {
        Ok(TextSource {
            name: name(path),
            bytes: rows::bytes(std::slice::from_ref(path))?,
            sha256: files::digest::<Sha256>(path, &mut check_stopped)?,
        })
    });
    Ok(merge_sources(sources.collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests;
