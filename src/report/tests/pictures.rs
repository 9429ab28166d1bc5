//! Pictures, by what is in them.

use super::*;
use crate::config::Protocol;
use crate::error::testing::Fails;
use crate::report::figures::FigureForm;
use crate::report::picture::{Heatmap, PanelBody, Picture, Plot};
use crate::store::samples::{config, diverged, done, failed, read, text_config};
use crate::store::Column;

/// MQAR at (L, k) = (512, 64), d = 64 and n = 128 unless `change` says otherwise.
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

fn of(series: FigureSeries, number: &str, rows: &[Record]) -> Report {
    let none: PresetsOf = &|_| Vec::new();
    report(figure(series, number), rows, None, none, &ReportOptions::default()).unwrap()
}

fn of_figure(number: &str, rows: &[Record]) -> Report {
    of(FigureSeries::Figure, number, rows)
}

fn picture(report: &Report) -> Picture {
    panels::picture(report)
}

fn plots(picture: &Picture) -> Vec<&Plot> {
    let bodies = picture.panels.iter().flatten().map(|panel| &panel.body);
    let plots = bodies.filter_map(|body| match body {
        PanelBody::Plot(plot) => Some(plot),
        PanelBody::Heatmap(_) => None,
    });
    plots.collect()
}

fn maps(picture: &Picture) -> Vec<&Heatmap> {
    let bodies = picture.panels.iter().flatten().map(|panel| &panel.body);
    let maps = bodies.filter_map(|body| match body {
        PanelBody::Heatmap(map) => Some(map),
        PanelBody::Plot(_) => None,
    });
    maps.collect()
}

/// Width and height of a PNG, and how many colours it has.
fn decoded(bytes: &[u8]) -> (u32, u32, usize) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let colours: std::collections::BTreeSet<&[u8]> = pixels.chunks(3).collect();
    (info.width, info.height, colours.len())
}

/// [`draws`], with the words of the picture and of the page in the file `name`.
fn shows_words(name: &str, report: &Report) {
    draws(report);
    let words = ["svg", "html"].map(|format| (format, words(&drawn(report, format))));
    shows!(name, sections(words));
}

/// Every format of a report: documents are whole, pixels are not blank.
fn draws(report: &Report) {
    let svg = drawn(report, "svg");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let html = drawn(report, "html");
    assert!(html.ends_with("</html>\n"), "{html}");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        let found = html.replace("http://www.w3.org/2000/svg", "");
        assert!(!found.contains(outside), "{outside} is not in the page");
    }
    let (width, height, colours) = decoded(&bytes(report, "png"));
    assert!(width > 400 && height > 200 && colours > 8, "{width} {height} {colours}");
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
    shows_words("figure2", &report);
    // A circle a point of the first series, a square of the second, and a sign each in the legend.
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
    // Ten numbers at 0.1 from their mean: the root of 10 * 0.01 / 9.
    let [low, high] = point.band.unwrap();
    assert!(((high - low) / 2.0 - (0.1f64 / 9.0).sqrt()).abs() < 1e-12);
    assert_eq!(drawn.caption[0], "mean ± std (bands) over 10 seeds");
    draws(&report);
    let bands = super::drawn(&report, "svg");
    assert_eq!(bands.matches("<polygon opacity=\"0.18\"").count(), 1);
}

#[test]
fn protocols_stand_side_by_side() {
    let both = [Protocol::Paper, Protocol::Matched];
    let drawn = picture(&of_figure("2", &widths(&["linear", "ssd"], &both)));
    assert_eq!((drawn.across, drawn.panels.len()), (2, 2));
    let titles: Vec<bool> = drawn.panels.iter().flatten().map(|p| p.title.starts_with("matched")).collect();
    assert_eq!(titles, [true, false]);
}

#[test]
fn the_third_figure_has_a_panel_a_task() {
    let rows = [(64, 4), (128, 8), (256, 16)].map(|(length, pairs)| run("qlstm", 0.5, |c| sized(c, length, pairs)));
    let drawn = picture(&of_figure("3", &rows));
    assert_eq!((drawn.across, plots(&drawn).len()), (3, 3));
}

/// Five mixers, four tasks, four widths, four state expansions.
fn page() -> Vec<Record> {
    let mut rows = Vec::new();
    for (i, mixer) in ["ssd", "softmax", "s6", "normalized", "linear"].iter().enumerate() {
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
    let titles: Vec<&str> = drawn.panels.iter().flatten().map(|panel| &*panel.title).collect();
    assert_eq!((drawn.across, titles.len()), (5, 20));
    let mixers: Vec<&str> = titles[..5].iter().map(|title| title.split(',').next().unwrap()).collect();
    assert_eq!(mixers, ["softmax", "linear", "normalized", "s6", "ssd"]);
    shows!("titles-of-figure7", titles.join("\n"));
    let maps = maps(&drawn);
    assert_eq!(maps[0].axes, ["n", "d"].map(String::from));
    assert_eq!((&*maps[0].columns[0], &*maps[0].rows[0]), ("32", "64"));
    let cells: usize = maps.iter().map(|map| map.cells.iter().map(Vec::len).sum::<usize>()).sum();
    assert_eq!(cells, 320);
    assert_eq!(maps[0].cells[0][0].shade, Some(2.0 * 96.0 / 4000.0));
    assert_eq!(maps[0].levels[0].0, "no recall 28.8 %");
    draws(&report);
    let svg = super::drawn(&report, "svg");
    // Of each task one of softmax and two of SSD, whose accuracies are half of those.
    let written = svg.split('>').filter(|text| text.split('<').next().unwrap().trim() == "4.8");
    assert_eq!(written.count(), 4 * 3);
}

#[test]
fn many_points_have_their_names_beside_them_and_no_legend() {
    let names = || crate::mixers::MIXERS.iter().map(|entry| entry.name);
    let mut rows: Vec<Record> = names().map(|mixer| run(mixer, 0.2, |_| {})).collect();
    // Of two points of one mixer each says what tells it from the other.
    rows.push(run("alibi", 0.4, |c| c.model.n_heads = 4));
    let report = of_figure("state", &rows);
    let svg = drawn(&report, "svg");
    let others = names().filter(|name| *name != "alibi");
    for name in others.chain(["alibi heads=1", "alibi heads=4"]) {
        let times = svg.split("<text ").skip(1).filter(|text| {
            let words = text.split('>').nth(1).and_then(|words| words.split('<').next());
            words.is_some_and(|words| words.trim() == name)
        });
        assert_eq!(times.count(), 1, "{name}");
    }
    let legends = |report: &Report| {
        let page = drawn(report, "html");
        page.matches("<ul class=\"legend\">").count()
    };
    assert_eq!(legends(&report), 0);
    draws(&report);
    // A few have signs and a legend.
    assert_eq!(legends(&of_figure("state", &rows[..5])), 1);
}

#[test]
fn one_cell_is_drawn_alone_and_none_is_refused_in_a_sentence() {
    let rows = [run("linear", 0.5, |_| {})];
    for number in ["2", "7", "state", "seconds"] {
        let name = format!("one-cell-of-{number}");
        shows_words(&name, &of_figure(number, &rows));
    }
    shows_words("one-cell-of-the-grid", &of(FigureSeries::Grid, "", &rows));
    let none: PresetsOf = &|_| Vec::new();
    let refused = report(figure(FigureSeries::Figure, "state"), &[], None, none, &ReportOptions::default());
    refused.fails("refused").names(&["Figure state", "`dsf sweep"]);
    let small = [run("linear", 0.5, |c| c.task.set("seq_len", 32))];
    let refused = report(figure(FigureSeries::Figure, "2"), &small, None, none, &ReportOptions::default());
    refused.fails("refused").names(&["1 run", "`dsf report --over d`"]);
}

#[test]
fn long_names_are_broken_and_cut_and_stay_inside() {
    let rows = ["linear", "linear", "s6"].iter().enumerate().map(|(i, mixer)| {
        run(mixer, 0.5, |c| {
            c.model.n_heads = 1 << i;
            let long = "a-value-that-nobody-would-type-but-that-a-file-may-hold".repeat(3);
            c.model.options = [("an_option_with_a_long_name".into(), format!("{long}{i}").as_str().into())].into();
        })
    });
    let rows: Vec<Record> = rows.collect();
    for number in ["2", "7", "state"] {
        let report = of_figure(number, &rows);
        let svg = drawn(&report, "svg");
        draws(&report);
        let width: f64 = attribute(&svg, "width");
        for text in svg.split("<text ").skip(1).filter(|text| text.contains("text-anchor=\"start\"")) {
            let words = text.split('>').nth(1).unwrap().split('<').next().unwrap().trim();
            let size: f64 = attribute(text, "font-size");
            // The font is a little over half as wide as high on average.
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
        Record::new(&changed("linear", |c| c.model.d_model = 128), &failed("out of memory")),
        Record::new(&changed("linear", |c| c.model.d_model = 256), &diverged()),
    ];
    let report = of_figure("2", &rows);
    let drawn = picture(&report);
    assert_eq!(plots(&drawn)[0].series[0].points.len(), 1);
    shows_words("lines-without-a-number", &report);
    let all_failed = of_figure("2", &rows[1..]);
    shows_words("only-failures", &all_failed);
    let heat = of(FigureSeries::Grid, "", &rows);
    let labels: Vec<String> = maps(&picture(&heat))[0].cells[0].iter().map(|tile| tile.label.clone()).collect();
    assert_eq!(labels, ["50.0", "x", "div"]);
    draws(&heat);
}

#[test]
fn axes_that_a_panel_does_not_share_are_said() {
    let mut rows = widths(&["linear"], &[Protocol::Matched, Protocol::Paper]);
    rows.pop();
    let drawn = picture(&of_figure("2", &rows));
    shows!("caption-of-an-axis", drawn.caption.join("\n"));
    assert!(plots(&drawn).iter().all(|plot| plot.x.ticks.len() == 4));
}

#[test]
fn heatmaps_share_an_axis_only_with_those_that_have_a_value_of_it() {
    let at = |mixer: &str, n: usize| run(mixer, 0.5, |c| c.model.d_state = n);
    let rows = [at("linear", 32), at("linear", 64), at("ssd", 32), at("qlstm", 1)];
    let drawn = picture(&of(FigureSeries::Grid, "", &rows));
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
    for (over, expected) in [(Over::D, "embedding width d"), (Over::N, "state expansion n")] {
        let asked = ReportOptions { over: Some(over), ..ReportOptions::default() };
        let report = report(figure(FigureSeries::Grid, ""), &rows, None, none, &asked).unwrap();
        let drawn = picture(&report);
        assert!(plots(&drawn)[0].x.name.ends_with(expected), "{}", plots(&drawn)[0].x.name);
        draws(&report);
    }
}

#[test]
fn a_point_a_setting_stands_at_its_state_size_and_a_colour_is_a_mixer() {
    let mut rows =
        vec![run("linear", 0.25, |_| {}), run("linear", 0.5, |c| c.model.d_model = 128), run("softmax", 0.75, |_| {})];
    for (row, size) in rows.iter_mut().zip([1000usize, 2000, 64_000]) {
        row.set(Column::STATE_SIZE, size);
    }
    let report = of_figure("state", &rows);
    shows!("figure-state", text(&report));
    let drawn = picture(&report);
    assert_eq!(drawn.names, ["linear", "softmax"]);
    let plot = plots(&drawn)[0];
    let places: Vec<(f64, f64)> = plot.series[0].points.iter().map(|p| (p.x, p.y)).collect();
    assert_eq!(places, [(1000.0, 0.25), (2000.0, 0.5)]);
    assert!(plot.series.iter().all(|series| !series.joined));
    assert_eq!(plot.x.scale, picture::Scale::Log);
    let csv = super::drawn(&report, "csv");
    assert!(csv.lines().next().unwrap().ends_with("mean,std,seeds,lr,status,state_size,without_skill"), "{csv}");
    assert!(csv.lines().nth(3).unwrap().contains("0.75,,1,0.001,done,64000.0,0.02"), "{csv}");
    shows_words("words-of-figure-state", &report);
}

#[test]
fn the_third_table_has_points_above_its_tasks_the_papers_and_guesses_beside_them() {
    let mut row = Record::new(&config(), &done(0.5));
    let words =
        [(Column::TASK, "lra"), (Column::DATASET, "listops"), (Column::MIXER, "softmax"), (Column::DATA, "files")];
    for (column, value) in words {
        row.set(column, value);
    }
    let counts = [(Column::TRAIN_EXAMPLES, 96_000usize), (Column::VAL_EXAMPLES, 2_000), (Column::TEST_EXAMPLES, 2_000)];
    for (column, count) in counts {
        row.set(column, count);
    }
    row.set(Column::SEQ_LEN, 2_048usize);
    row.set(Column::MAJORITY, 0.175);
    row.set(Column::VAL_ACCURACY, 0.5);
    row.set(Column::SELECTED_ACCURACY, 0.375);
    let report = of(FigureSeries::Table, "3", &[row]);
    let drawn = picture(&report);
    assert_eq!(drawn.levels, ["chance", "majority"]);
    let plot = plots(&drawn)[0];
    let softmax: Vec<_> = plot.series.iter().filter(|series| drawn.names[series.key] == "softmax").collect();
    assert_eq!((softmax[0].hollow, softmax[0].points[0].y), (false, 0.375));
    assert!(softmax[1].hollow && (softmax[1].points[0].y - 0.3572).abs() < 1e-12);
    let heights: Vec<f64> = plot.levels.iter().map(|level| level.pieces[0][2]).collect();
    assert_eq!(heights, [0.1, 0.175]);
    shows_words("table3", &report);
}

#[test]
fn the_first_table_has_perplexities_on_a_logarithmic_axis() {
    let report = of(FigureSeries::Table, "1", &[Record::new(&text_config(), &read(16.0))]);
    let drawn = picture(&report);
    let plot = plots(&drawn)[0];
    assert_eq!((&*plot.y.name, plot.y.scale), ("perplexity", picture::Scale::Log));
    let titles: Vec<&str> = plot.x.ticks.iter().map(|(_, title)| &**title).collect();
    assert_eq!(titles[0], "train");
    shows_words("table1", &report);
}

#[test]
fn the_words_of_a_plot_over_names_give_its_axis_no_name() {
    let report = of(FigureSeries::Table, "1", &[Record::new(&text_config(), &read(16.0))]);
    let drawn = picture(&report);
    let words = drawn.panels[0].as_ref().unwrap().words(&drawn.names);
    assert!(words.contains(". perplexity. ") && !words.contains(" over "), "{words}");
}

#[test]
fn every_row_of_figures_is_drawn_by_a_picture_of_its_kind() {
    for figure in FIGURES {
        let heat = matches!(&figure.drawn, FigureForm::Axes { lines, .. } if lines[0] != "mixer");
        let rows = [run("linear", 0.5, |_| {})];
        if !shows(figure, &rows, &Filter::default()) {
            continue;
        }
        let none: PresetsOf = &|_| Vec::new();
        let report = report(figure, &rows, None, none, &ReportOptions::default()).unwrap();
        assert_eq!(!maps(&picture(&report)).is_empty(), heat, "{}", figure.title());
    }
}

#[test]
fn a_table_for_tex_has_the_rules_of_booktabs_and_a_caption() {
    let rows = [run("linear", 0.25, |_| {}), run("softmax", 0.995, |c| c.model.d_model = 128)];
    let latex = drawn(&of_figure("2", &rows), "latex");
    shows!("latex", latex);
}

#[test]
fn a_terminal_draws_lines_in_braille_with_a_letter_a_series() {
    let report = of_figure("2", &widths(&["linear", "softmax"], &[Protocol::Matched]));
    let text = shown(&report, false, Some(60));
    let dots = text.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count();
    assert!(dots > 50, "{text}");
    assert!(text.lines().skip(1).take(24).all(|line| line.chars().count() <= 120), "{text}");
    assert!(!text.contains('\u{1b}') && shown(&report, true, Some(60)).contains('\u{1b}'));
    // The numbers are below, as off a terminal.
    shows!("braille", text);
}
