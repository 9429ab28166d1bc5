pub(super) mod testing;

use super::*;
use crate::error::testing::Fails;
use crate::error::Position;
use crate::tasks::testing::real;
use crate::tasks::{sha256, IdSlice};
use serde_json::json;
use std::fs;
use tempfile::TempDir;

fn config(corpus: Corpus) -> WikitextConfig {
    WikitextConfig {
        corpus,
        tokenizer: Tokenizer::Bytes,
        vocab_size: 256,
        seq_len: 32,
        source_digest: None,
        eos_between_articles: false,
        train_examples: None,
        test_examples: None,
    }
}

/// Data root and user's folder, both empty.
fn world() -> (TempDir, Folders) {
    let dir = tempfile::tempdir().unwrap();
    let place =
        Folders { data_dir: Some(dir.path().join("data")), root: dir.path().join("root"), hub: dir.path().join("hub") };
    fs::create_dir(dir.path().join("data")).unwrap();
    (dir, place)
}

/// Same as [`load`] with the folders of `place`.
fn load_from(config: &WikitextConfig, place: &Folders) -> Result<CorpusSplits> {
    let (texts, warnings) = texts_from(config, place, ALL)?;
    for (split, text) in texts.iter().flatten().enumerate() {
        check_windows(config, split, text)?;
    }
    Ok(splits(texts, warnings))
}

fn held(ids: IdSlice) -> Vec<u32> {
    ids.iter().collect()
}

fn with(texts: [&str; 3]) -> (TempDir, Folders) {
    let (dir, place) = world();
    for (name, text) in ["train.txt", "valid.txt", "test.txt"].iter().zip(texts) {
        fs::write(place.folder().join(name), text).unwrap();
    }
    (dir, place)
}

#[test]
fn the_sample_needs_no_files_and_its_windows_overlap_by_one() {
    let splits = load(&config(Corpus::Sample), None).unwrap();
    let train = &splits.train;
    assert!(train.windows() > 256 && splits.val.windows() > 32 && splits.test.windows() > 32);
    for i in 1..train.windows() {
        assert_eq!(train.window(i - 1).at(32), train.window(i).at(0));
    }
    let text = Vocabulary::bytes().decode(&held(train.ids()));
    assert!(text.starts_with(" = State space model = \n"), "{text:.80}");
    assert_eq!(text.len() as u64, train.counts().bytes);
    assert_eq!(text.split_whitespace().count() as u64, train.counts().words);
    assert!(splits.warnings.is_empty());
    let again = load(&config(Corpus::Sample), None).unwrap();
    assert_eq!(splits.fingerprint(), again.fingerprint());
    assert_eq!(splits.fingerprint().len(), 12);
}

#[test]
fn the_sample_has_ids_of_four_bytes_if_its_tokenizer_needs_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    let mut words = testing::file(json!({"type": "WordLevel", "vocab": {"?": 0, "the": 70_000}, "unk_token": "?"}));
    words["pre_tokenizer"] = json!({"type": "Whitespace"});
    fs::write(&path, words.to_string()).unwrap();
    let tokenizer = Tokenizer::File(sha256(words.to_string().as_bytes())[..12].to_owned());
    let config = WikitextConfig { tokenizer, vocab_size: 70_001, ..config(Corpus::Sample) };
    let splits = load(&config, Some(dir.path())).unwrap();
    for text in splits.each() {
        let IdSlice::Four(ids) = text.ids() else { panic!("two bytes hold no 70,000") };
        assert!(ids.contains(&70_000) && ids.iter().all(|id| [0, 70_000].contains(id)));
        assert_eq!(text.digest(), sha256(bytemuck::cast_slice(ids)));
    }
    let small = WikitextConfig { vocab_size: 70_000, ..config };
    load(&small, Some(dir.path())).refuses("--vocab-size").names(&["70001"]);
}

#[test]
fn an_id_stands_before_each_article_when_asked() {
    let with_eos = WikitextConfig { eos_between_articles: true, ..config(Corpus::Sample) };
    let [plain, separated] = [config(Corpus::Sample), with_eos].map(|c| load(&c, None).unwrap());
    let ids = held(separated.train.ids());
    let zeros: Vec<usize> = (0..ids.len()).filter(|i| ids[*i] == 0).collect();
    assert_eq!(ids.len(), plain.train.ids().len() + zeros.len());
    assert!(zeros.len() > 4, "{zeros:?}");
    for at in zeros {
        assert_eq!(Vocabulary::bytes().decode(&ids[at + 1..][..3]), " = ");
        assert_ne!(ids[at + 4], u32::from(b'='));
    }
    assert_eq!(separated.train.counts(), plain.train.counts());
    assert_ne!(separated.fingerprint(), plain.fingerprint());
}

#[test]
fn limits_are_obeyed_and_more_than_there_is_refused() {
    let asked = WikitextConfig { train_examples: Some(3), test_examples: Some(2), ..config(Corpus::Sample) };
    let splits = load(&asked, None).unwrap();
    let windows = [&splits.train, &splits.val, &splits.test].map(TokenizedText::windows);
    assert_eq!(windows, [3, 2, 2]);
    let counted = config(Corpus::Sample).counted(None).unwrap();
    let whole = load(&config(Corpus::Sample), None).unwrap();
    let windows = [&whole.train, &whole.val, &whole.test].map(TokenizedText::windows);
    assert_eq!(counted.examples, windows);
    for (asked, flag, value, names) in [
        (
            WikitextConfig { train_examples: Some(100_000), ..config(Corpus::Sample) },
            "--train-examples",
            "100000",
            &[" 32 "][..],
        ),
        (
            WikitextConfig { test_examples: Some(100_000), ..config(Corpus::Sample) },
            "--test-examples",
            "100000",
            &[" 32 "],
        ),
        (WikitextConfig { seq_len: 60_000, ..config(Corpus::Sample) }, "--seq-len", "60000", &["60001", "--seq-len"]),
    ] {
        load(&asked, None).refuses(flag).gives(value).names(names);
    }
}

#[test]
fn sizes_that_cannot_be_are_refused_by_their_flag() {
    let refused = |config: WikitextConfig, flag: &str, range: &str| {
        config.check().refuses(flag).names(&[range]);
    };
    let sample = || config(Corpus::Sample);
    refused(WikitextConfig { seq_len: 0, ..sample() }, "--seq-len", "1 to 65536");
    refused(WikitextConfig { train_examples: Some(0), ..sample() }, "--train-examples", "1");
    refused(WikitextConfig { vocab_size: 255, ..sample() }, "--vocab-size", "256 to 16777216");
    let neox = WikitextConfig { tokenizer: Tokenizer::GptNeox, ..sample() };
    refused(neox, "--vocab-size", "50277 to 16777216");
}

#[test]
fn a_text_of_the_users_is_read_from_the_named_folder_alone() {
    let text = config(Corpus::Text);
    load(&text, None).refuses("--corpus").gives("text").names(&["--data-dir"]);
    let body = "all the words of a small text\n".repeat(4);
    let (_dir, place) = with([&body, &body, &body]);
    let splits = load_from(&text, &place).unwrap();
    assert_eq!(Vocabulary::bytes().decode(&held(splits.train.ids())), body);
    let counts = TextSize { bytes: 120, words: 28, lines: 4, lines_are_words: false };
    assert_eq!(splits.train.counts(), counts);
    assert_eq!(splits.val.windows(), 3);
}

#[test]
fn a_zero_byte_is_refused_with_its_line() {
    let (_dir, place) = with(["a\nb\0c\n", "x\n", "x\n"]);
    let at = load_from(&config(Corpus::Text), &place).fails("data");
    at.is_at("train.txt", Position::Line(2));
    assert!(fs::read_dir(place.root.join("tokens")).unwrap().count() <= 2);
}

#[test]
fn an_empty_split_is_refused_and_a_partial_corpus_gives_a_warning() {
    let body = "words ".repeat(40);
    let (_dir, place) = with([&body, "", &body]);
    let at = load_from(&config(Corpus::Text), &place).refuses("--seq-len");
    at.names(&["val", "0"]);
    let (_dir, place) = with([&body, &body, &body]);
    let splits = load_from(&config(Corpus::Wikitext2), &place).unwrap();
    assert_eq!(splits.warnings.len(), 1);
    let warning = &splits.warnings[0];
    for part in ["the files of wikitext-2 are incomplete", "train has 40 words of 2051910", "test has 40"] {
        assert!(warning.contains(part), "{warning}");
    }
}

#[test]
fn a_list_takes_no_plain_text_for_every_corpus() {
    let (dir, place) = with(["a", "b", "c"]);
    assert_eq!(found(Corpus::Wikitext2, place.folder()), None);
    let folder = dir.path().join("wikitext-2");
    fs::rename(place.folder(), &folder).unwrap();
    assert_eq!(found(Corpus::Wikitext2, dir.path()), Some(folder));
    assert_eq!(found(Corpus::Wikitext103, dir.path()), None);
}

/// Numbers of tokens, words and lines of the splits of `corpus` below `data`, with GPT-NeoX's tokenizer.
fn neox(corpus: Corpus, data: &Path, eos: bool) -> [[u64; 3]; 3] {
    let (_dir, mut place) = world();
    let file = real("gpt-neox-20b-tokenizer/tokenizer.json").unwrap();
    vocabulary::adopt_into(&file, &place).unwrap();
    place.data_dir = Some(data.to_owned());
    let config = WikitextConfig {
        tokenizer: Tokenizer::GptNeox,
        vocab_size: 50_304,
        eos_between_articles: eos,
        ..config(corpus)
    };
    let splits = load_from(&config, &place).unwrap();
    [splits.train, splits.val, splits.test].map(|text| {
        let counts = text.counts();
        [text.ids().len() as u64, counts.words, counts.lines]
    })
}

#[test]
fn text_and_parquet_give_the_same_tokens() {
    let Some(data) = real("wikitext-2") else {
        return;
    };
    let text = neox(Corpus::Wikitext2, &data, false);
    let parquet = neox(Corpus::Wikitext2, &data.join("wikitext-2-v1"), false);
    assert_eq!(text[1..], parquet[1..]);
    // The files hold the first 45 and 30 of 60 articles; of the training split, 555 of 615 chunks and 60 articles. The
    // counts agree with the Python library.
    let whole = [[2_206_462, 1_858_130, 33_145], [179_681, 149_525, 2_693], [150_187, 122_695, 2_248]];
    assert_eq!(text, whole);
    assert_eq!(parquet[0], [217_216, 179_739, 3_213]);
}

/// The data hold only the raw test split, which serves as all three.
#[test]
fn half_of_the_raw_test_split_has_the_same_tokens_in_both_forms() {
    let Some(data) = real("wikitext-2-raw") else {
        return;
    };
    let forms = ["test.txt", "wikitext-2-raw-v1/test-00000-of-00001.parquet"];
    let [text, parquet] = forms.map(|form| {
        let dir = tempfile::tempdir().unwrap();
        let ending = Path::new(form).extension().unwrap().to_str().unwrap();
        let names = match ending {
            "txt" => ["train.txt", "valid.txt", "test.txt"],
            _ => ["train-00000-of-00001.parquet", "validation-00000-of-00001.parquet", "test-00000-of-00001.parquet"],
        };
        for name in names {
            fs::copy(data.join(form), dir.path().join(name)).unwrap();
        }
        let [_, _, test] = neox(Corpus::Wikitext2Raw, dir.path(), false);
        let [_, _, separated] = neox(Corpus::Wikitext2Raw, dir.path(), true);
        (test, separated)
    });
    assert_eq!(text, parquet);
    // The split has 30 articles and two lines that look like headings.
    assert_eq!(text, ([146_592, 122_695, 2_248], [146_624, 122_695, 2_248]));
}
