//! How a report reads, to the letter.

use super::*;

#[test]
fn a_grid_without_seeds_reads_like_this() {
    let expected = "\
MQAR: test accuracy (%) after the last epoch, at the best rate

linear, matched, L=64 k=4 V=8192, 100000 examples
  n \\ d    64  128  256
     32  71.2  >99    x
     64  99.0  div    ·
  best rate: 1e-3 (3 cells)

· not run, x failed, div diverged at every rate
6 runs done, 1 of them diverged, 1 failed
failed in 1 run: out of memory
git 3f2c1e0
trained for 3.6 min
";
    assert_eq!(text(&report(&small())), expected);
}

#[test]
fn the_papers_orientation_has_rows_d_and_columns_n() {
    let text = report(&small()).render(Format::Text, Orient::Paper, false);
    let expected = "
  d \\ n    32    64
     64  71.2  99.0
    128   >99   div
    256     x     ·
";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_grid_with_seeds_reads_like_this() {
    let mut rows = seeds(64, 1e-3, &[0.84, 0.86, 0.88]);
    rows.extend(seeds(128, 1e-3, &[0.995, 0.993, 0.997]));
    rows.extend(seeds(256, 1e-3, &[0.9, 0.92]));
    rows.extend(seeds(512, 1e-3, &[0.5]));
    let expected = "
  n \\ d        64      128           256       512
     32  86.0±2.0  >99±0.2  91.0±1.4 (2)  50.0 (1)
  mean ± std over 3 seeds; best rate: 1e-3 (4 cells)
";
    let text = text(&report(&rows));
    assert!(text.contains(expected), "{text}");
}

#[test]
fn a_winner_at_the_end_of_the_rates_is_hinted_at() {
    let hint = |best: f64, accuracy: f64| {
        let other = [1e-4, 1e-3, 1e-2].map(|lr| row(64, 32, lr, 0.3));
        let rows: Vec<Row> = other
            .into_iter()
            .filter(|r| r.lr != best)
            .chain([row(64, 32, best, accuracy)])
            .collect();
        let text = text(&report(&rows));
        text.lines()
            .find_map(|l| l.strip_prefix("hint: ").map(String::from))
    };
    let outside = "rate tried won in 1 cell; a better one may lie outside";
    assert_eq!(hint(1e-2, 0.6), Some(format!("the highest {outside}")));
    assert_eq!(hint(1e-4, 0.6), Some(format!("the lowest {outside}")));
    assert_eq!(hint(1e-3, 0.6), None);
    assert_eq!(hint(1e-2, 0.995), None, "nothing is left to gain");
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
    let mut titles = titles(&rows);
    let mut expected = expected.to_vec();
    titles.sort();
    expected.sort();
    assert_eq!(titles, expected);
}

#[test]
fn panels_are_ordered_by_size_as_numbers_and_then_by_mixer() {
    let rows = [
        changed(|c| c.task.set("seq_len", 256)),
        changed(|c| c.model.mixer = "softmax".into()),
        changed(|_| {}),
    ];
    let starts: Vec<String> = titles(&rows).iter().map(|t| t[..22].to_owned()).collect();
    let expected = [
        "linear, matched, L=64 ",
        "softmax, matched, L=64",
        "linear, matched, L=256",
    ];
    assert_eq!(starts, expected);
}

#[test]
fn a_plan_shows_what_is_missing_and_leaves_out_the_rest() {
    let plan = [
        at(64, 32, 1e-3, 0),
        at(64, 64, 1e-3, 0),
        at(128, 32, 1e-3, 0),
    ];
    let rows = [row(64, 32, 1e-3, 0.5), row(512, 32, 1e-3, 0.5)];
    let report = mqar(&rows, Some(&plan), &Filter::default(), Metric::Accuracy).unwrap();
    let expected = "
  n \\ d    64  128
     32  50.0    ·
     64     ·    ·
  best rate: 1e-3 (1 cell)

· not run
1 of 3 runs done, 2 not run
1 result outside the plan left out
";
    let text = text(&report);
    assert!(text.contains(expected), "{text}");
}

#[test]
fn runs_of_two_commits_are_warned_of() {
    let mut rows = small();
    rows[0].git_commit = "aaaaaaa".into();
    let text = text(&report(&rows));
    let warning = "warning: runs of 2 commits are mixed: 3f2c1e0 (6 runs), aaaaaaa (1 run)";
    assert!(text.contains(warning), "{text}");
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    let report = report(&small());
    let coloured = report.render(Format::Text, Orient::Brief, true);
    assert!(coloured.contains("\u{1b}["));
    let mut stripped = String::new();
    for (i, part) in coloured.split("\u{1b}[").enumerate() {
        let start = if i == 0 {
            0
        } else {
            part.find('m').unwrap() + 1
        };
        stripped.push_str(&part[start..]);
    }
    assert_eq!(stripped, text(&report));
}

#[test]
fn markdown_has_a_table_a_panel() {
    let expected = "\
MQAR: test accuracy (%) after the last epoch, at the best rate

### linear, matched, L=64 k=4 V=8192, 100000 examples

| n \\ d | 64 | 128 | 256 |
|---:|---:|---:|---:|
| 32 | 71.2 | >99 | x |
| 64 | 99.0 | div | · |

best rate: 1e-3 (3 cells)

· not run, x failed, div diverged at every rate

- 6 runs done, 1 of them diverged, 1 failed
- failed in 1 run: out of memory
- git 3f2c1e0
- trained for 3.6 min
";
    let markdown = report(&small()).render(Format::Markdown, Orient::Brief, false);
    assert_eq!(markdown, expected);
}

#[test]
fn csv_has_a_line_a_cell_with_all_settings() {
    let mut rows = seeds(64, 1e-3, &[0.5, 0.75]);
    rows.push(row(128, 64, 1e-3, 1.0 / 3.0));
    let csv = report(&rows).render(Format::Csv, Orient::Brief, false);
    let settings = "1,mqar,matched,linear,reference,dt_init=zero,1,2,transformer,mlp,true,\
                    64,4,8192,100000,3000,native,0,0.1,f32,0.1,0.1,cosine-per-epoch,512,64,0.99\
                    ,,,,,,,,,,,,,,,,,,,,,,,,";
    let expected = format!(
        "format,task,protocol,mixer,variant,options,heads,layers,layout,state_mixer,positions,\
         seq_len,kv_pairs,vocab_size,train_examples,test_examples,data,data_seed,weight_decay,\
         precision,embed_dropout,attn_dropout,schedule,batch_size,epochs_max,stop_above,\
         dataset,contour_length,val_examples,expand,micro_batch,warmup_epochs,input,mlp_width,dropout,\
         lambda_skip,pool,mask,dual,loss,tokenizer,eos_between_articles,rotary,rotary_dims,init,beta1,beta2,\
         eps,clip,decay,d,n,metric,mean,std,seeds,lr,status\n\
         {settings},64,32,accuracy,0.625,0.1767766952966369,2,0.001,done\n\
         {settings},128,32,accuracy,,,,,not_run\n\
         {settings},64,64,accuracy,,,,,not_run\n\
         {settings},128,64,accuracy,0.3333333333333333,,1,0.001,done\n"
    );
    assert_eq!(csv, expected);
}

#[test]
fn json_is_one_versioned_object() {
    let json = report(&small()).render(Format::Json, Orient::Brief, false);
    let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(whole["schema"], 1);
    assert_eq!(whole["panels"][0]["settings"]["mixer"], "linear");
    let cell = &whole["panels"][0]["cells"][0];
    assert_eq!(cell["mean"], 0.7123);
    assert_eq!((&cell["d"], &cell["n"]), (&64.into(), &32.into()));
    assert_eq!(whole["panels"][0]["cells"][4]["status"], "diverged");
    assert_eq!(whole["coverage"]["failed"]["out of memory"], 1);
    assert_eq!(whole["coverage"]["planned"], serde_json::Value::Null);
}
