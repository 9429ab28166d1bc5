//! The grid of tasks without a table.

use super::*;
use crate::error::testing::Fails;
use crate::store::samples::{config, diverged, done, failed, read, text_config};
use crate::store::{Column, Outcome};

fn at(d: usize, n: usize, lr: f64, seed: u64) -> RunConfig {
    let mut config = config();
    (config.model.d_model, config.model.d_state) = (d, n);
    (config.train.lr, config.seed) = (lr, seed);
    config
}

fn row(d: usize, n: usize, lr: f64, accuracy: f64) -> Record {
    Record::new(&at(d, n, lr, 0), &done(accuracy))
}

fn seeds(d: usize, lr: f64, accuracies: &[f64]) -> Vec<Record> {
    let numbered = (0..).zip(accuracies);
    let rows = numbered.map(|(seed, a)| Record::new(&at(d, 32, lr, seed), &done(*a)));
    rows.collect()
}

fn ended(d: usize, n: usize, lr: f64, result: &RunResult) -> Record {
    Record::new(&at(d, n, lr, 0), result)
}

fn changed(change: fn(&mut RunConfig)) -> Record {
    let mut config = config();
    change(&mut config);
    Record::new(&config, &done(0.5))
}

fn report_with(rows: &[Record], planned: Option<&[RunConfig]>, asked: &ReportOptions) -> Result<Report> {
    let none: PresetsOf = &|_| unreachable!("the grid asks no preset");
    super::super::report(figure(FigureSeries::Grid, ""), rows, planned, none, asked)
}

fn report(rows: &[Record]) -> Report {
    report_with(rows, None, &ReportOptions::default()).unwrap()
}

fn report_of(rows: &[Record], asked: &ReportOptions) -> Result<Report> {
    report_with(rows, None, asked)
}

/// The result at (d, n) of the first grid.
fn cell(report: &Report, d: usize, n: usize) -> GroupStatus {
    let grid = &report.grids[0];
    let line = grid.lines.iter().find(|line| line.name() == n.to_string());
    let column = grid.columns.iter().position(|column| column.title == d.to_string());
    match line.unwrap().cells[column.unwrap()].content {
        Content::Result(status) => status,
        ref other => panic!("{other:?}"),
    }
}

fn only_cell(rows: &[Record]) -> GroupStatus {
    cell(&report(rows), 64, 32)
}

fn small() -> Vec<Record> {
    vec![
        row(64, 32, 1e-4, 0.5),
        row(64, 32, 1e-3, 0.7123),
        row(64, 32, 1e-2, 0.3),
        row(128, 32, 1e-3, 0.9901),
        row(64, 64, 1e-3, 0.99),
        ended(128, 64, 1e-3, &diverged()),
        ended(256, 32, 1e-3, &failed("out of memory\nat step 3")),
    ]
}

#[test]
fn the_rate_is_chosen_by_its_mean_over_seeds_and_not_by_the_luckiest_seed() {
    let mut rows = seeds(64, 1e-3, &[0.8, 0.8]);
    rows.extend(seeds(64, 1e-2, &[0.95, 0.5]));
    let cell = only_cell(&rows);
    let score = cell.score().unwrap();
    assert_eq!((score.lr, score.seeds), (1e-3, 2));
    assert!((score.mean - 0.8).abs() < 1e-12);
}

#[test]
fn survivors_of_an_unstable_rate_do_not_beat_a_stable_one() {
    let mut rows = seeds(64, 1e-3, &[0.8, 0.8]);
    rows.extend(seeds(64, 1e-2, &[0.95]));
    rows.push(Record::new(&at(64, 32, 1e-2, 1), &diverged()));
    assert_eq!(only_cell(&rows).score().unwrap().lr, 1e-3);
}

#[test]
fn a_rate_that_lacks_seeds_does_not_beat_one_that_has_all() {
    let mut rows = seeds(64, 1e-3, &[0.5, 0.6]);
    rows.extend(seeds(64, 1e-2, &[0.95]));
    let (few, note) = (report(&rows), "in 1 cell a rate that lacks seeds has a better mean so far");
    assert_eq!(cell(&few, 64, 32).score().unwrap().lr, 1e-3);
    assert!(text(&few).contains(note), "{}", text(&few));
    rows.push(Record::new(&at(64, 32, 1e-2, 1), &done(0.4)));
    let all = report(&rows);
    assert_eq!(cell(&all, 64, 32).score().unwrap().lr, 1e-2);
    assert!(!text(&all).contains(note), "{}", text(&all));
}

#[test]
fn a_cell_with_one_good_rate_is_not_diverged() {
    let rows = [row(64, 32, 1e-3, 0.6), ended(64, 32, 1e-2, &diverged())];
    assert_eq!(only_cell(&rows).score().unwrap().mean, 0.6);
}

#[test]
fn a_done_run_without_a_number_counts_as_failed() {
    let mut row = row(64, 32, 1e-3, 0.6);
    row.set(Column::ACCURACY, Some(f64::NAN));
    assert_eq!(only_cell(&[row]), GroupStatus::Failed);
}

#[test]
fn of_equal_rates_the_lowest_wins() {
    let rows = [1e-2, 1e-4, 1e-3].map(|lr| row(64, 32, lr, 0.6));
    assert_eq!(only_cell(&rows).score().unwrap().lr, 1e-4);
}

#[test]
fn a_diverged_rate_counts_as_tried() {
    let rows = [row(64, 32, 1e-4, 0.3), row(64, 32, 1e-3, 0.6), ended(64, 32, 1e-2, &diverged())];
    assert_eq!(only_cell(&rows).score().unwrap().edge, None);
}

#[test]
fn runs_of_different_settings_are_never_mixed() {
    let changes: [fn(&mut RunConfig); 9] = [
        |c| c.train.epochs = 8,
        |c| c.train.batch_size = 64,
        |c| c.train.stop_above = 2.0,
        |c| c.model.attn_dropout = 0.0,
        |c| c.model.n_layers = 4,
        |c| c.model.n_heads = 2,
        |c| c.model.variant = "paper".into(),
        |c| c.model.positions = false,
        |c| c.model.options.clear(),
    ];
    for change in changes {
        assert_eq!(report(&[changed(|_| {}), changed(change)]).grids.len(), 2);
    }
}

#[test]
fn a_cell_with_rates_still_to_run_is_not_called_diverged() {
    let plan = [at(64, 32, 1e-3, 0), at(64, 32, 1e-2, 0)];
    let rows = [ended(64, 32, 1e-2, &diverged())];
    let report = report_with(&rows, Some(&plan), &ReportOptions::default()).unwrap();
    assert_eq!(cell(&report, 64, 32), GroupStatus::NotRun);
}

#[test]
fn a_run_that_is_given_twice_counts_once_and_a_number_beats_a_failure() {
    let failure = ended(64, 32, 1e-3, &failed("disk"));
    for rows in [[failure.clone(), row(64, 32, 1e-3, 0.5)], [row(64, 32, 1e-3, 0.5), failure]] {
        let report = report(&rows);
        assert_eq!(report.coverage.done, 1);
        assert!(report.coverage.failed.is_empty());
    }
}

#[test]
fn the_best_accuracy_of_any_epoch_is_another_metric() {
    let mut row = row(64, 32, 1e-3, 0.5);
    row.set(Column::BEST_ACCURACY, Some(0.625));
    let report = report_with(&[row], None, &by("best_accuracy")).unwrap();
    assert_eq!(fact_at(&report.grids[0], 0, "mean"), 0.625);
    shows!("best-accuracy", text(&report));
}

#[test]
fn without_results_one_sentence_says_how_to_make_some() {
    let none = report_of(&[], &ReportOptions::default()).fails("refused");
    none.names(&["`dsf mqar`", "`dsf sweep`"]);
}

#[test]
fn without_results_of_recall_but_some_of_the_arena_it_says_what_to_type() {
    let mut row = changed(|_| {});
    row.set(Column::TASK, "lra");
    row.set(Column::DATASET, "listops");
    let none = report_of(&[row], &ReportOptions::default()).fails("refused");
    none.names(&["`dsf report --table 3`"]);
}

#[test]
fn results_of_text_alone_point_to_the_table_that_shows_them() {
    let text = Record::new(&text_config(), &read(17.0));
    let none = report_of(&[text], &ReportOptions::default()).fails("refused");
    none.names(&["`dsf report --table 1`"]);
}

#[test]
fn recall_has_no_perplexity() {
    let refused = report_of(&[changed(|_| {})], &by("val_ppl"));
    refused.refuses("--metric").gives("val_ppl");
}

#[test]
fn recall_has_no_epoch_chosen_on_validation_data() {
    let refused = report_of(&[changed(|_| {})], &by("selected_accuracy"));
    refused.refuses("--metric").gives("selected_accuracy");
}

#[test]
fn a_filter_keeps_what_it_names() {
    let rows = [changed(|_| {}), changed(|c| c.model.mixer = "softmax".into())];
    let only = |filter: Filter| report_with(&rows, None, &filtered(filter));
    let softmax = only(Filter {
        mixers: vec!["softmax".into()],
        seq_lens: vec![64],
        protocols: vec![Protocol::Matched],
        ..Filter::default()
    });
    assert_eq!(softmax.unwrap().grids.len(), 1);
    for (task, found) in [("mqar", true), ("induction", false)] {
        let of = only(Filter { tasks: vec![task.into()], ..Filter::default() });
        assert_eq!(of.is_ok(), found, "{task}");
    }
    let nothing = only(Filter { seq_lens: vec![512], ..Filter::default() });
    nothing.fails("refused").names(&["--task mqar", "--mixer linear,softmax", "--seq-len 64", "--protocol matched"]);
}

#[test]
fn a_diverged_run_is_counted_as_done() {
    let rows = [ended(64, 32, 1e-3, &diverged())];
    assert_eq!(rows[0].outcome(), Some(Outcome::Diverged));
    let coverage = report(&rows).coverage;
    assert_eq!((coverage.done, coverage.diverged), (1, 1));
}
/// Position alone answers 28.8 % here.
#[test]
fn cells_at_or_below_the_accuracy_without_recall_are_counted() {
    let rows = [row(64, 32, 1e-3, 0.25), row(128, 32, 1e-3, 0.288), row(256, 32, 1e-3, 0.3)];
    shows!("without-recall", text(&report(&rows)));
}

#[test]
fn a_grid_without_seeds_reads_like_this() {
    shows!("without-seeds", text(&report(&small())));
}

#[test]
fn the_papers_orientation_has_rows_d_and_columns_n() {
    let orient = Some(Orient::Paper);
    let asked = ReportOptions { orient, ..ReportOptions::default() };
    shows!("in-the-papers-orientation", text(&self::report_with(&small(), None, &asked).unwrap()));
}

#[test]
fn a_grid_with_seeds_reads_like_this() {
    let mut rows = seeds(64, 1e-3, &[0.84, 0.86, 0.88]);
    rows.extend(seeds(128, 1e-3, &[0.995, 0.993, 0.997]));
    rows.extend(seeds(256, 1e-3, &[0.9, 0.92]));
    rows.extend(seeds(512, 1e-3, &[0.5]));
    shows!("with-seeds", text(&report(&rows)));
}

#[test]
fn a_winner_at_the_end_of_the_rates_is_hinted_at() {
    let shown = |best: f64, accuracy: f64| {
        let other = [1e-4, 1e-3, 1e-2].map(|lr| row(64, 32, lr, 0.3));
        let rows: Vec<Record> = other
            .into_iter()
            .filter(|r| r.number(Column::LR) != Some(best))
            .chain([row(64, 32, best, accuracy)])
            .collect();
        text(&report(&rows))
    };
    let texts = [
        ("the highest", shown(1e-2, 0.6)),
        ("the lowest", shown(1e-4, 0.6)),
        ("neither", shown(1e-3, 0.6)),
        ("the highest, and nothing is left to gain", shown(1e-2, 0.995)),
    ];
    shows!("hints", sections(texts));
}

#[test]
fn a_title_says_only_what_tells_its_panel_from_others() {
    let rows = [
        changed(|_| {}),
        changed(|c| c.train.epochs = 8),
        changed(|c| c.model.mixer = "softmax".into()),
        changed(|c| c.model.options.clear()),
    ];
    let task = "matched, L=64 k=4 V=8192, 100000 examples";
    let linear = |rest: &str| format!("linear, {task}, options={rest}");
    let expected = [
        linear("none, epochs_max=64"),
        linear("dt_init=zero, epochs_max=8"),
        linear("dt_init=zero, epochs_max=64"),
        format!("softmax, {task}"),
    ];
    let report = report(&rows);
    let mut titles = titles(&report);
    let mut expected = expected.to_vec();
    titles.sort();
    expected.sort();
    assert_eq!(titles, expected);
}

#[test]
fn panels_are_ordered_by_size_as_numbers_and_then_by_mixer() {
    let rows =
        [changed(|c| c.task.set("seq_len", 256)), changed(|c| c.model.mixer = "softmax".into()), changed(|_| {})];
    let report = report(&rows);
    let starts: Vec<&str> = titles(&report).into_iter().map(|t| &t[..22]).collect();
    let expected = ["linear, matched, L=64 ", "softmax, matched, L=64", "linear, matched, L=256"];
    assert_eq!(starts, expected);
}

#[test]
fn a_plan_shows_what_is_missing_and_leaves_out_the_rest() {
    let plan = [at(64, 32, 1e-3, 0), at(64, 64, 1e-3, 0), at(128, 32, 1e-3, 0)];
    let rows = [row(64, 32, 1e-3, 0.5), row(512, 32, 1e-3, 0.5)];
    let report = report_with(&rows, Some(&plan), &ReportOptions::default()).unwrap();
    shows!("plan", text(&report));
}

#[test]
fn runs_of_two_commits_are_warned_of() {
    let mut rows = small();
    rows[0].set(Column::GIT_COMMIT, "aaaaaaa");
    shows!("two-commits", text(&report(&rows)));
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    let report = report(&small());
    let coloured = coloured(&report);
    assert!(coloured.contains("\u{1b}["));
    let mut stripped = String::new();
    for (i, part) in coloured.split("\u{1b}[").enumerate() {
        let start = if i == 0 { 0 } else { part.find('m').unwrap() + 1 };
        stripped.push_str(&part[start..]);
    }
    assert_eq!(stripped, text(&report));
}

#[test]
fn markdown_has_a_table_a_panel() {
    shows!("markdown", drawn(&report(&small()), "markdown"));
}

#[test]
fn csv_has_a_line_a_cell_with_all_settings() {
    let mut rows = seeds(64, 1e-3, &[0.5, 0.75]);
    rows.push(row(128, 64, 1e-3, 1.0 / 3.0));
    let report = report(&rows);
    let csv = drawn(&report, "csv");
    let settings = "1,mqar,matched,linear,reference,dt_init=zero,1,2,transformer,mlp,true,\
                    64,4,8192,100000,3000,native,0,0.1,f32,0.1,0.1,cosine-per-epoch,512,64,0.99\
                    ,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,";
    let without = of_grid(&report.grids[0], "without_recall");
    let expected = format!(
        "format,task,protocol,mixer,variant,options,heads,layers,layout,state_mixer,positions,\
         seq_len,kv_pairs,vocab_size,train_examples,test_examples,data,data_seed,weight_decay,\
         precision,embed_dropout,attn_dropout,schedule,batch_size,epochs_max,stop_above,\
         dataset,contour_length,val_examples,expand,micro_batch,warmup_epochs,input,mlp_width,dropout,\
         lambda_skip,pool,mask,dual,loss,tokenizer,eos_between_articles,rotary,rotary_dims,init,beta1,beta2,\
         eps,clip,decay,hybrid,test_seq_len,copy_tokens,key_tokens,overwrites,passes,\
         position_embedding,bidirectional,source_digest,short_conv,map_init,state_norm,fresh_examples,block,from_digest,n_positions,group,form,noise,auto_encoder,permuted,d,n,metric,mean,std,seeds,lr,status,without_skill\n\
         {settings},64,32,accuracy,0.625,0.1767766952966369,2,0.001,done,{without}\n\
         {settings},128,32,accuracy,,,,,not_run,{without}\n\
         {settings},64,64,accuracy,,,,,not_run,{without}\n\
         {settings},128,64,accuracy,0.3333333333333333,,1,0.001,done,{without}\n"
    );
    assert_eq!(csv, expected);
}

#[test]
fn json_is_one_versioned_object() {
    let whole = json(&report(&small()));
    assert_eq!(whole["schema"], 1);
    assert_eq!(whole["panels"][0]["settings"]["mixer"], "linear");
    let cell = &whole["panels"][0]["cells"][0];
    assert_eq!(cell["mean"], 0.7123);
    assert_eq!((&cell["d"], &cell["n"]), (&64.into(), &32.into()));
    assert_eq!(whole["panels"][0]["cells"][4]["status"], "diverged");
    assert_eq!(whole["coverage"]["failed"]["out of memory"], 1);
    assert_eq!(whole["coverage"]["planned"], serde_json::Value::Null);
}

/// Seeds 0, 1, .. with the data seed that `data` makes of each.
fn drawing(data: fn(u64) -> u64, accuracies: &[f64]) -> Vec<Record> {
    let numbered = (0..).zip(accuracies);
    let rows = numbered.map(|(seed, accuracy)| {
        let mut config = at(64, 32, 1e-3, seed);
        config.task.set("data_seed", data(seed));
        Record::new(&config, &done(*accuracy))
    });
    rows.collect()
}

fn seeds_of(status: GroupStatus) -> usize {
    status.score().unwrap().seeds
}

#[test]
fn seeds_that_draw_their_own_data_are_a_mean() {
    let rows = drawing(|seed| seed, &[0.5, 0.6, 0.7]);
    let status = only_cell(&rows);
    assert_eq!(seeds_of(status), 3);
    assert!((status.score().unwrap().mean - 0.6).abs() < 1e-9);
    // Of a planned run that is not done the data seed is the same setting.
    let plan: Vec<RunConfig> = (0..5)
        .map(|seed| {
            let mut config = at(64, 32, 1e-3, seed);
            config.task.set("data_seed", seed);
            config
        })
        .collect();
    let planned = report_with(&rows, Some(&plan), &ReportOptions::default()).unwrap();
    assert_eq!(planned.grids.len(), 1);
    assert_eq!(planned.coverage.planned, Some(5));
}

#[test]
fn data_that_seeds_share_are_another_setting_than_data_of_their_own() {
    let shared = drawing(|_| 7, &[0.5, 0.6]);
    assert_eq!(seeds_of(only_cell(&shared)), 2);
    // Seeds 3 and 4 with data of their own, and 7 with the data that the others share.
    let own = drawing(|seed| seed, &[0.0, 0.0, 0.0, 0.7, 0.9, 0.0, 0.0, 0.5]);
    let own = [&own[3..5], &own[7..]].concat();
    let report = report(&[shared, own].concat());
    let titles = titles(&report);
    assert_eq!(titles.len(), 2, "{titles:?}");
    assert!(titles[0].ends_with("data_seed=7"), "{titles:?}");
    assert!(titles[1].ends_with("data_seed=seed"), "{titles:?}");
}

/// The data are fixed: a data seed that equals the seed is one like any other.
#[test]
fn under_reference_a_data_seed_is_a_setting() {
    let mut rows = drawing(|seed| seed, &[0.5, 0.6, 0.7]);
    for row in &mut rows {
        row.set(Column::PROTOCOL, "reference");
    }
    assert_eq!(report(&rows).grids.len(), 3);
}
