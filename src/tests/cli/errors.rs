//! What is refused, and in which words.

use super::World;
use std::fs;

fn refusal(line: &str) -> String {
    let world = World::new();
    let message = world.dsf(line).refused();
    let results = world.path("results");
    assert!(!results.exists(), "{line}: a refusal makes nothing");
    message
}

fn assert_says(line: &str, needles: &[&str]) {
    let message = refusal(line);
    for needle in needles {
        assert!(message.contains(needle), "`dsf {line}` says: {message}");
    }
}

#[test]
fn an_unknown_mixer_is_answered_with_the_nearest() {
    let needles = [
        "unknown mixer `linnear`",
        "Did you mean `linear`?",
        "rg-lru",
    ];
    assert_says("mqar --mixer linnear", &needles);
    assert_says("sweep --mixer softmax,linnear", &needles);
    assert_says(
        "mqar --mixer softmax --variant papr",
        &["Did you mean `paper`?"],
    );
}

#[test]
fn bad_numbers_name_their_flag() {
    assert_says("mqar --lr -1", &["--lr must be a positive number", "-1"]);
    assert_says("mqar --lr nan", &["--lr"]);
    assert_says("mqar --weight-decay -0.1", &["--weight-decay"]);
    assert_says("mqar --dropout 1.5", &["--dropout", "1.5"]);
    assert_says("mqar --d 0", &["--d"]);
    assert_says("mqar --epochs 0", &["--epochs"]);
    assert_says("mqar --threads 0", &["--threads"]);
    assert_says("sweep --d 64,x", &["--d", "x"]);
    assert_says("sweep --d 64,,128", &["--d"]);
    assert_says("sweep --sizes 64-4", &["--sizes", "64-4"]);
    assert_says("sweep --jobs 0", &["--jobs"]);
    assert_says("mqar --d 99999999999999999999", &["--d"]);
}

#[test]
fn sizes_that_the_task_forbids_name_the_rule() {
    assert_says("mqar --seq-len 33", &["--seq-len", "33", "even"]);
    assert_says("mqar --seq-len 32 --kv-pairs 9", &["--kv-pairs", "9"]);
    assert_says("mqar --vocab-size 32 --seq-len 32", &["--vocab-size", "32"]);
    assert_says("mqar --kv-pairs 0", &["--kv-pairs", "0"]);
    assert_says("mqar --train-examples 0", &["--train-examples"]);
    assert_says("mqar --train-examples 99999999999", &["--train-examples"]);
}

#[test]
fn heads_that_do_not_fit_are_refused() {
    assert_says(
        "mqar --mixer softmax --heads 3 --d 64",
        &["--heads 3 does not divide --d 64"],
    );
    assert_says("mqar --mixer s6 --heads 2", &["s6", "--heads"]);
}

#[test]
fn options_that_do_not_exist_are_refused() {
    assert_says(
        "mqar --mixer s6 --option dt_inti=zero",
        &["Did you mean `dt_init`?"],
    );
    assert_says(
        "mqar --mixer s6 --option dt_init=one",
        &["dt_init=one", "zero"],
    );
    assert_says(
        "mqar --mixer softmax --option dt_init=zero",
        &["no options"],
    );
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_build_without_cuda_says_how_to_make_one_with_it() {
    let remedies = &["no CUDA support", "make cuda", "--device cpu"];
    assert_says("mqar --device cuda", remedies);
    assert_says("sweep --device cuda:1 --dry-run", remedies);
}

#[test]
fn lower_precision_needs_a_gpu() {
    let remedy = &["--precision bf16", "--device cuda"];
    assert_says("mqar --precision bf16 --device cpu", remedy);
    assert_says("sweep --precision f32,bf16 --device cpu", remedy);
    assert_says("mqar --precision f8", &["f32", "tf32", "bf16"]);
}

#[test]
fn a_recorded_step_needs_a_gpu() {
    let remedy = &["--cuda-graph", "--device cuda"];
    assert_says("mqar --cuda-graph --device cpu", remedy);
    assert_says("sweep --cuda-graph --device cpu --dry-run", remedy);
    assert_says("sweep --cuda-graph --executor print", remedy);
}

#[test]
fn runs_per_gpu_need_a_gpu() {
    let remedy = &["--per-gpu", "--device cuda"];
    assert_says("sweep --per-gpu 4 --dry-run", remedy);
    assert_says("sweep --per-gpu 4 --device cpu", remedy);
    assert_says("sweep --per-gpu 4 --device cuda", &["no CUDA support"]);
    assert_says(
        "sweep --per-gpu 0 --device cuda",
        &["--per-gpu must be 1 to 1024, not 0"],
    );
    assert_says("sweep --per-gpu 2 --jobs 2", &["--per-gpu", "--jobs"]);
}

#[test]
fn devices_that_do_not_exist_are_refused() {
    assert_says("mqar --device gpu", &["unknown device `gpu`"]);
    assert_says("mqar --device cuda:x", &["cuda:0"]);
}

#[test]
fn a_list_in_a_single_run_points_to_sweep() {
    assert_says("mqar --d 64,128", &["dsf sweep --task mqar", "--d"]);
}

#[test]
fn tasks_and_subcommands_that_do_not_exist_are_refused() {
    assert_says("sweep --task mqr", &["unknown task `mqr`", "mqar"]);
    assert_says("mqra", &["mqra", "mqar"]);
    assert_says("mqar --mixr ssd", &["--mixr", "--mixer"]);
}

#[test]
fn experiment_files_are_refused_with_file_and_place() {
    assert_says("sweep nowhere.toml", &["nowhere.toml"]);
    let world = World::new();
    for (text, needles) in [
        (
            "task = \"mqar\"\n[[grid]]\nmixr = \"ssd\"\n",
            ["line 3", "mixr"],
        ),
        (
            "task = \"mqar\"\n[[grid]]\nd = \"wide\"\n",
            ["line 3", "wide"],
        ),
        ("task = \"mqar\"\n[[grid]\n", ["line 2", "file.toml"]),
        ("task = \"mqar\"\n", ["grid", "file.toml"]),
        (
            "task = \"mqar\"\n[[grid]]\nmixer = \"linnear\"\n",
            ["linnear", "linear"],
        ),
        ("", ["task", "file.toml"]),
    ] {
        fs::write(world.path("file.toml"), text).unwrap();
        let message = world.dsf("sweep file.toml").refused();
        for needle in needles {
            assert!(message.contains(needle), "{text:?} says: {message}");
        }
    }
}

#[test]
fn a_file_that_is_no_text_of_utf8_is_refused_by_what_it_is() {
    let world = World::new();
    let utf16: Vec<u8> = "\u{feff}task = \"mqar\"\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    fs::create_dir(world.path("folder.toml")).unwrap();
    for (file, content, why) in [
        (
            "wide.toml",
            Some(&utf16[..]),
            ": UTF-16, not UTF-8: save it as UTF-8",
        ),
        (
            "old.toml",
            Some(b"task = \"mqar\"\n# \xe4\n"),
            ", line 2: not UTF-8",
        ),
        ("folder.toml", None, ": a folder, not a file"),
        (
            "wide.json",
            Some(&utf16),
            ": UTF-16, not UTF-8: save it as UTF-8",
        ),
    ] {
        if let Some(content) = content {
            fs::write(world.path(file), content).unwrap();
        }
        let line = match file.ends_with("toml") {
            true => format!("sweep {file}"),
            false => format!("mqar --config {file}"),
        };
        let message = world.dsf(&line).refused();
        assert!(
            message.contains(&format!("{file}{why}")),
            "{line}: {message}"
        );
    }
}

#[test]
fn a_config_behind_a_byte_order_mark_is_that_config() {
    let world = World::new();
    world
        .dsf("mqar --preset smoke --d 8 --n 8 --train-examples 8 --test-examples 4 --epochs 1 -q")
        .ok();
    let config = fs::read(world.only_run("results").join("config.json")).unwrap();
    fs::write(world.path("plain.json"), &config).unwrap();
    fs::write(
        world.path("marked.json"),
        [b"\xef\xbb\xbf", &config[..]].concat(),
    )
    .unwrap();
    let told = |file: &str| {
        world
            .dsf(&format!("mqar --config {file} --explain"))
            .ok()
            .replace(file, "FILE")
    };
    assert_eq!(told("marked.json"), told("plain.json"));
}

#[cfg(unix)]
#[test]
fn nobody_waits_for_a_named_pipe() {
    let world = World::new();
    fs::create_dir(world.path("data")).unwrap();
    let (listops, others) = (
        "data/basic_train.tsv",
        ["data/basic_val.tsv", "data/basic_test.tsv"],
    );
    for name in others {
        fs::write(world.path(name), "").unwrap();
    }
    for (file, line, code) in [
        ("a.toml", "sweep a.toml", 2),
        ("a.json", "mqar --config a.json", 2),
        ("a.csv", "report a.csv", 65),
        (
            listops,
            "lra --dataset listops --preset smoke --data files --data-dir data",
            65,
        ),
    ] {
        let made = std::process::Command::new("mkfifo")
            .arg(world.path(file))
            .status();
        assert!(made.unwrap().success());
        let message = world.dsf(line).ends(code);
        let wanted = format!("{file}: a pipe, a socket or a device, not a file");
        assert!(message.contains(&wanted), "{line}: {message}");
    }
}

#[test]
fn a_results_place_that_cannot_be_written_to_is_refused_before_training() {
    let world = World::new();
    fs::write(world.path("file"), "").unwrap();
    for out in ["file", "file/below"] {
        for command in ["mqar", "sweep --mixer ssd"] {
            let line = format!("{command} --preset smoke --out {out}");
            let message = world.dsf(&line).refused();
            assert!(message.contains("--out"), "{line}: {message}");
        }
    }
}

#[test]
fn a_worker_without_a_config_says_what_it_wants() {
    let world = World::new();
    for stdin in [
        &b""[..],
        b"{}\n",
        b"not json\n",
        b"{\"format\": 999}\n",
        &[0xff, b'\n'],
    ] {
        let said = world.call(&["worker"], stdin);
        assert!([1, 2, 65].contains(&said.code), "{}", said.err);
        assert!(said.err.starts_with("error: "), "{}", said.err);
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let world = World::new();
    let binary = assert_cmd::cargo::cargo_bin("dsf");
    let line = format!(
        "{} mixers | true; exit ${{PIPESTATUS[0]}}",
        binary.display()
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &line])
        .current_dir(world.path(""))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_reader_of_completions_may_leave() {
    let world = World::new();
    let dsf = assert_cmd::cargo::cargo_bin("dsf");
    let line = format!("{} completions bash | head -c 1", dsf.display());
    let shell = std::process::Command::new("bash")
        .args(["-o", "pipefail", "-c", &line])
        .current_dir(world.path(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&shell.stderr);
    assert!(shell.status.success() && said.is_empty(), "{said}");
}

#[test]
fn minus_zero_is_zero_and_an_empty_variable_is_none() {
    let world = World::new();
    let id = |line: &str| world.dsf(line).ok().lines().next().unwrap().to_owned();
    let zero = id("mqar --preset smoke --weight-decay 0 --explain");
    assert_eq!(id("mqar --preset smoke --weight-decay=-0 --explain"), zero);
    let empty = ["DSF_OPS", "DSF_DATA", "DSF_OUT", "DSF_SIMD"];
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("dsf"));
    let command = command.args(["mqar", "--preset", "smoke", "-q"]);
    let output = command
        .envs(empty.map(|name| (name, "")))
        .current_dir(world.path(""))
        .output();
    let output = output.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(world.runs("results").len(), 1);
}
