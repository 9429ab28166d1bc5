//! Tokenizers: bytes, GPT-NeoX's file, or another file of the `tokenizers` library.

use super::borders::Borders;
use super::end_of_text::{self, SpecialTokens};
use super::folders::Folders;
use super::{Tokenizer, WikitextConfig};
use crate::cache;
use crate::error::{refuse, Error, Result};
use crate::files::{self, write_atomic};
use crate::tasks::{sha256, IdWidth};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokenizers::DecoderWrapper;

/// SHA-256 of `utils/20B_tokenizer.json` of EleutherAI/pythia.
const GPT_NEOX: &str = "56ac4821e129d2c520fdaba60abd920fa852ada51b45c0dd52bbb6bd8c985ade";

/// SHA-256 over its tokens by id, each followed by a zero byte, since the hub's copy of the file is formatted
/// differently.
const GPT_NEOX_TOKENS: &str = "7c550c4fbc7109c5535b6849c3aaff481a8b1cf71eafb6b7cf3f6e6c6e68a1e3";

/// Ids of a few strings under GPT-NeoX's merges, which the tokens alone do not determine.
const GPT_NEOX_ENCODES: [(&str, &[u32]); 2] = [
    (" = Valkyria Chronicles III = \n", &[426, 657, 1278, 90, 5182, 28289, 868, 6490, 426, 2490]),
    ("naïve café", &[2072, 30180, 36241]),
];

/// Number of ids that have a token.
const GPT_NEOX_SIZE: usize = 50_277;

/// End-of-text token of GPT-NeoX, id 0.
const GPT_NEOX_END: &str = "<|endoftext|>";

/// Largest number of ids. Vocabularies have some hundred thousand at most; an id beyond is a mistake in the file.
const MOST: usize = 1 << 24;

/// Conversion of text to ids and back.
pub struct Vocabulary {
    kind: TokenizerKind,
    /// Number of ids that may have a token: one more than the largest.
    pub size: usize,
    /// End-of-text token, if the tokenizer declares one. For bytes it is id 0, which occurs in no text.
    pub eos: Option<u32>,
    pub(super) borders: Borders,
}

enum TokenizerKind {
    Bytes,
    File(Box<tokenizers::Tokenizer>),
}

impl Vocabulary {
    /// Opens the vocabulary of `tokenizer`. Its file is looked up in the store of [`adopt`], in `data_dir` and beside
    /// it, in the folder of `dsf data fetch`, and in the cache of the hub. Fails if no file is found or only a
    /// different one.
    pub fn open(tokenizer: &Tokenizer, data_dir: Option<&Path>) -> Result<Self> {
        match tokenizer {
            Tokenizer::Bytes => Ok(Self::bytes()),
            file => FoundTokenizer::find(file, &Folders::new(data_dir)?)?.vocabulary(),
        }
    }

    /// Same as [`Self::open`] for the tokenizer of a model. Also fails if the tokenizer has ids beyond the model's
    /// vocabulary.
    pub fn of(model: &WikitextConfig, data_dir: Option<&Path>) -> Result<Self> {
        check_fits(model)?;
        let vocabulary = Self::open(&model.tokenizer, data_dir)?;
        fits(model, vocabulary.size)?;
        Ok(vocabulary)
    }

    pub(super) fn bytes() -> Self {
        Self { kind: TokenizerKind::Bytes, size: 256, eos: Some(0), borders: Borders::Anywhere }
    }

    /// Ids of `text`, without special tokens added. Fails for a zero byte if the ids are bytes, since that one
    /// separates articles, and if the file's own model fails.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, false)
    }

    /// Same as [`Self::encode`] with the special tokens that the post-processor of the file adds, such as a
    /// beginning-of-text token: the ids that `transformers` gives for `text` by default.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_with(text, true)
    }

    fn encode_with(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        self.check(text).map_err(Error::usage)?;
        match &self.kind {
            TokenizerKind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            TokenizerKind::File(file) => {
                let encoded = file.encode_fast(text, special);
                let encoded = encoded.map_err(|e| Error::usage(format!("the tokenizer failed: {e}")))?;
                Ok(encoded.get_ids().to_vec())
            }
        }
    }

    /// Width in which the ids are stored.
    pub(super) fn width(&self) -> IdWidth {
        IdWidth::of(self.size)
    }

    /// Errors of [`Self::encode`] that are detectable without encoding.
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        match &self.kind {
            TokenizerKind::Bytes if text.contains('\0') => {
                Err("the text holds a zero byte, whose id separates articles: remove it or take another \
                 --tokenizer"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Text of `ids`. Invalid UTF-8 is replaced, and ids without a token are skipped.
    pub fn decode(&self, ids: &[u32]) -> String {
        match &self.kind {
            TokenizerKind::Bytes => {
                let bytes = ids.iter().filter_map(|id| u8::try_from(*id).ok());
                String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
            }
            TokenizerKind::File(file) => decode(file, ids),
        }
    }

    /// Parses the `tokenizer.json` at `path`, whose bytes are `content`, with the end-of-text token `eos`.
    fn parse(content: &[u8], path: &Path, eos: Option<&str>) -> Result<Self> {
        let refused = |why: String| Error::data(path, format!("not a usable tokenizer.json: {why}"));
        if files::is_utf16(content) {
            return Err(refused(files::UTF16.to_owned()));
        }
        let json = content.strip_prefix(files::BOM).unwrap_or(content);
        let mut file = tokenizers::Tokenizer::from_bytes(json).map_err(|e| refused(e.to_string()))?;
        file.with_truncation(None).map_err(|e| refused(e.to_string()))?;
        file.with_padding(None);
        let eos = match eos.map(|token| (token, file.token_to_id(token))) {
            None => None,
            Some((_, Some(id))) => Some(id),
            Some((token, None)) => {
                return Err(refused(format!(
                    "{} beside it declares the end-of-text token `{token}`, which it does not have: correct \
                     `eos_token` there, or make it null",
                    end_of_text::DECLARES
                )))
            }
        };
        let largest = file.get_vocab(true).into_values().max();
        match largest.map(|id| id as usize + 1) {
            None => Err(refused("it has no tokens".to_owned())),
            Some(size) if size > MOST => Err(refused(format!(
                "its largest id is {}, and the largest that can be used is {}",
                size - 1,
                MOST - 1
            ))),
            Some(size) => {
                Ok(Self { borders: Borders::of(&file), kind: TokenizerKind::File(Box::new(file)), size, eos })
            }
        }
    }

    /// Whether this is GPT-NeoX's vocabulary, however its file is formatted.
    fn is_gpt_neox(&self) -> bool {
        let TokenizerKind::File(file) = &self.kind else { return false };
        let mut tokens: Vec<(u32, String)> = file.get_vocab(true).into_iter().map(|(t, id)| (id, t)).collect();
        tokens.sort_unstable();
        let joined: String = tokens.iter().flat_map(|(_, token)| [token, "\0"]).collect();
        let encodes = |(text, ids): (&str, &[u32])| {
            let encoded = file.encode_fast(text, false);
            encoded.is_ok_and(|encoded| encoded.get_ids() == ids)
        };
        sha256(joined.as_bytes()) == GPT_NEOX_TOKENS && GPT_NEOX_ENCODES.into_iter().all(encodes)
    }
}

/// Text of `ids`. The byte-level decoder interprets the characters of a token as bytes if possible, which is wrong for
/// added tokens, whose content is text. Decoding several tokens gives the concatenation of decoding each, so the runs
/// between added tokens can be decoded separately.
fn decode(file: &tokenizers::Tokenizer, ids: &[u32]) -> String {
    let plain = |ids: &[u32]| file.decode(ids, false).unwrap_or_default();
    if !matches!(file.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
        return plain(ids);
    }
    let added = file.get_added_vocabulary().get_added_tokens_decoder();
    let mut text = String::new();
    for run in ids.chunk_by(|a, b| !added.contains_key(a) && !added.contains_key(b)) {
        match added.get(&run[0]) {
            Some(token) => text += &token.content,
            None => text += &plain(run),
        }
    }
    text
}

/// Contents of a tokenizer's file, with the end-of-text token that is declared for it.
pub(super) struct FoundTokenizer {
    pub(super) path: PathBuf,
    content: Vec<u8>,
    eos: Option<String>,
    /// Whether a file beside it declares another end-of-text token than the content implies.
    declared: bool,
    /// SHA-256 in hexadecimal digits of everything that the ids depend on: the content, and the end-of-text token if
    /// the content does not imply it.
    pub(super) sha256: String,
}

impl FoundTokenizer {
    fn read(path: &Path) -> Result<Self> {
        let content = files::read_bytes(path)?;
        let json = content.strip_prefix(files::BOM).unwrap_or(&content);
        let special = SpecialTokens::read(json);
        let named = special.named();
        let eos = match end_of_text::declared(path)? {
            Some((token, _)) => token,
            None => named.clone().or_else(|| special.of_generation(path)),
        };
        let declared = eos != named;
        let mut identity = content.clone();
        if declared {
            identity.extend(["\0eos=", eos.as_deref().unwrap_or("")].concat().bytes());
        }
        Ok(Self { path: path.to_owned(), sha256: sha256(&identity), content, eos, declared })
    }

    pub(super) fn vocabulary(&self) -> Result<Vocabulary> {
        Vocabulary::parse(&self.content, &self.path, self.eos.as_deref())
    }

    /// Whether this is the file of `tokenizer`.
    fn is(&self, tokenizer: &Tokenizer) -> bool {
        match tokenizer {
            Tokenizer::Bytes => false,
            Tokenizer::GptNeox => {
                let known = self.sha256 == GPT_NEOX;
                let same = || self.vocabulary().is_ok_and(|file| file.is_gpt_neox());
                known || (self.eos.as_deref() == Some(GPT_NEOX_END) && same())
            }
            Tokenizer::File(digest) => digest.len() >= 12 && self.sha256.starts_with(digest),
        }
    }

    /// Content of a file that declares the end-of-text token, if the tokenizer's own content does not imply it.
    fn declaration(&self) -> Option<String> {
        self.declared.then(|| end_of_text::declaration(self.eos.as_deref()))
    }

    /// Finds the file of `tokenizer`, which must not be bytes.
    pub(super) fn find(tokenizer: &Tokenizer, place: &Folders) -> Result<Self> {
        let mut other = None;
        for path in place.tokenizer_files(tokenizer) {
            if !path.is_file() {
                continue;
            }
            let found = Self::read(&path)?;
            if found.is(tokenizer) {
                return Ok(found);
            }
            other.get_or_insert(found);
        }
        let other = other.map_or(String::new(), |other| {
            let (path, digest) = (other.path.display(), &other.sha256[..12]);
            format!(" ({path} is another one, with the digest {digest})")
        });
        Err(Error::missing(match tokenizer {
            Tokenizer::File(digest) => format!(
                "the tokenizer.json with the digest {digest} was not found{other}: give a folder that has it under that \
                 name with --data-dir DIR"
            ),
            _ => format!(
                "the tokenizer of GPT-NeoX was not found{other}: download it with `dsf data fetch wikitext --tokenizer`, or \
                 give a folder that has its tokenizer.json with --data-dir DIR; a new run can also use --tokenizer FILE or \
                 --tokenizer bytes"
            ),
        }))
    }
}

/// Reads the `tokenizer.json` at `path` and stores a copy, so that later processes find it. Returns its name in a
/// config, and the number of rows of a token table for its ids, rounded up to a multiple of 128, as Pythia's 50,304 is.
/// Fails if the file is not a tokenizer.json or has ids from 2^24 on.
pub fn adopt(path: &Path) -> Result<(Tokenizer, usize)> {
    adopt_into(path, &Folders::new(None)?)
}

pub(super) fn adopt_into(path: &Path, place: &Folders) -> Result<(Tokenizer, usize)> {
    let found = FoundTokenizer::read(path)?;
    let vocabulary = found.vocabulary()?;
    let tokenizer =
        if found.is(&Tokenizer::GptNeox) { Tokenizer::GptNeox } else { Tokenizer::File(found.sha256[..12].to_owned()) };
    let kept = place.kept(&tokenizer);
    keep(&found, &kept).map_err(cache::with_remedy)?;
    Ok((tokenizer, vocabulary.size.next_multiple_of(128)))
}

/// Writes a copy to `kept` if there is none yet, after the declaration of its end-of-text token.
fn keep(found: &FoundTokenizer, kept: &Path) -> Result<()> {
    if fs::read(kept).is_ok_and(|content| content == found.content) {
        return Ok(());
    }
    let folder = kept.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    if let Some(declaration) = found.declaration() {
        write_atomic(&end_of_text::kept(kept), declaration.as_bytes())?;
    }
    write_atomic(kept, &found.content)
}

/// File of a tokenizer, for export.
pub struct TokenizerFile {
    /// Path of the `tokenizer.json`.
    pub path: PathBuf,
    /// Id of the end-of-text token.
    pub eos: Option<u32>,
    /// Content of a `tokenizer_config.json` that declares the end-of-text token, if the file itself does not imply it.
    pub declaration: Option<String>,
}

/// Returns the file of `tokenizer`, which must not be bytes. It is looked up as by [`Vocabulary::open`]. Fails if no
/// file is found or only a different one.
pub fn tokenizer_file(tokenizer: &Tokenizer, data_dir: Option<&Path>) -> Result<TokenizerFile> {
    let found = FoundTokenizer::find(tokenizer, &Folders::new(data_dir)?)?;
    Ok(TokenizerFile { eos: found.vocabulary()?.eos, declaration: found.declaration(), path: found.path })
}

/// End-of-text token of `tokenizer`, if its name determines it.
pub fn known_eos(tokenizer: &Tokenizer) -> Option<u32> {
    match tokenizer {
        Tokenizer::Bytes | Tokenizer::GptNeox => Some(0),
        Tokenizer::File(_) => None,
    }
}

/// Fails if the token table has too few or too many rows for `tokenizer`, as far as this is known without its file.
pub(super) fn check_size(tokenizer: &Tokenizer, vocab_size: usize) -> Result<()> {
    let least = known_ids(tokenizer).unwrap_or(1);
    if (least..=MOST).contains(&vocab_size) {
        return Ok(());
    }
    refuse!(flag "--vocab-size" = vocab_size, "must be {least} to {MOST} with the tokenizer {tokenizer}")
}

/// Number of ids of `tokenizer`, if its name determines it.
fn known_ids(tokenizer: &Tokenizer) -> Option<usize> {
    match tokenizer {
        Tokenizer::Bytes => Some(256),
        Tokenizer::GptNeox => Some(GPT_NEOX_SIZE),
        Tokenizer::File(_) => None,
    }
}

/// Fails if the tokenizer of `model` has ids beyond the model's vocabulary, as far as its name determines them.
pub fn check_fits(model: &WikitextConfig) -> Result<()> {
    known_ids(&model.tokenizer).map_or(Ok(()), |ids| fits(model, ids))
}

/// Ids of `text` for `model`, by [`Vocabulary::encode_prompt`]. Fails if some are beyond the model's vocabulary.
pub fn ids_for(model: &WikitextConfig, text: &str, data_dir: Option<&Path>) -> Result<Vec<u32>> {
    check_fits(model)?;
    let vocabulary = Vocabulary::open(&model.tokenizer, data_dir)?;
    let ids = vocabulary.encode_prompt(text)?;
    if ids.iter().any(|id| *id as usize >= model.vocab_size) {
        fits(model, vocabulary.size)?;
    }
    Ok(ids)
}

/// Fails if a tokenizer with `ids` ids has some beyond the vocabulary of `model`.
fn fits(model: &WikitextConfig, ids: usize) -> Result<()> {
    let rows = model.vocab_size;
    if ids <= rows {
        return Ok(());
    }
    refuse!(flag "--tokenizer" = model.tokenizer, "has {ids} ids, but the model has rows for {rows}: give the tokenizer that it was trained with, by this flag or as tokenizer.json beside the weights, without which dsf assumes gpt-neox")
}

/// Tokenizer as typed: `bytes`, `gpt-neox`, or the path of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerName {
    /// Name that the program knows.
    Known(Tokenizer),
    /// Existing `tokenizer.json`.
    File(PathBuf),
}

impl TokenizerName {
    /// Returns the tokenizer, and the number of rows of a table of its tokens. A file is adopted.
    pub fn resolve(&self) -> Result<(Tokenizer, usize)> {
        match self {
            Self::Known(tokenizer) => Ok((tokenizer.clone(), table_rows(tokenizer).unwrap_or(0))),
            Self::File(path) => adopt(path),
        }
    }
}

/// Number of rows of a table of the tokenizer's tokens, if its name determines it. For GPT-NeoX this is the number of
/// ids in use, rounded up to a multiple of 128 as in Pythia.
pub fn table_rows(tokenizer: &Tokenizer) -> Option<usize> {
    match tokenizer {
        Tokenizer::Bytes => Some(256),
        Tokenizer::GptNeox => Some(50_304),
        Tokenizer::File(_) => None,
    }
}

impl FromStr for TokenizerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match Tokenizer::from(text.to_owned()) {
            Tokenizer::File(path) if Path::new(&path).is_file() => Ok(Self::File(path.into())),
            Tokenizer::File(_) => Err("neither `bytes`, `gpt-neox` nor a file".to_owned()),
            known => Ok(Self::Known(known)),
        }
    }
}

impl fmt::Display for TokenizerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(tokenizer) => tokenizer.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
