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

/// Pixels that differ from the background, as eight shares of rings around their centre and four moments over the
/// angle: the same for every place, size, angle and contrast.
fn silhouette(pixels: &[u8]) -> Vec<f64> {
    let side = shapes::SIDE;
    let place = |i: usize| [(i % side) as f64, (i / side) as f64];
    let edge = (0..side * side).filter(|i| place(*i).iter().any(|at| *at < 2.0 || *at > side as f64 - 3.0));
    let mut border: Vec<u8> = edge.map(|i| pixels[i]).collect();
    border.sort_unstable();
    let background = f64::from(border[border.len() / 2]);
    let differs = |i: &usize| (f64::from(pixels[*i]) - background).abs() > 42.0;
    let points: Vec<[f64; 2]> = (0..side * side).filter(differs).map(place).collect();
    let count = points.len().max(1) as f64;
    let mean = [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / count);
    let polar: Vec<[f64; 2]> =
        points.iter().map(|[x, y]| [(x - mean[0]).hypot(y - mean[1]), (y - mean[1]).atan2(x - mean[0])]).collect();
    let radius = (polar.iter().map(|[r, _]| r * r).sum::<f64>() / count).sqrt().max(1.0);
    let ring = |i: usize| {
        let within = polar.iter().filter(|[r, _]| (4.0 * r / radius) as usize == i).count() as f64;
        let area = std::f64::consts::PI * (radius / 4.0).powi(2) * (2 * i + 1) as f64;
        within / area
    };
    let moment = |k: usize| {
        let part = |of: fn(f64) -> f64| {
            polar.iter().map(|[r, angle]| (r / radius).powi(2) * of(k as f64 * angle)).sum::<f64>() / count
        };
        part(f64::cos).hypot(part(f64::sin))
    };
    (0..8).map(ring).chain((1..5).map(moment)).collect()
}

/// The picture with the most similar silhouette has the same label in most cases, while the classes have one mean picture.
#[test]
fn drawn_shapes_show_their_labels_by_their_silhouettes_alone() {
    let cifar = PixelsConfig { picture: PictureKind::Cifar, seq_len: 1024, ..config([2000, 0, 300]) };
    let splits = pooled(&cifar, None).unwrap();
    let described = |split: &Documents| -> Vec<(Vec<f64>, u8)> {
        pictures(split).iter().map(|(pixels, label)| (silhouette(pixels), *label)).collect()
    };
    let known = described(&splits.train);
    let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let right = described(&splits.test).into_iter().filter(|(found, label)| {
        let nearest = known.iter().min_by(|a, b| apart(&a.0, found).total_cmp(&apart(&b.0, found)));
        nearest.unwrap().1 == *label
    });
    let right = right.count();
    assert!(right > 240, "{right} of 300");
    let mean = |label: u8| {
        let own: Vec<Vec<u8>> =
            pictures(&splits.train).into_iter().filter(|(_, own)| *own == label).map(|(pixels, _)| pixels).collect();
        assert!((150..250).contains(&own.len()), "{label}: {}", own.len());
        let at = |i: usize| own.iter().map(|pixels| f64::from(pixels[i])).sum::<f64>() / own.len() as f64;
        (0..1024).map(at).sum::<f64>() / 1024.0
    };
    let means: Vec<f64> = (0..CLASSES as u8).map(mean).collect();
    assert!(means.iter().all(|mean| (mean - 127.5).abs() < 6.0), "{means:?}");
    let again = PixelsConfig { train_examples: 9, ..cifar };
    assert_eq!(pictures(&pooled(&again, None).unwrap().train), pictures(&splits.train)[..9]);
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
    PixelsConfig { data: Generator::Numpy, ..base.clone() }.check().refuses("--data");
    PixelsConfig { test_examples: 0, ..base.clone() }.check().refuses("--test-examples");
    for data in [Generator::Files, Generator::Native] {
        let cifar = PixelsConfig { picture: PictureKind::Cifar, seq_len: 1024, data, ..base.clone() };
        cifar.check().unwrap();
        PixelsConfig { seq_len: 784, ..cifar }.check().refuses("--seq-len");
    }
}
