use super::*;
use crate::error::testing::Fails;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;

fn config(examples: [usize; 3]) -> PixelsConfig {
    let [train_examples, val_examples, test_examples] = examples;
    PixelsConfig {
        picture: PictureKind::Mnist,
        permuted: false,
        data: Generator::Native,
        source_digest: None,
        data_seed: 0,
        vocab_size: GRAYS,
        seq_len: 784,
        train_examples,
        val_examples,
        test_examples,
    }
}

impl PixelsConfig {
    fn loaded(&self, dir: Option<&Path>) -> Result<Splits> {
        self.load(dir, &mut |_, _| Ok(()))
    }
}

fn pooled(config: &PixelsConfig, dir: Option<&Path>) -> Result<TrainValTest<Documents>> {
    match config.loaded(dir)? {
        Splits::Pooled(splits) => Ok(splits),
        _ => panic!("pictures have one label each"),
    }
}

fn pictures(split: &Documents) -> Vec<(Vec<u8>, u8)> {
    (0..split.len()).map(|i| (split.document(i, 0).to_vec(), split.label(i))).collect()
}

/// Nearest class means, of the training pictures, answer most tests right: the pictures show their labels. All classes are
/// about as frequent.
#[test]
fn drawn_digits_show_their_labels() {
    let splits = pooled(&config([3000, 0, 500]), None).unwrap();
    let mut means = vec![(vec![0.0; 784], 0.0); CLASSES];
    for (pixels, label) in pictures(&splits.train) {
        let (sums, count) = &mut means[usize::from(label)];
        sums.iter_mut().zip(&pixels).for_each(|(sum, &pixel)| *sum += f64::from(pixel));
        *count += 1.0;
        let ink = pixels.iter().filter(|pixel| **pixel > 127).count();
        assert!((15..300).contains(&ink), "{label}: {ink} pixels");
    }
    assert!(means.iter().all(|(_, count)| (220.0..380.0).contains(count)));
    let nearest = |pixels: &[u8]| {
        let distance = |(sums, count): &(Vec<f64>, f64)| {
            let apart = sums.iter().zip(pixels).map(|(sum, &pixel)| (sum / count - f64::from(pixel)).powi(2));
            apart.sum::<f64>()
        };
        let all: Vec<f64> = means.iter().map(distance).collect();
        (0..CLASSES).min_by(|a, b| all[*a].total_cmp(&all[*b])).unwrap()
    };
    let right = pictures(&splits.test).iter().filter(|(pixels, label)| nearest(pixels) == usize::from(*label)).count();
    assert!(right > 350, "{right} of 500");
}

#[test]
fn a_seed_draws_the_same_digits_and_splits_are_consecutive() {
    let all = pictures(&pooled(&config([9, 0, 1]), None).unwrap().train);
    let splits = pooled(&config([4, 3, 2]), None).unwrap();
    let parts = [&splits.train, &splits.val, &splits.test].map(pictures).concat();
    assert_eq!(parts, all);
    let other = PixelsConfig { data_seed: 1, ..config([9, 0, 1]) };
    assert_ne!(pictures(&pooled(&other, None).unwrap().train), all);
}

#[test]
fn permuted_pictures_have_the_same_pixels_in_one_order() {
    let plain = config([5, 0, 1]);
    let permuted = PixelsConfig { permuted: true, data_seed: 0, ..plain.clone() };
    let order = permuted.order().unwrap();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..784) && order != (0..784).collect::<Vec<_>>());
    let [before, after] = [&plain, &permuted].map(|config| pictures(&pooled(config, None).unwrap().train));
    for ((before, a), (after, b)) in before.iter().zip(&after) {
        assert_eq!(a, b);
        assert!(order.iter().zip(after).all(|(&place, pixel)| before[place] == *pixel));
    }
    let again = PixelsConfig { data_seed: 7, ..permuted };
    assert_eq!(again.order().unwrap(), order, "the order does not depend on the seed");
}

/// An IDX file with these axes.
fn idx(kind: u32, axes: &[u32], body: &[u8]) -> Vec<u8> {
    let numbers = [kind].iter().chain(axes).flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    [numbers, body.to_vec()].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A folder with six pictures for training and four for testing; picture i is full of i, and its label is i.
fn published(folder: &str, compressed: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let within = dir.path().join(folder);
    fs::create_dir_all(&within).unwrap();
    for (name, count) in [("train", 6_u32), ("t10k", 4)] {
        let labels: Vec<u8> = (0..count as u8).collect();
        let pixels: Vec<u8> = labels.iter().flat_map(|&i| vec![i; 784]).collect();
        let files = [
            (format!("{name}-images-idx3-ubyte"), idx(0x0803, &[count, 28, 28], &pixels)),
            (format!("{name}-labels-idx1-ubyte"), idx(0x0801, &[count], &labels)),
        ];
        for (file, bytes) in files {
            match compressed {
                true => fs::write(within.join(format!("{file}.gz")), gzip(&bytes)).unwrap(),
                false => fs::write(within.join(file), bytes).unwrap(),
            }
        }
    }
    dir
}

fn of_files(examples: [usize; 3]) -> PixelsConfig {
    PixelsConfig { data: Generator::Files, ..config(examples) }
}

#[test]
fn the_published_files_are_read_plain_and_compressed_in_every_layout() {
    for (folder, compressed) in [("", false), ("mnist", true), ("MNIST/raw", false)] {
        let dir = published(folder, compressed);
        let splits = pooled(&of_files([3, 2, 4]), Some(dir.path())).unwrap();
        let labels =
            |split: &Documents| pictures(split).iter().map(|(pixels, label)| (pixels[0], *label)).collect::<Vec<_>>();
        assert_eq!(labels(&splits.train), [(0, 0), (1, 1), (2, 2)]);
        assert_eq!(labels(&splits.val), [(3, 3), (4, 4)]);
        assert_eq!(labels(&splits.test), [(0, 0), (1, 1), (2, 2), (3, 3)]);
        assert!(of_files([3, 2, 4]).sources(Some(dir.path())).unwrap().is_some());
    }
}

#[test]
fn missing_and_damaged_files_are_named() {
    of_files([1, 0, 1]).loaded(None).fails("missing").names(&["--data-dir", "--data"]);
    let empty = tempfile::tempdir().unwrap();
    of_files([1, 0, 1]).loaded(Some(empty.path())).fails("missing").names(&["train-images-idx3-ubyte", "--data-dir"]);
    let labels = "train-labels-idx1-ubyte";
    let pixels = "train-images-idx3-ubyte";
    for (file, bytes, said) in [
        (labels, idx(0x0801, &[6], &[0, 1, 2, 3, 4, 10]), "label 10 of picture 5"),
        (labels, idx(0x0801, &[5], &[0, 1, 2, 3, 4]), "5 labels, but 6 pictures"),
        (labels, idx(0x0801, &[6], &[0, 1]), "expected 14 bytes, found 10"),
        (labels, b"no".to_vec(), "begins with the number 2049"),
        (pixels, idx(0x0803, &[6, 32, 32], &[0; 6144]), "28 x 28 pixels"),
        (pixels, idx(0x0801, &[6], &[0; 6]), "begins with the number 2051"),
    ] {
        let dir = published("", false);
        fs::write(dir.path().join(file), bytes).unwrap();
        let at = of_files([1, 0, 1]).loaded(Some(dir.path())).fails("data");
        assert!(at.reason.contains(said), "{}: {said}", at.reason);
        at.is_at(dir.path().join(file), None);
    }
    let dir = published("", true);
    fs::write(dir.path().join(format!("{labels}.gz")), [0x1f, 0x8b, 0, 1]).unwrap();
    of_files([1, 0, 1]).loaded(Some(dir.path())).fails("data").names(&["gzip"]);
}

#[test]
fn more_pictures_than_there_are_are_refused_by_their_flag() {
    let dir = published("", false);
    for (examples, flag) in
        [([7, 0, 1], "--train-examples"), ([4, 3, 1], "--val-examples"), ([4, 2, 5], "--test-examples")]
    {
        of_files(examples).loaded(Some(dir.path())).refuses(flag);
    }
}

#[test]
fn sizes_and_sources_that_do_not_fit_are_refused() {
    let base = config([1, 0, 1]);
    PixelsConfig { seq_len: 1024, ..base.clone() }.check().refuses("--seq-len");
    PixelsConfig { vocab_size: 255, ..base.clone() }.check().refuses("--vocab-size");
    PixelsConfig { picture: PictureKind::Cifar, seq_len: 1024, ..base.clone() }.check().refuses("--data");
    PixelsConfig { data: Generator::Numpy, ..base.clone() }.check().refuses("--data");
    PixelsConfig { test_examples: 0, ..base.clone() }.check().refuses("--test-examples");
    PixelsConfig { picture: PictureKind::Cifar, seq_len: 1024, data: Generator::Files, ..base }.check().unwrap();
}
