//! Every command that README.md and the guides show is one that the program takes.
//!
//! Three runs are cut to a few examples; the others take `--explain`, sweeps are resolved, downloads take `--offline`,
//! and benchmarks are parsed alone. A command of another kind fails the test until it is classified here.

use super::World;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const SMALL: &[&str] = &["--epochs", "1", "--train-examples", "16", "--test-examples", "8", "--snapshot-every", "1"];

const SMALL_WITH_VALIDATION: &[&str] =
    &["--epochs", "1", "--train-examples", "8", "--val-examples", "8", "--test-examples", "8"];

/// Way in which a command is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// Run unchanged; it ends with exit code 0.
    Whole,
    /// With these flags after it; it ends with exit code 0.
    With(&'static [&'static str]),
    /// With these flags after it; it ends with this exit code and says this.
    Refused(&'static [&'static str], i32, &'static str),
    /// `--help` before or after it: its flags and their values are parsed, nothing is computed.
    Parsed,
    /// A target of the Makefile.
    Make,
}

/// The trial of each kind of command, by what it begins with, or by all of it where `$` ends it: the first that fits.
const TRIALS: &[(&str, Trial)] = &[
    ("make ", Trial::Make),
    // Without a GPU and its libraries all of these say what is missing.
    ("dsf-cuda ", Trial::Refused(&[], 2, "CUDA")),
    ("dsf --version", Trial::Whole),
    ("dsf --help", Trial::Whole),
    ("dsf tour", Trial::Parsed),
    ("dsf mixers", Trial::Whole),
    ("dsf experiments", Trial::Whole),
    // Alone it says what to give.
    ("dsf inspect$", Trial::Refused(&[], 2, "--mixer NAME")),
    // Models of the hub, one that Python makes, and one of the tests.
    ("dsf inspect state-spaces", Trial::Parsed),
    ("dsf inspect mamba", Trial::Parsed),
    ("dsf inspect src/tests", Trial::Parsed),
    ("dsf inspect", Trial::Whole),
    ("dsf model", Trial::Parsed),
    // These train, so that later commands have results and weights.
    ("dsf mqar$", Trial::With(SMALL)),
    ("dsf lra --preset smoke --dataset pathfinder$", Trial::With(SMALL_WITH_VALIDATION)),
    ("dsf wikitext$", Trial::With(&["--epochs", "1", "--train-examples", "8", "--test-examples", "4"])),
    ("dsf wikitext --from", Trial::Parsed),
    ("dsf wikitext import", Trial::Parsed),
    ("dsf wikitext export", Trial::Parsed),
    ("dsf wikitext generate", Trial::With(&["--tokens", "4"])),
    ("dsf wikitext eval", Trial::Parsed),
    ("dsf wikitext needle", Trial::Parsed),
    ("dsf show$", Trial::Parsed),
    ("dsf show", Trial::Whole),
    ("dsf export$", Trial::Parsed),
    ("dsf export", Trial::Whole),
    ("dsf completions", Trial::Parsed),
    ("dsf man", Trial::Parsed),
    ("dsf licenses", Trial::Whole),
    ("dsf mqar ", Trial::With(&["--explain"])),
    ("dsf lra", Trial::With(&["--explain"])),
    ("dsf pixels --preset paper", Trial::Parsed),
    ("dsf pixels", Trial::With(&["--explain"])),
    ("dsf induction", Trial::With(&["--explain"])),
    ("dsf recall", Trial::With(&["--explain"])),
    ("dsf selective-copying", Trial::With(&["--explain"])),
    ("dsf mad", Trial::With(&["--explain"])),
    ("dsf state-tracking", Trial::With(&["--explain"])),
    ("dsf copying", Trial::With(&["--explain"])),
    ("dsf NAME", Trial::With(&["--explain"])),
    ("dsf wikitext ", Trial::With(&["--explain"])),
    ("dsf data fetch", Trial::Refused(&["--offline"], 66, "--offline")),
    ("dsf data list", Trial::Whole),
    ("dsf data generate", Trial::Parsed),
    ("dsf data tokens", Trial::Parsed),
    ("dsf sweep status", Trial::Whole),
    ("dsf sweep cancel", Trial::Whole),
    ("dsf sweep watch", Trial::Parsed),
    ("dsf sweep retry", Trial::Parsed),
    ("dsf sweep merge", Trial::Parsed),
    ("dsf sweep --task wikitext --from", Trial::Parsed),
    ("dsf sweep experiments/figure1.toml --executor print", Trial::Whole),
    ("dsf sweep experiments/figure1.toml --executor slurm", Trial::Parsed),
    ("dsf sweep experiments/figure1.toml --shard auto", Trial::Parsed),
    ("dsf doctor", Trial::Parsed),
    ("dsf sweep experiments/smoke.toml", Trial::With(&["--dry-run"])),
    // The dry run of a large grid trains a few real steps of each size. What refuses these comes after every run of
    // the plan is resolved.
    ("dsf sweep", Trial::Refused(&["--threads", "0"], 2, "--threads 0")),
    // Figures of the paper, too: a summary that lies beside the runs of this test has two runs of the seventh.
    ("dsf report", Trial::Whole),
    ("dsf compare", Trial::Parsed),
    ("dsf bench", Trial::Parsed),
    ("dsf check golden", Trial::Whole),
];

/// The pages that are tried, in the order in which a reader meets them.
const PAGES: [&str; 14] = [
    include_str!("../../../README.md"),
    include_str!("../../guide/sweeps.md"),
    include_str!("../../guide/programs.md"),
    include_str!("../../guide/skills.md"),
    include_str!("../../guide/lra.md"),
    include_str!("../../guide/wikitext.md"),
    include_str!("../../guide/inspect.md"),
    include_str!("../../guide/mixers.md"),
    include_str!("../../guide/speed.md"),
    include_str!("../../guide/correctness.md"),
    include_str!("../../guide/extending.md"),
    include_str!("../../guide/glossary.md"),
    include_str!("../../../results/README.md"),
    include_str!("../../../cuda/README.md"),
];

/// The code blocks and the code spans of a page that are commands of `dsf`, `dsf-cuda` or `make`, each once.
fn commands(page: &str) -> Vec<String> {
    let (mut blocks, mut prose, mut fenced) = (Vec::new(), Vec::new(), false);
    for line in page.lines() {
        match line {
            line if line.starts_with("```") => fenced = !fenced,
            line if fenced || line.starts_with("    ") => blocks.push(line),
            line => prose.push(line),
        }
    }
    let prose = prose.join("\n");
    let spans = prose.split('`').skip(1).step_by(2);
    let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines = blocks.into_iter().map(str::to_owned).chain(spans);
    let mut commands = Vec::new();
    for line in lines {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let line = line.strip_prefix("$ ").unwrap_or(line);
        for command in line.split("&&").map(str::trim) {
            let command = command.strip_prefix("target/cuda/").unwrap_or(command);
            let mut words = command.split_whitespace();
            let program = words.next().unwrap_or_default();
            let ours = ["dsf", "dsf-cuda", "make"].contains(&program) && words.next().is_some();
            if ours && !commands.iter().any(|known| known == command) {
                commands.push(command.to_owned());
            }
        }
    }
    commands
}

/// The words of a command as a shell hands them over; double quotes keep blanks.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (i, piece) in command.split('"').enumerate() {
        match i % 2 {
            0 => words.extend(piece.split_whitespace().map(str::to_owned)),
            _ => words.push(piece.to_owned()),
        }
    }
    words
}

/// A folder with what the commands name: the experiments, the published results, texts and a golden file.
fn furnished() -> World {
    let world = World::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (from, to, ending) in [
        ("experiments", "experiments", "toml"),
        ("results", "results", "csv"),
        ("src/tests/golden", "golden", "safetensors"),
    ] {
        fs::create_dir_all(world.path(to)).unwrap();
        for entry in fs::read_dir(root.join(from)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            // One golden file will do: all of them have a test of their own.
            let asked = to != "golden" || name == "lemma1.safetensors";
            if asked && path.extension().is_some_and(|e| e == ending) {
                fs::copy(&path, world.path(to).join(name)).unwrap();
            }
        }
    }
    fs::create_dir_all(world.path("texts")).unwrap();
    for name in ["train.txt", "valid.txt", "test.txt"] {
        let text = " = A = \n \n a few words of some text \n".repeat(300);
        fs::write(world.path("texts").join(name), text).unwrap();
    }
    world
}

/// `word` with the name that a placeholder of README stands for here.
fn filled(world: &World, command: &str, word: &str) -> String {
    match word {
        "DIR" if command.starts_with("dsf check golden") => "golden".to_owned(),
        "DIR" if command.starts_with("dsf report") => "results".to_owned(),
        "results/FILE.csv" => "results/mqar-small.csv".to_owned(),
        "DIR" => "texts".to_owned(),
        // Of a mixer, or of a task, that a reader writes.
        "NAME" if command.contains("--mixer NAME") => "softmax".to_owned(),
        "NAME" => "induction".to_owned(),
        // The runs of the first command.
        "results/runs/ID" if command.starts_with("dsf mqar") => {
            format!("results/runs/{}", id(world))
        }
        "ID" => id(world),
        "results/runs/ID" => {
            let runs = world.runs("results").into_iter();
            let language = { runs }.find(|run| run.join("best.safetensors").exists());
            let run = language.expect("README trains a language model before it uses one");
            format!("results/runs/{}", run.file_name().unwrap().to_str().unwrap())
        }
        word => word.to_owned(),
    }
}

/// The id of a run on MQAR.
fn id(world: &World) -> String {
    let is_mqar = |run: &PathBuf| {
        let config = fs::read_to_string(run.join("config.json")).unwrap();
        config.contains("\"mqar\"")
    };
    let run = world.runs("results").into_iter().find(is_mqar);
    let run = run.expect("README trains on MQAR first");
    run.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Runs `command` and returns what is wrong, if anything is.
fn fault(world: &World, command: &str, trial: Trial) -> Option<String> {
    let words: Vec<String> = words(command);
    let mut words: Vec<String> = { words }.iter().skip(1).map(|word| filled(world, command, word)).collect();
    let (more, code, says): (&[&str], i32, &str) = match trial {
        Trial::Make => return make_fault(&words),
        Trial::Whole => (&[], 0, ""),
        Trial::With(more) => (more, 0, ""),
        Trial::Refused(more, code, says) => (more, code, says),
        Trial::Parsed => (&["--help"], 0, "Usage"),
    };
    // What stands after `--` is another command line.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let missing = more.chunks(2).filter(|pair| !words.iter().any(|word| word == pair[0]));
    let missing: Vec<String> = missing.flatten().map(|word| (*word).to_owned()).collect();
    words.splice(end..end, missing);
    let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = world.call(&arguments, b"");
    let heard = format!("{}{}", said.out, said.err);
    let right = said.code == code && heard.contains(says) && !heard.contains("panicked");
    let asked = arguments.join(" ");
    (!right).then(|| format!("`dsf {asked}` ended with {}, not {code}:\n{heard}", said.code))
}

/// The target is in the Makefile, and so is each variable that is set.
fn make_fault(words: &[String]) -> Option<String> {
    let makefile = include_str!("../../../Makefile");
    let scripts = include_str!("../../../cuda/cargo.sh");
    let missing = words.iter().find(|word| match word.split_once('=') {
        Some((variable, _)) => !makefile.contains(variable) && !scripts.contains(variable),
        None => !makefile.lines().any(|line| line.starts_with(&format!("{word}:"))),
    });
    missing.map(|word| format!("the Makefile knows no `{word}`"))
}

#[test]
fn every_command_of_the_readme_and_the_guides_is_taken() {
    let world = furnished();
    let mut faults = Vec::new();
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    for command in commands(&PAGES.join("\n")) {
        let fits = |(pattern, _): &&(&'static str, Trial)| match pattern.strip_suffix('$') {
            Some(whole) => command == whole,
            None => command.starts_with(pattern),
        };
        match TRIALS.iter().find(fits) {
            None => faults.push(format!("`{command}` has no trial: classify it in TRIALS")),
            Some((pattern, trial)) => {
                *tried.entry(pattern).or_default() += 1;
                faults.extend(fault(&world, &command, *trial));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(tried.values().sum::<usize>() > 40, "{tried:?}");
}

/// Published runs that no command makes today, by summary and how many; results/README.md says why.
const NOT_MADE_TODAY: &[(&str, usize)] = &[("lra-small.csv", 3)];

/// Mixers without runs in a published summary of all mixers, whose runs results/README.md says are missing.
const NOT_TRAINED: &[(&str, &[&str])] = &[("survey.csv", &["mlstm-block", "slstm-block"])];

/// Published summaries of studies that are not over, with the number of runs that are left.
const UNFINISHED: &[(&str, usize)] = &[("figure7-init.csv", 3)];

/// The ids and the mixers of the runs that `command`, a sweep or one run, would train. A run's mixer is empty. Rows on
/// files are of versions whose ids did not depend on their content, as where the files are not there.
fn planned(world: &World, command: &str) -> Vec<(String, String)> {
    let words = command.strip_prefix("dsf ").unwrap();
    let line = match words.strip_prefix("sweep ") {
        Some(flags) => format!("sweep status {flags} --json -o results"),
        None => format!("{words} --explain --json"),
    };
    let told = world.dsf(&line.replace("DIR", "nowhere")).ok();
    let events = told.lines().map(serde_json::from_str::<serde_json::Value>);
    let events: Vec<_> = events.map(Result::unwrap).collect();
    let each = events.iter().filter_map(|event| event["each"].as_array());
    let runs = events.iter().chain(each.flatten());
    let text = |run: &serde_json::Value, name: &str| run[name].as_str().map(str::to_owned);
    runs.filter_map(|run| Some((text(run, "run")?, text(run, "mixer").unwrap_or_default()))).collect()
}

/// The table of results/README.md: a summary, what it is, and the commands that make it.
#[test]
fn the_commands_beside_a_published_summary_make_its_runs() {
    let world = furnished();
    let page = include_str!("../../../results/README.md");
    let mut tried = 0;
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').collect();
        let spans = |cell: usize| cells[cell].split('`').skip(1).step_by(2);
        let file = spans(1).next().unwrap();
        let trains = |span: &&str| {
            let kinds = ["dsf sweep ", "dsf mqar ", "dsf lra "];
            kinds.iter().any(|kind| span.starts_with(kind))
        };
        let commands: Vec<&str> = spans(3).filter(trains).collect();
        if commands.is_empty() {
            continue; // a table of `dsf bench`
        }
        let not_trained = NOT_TRAINED.iter().find(|(name, _)| *name == file).map_or(&[][..], |(_, mixers)| mixers);
        let planned = commands.into_iter().flat_map(|command| planned(&world, command));
        let trained = planned.filter(|(_, mixer)| !not_trained.contains(&mixer.as_str()));
        let planned: BTreeSet<String> = trained.map(|(id, _)| id).collect();
        let mut summary = csv::Reader::from_path(world.path("results").join(file)).unwrap();
        let id = summary.headers().unwrap().iter().position(|name| name == "run_id");
        let published: BTreeSet<String> =
            summary.records().map(|record| record.unwrap()[id.unwrap()].to_owned()).collect();
        let extra: Vec<_> = planned.difference(&published).collect();
        let known =
            |counts: &[(&str, usize)]| counts.iter().find(|(name, _)| *name == file).map_or(0, |(_, count)| *count);
        assert_eq!(extra.len(), known(UNFINISHED), "{file} lacks {extra:?}");
        let missing = published.difference(&planned).count();
        assert_eq!(missing, known(NOT_MADE_TODAY), "{file}");
        tried += 1;
    }
    assert_eq!(tried, 26);
}

/// The help of a flag, in one line.
fn help_of(world: &World, command: &str, flag: &str) -> String {
    let help = world.dsf(&format!("{command} --help")).ok();
    let from = help.find(&format!("--{flag} <")).unwrap();
    let entry: Vec<&str> = help[from..].split("\n\n      -").collect();
    entry[0].split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_names_the_flags_and_the_values_that_a_task_takes() {
    let world = World::new();
    for (task, taken, refused) in
        [("mqar", ["`native`", "`numpy`"], "files"), ("lra", ["`native`", "`files`"], "numpy")]
    {
        let help = help_of(&world, task, "data");
        assert!(taken.iter().all(|name| help.contains(name)), "{help}");
        assert!(!help.contains(refused), "{help}");
    }
    let sizes = help_of(&world, "mqar", "sizes");
    assert!(sizes.contains("in place of --seq-len and --kv-pairs"), "{sizes}");
    for flag in ["threads", "stride"] {
        let help = help_of(&world, "wikitext eval", flag);
        assert_eq!(help.matches("[default").count(), 1, "{help}");
    }
}

#[test]
fn commands_are_found_in_blocks_spans_and_after_others() {
    let readme = "Type `dsf a\n--b`, not `--c` or `dsf`.\n\n    make x Y=1   # why\n    $ dsf d \"e  f\" && dsf g\n\
                  ```sh\ndsf h\n```\n";
    let found = commands(readme);
    assert_eq!(found, ["make x Y=1", "dsf d \"e  f\"", "dsf g", "dsf h", "dsf a --b"]);
    assert_eq!(words(&found[1]), ["dsf", "d", "e  f"]);
}

/// Local links of a page, with the parts of a page after `#` left out.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let near = targets.filter(|target| !target.starts_with("http"));
    near.map(|target| target.split('#').next().unwrap()).collect()
}

/// Pages of the guide are read in the documentation of the library, too, where no file of the repository lies beside
/// them.
#[test]
fn every_link_leads_to_a_file_and_a_page_of_the_guide_has_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut links_of_guides = Vec::new();
    let pages = ["README.md", "cuda/README.md", "results/README.md", ".github/CONTRIBUTING.md"];
    for page in pages {
        let page = root.join(page);
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            assert!(page.parent().unwrap().join(link).exists(), "{}: {link}", page.display());
        }
    }
    for page in fs::read_dir(root.join("src/guide")).unwrap() {
        let page = page.unwrap().path();
        let text = fs::read_to_string(&page).unwrap();
        let own = links(&text).into_iter().filter(|link| !link.is_empty());
        links_of_guides.extend(own.map(|link| format!("{}: {link}", page.display())));
    }
    assert!(links_of_guides.is_empty(), "{links_of_guides:?}");
    assert_eq!(links("[a](b.md#c) [d](https://e) [f](#g)"), ["b.md", ""]);
}
