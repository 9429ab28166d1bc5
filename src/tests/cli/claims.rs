//! `dsf report --claims`, `dsf report --check` and `dsf compare`.

use super::{judged, shows, World};
use std::fs;

/// A sweep of two mixers at two widths and the sizes of the smoke test.
fn swept(seeds: usize) -> World {
    let world = World::new();
    world
        .dsf(&format!(
            "sweep --preset smoke --mixer normalized,linear --d 8,16 --n 4 --lr 1e-3,1e-2 --seeds {seeds} -q"
        ))
        .ok();
    world
}

/// The record of a claim in the JSON form, at the sizes of the runs.
fn reduced(world: &World, claim: &str) -> serde_json::Value {
    let json = world.dsf("report --claims --format json").ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let studies = json["studies"].as_array().unwrap().clone();
    let cells = studies.iter().flat_map(|study| study["cells"].as_array().unwrap().clone());
    let mut of = cells.filter(|cell| cell["claim"] == claim && cell["level"] == "reduced");
    of.next().unwrap_or_else(|| panic!("{json:#}"))
}

#[test]
fn a_claim_that_lacks_seeds_names_the_command_that_makes_them() {
    let world = swept(2);
    let before = reduced(&world, "normalized-beats-linear");
    assert_eq!(before["verdict"], "undecided");
    // 2 mixers, 2 cells, 2 rates, a third seed.
    assert_eq!(before["runs_needed"], 8);
    let command = before["command"].as_str().unwrap();
    let command = command.strip_prefix("dsf ").unwrap();
    let dry = world.dsf(&format!("{command} --dry-run --json")).object();
    assert_eq!(dry["to_do"].as_array().unwrap().len(), 8, "{dry}");
    world.dsf(&format!("{command} -q")).ok();
    let runs = world.runs("results").len();
    assert_eq!(runs, 2 * 2 * 2 * 3, "the command makes the missing runs and no other");
    let after = reduced(&world, "normalized-beats-linear");
    assert_eq!(after["seeds"], 3, "{after}");
    assert!(after["effect"].is_number(), "{after}");
}

#[test]
fn the_commands_of_every_claim_at_the_papers_sizes_plan_what_they_count() {
    let world = swept(1);
    let json = world.dsf("report --claims --format json").ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let cells = json["studies"][0]["cells"].as_array().unwrap();
    let mut seen = 0;
    let mut last = String::new();
    for cell in cells.iter().filter(|cell| cell["level"] == "paper") {
        let command = cell["command"].as_str().unwrap().to_owned();
        if command == last {
            continue;
        }
        last = command.clone();
        seen += 1;
        // What refuses these comes after every run of the plan is resolved.
        let line = command.strip_prefix("dsf ").unwrap();
        world.refuses(&format!("{line} --jobs 0"), "--jobs");
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn claims_are_written_in_every_form_and_take_no_figure() {
    let world = swept(1);
    let csv = world.dsf("report --claims --format csv").ok();
    let header = csv.lines().next().unwrap().split(',').take(4);
    assert_eq!(header.collect::<Vec<_>>(), ["level", "study", "protocol", "claim"]);
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/results/figure2-small.csv");
    let claims = format!("report {published} --claims");
    shows!("claims", world.dsf(&claims).ok());
    shows!("claims-in-markdown", world.dsf(&format!("{claims} --format markdown")).ok());
    world.refuses("report --claims --table 1", "--claims");
}

#[test]
fn a_check_fails_with_4_where_a_printed_number_is_missed() {
    let world = World::new();
    // One row of Table 1 at the paper's sizes, which nobody trains in a test.
    let header = "schema,run_id,format,task,protocol,mixer,variant,options,d,n,heads,layers,layout,state_mixer,positions,\
        seq_len,kv_pairs,vocab_size,train_examples,test_examples,data,data_seed,lr,weight_decay,precision,embed_dropout,\
        attn_dropout,schedule,batch_size,epochs_max,stop_above,seed,status,outcome,reason,accuracy,dataset,micro_batch,\
        mlp_width,tokenizer,eos_between_articles,rotary,rotary_dims,init,beta1,beta2,eps,clip,decay,train_ppl\n";
    let row = |ppl: f64| {
        format!(
            "{header}1,0123456789ab,1,wikitext,paper,linear,reference,,512,512,8,6,parallel,mlp,false,1024,0,50304,0,0,,0,\
             0.003,0.1,f32,0.0,0.0,cosine,128,50,1.0,1234,done,finished,,0.4,wikitext-103-raw,8,2048,gpt-neox,false,pre,16,\
             pythia,0.9,0.95,1e-8,1.0,matrices,{ppl}\n"
        )
    };
    fs::write(world.path("near.csv"), row(17.5)).unwrap();
    fs::write(world.path("far.csv"), row(19.0)).unwrap();
    shows!("check-held", world.dsf("report near.csv --table 1 --check 1").ok());
    let near = world.dsf("report near.csv --table 1 --check 1 --json").object();
    let count = |list: &str| near["check"][list].as_array().unwrap().len();
    assert_eq!(["held", "missed", "absent"].map(count), [1, 0, 2]);
    let far = world.dsf("report far.csv --table 1 --check 1");
    assert_eq!(far.code, 4, "{}", far.err);
    shows!("check-missed", far.out);
    let csv = world.dsf("report far.csv --table 1 --check 1 --format csv");
    assert_eq!(csv.code, 4);
    shows!("check-missed-beside-csv", csv.err);
    for wrong in ["--figure 2 --check 1", "--check 1", "--table 1 --check -1", "--table 1 --check x"] {
        world.refuses(&format!("report far.csv {wrong}"), "--check");
    }
}

#[test]
fn two_folders_are_compared_cell_by_cell() {
    let world = swept(1);
    let same = world.dsf("compare results results/mqar.csv --check");
    shows!("compare-identical", trained same.ok());
    let same = world.dsf("compare results results/mqar.csv --json").object();
    assert_eq!(same["cells"]["identical"], 8, "{same:#}");
    let text = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
    let kept: Vec<&str> = text.lines().take(5).collect();
    fs::write(world.path("part.csv"), kept.join("\n") + "\n").unwrap();
    let part = world.dsf("compare results part.csv --format json").ok();
    let part: serde_json::Value = serde_json::from_str(&part).unwrap();
    assert_eq!(part["cells"]["only_in_A"], 4, "{part:#}");
    assert_eq!(part["cells"]["identical"], 4, "{part:#}");
    for form in ["csv", "markdown"] {
        world.dsf(&format!("compare results part.csv --format {form}")).ok();
    }
    let metric = "compare results part.csv --metric acuracy";
    world.refuses(metric, "--metric").names(&["`accuracy`"]);
    world.fails("compare results nowhere", "refused").at("nowhere", None);
}

#[test]
fn a_comparison_fails_with_4_where_seeds_agree_that_it_is_worse() {
    let world = swept(3);
    let text = fs::read_to_string(world.path("results/mqar.csv")).unwrap();
    let header: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let at = |wanted: &str| header.iter().position(|name| *name == wanted).unwrap();
    let (accuracy, checksum) = (at("accuracy"), at("checksum"));
    let changed = |by: f64| {
        let lines = text.lines().enumerate().map(|(i, line)| {
            let mut cells: Vec<String> = line.split(',').map(str::to_owned).collect();
            if i > 0 {
                cells[accuracy] = format!("{}", by + 0.0001 * i as f64);
            }
            cells.remove(checksum);
            cells.join(",")
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    };
    fs::write(world.path("good.csv"), changed(0.9)).unwrap();
    fs::write(world.path("bad.csv"), changed(0.1)).unwrap();
    assert_eq!(world.dsf("compare good.csv bad.csv").code, 0);
    assert_eq!(world.dsf("compare good.csv bad.csv --check").code, 4);
    assert_eq!(world.dsf("compare bad.csv good.csv --check").code, 0);
}

#[test]
fn a_folder_reports_every_summary_in_it_and_passes_over_other_tables() {
    let world = swept(1);
    fs::create_dir(world.path("kept")).unwrap();
    fs::rename(world.path("results/mqar.csv"), world.path("kept/any-name.csv")).unwrap();
    fs::write(world.path("kept/timings.csv"), "case,seconds\na,1\n").unwrap();
    let done = |folder: &str| {
        let report = world.dsf(&format!("report {folder} --json")).object();
        report["coverage"]["done"].as_u64()
    };
    assert_eq!(done("kept"), Some(8));
    // Where there are run folders, a summary of another name is read beside them; runs in both count once.
    fs::copy(world.path("kept/any-name.csv"), world.path("results/any-name.csv")).unwrap();
    assert_eq!(done("results"), Some(8));
    // A damaged one is refused with its line.
    let damaged = fs::read_to_string(world.path("kept/any-name.csv")).unwrap();
    let damaged = damaged.replace(",done,finished,", ",done,finishd,");
    fs::write(world.path("kept/damaged.csv"), damaged).unwrap();
    world.fails("report kept", "data").at("kept/damaged.csv", Some(2));
}

#[test]
fn rates_can_be_chosen_on_seeds_that_are_not_reported() {
    let world = swept(2);
    shows!(
        "grid-of-held-out-rates",
        trained world.dsf("report --select held-out").ok()
    );
}

/// Computed from the published summaries by statsmodels (`StratifiedTable.test_null_odds(correction=True)`) and, for
/// the log-rank test, by its formula in Python.
#[test]
fn verdicts_on_the_published_runs_are_those_of_other_programs() {
    let world = World::new();
    let base = &["figure2-small.csv"][..];
    let steps = &["figure2-small-steps.csv"][..];
    let both = &["figure2-small.csv", "figure2-small-steps.csv"][..];
    let matched = &["figure2-small-matched.csv"][..];
    let typed = "val_examples=0, decay=all";
    let (own, mamba) = ("epochs_max=24", "dt_init=mamba");
    for (files, claim, study, solved, p, log_rank, verdict) in [
        (base, "ssd-beats-s6", own, "20/30, 5/30", 0.000_17, Some(0.0017), "supported"),
        (base, "normalized-beats-linear", own, "11/30, 0/30", 0.000_45, Some(0.0005), "supported"),
        (base, "normalized-on-par-with-s6", own, "11/30, 5/30", 0.423, Some(0.1015), "undecided"),
        (steps, "ssd-beats-s6", mamba, "17/30, 15/30", 0.786, Some(0.6078), "undecided"),
        (both, "normalized-on-par-with-s6", mamba, "11/30, 15/30", 0.809, Some(0.7886), "undecided"),
        (matched, "normalized-beats-linear", typed, "5/15, 0/15", 0.037, Some(0.014), "supported"),
    ] {
        let found = judged(&world, files, claim, study);
        let name = format!("{files:?} {claim}: {found}");
        let levels = ["p_inside", "p_outside"].map(|level| found[level].as_f64().unwrap());
        let level = levels[0].min(levels[1]);
        assert_eq!(found["solved"], solved, "{name}");
        assert_eq!(found["verdict"], verdict, "{name}");
        assert!((level - p).abs() < 0.02 * p, "{name}");
        let found = found["log_rank_p"].as_f64();
        let near = found.zip(log_rank).is_none_or(|(a, b)| (a - b).abs() < 0.06 * b);
        assert!(found.is_some() == log_rank.is_some() && near, "{name}");
    }
}

#[test]
fn what_is_decided_comes_first_and_the_rest_has_a_line_each() {
    let world = World::new();
    let results = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let file = results.join("figure2-small.csv").display().to_string();
    let json = world.dsf(&format!("report {file} --claims --json")).object();
    let studies = json["studies"].as_array().unwrap().iter();
    let decided = studies.map(|study| {
        let cells = study["cells"].as_array().unwrap().iter();
        let claims = cells.filter(|cell| cell["role"] == "claim");
        claims.filter(|cell| cell["verdict"] != "undecided").count() > 0
    });
    let decided: Vec<bool> = decided.collect();
    assert!(decided[0] && decided.is_sorted_by(|a, b| a >= b), "{decided:?}");
    // One claim by its name, with what would settle it.
    shows!("claim-by-name", world.dsf(&format!("report {file} --claims=normalized-on-par-with-s6")).ok());
    let wrong = format!("report {file} --claims=ssd-wins");
    world.refuses(&wrong, "--claims").gives("ssd-wins");
}
