//! Scenes followed paddle by paddle, and pictures compared with statistics of the original.

use super::super::{folder, generated, write};
use super::*;
use crate::error::Error;
use crate::tasks::lra::{load, testing, LraDataset};
use crate::tasks::Generator;

/// Config of the hard set with these numbers of pictures.
fn config(data_seed: u64, examples: [usize; 3]) -> LraConfig {
    LraConfig { data: Generator::Native, data_seed, ..testing::config(LraDataset::Pathfinder, examples) }
}

fn scenes(count: u64) -> Vec<Scene> {
    scenes_of(PictureStyle::of(32), count)
}

fn scenes_of(style: &'static PictureStyle, count: u64) -> Vec<Scene> {
    let rng = Rng::new(0, "lra/pathfinder", 0);
    let numbers = (0..count).into_par_iter();
    numbers.map(|i| Scene::draw(rng.at(i), style, 14)).collect()
}

fn distance(a: PixelCell, b: PixelCell) -> f64 {
    f64::from((a.y - b.y).pow(2) + (a.x - b.x).pow(2)).sqrt()
}

/// Follows `snake` from its tail as long as each paddle begins within reach of the one before, and returns the last
/// start.
fn followed(snake: &Snake) -> PixelCell {
    let mut at = snake.paddles[0].start;
    for paddle in &snake.paddles[1..] {
        if distance(at, paddle.start) > 9.5 {
            break;
        }
        at = paddle.start;
    }
    at
}

#[test]
fn following_a_path_from_one_disc_leads_to_the_other_for_label_1_alone() {
    for scene in scenes(200) {
        let [from, to] = scene.discs;
        let tails = scene.targets.iter().filter(|s| s.paddles[0].start == from);
        let ends: Vec<PixelCell> = tails.map(followed).collect();
        assert_eq!(ends.len(), 1, "one path begins at the first disc");
        assert_eq!(u8::from(ends[0] == to), scene.label);
        let others = scene.targets.iter().filter(|s| followed(s) == to);
        assert_eq!(others.count(), 1, "one path ends at the second disc");
    }
}

#[test]
fn long_paths_have_fourteen_paddles_and_short_ones_four() {
    for scene in scenes(100) {
        assert!(scene.targets.iter().all(|s| s.paddles.len() == 14));
        assert!(scene.distractors.iter().all(|s| s.paddles.len() == 4));
        let [a, b] = [&scene.targets[0], &scene.targets[1]];
        let apart = distance(a.paddles[0].start, b.paddles[0].start);
        assert!((apart - 7.0).abs() < 0.8, "{apart}");
    }
}

/// Larger pictures keep their settings: paddles, distances, margins, and the end of the path that the label tells.
#[test]
fn larger_pictures_have_paths_of_their_own_settings() {
    for style in [PictureStyle::of(128), PictureStyle::of(256)] {
        let scenes = scenes_of(style, 60);
        let reach = f64::from(2 * style.length + 2 * style.margins[style.margins.len() - 1] + style.margins[0] + 2);
        for scene in &scenes {
            assert!(scene.targets.iter().all(|s| s.paddles.len() == 14));
            assert!(scene.distractors.iter().all(|s| s.paddles.len() == 4));
            assert!(scene.distractors.len() <= style.distracting / 4);
            let [a, b] = [&scene.targets[0], &scene.targets[1]];
            let apart = distance(a.paddles[0].start, b.paddles[0].start);
            assert!((apart - f64::from(style.seed_distance)).abs() < 0.8, "{apart}");
            let snakes = scene.targets.iter().chain(&scene.distractors);
            for pair in snakes.flat_map(|s| s.paddles.windows(2)) {
                let apart = distance(pair[0].start, pair[1].start);
                assert!(apart <= reach, "{apart} pixels from one paddle to the next, of {reach}");
            }
            let [from, to] = scene.discs;
            let same = scene.targets.iter().any(|s| s.tail() == from && s.tip() == to);
            assert_eq!(u8::from(same), scene.label);
        }
        let margins: std::collections::BTreeSet<i32> = scenes.iter().map(|s| s.pen.margin).collect();
        assert_eq!(margins.into_iter().collect::<Vec<_>>(), style.margins);
        let positive = scenes.iter().filter(|s| s.label == 1).count();
        assert!((15..=45).contains(&positive), "{positive} of 60");
    }
}

#[test]
fn a_larger_picture_is_dark_with_bright_discs() {
    for (style, discs) in [(PictureStyle::of(128), 28.3), (PictureStyle::of(256), 78.5)] {
        for scene in scenes_of(style, 10) {
            let pixels = scene.pixels();
            assert_eq!(pixels.len(), style.side * style.side);
            assert_eq!(pixels.iter().max(), Some(&255));
            for disc in scene.discs {
                assert!(pixels[disc.cell(style.side).unwrap()] >= 200);
            }
            let dark = pixels.iter().filter(|&&p| p == 0).count();
            assert!(dark * 10 > pixels.len() * 7, "{dark} black pixels of {}", pixels.len());
            let bright = pixels.iter().filter(|&&p| p > 150).count() as f64;
            assert!(bright > 2.0 * discs && bright < 0.15 * pixels.len() as f64, "{bright} bright pixels");
        }
    }
}

/// A disc drawn in its surroundings alone has the pixels of one drawn in the whole picture.
#[test]
fn a_disc_is_that_of_the_whole_picture() {
    let pen = &Pen::of(PictureStyle::of(32))[0];
    for centre in [(0, 0), (1, 30), (15, 16), (31, 31)] {
        let centre = PixelCell { y: centre.0, x: centre.1 };
        let radius = pen.style.disc_radius * 2.0;
        let level = |y: usize, x: usize| {
            let (dy, dx) = (y as f64 - f64::from(2 * centre.y), x as f64 - f64::from(2 * centre.x));
            if dy * dy + dx * dx <= radius * radius {
                255
            } else {
                0
            }
        };
        let whole = pen.whole.part(0..32, 0..32, level);
        let mut drawn = vec![0; 32 * 32];
        stencil::disc(centre, pen).for_each(|(cell, level)| drawn[cell] = level);
        assert_eq!(drawn, whole);
    }
}

#[test]
fn every_paddle_and_both_discs_are_on_the_picture() {
    for scene in scenes(100) {
        let pixels = scene.pixels();
        assert_eq!(pixels.iter().max(), Some(&255));
        let snakes = scene.targets.iter().chain(&scene.distractors);
        for paddle in snakes.flat_map(|s| &s.paddles) {
            let Some(cell) = paddle.start.cell(32) else {
                continue;
            };
            assert!(pixels[cell] > 50, "a paddle begins with {}", pixels[cell]);
        }
        for disc in scene.discs {
            assert!(pixels[disc.cell(32).unwrap()] >= 200);
        }
    }
}

struct Figures {
    mean: f64,
    bins: [f64; 5],
}

/// Mean pixel, and the shares in % of 0, 1-31, 32-127, 128-200 and above.
fn figures<'a>(pictures: impl Iterator<Item = &'a [u8]>) -> Figures {
    let (mut sum, mut n, mut bins) = (0.0, 0.0, [0.0; 5]);
    for &pixel in pictures.flatten() {
        sum += f64::from(pixel);
        n += 1.0;
        let bounds = [1, 32, 128, 201];
        bins[bounds.iter().filter(|b| pixel >= **b).count()] += 1.0;
    }
    Figures { mean: sum / n, bins: bins.map(|b| 100.0 * b / n) }
}

#[test]
fn the_pictures_have_the_figures_of_the_original() {
    let pictures = pictures(&config(0, [600, 0, 0]), 0..600);
    let figures = figures(pictures.iter().map(|p| &p.pixels[..]));
    assert!((figures.mean - 20.0).abs() < 0.5, "mean {}", figures.mean);
    let expected = [66.2, 19.4, 5.9, 6.9, 1.6];
    for (got, expected) in figures.bins.iter().zip(expected) {
        assert!((got - expected).abs() < 0.7, "{:?}", figures.bins);
    }
    let positive = pictures.iter().filter(|p| p.label == 1).count();
    assert!((250..350).contains(&positive), "{positive} of 600");
}

/// The figures are means over pictures drawn by the original program.
#[test]
fn larger_pictures_have_the_figures_of_the_original() {
    let of_128 = (LraDataset::PathX, 7.91, [86.3, 8.3, 2.4, 1.7, 1.4], "796e26110662");
    let of_256 = (LraDataset::PathX256, 2.95, [96.1, 2.2, 0.55, 0.35, 0.76], "1f6cb926b7a7");
    for (dataset, mean, bins, fingerprint) in [of_128, of_256] {
        let config = LraConfig { dataset, ..config(0, [30, 0, 0]) };
        let drawn = generated(&config, &mut |_, _| Ok(())).unwrap();
        let found = figures((0..30).map(|i| drawn.train.document(i, 0)));
        assert!((found.mean / mean - 1.0).abs() < 0.06, "{dataset:?}: mean {}", found.mean);
        for (found, expected) in found.bins.iter().zip(bins) {
            assert!((found / expected - 1.0_f64).abs() < 0.15, "{dataset:?}: {found} for {expected}");
        }
        assert_eq!(drawn.fingerprint(), fingerprint, "{dataset:?}");
    }
}

#[test]
fn drawing_stops_where_its_caller_does() {
    let mut told = Vec::new();
    let stopped = generated(&config(0, [100, 100, 100]), &mut |made, of| {
        told.push((made, of));
        if made < 164 {
            return Ok(());
        }
        Err(Error::Stopped)
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(told, [(64, 300), (100, 300), (164, 300)]);
}

#[test]
fn one_thread_and_many_draw_the_same_pictures() {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let config = config(5, [40, 0, 0]);
        let draw = || pictures(&config, 10..30).iter().map(|p| p.pixels.clone()).collect();
        let drawn: Vec<_> = pool.unwrap().install(draw);
        drawn
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn a_reduced_line_has_the_levels_of_an_image_library() {
    // Reference from Pillow 13: a line from (8, 8) to (12, 8) in 17 x 17, resized to 9 x 9 with LANCZOS.
    let level = |dy, dx| {
        let line = &Pen::of(PictureStyle::of(32))[0].stencil(stencil::End(0, 4)).line;
        let cell = line.iter().find(|(offset, _)| *offset == (dy, dx));
        cell.map_or(0, |(_, level)| *level)
    };
    let row: Vec<u8> = (-4..=4).map(|dx| level(0, dx)).collect();
    assert_eq!(row, [0, 0, 2, 0, 102, 135, 116, 0, 0]);
}

/// Reference from Pillow 12: a line of 4 or 3 cells to (4, 9) on the fine grid, resized with LANCZOS.
#[test]
fn a_reduced_thick_line_has_the_levels_of_an_image_library() {
    let of_256 = [
        [1, 0, 12, 12, 0, 0, 3, 2, 0, 0],
        [3, 0, 110, 218, 95, 8, 0, 0, 0, 0],
        [2, 1, 156, 255, 255, 220, 163, 55, 1, 0],
        [0, 1, 0, 49, 97, 223, 255, 208, 0, 1],
        [0, 0, 2, 0, 0, 2, 107, 71, 0, 3],
    ];
    let of_128 = [
        [0, 0, 29, 0, 0, 4, 3, 1, 0, 0],
        [2, 0, 204, 185, 55, 0, 0, 0, 0, 0],
        [1, 2, 53, 178, 210, 203, 110, 19, 2, 1],
        [0, 0, 0, 0, 6, 110, 234, 107, 0, 4],
        [0, 0, 2, 3, 0, 0, 8, 31, 0, 1],
    ];
    for (side, rows, cells, sum) in [(256, of_256, 39, 2606), (128, of_128, 35, 1781)] {
        let line = &Pen::of(PictureStyle::of(side))[0].stencil(stencil::End(4, 9)).line;
        let level = |at| line.iter().find(|(offset, _)| *offset == at).map_or(0, |(_, level)| *level);
        let drawn: Vec<Vec<u8>> = (-1..=3).map(|dy| (-2..8).map(|dx| level((dy, dx))).collect()).collect();
        assert_eq!(drawn, rows);
        let total: u32 = line.iter().map(|(_, level)| u32::from(*level)).sum();
        assert_eq!((line.len(), total), (cells, sum));
    }
}

#[test]
fn splits_are_consecutive_pictures() {
    let config = config(7, [6, 2, 3]);
    let splits = generated(&config, &mut |_, _| Ok(())).unwrap();
    let all = pictures(&config, 0..11);
    assert_eq!(splits.train.document(5, 0), all[5].pixels);
    assert_eq!(splits.val.document(0, 0), all[6].pixels);
    assert_eq!(splits.test.label(2), all[10].label);
    assert_eq!(splits.fingerprint(), "b400ae5b0ee0");
}

#[test]
fn written_files_load_with_every_picture_and_its_label() {
    let dir = tempfile::tempdir().unwrap();
    let mut told = 0;
    let mut progress = |more| {
        told += more;
        Ok(())
    };
    let config = config(7, [808, 101, 101]);
    write(&config, dir.path(), &mut progress).unwrap();
    assert_eq!(told, 1010);
    let target = tempfile::tempdir().unwrap();
    let level = target.path().join(folder(&config));
    std::fs::create_dir_all(level.parent().unwrap()).unwrap();
    std::fs::rename(dir.path(), &level).unwrap();
    let files = LraConfig { data: Generator::Files, ..config.clone() };
    let loaded = load(&files, Some(target.path()), &mut |_, _| Ok(())).unwrap();
    let splits = [&loaded.train, &loaded.val, &loaded.test];
    let read = splits.iter().flat_map(|s| (0..s.len()).map(|i| (s.document(i, 0), s.label(i))));
    let mut read: Vec<(&[u8], u8)> = read.collect();
    read.sort_unstable();
    let pictures = pictures(&config, 0..1010);
    let mut drawn: Vec<(&[u8], u8)> = pictures.iter().map(|p| (&p.pixels[..], p.label)).collect();
    drawn.sort_unstable();
    assert_eq!(read, drawn);
}
