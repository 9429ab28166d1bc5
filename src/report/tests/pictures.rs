//! Pictures, compared by their content.

use super::*;
use crate::config::Protocol;
use crate::report::figures::Drawn;
use crate::report::picture::{Body, Heatmap, Picture, Plot};
use crate::store::samples::{config, diverged, done, failed, read, text_config};

/// MQAR at (L, k) = (512, 64), d = 64 and n = 128 unless `change` sets other values.
fn run(mixer: &str, accuracy: f64, change: impl Fn(&mut RunConfig)) -> Record {
    Record::new(&changed(mixer, change), &done(accuracy))
}

fn changed(mixer: &str, change: impl Fn(&mut RunConfig)) -> RunConfig {
    let mut config = config();
    config.model.mixer = mixer.into();
    config.model.d_state = 128;
    sized(&mut config, 512, 64);
    change(&mut config);
    config
}

fn sized(config: &mut RunConfig, seq_len: usize, kv_pairs: usize) {
    config.task.set("seq_len", seq_len);
    config.task.set("kv_pairs", kv_pairs);
}

fn of(series: Series, number: &str, rows: &[Record]) -> Report {
    let none: PresetsOf = &|_| Vec::new();
    report(
        figure(series, number),
        rows,
        None,
        none,
        &ReportOptions::default(),
    )
    .unwrap()
}

fn of_figure(number: &str, rows: &[Record]) -> Report {
    of(Series::Figure, number, rows)
}

fn picture(report: &Report) -> Picture {
    panels::picture(report)
}

fn plots(picture: &Picture) -> Vec<&Plot> {
    let bodies = picture.panels.iter().flatten().map(|panel| &panel.body);
    let plots = bodies.filter_map(|body| match body {
        Body::Plot(plot) => Some(plot),
        Body::Heatmap(_) => None,
    });
    plots.collect()
}

fn maps(picture: &Picture) -> Vec<&Heatmap> {
    let bodies = picture.panels.iter().flatten().map(|panel| &panel.body);
    let maps = bodies.filter_map(|body| match body {
        Body::Heatmap(map) => Some(map),
        Body::Plot(_) => None,
    });
    maps.collect()
}

/// Width and height of a PNG, and its number of colours.
fn decoded(bytes: &[u8]) -> (u32, u32, usize) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes))
        .read_info()
        .unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let colours: std::collections::BTreeSet<&[u8]> = pixels.chunks(3).collect();
    (info.width, info.height, colours.len())
}

/// Draws a report in every format: texts contain `words`, documents are complete, bitmaps are not blank.
fn draws(report: &Report, words: &str) {
    let svg = drawn(report, "svg");
    assert!(
        svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    assert!(svg.contains(words), "{words}: {svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let html = drawn(report, "html");
    assert!(
        html.contains(words) && html.ends_with("</html>\n"),
        "{html}"
    );
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        let found = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside} is not in the page");
    }
    let (width, height, colours) = decoded(&bytes(report, "png"));
    assert!(
        width > 400 && height > 200 && colours > 8,
        "{width} {height} {colours}"
    );
}

fn widths(mixers: &[&str], protocols: &[Protocol]) -> Vec<Record> {
    let mut rows = Vec::new();
    for (i, mixer) in mixers.iter().enumerate() {
        for (j, d) in [64, 128, 256, 512].into_iter().enumerate() {
            for protocol in protocols {
                let accuracy = 0.1 + 0.1 * i as f64 + 0.05 * j as f64;
                rows.push(run(mixer, accuracy, |c| {
                    c.model.d_model = d;
                    c.protocol = *protocol;
                }));
            }
        }
    }
    rows
}

#[test]
fn the_second_figure_has_a_line_a_mixer_in_the_papers_order_and_the_accuracy_without_recall() {
    let report = of_figure("2", &widths(&["linear", "softmax"], &[Protocol::Matched]));
    let drawn = picture(&report);
    assert_eq!(drawn.names, ["softmax", "linear"]);
    let plot = plots(&drawn)[0];
    assert_eq!(plot.x.name, "embedding width d");
    let ticks: Vec<&str> = plot.x.ticks.iter().map(|(_, label)| &**label).collect();
    assert_eq!(ticks, ["64", "128", "256", "512"]);
    let heights: Vec<f64> = plot.series[0].points.iter().map(|point| point.y).collect();
    for (height, expected) in heights.iter().zip([0.2, 0.25, 0.3, 0.35]) {
        assert!((height - expected).abs() < 1e-12, "{heights:?}");
    }
    assert_eq!(plot.levels[0].label, "no recall 2.5 %");
    assert!((plot.levels[0].pieces[0][2] - 0.025).abs() < 0.001);
    assert!(
        drawn.caption.iter().any(|line| line.contains("best rate")),
        "{:?}",
        drawn.caption
    );
    assert!(
        drawn
            .caption
            .iter()
            .any(|line| line.contains("seq_len 512")),
        "{:?}",
        drawn.caption
    );
    draws(&report, "softmax: 64: 20.0 %");
    // One circle per point of the first series, one square per point of the second, and a sign for each in the legend.
    let svg = super::drawn(&report, "svg");
    assert_eq!(svg.matches("<circle").count(), 4 + 1);
    assert_eq!(svg.matches("<polygon").count(), 4 + 1);
}

#[test]
fn ten_seeds_make_bands_of_one_deviation() {
    let seeds = |d: usize| {
        (0..10).map(move |seed| {
            run("linear", if seed < 5 { 0.4 } else { 0.6 }, |c| {
                c.seed = seed;
                c.model.d_model = d;
            })
        })
    };
    let rows: Vec<Record> = seeds(64).chain(seeds(128)).collect();
    let report = of_figure("5", &rows);
    let drawn = picture(&report);
    let point = &plots(&drawn)[0].series[0].points[0];
    assert!((point.y - 0.5).abs() < 1e-12);
    // Ten numbers at a distance of 0.1 from their mean: the root of 10 * 0.01 / 9.
    assert!((point.std.unwrap() - (0.1f64 / 9.0).sqrt()).abs() < 1e-12);
    assert_eq!(drawn.caption[0], "mean ± std (bands) over 10 seeds");
    draws(&report, "linear: 64: 50.0 %");
    assert!(super::drawn(&report, "svg").contains("<polygon opacity=\"0.18\""));
}

#[test]
fn protocols_stand_side_by_side() {
    let both = [Protocol::Paper, Protocol::Matched];
    let drawn = picture(&of_figure("2", &widths(&["linear", "ssd"], &both)));
    assert_eq!((drawn.across, drawn.panels.len()), (2, 2));
    let titles: Vec<bool> = drawn
        .panels
        .iter()
        .flatten()
        .map(|p| p.title.starts_with("matched"))
        .collect();
    assert_eq!(titles, [true, false]);
}

#[test]
fn the_third_figure_has_a_panel_a_task() {
    let rows = [(64, 4), (128, 8), (256, 16)]
        .map(|(length, pairs)| run("qlstm", 0.5, |c| sized(c, length, pairs)));
    let drawn = picture(&of_figure("3", &rows));
    assert_eq!((drawn.across, plots(&drawn).len()), (3, 3));
}

/// Five mixers, four tasks, four widths, four state expansions.
fn page() -> Vec<Record> {
    let mut rows = Vec::new();
    for (i, mixer) in ["ssd", "softmax", "s6", "normalized", "linear"]
        .iter()
        .enumerate()
    {
        for (seq_len, kv_pairs) in [(64, 4), (128, 8), (256, 16), (512, 64)] {
            for d in [64, 128, 256, 512] {
                for n in [32, 64, 128, 256] {
                    let accuracy = (i + 1) as f64 * (d + n) as f64 / 4000.0;
                    rows.push(run(mixer, accuracy, |c| {
                        sized(c, seq_len, kv_pairs);
                        (c.model.d_model, c.model.d_state) = (d, n);
                    }));
                }
            }
        }
    }
    rows
}

#[test]
fn the_seventh_figure_is_one_page_of_320_cells_mixers_across_and_tasks_down() {
    let report = of_figure("7", &page());
    let drawn = picture(&report);
    let titles: Vec<&str> = drawn
        .panels
        .iter()
        .flatten()
        .map(|panel| &*panel.title)
        .collect();
    assert_eq!((drawn.across, titles.len()), (5, 20));
    let mixers: Vec<&str> = titles[..5]
        .iter()
        .map(|title| title.split(',').next().unwrap())
        .collect();
    assert_eq!(mixers, ["softmax", "linear", "normalized", "s6", "ssd"]);
    assert!(
        titles[..5].iter().all(|title| title.contains("L=64 k=4")),
        "{titles:?}"
    );
    assert!(
        titles[15..]
            .iter()
            .all(|title| title.contains("L=512 k=64")),
        "{titles:?}"
    );
    let maps = maps(&drawn);
    assert_eq!(maps[0].axes, ["n", "d"].map(String::from));
    assert_eq!((&*maps[0].columns[0], &*maps[0].rows[0]), ("32", "64"));
    let cells: usize = maps
        .iter()
        .map(|map| map.cells.iter().map(Vec::len).sum::<usize>())
        .sum();
    assert_eq!(cells, 320);
    assert_eq!(maps[0].cells[0][0].shade, Some(2.0 * 96.0 / 4000.0));
    assert_eq!(maps[0].levels[0].0, "no recall 28.8 %");
    draws(&report, "softmax, matched, L=64 k=4 V=8192");
    let svg = super::drawn(&report, "svg");
    // Each task has one such cell of softmax and two of SSD, whose accuracies are half as high.
    let written = svg
        .split('>')
        .filter(|text| text.split('<').next().unwrap().trim() == "4.8");
    assert_eq!(written.count(), 4 * 3);
}

#[test]
fn many_points_have_their_names_beside_them_and_no_legend() {
    let names = || crate::mixers::MIXERS.iter().map(|entry| entry.name);
    let mut rows: Vec<Record> = names().map(|mixer| run(mixer, 0.2, |_| {})).collect();
    // Each of two points of one mixer is labelled with its difference from the other.
    rows.push(run("alibi", 0.4, |c| c.model.n_heads = 4));
    let report = of_figure("state", &rows);
    let svg = drawn(&report, "svg");
    let others = names().filter(|name| *name != "alibi");
    for name in others.chain(["alibi heads=1", "alibi heads=4"]) {
        let times = svg.split("<text ").skip(1).filter(|text| {
            let words = text
                .split('>')
                .nth(1)
                .and_then(|words| words.split('<').next());
            words.is_some_and(|words| words.trim() == name)
        });
        assert_eq!(times.count(), 1, "{name}");
    }
    assert!(!drawn(&report, "html").contains("<ul class=\"legend\">"));
    draws(&report, "softmax");
    draws(&report, "heads=4 at ");
    // A few mixers have signs and a legend.
    let few = of_figure("state", &rows[..5]);
    assert!(drawn(&few, "html").contains("<ul class=\"legend\">"));
}

#[test]
fn one_cell_is_drawn_alone_and_none_is_refused_in_a_sentence() {
    let rows = [run("linear", 0.5, |_| {})];
    for number in ["2", "7", "state", "seconds"] {
        draws(&of_figure(number, &rows), "50.0");
    }
    draws(&of(Series::Grid, "", &rows), "50.0");
    let none: PresetsOf = &|_| Vec::new();
    let refused = report(
        figure(Series::Figure, "state"),
        &[],
        None,
        none,
        &ReportOptions::default(),
    );
    let message = refused.unwrap_err().to_string();
    assert!(
        message.contains("no results for Figure state") && message.contains("dsf sweep"),
        "{message}"
    );
    let small = [run("linear", 0.5, |c| c.task.set("seq_len", 32))];
    let refused = report(
        figure(Series::Figure, "2"),
        &small,
        None,
        none,
        &ReportOptions::default(),
    );
    let message = refused.unwrap_err().to_string();
    assert!(
        message
            .ends_with("1 run of its mixers here at other sizes: `dsf report --over d` draws them"),
        "{message}"
    );
}

#[test]
fn long_names_are_broken_and_cut_and_stay_inside() {
    let rows: Vec<Record> = ["linear", "linear", "s6"]
        .iter()
        .enumerate()
        .map(|(i, mixer)| {
            run(mixer, 0.5, |c| {
                c.model.n_heads = 1 << i;
                let long = "a-value-that-nobody-would-type-but-that-a-file-may-hold".repeat(3);
                c.model.options = [(
                    "an_option_with_a_long_name".into(),
                    format!("{long}{i}").as_str().into(),
                )]
                .into();
            })
        })
        .collect();
    for number in ["2", "7", "state"] {
        let report = of_figure(number, &rows);
        let svg = drawn(&report, "svg");
        draws(&report, "linear");
        let width: f64 = attribute(&svg, "width");
        for text in svg
            .split("<text ")
            .skip(1)
            .filter(|text| text.contains("text-anchor=\"start\""))
        {
            let words = text
                .split('>')
                .nth(1)
                .unwrap()
                .split('<')
                .next()
                .unwrap()
                .trim();
            let size: f64 = attribute(text, "font-size");
            // Characters of the font are a little over half as wide as high on average.
            let end = attribute(text, "x") + 0.5 * size * words.chars().count() as f64;
            assert!(end <= width + 8.0, "{words} ends at {end} of {width}");
        }
    }
}

fn attribute(text: &str, name: &str) -> f64 {
    let value = text.split(&format!("{name}=\"")).nth(1).unwrap();
    value.split('"').next().unwrap().parse().unwrap()
}

#[test]
fn cells_without_a_number_are_left_out_of_lines_and_named_below() {
    let rows = [
        run("linear", 0.5, |_| {}),
        Record::new(
            &changed("linear", |c| c.model.d_model = 128),
            &failed("out of memory"),
        ),
        Record::new(&changed("linear", |c| c.model.d_model = 256), &diverged()),
    ];
    let report = of_figure("2", &rows);
    let drawn = picture(&report);
    assert_eq!(plots(&drawn)[0].series[0].points.len(), 1);
    let named = "without a number: linear at 128 (failed); linear at 256 (diverged)";
    assert!(
        drawn.caption.iter().any(|line| line == named),
        "{:?}",
        drawn.caption
    );
    draws(&report, "linear: 64: 50.0 %");
    let all_failed = of_figure("2", &rows[1..]);
    draws(&all_failed, "without a number");
    let heat = of(Series::Grid, "", &rows);
    let labels: Vec<String> = maps(&picture(&heat))[0].cells[0]
        .iter()
        .map(|tile| tile.label.clone())
        .collect();
    assert_eq!(labels, ["50.0", "x", "div"]);
    draws(&heat, "64: 50.0, 128: x, 256: div");
}

#[test]
fn axes_that_a_panel_does_not_share_are_said() {
    let mut rows = widths(&["linear"], &[Protocol::Matched, Protocol::Paper]);
    rows.pop();
    let drawn = picture(&of_figure("2", &rows));
    let said = "no runs at embedding width d = 512 in: paper, L=512 k=64 V=8192, 100000 examples";
    assert!(
        drawn.caption.iter().any(|line| line == said),
        "{:?}",
        drawn.caption
    );
    assert!(plots(&drawn).iter().all(|plot| plot.x.ticks.len() == 4));
}

#[test]
fn heatmaps_share_an_axis_only_with_those_that_have_a_value_of_it() {
    let at = |mixer: &str, n: usize| run(mixer, 0.5, |c| c.model.d_state = n);
    let rows = [
        at("linear", 32),
        at("linear", 64),
        at("ssd", 32),
        at("qlstm", 1),
    ];
    let drawn = picture(&of(Series::Grid, "", &rows));
    let sides: Vec<&[String]> = maps(&drawn).iter().map(|map| &map.rows[..]).collect();
    assert_eq!(sides, [&["32", "64"][..], &["1"], &["32", "64"]]);
    assert_eq!(maps(&drawn)[2].cells[1][0].label, "·");
}

#[test]
fn lines_over_d_or_n_can_be_asked_of_runs_of_any_size() {
    let rows: Vec<Record> = [(16, 4), (32, 4), (16, 8)]
        .map(|(d, n)| {
            run("linear", 0.5, |c| {
                sized(c, 32, 4);
                (c.model.d_model, c.model.d_state) = (d, n);
            })
        })
        .into();
    let none: PresetsOf = &|_| Vec::new();
    for (over, expected) in [
        (Over::D, "embedding width d"),
        (Over::N, "state expansion n"),
    ] {
        let options = ReportOptions {
            over: Some(over),
            ..ReportOptions::default()
        };
        let report = report(figure(Series::Grid, ""), &rows, None, none, &options).unwrap();
        let drawn = picture(&report);
        assert!(
            plots(&drawn)[0].x.name.ends_with(expected),
            "{}",
            plots(&drawn)[0].x.name
        );
        draws(&report, "linear");
    }
}

#[test]
fn a_point_a_setting_stands_at_its_state_size_and_a_colour_is_a_mixer() {
    let mut rows = vec![
        run("linear", 0.25, |_| {}),
        run("linear", 0.5, |c| c.model.d_model = 128),
        run("softmax", 0.75, |_| {}),
    ];
    for (row, size) in rows.iter_mut().zip([1000usize, 2000, 64_000]) {
        row.set("state_size", size);
    }
    let report = of_figure("state", &rows);
    let expected = "\
Figure state, accuracy against the size of the state: MQAR: test accuracy (%) after the last epoch, at the best rate

matched, L=512 k=64 V=8192, 100000 examples
                 state_size  accuracy
  linear, d=64         1000      25.0
  linear, d=128        2000      50.0
  softmax             64000      75.0
  best rate: 1e-3 (3 cells)
";
    let text = text(&report);
    assert!(text.starts_with(expected), "{text}");
    let drawn = picture(&report);
    assert_eq!(drawn.names, ["linear", "softmax"]);
    let plot = plots(&drawn)[0];
    let places: Vec<(f64, f64)> = plot.series[0].points.iter().map(|p| (p.x, p.y)).collect();
    assert_eq!(places, [(1000.0, 0.25), (2000.0, 0.5)]);
    assert!(plot.series.iter().all(|series| !series.joined));
    assert_eq!(plot.x.scale, picture::Scale::Log);
    let csv = super::drawn(&report, "csv");
    assert!(
        csv.lines()
            .next()
            .unwrap()
            .ends_with("mean,std,seeds,lr,status,state_size"),
        "{csv}"
    );
    assert!(
        csv.lines()
            .nth(3)
            .unwrap()
            .ends_with("0.75,,1,0.001,done,64000.0"),
        "{csv}"
    );
    draws(&report, "softmax: 64k: 75.0 %");
}

#[test]
fn the_third_table_has_points_above_its_tasks_the_papers_and_guesses_beside_them() {
    let mut row = Record::new(&config(), &done(0.5));
    for (name, value) in [
        ("task", "lra"),
        ("dataset", "listops"),
        ("mixer", "softmax"),
        ("data", "files"),
    ] {
        row.set(name, value);
    }
    for (name, count) in [
        ("train_examples", 96_000usize),
        ("val_examples", 2_000),
        ("test_examples", 2_000),
    ] {
        row.set(name, count);
    }
    row.set("seq_len", 2_048usize);
    row.set("majority", 0.175);
    row.set("val_accuracy", 0.5);
    row.set("selected_accuracy", 0.375);
    let report = of(Series::Table, "3", &[row]);
    let drawn = picture(&report);
    assert_eq!(drawn.levels, ["chance", "majority"]);
    let plot = plots(&drawn)[0];
    let softmax: Vec<_> = plot
        .series
        .iter()
        .filter(|series| drawn.names[series.key] == "softmax")
        .collect();
    assert_eq!((softmax[0].hollow, softmax[0].points[0].y), (false, 0.375));
    assert!(softmax[1].hollow && (softmax[1].points[0].y - 0.3572).abs() < 1e-12);
    let heights: Vec<f64> = plot.levels.iter().map(|level| level.pieces[0][2]).collect();
    assert_eq!(heights, [0.1, 0.175]);
    assert!(drawn
        .caption
        .iter()
        .any(|line| line == "outlines: what the paper prints"));
    draws(&report, "softmax as the paper prints it: ListOps: 35.7 %");
}

#[test]
fn the_first_table_has_perplexities_on_a_logarithmic_axis() {
    let report = of(
        Series::Table,
        "1",
        &[Record::new(&text_config(), &read(16.0))],
    );
    let drawn = picture(&report);
    let plot = plots(&drawn)[0];
    assert_eq!(
        (&*plot.y.name, plot.y.scale),
        ("perplexity", picture::Scale::Log)
    );
    let titles: Vec<&str> = plot.x.ticks.iter().map(|(_, title)| &**title).collect();
    assert_eq!(titles[0], "train");
    draws(&report, "linear");
}

#[test]
fn every_row_of_figures_is_drawn_by_a_picture_of_its_kind() {
    for figure in FIGURES {
        let heat = matches!(&figure.drawn, Drawn::Axes { lines, .. } if lines[0] != "mixer");
        let rows = [run("linear", 0.5, |_| {})];
        if !shows(figure, &rows, &Filter::default()) {
            continue;
        }
        let none: PresetsOf = &|_| Vec::new();
        let report = report(figure, &rows, None, none, &ReportOptions::default()).unwrap();
        assert_eq!(
            !maps(&picture(&report)).is_empty(),
            heat,
            "{}",
            figure.title()
        );
    }
}

#[test]
fn a_table_for_tex_has_the_rules_of_booktabs_and_a_caption() {
    let rows = [
        run("linear", 0.25, |_| {}),
        run("softmax", 0.995, |c| c.model.d_model = 128),
    ];
    let latex = drawn(&of_figure("2", &rows), "latex");
    let expected = "\
  \\begin{tabular}{lrr}
    \\toprule
    mixer \\textbackslash{} d & 64 & 128 \\\\
    \\midrule
    softmax & $\\cdot$ & $>$99 \\\\
    linear & 25.0 & $\\cdot$ \\\\
    \\bottomrule
  \\end{tabular}
\\end{table}
";
    assert!(latex.ends_with(expected), "{latex}");
    assert!(
        latex.contains("test accuracy (\\%) after the last epoch"),
        "{latex}"
    );
}

#[test]
fn a_terminal_draws_lines_in_braille_with_a_letter_a_series() {
    let report = of_figure("2", &widths(&["linear", "softmax"], &[Protocol::Matched]));
    let text = shown(&report, false, Some(60));
    assert!(
        text.contains("a softmax") && text.contains("b linear"),
        "{text}"
    );
    assert!(text.contains("⠂ no recall 2.5 %"), "{text}");
    let dots = text
        .chars()
        .filter(|c| ('\u{2801}'..='\u{28ff}').contains(c))
        .count();
    assert!(dots > 50, "{text}");
    assert!(
        text.lines()
            .skip(1)
            .take(24)
            .all(|line| line.chars().count() <= 120),
        "{text}"
    );
    assert!(!text.contains('\u{1b}') && shown(&report, true, Some(60)).contains('\u{1b}'));
    // The numbers follow below, as without a terminal.
    assert!(text.contains("mixer \\ d"), "{text}");
}
