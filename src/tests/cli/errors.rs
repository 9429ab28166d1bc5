//! Refusals: which flag, file and line they name, and that they leave nothing behind.

use super::{Fault, World};
use std::fs;

fn refuses(line: &str, flag: &str) -> Fault {
    World::new().refuses(line, flag)
}

#[test]
fn an_unknown_mixer_is_answered_with_the_nearest() {
    for line in ["mqar --mixer linnear", "sweep --mixer softmax,linnear"] {
        refuses(line, "--mixer").names(&["`linear`", "rg-lru"]);
    }
    refuses("mqar --mixer softmax --variant papr", "--variant").names(&["`paper`"]);
}

#[test]
fn bad_numbers_name_their_flag() {
    for (line, flag, value) in [
        ("mqar --lr -1", "--lr", "-1.0"),
        ("mqar --lr nan", "--lr", "NaN"),
        ("mqar --weight-decay -0.1", "--weight-decay", "-0.1"),
        ("mqar --dropout 1.5", "--dropout", "1.5"),
        ("mqar --d 0", "--d", "0"),
        ("mqar --epochs 0", "--epochs", "0"),
        ("mqar --threads 0", "--threads", "0"),
        ("sweep --d 64,x", "--d", "x"),
        ("sweep --d 64,,128", "--d", ""),
        ("sweep --sizes 64-4", "--sizes", "64-4"),
        ("sweep --jobs 0", "--jobs", "0"),
        ("sweep --jobs -1", "--jobs", "-1"),
        ("mqar --threads many", "--threads", "many"),
        ("bench decode --context -1", "--context", "-1"),
        ("bench decode --mixer recurent", "--mixer", "recurent"),
        ("mqar --d 99999999999999999999", "--d", "99999999999999999999"),
    ] {
        assert_eq!(refuses(line, flag).value.as_deref(), Some(value), "{line}");
    }
}

#[test]
fn sizes_that_the_task_forbids_name_the_flag_and_what_would_be_right() {
    refuses("mqar --seq-len 33", "--seq-len");
    refuses("mqar --seq-len 32 --kv-pairs 9", "--kv-pairs").names(&["--seq-len 36"]);
    refuses("mqar --vocab-size 32 --seq-len 32", "--vocab-size").names(&["--seq-len 32"]);
    refuses("mqar --kv-pairs 0", "--kv-pairs").names(&["1"]);
    refuses("mqar --train-examples 0", "--train-examples").names(&["1"]);
    refuses("mqar --train-examples 99999999999", "--train-examples").names(&["67108864"]);
}

#[test]
fn heads_that_do_not_fit_are_refused() {
    refuses("mqar --mixer softmax --heads 3 --d 64", "--heads").names(&["--d 64"]);
    refuses("mqar --mixer s6 --heads 2", "--heads").names(&["`s6`"]);
}

#[test]
fn options_that_do_not_exist_are_refused() {
    refuses("mqar --mixer s6 --option dt_inti=zero", "--option").names(&["`dt_init`"]);
    let fault = refuses("mqar --mixer s6 --option dt_init=one", "--option");
    assert_eq!(fault.names(&["`zero`", "`mamba`"]).value.as_deref(), Some("dt_init=one"));
    refuses("mqar --mixer alibi --option dt_init=zero", "--option").names(&["`alibi`"]);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_build_without_cuda_says_how_to_make_one_with_it() {
    for line in ["mqar --device cuda", "sweep --device cuda:1 --dry-run"] {
        refuses(line, "--device").names(&["`make cuda`", "--device cpu"]);
    }
}

#[test]
fn a_precision_that_there_is_not_is_refused_with_those_that_there_are() {
    refuses("mqar --precision f8", "--precision").names(&["f32", "tf32", "bf16"]);
}

#[test]
fn recorded_steps_need_a_gpu() {
    for line in [
        "mqar --no-cuda-graph --device cpu",
        "sweep --no-cuda-graph --device cpu --dry-run",
        "sweep --no-cuda-graph --executor print",
    ] {
        refuses(line, "--no-cuda-graph").names(&["--device cuda"]);
        refuses(&line.replace("--no-", "--"), "--cuda-graph").names(&["--device cuda"]);
    }
}

#[test]
fn runs_per_gpu_need_a_gpu() {
    refuses("sweep --per-gpu 4 --dry-run", "--per-gpu").names(&["--device cuda"]);
    refuses("sweep --per-gpu 4 --device cpu", "--per-gpu").names(&["--device cuda"]);
    #[cfg(not(feature = "cuda"))]
    refuses("sweep --per-gpu 4 --device cuda", "--device").names(&["`make cuda`"]);
    refuses("sweep --per-gpu 0 --device cuda", "--per-gpu").names(&["1 to 1024"]);
    refuses("sweep --per-gpu 2 --jobs 2", "--per-gpu").names(&["--jobs"]);
}

#[test]
fn devices_that_do_not_exist_are_refused() {
    refuses("mqar --device gpu", "--device").names(&["auto", "cpu", "cuda:1"]);
    refuses("mqar --device cuda:x", "--device").names(&["cuda:0"]);
}

#[test]
fn a_list_in_a_single_run_points_to_sweep() {
    refuses("mqar --d 64,128", "--d").names(&["`dsf sweep --task mqar --d 64,128`"]);
}

#[test]
fn tasks_flags_and_subcommands_that_do_not_exist_are_refused() {
    refuses("sweep --task mqr", "--task").names(&["`mqar`"]);
    refuses("mqar --mixr ssd", "--mixr");
    let said = World::new().dsf("mqar --mixr ssd");
    assert!(said.err.contains("--mixer"), "the nearest flag: {}", said.err);
    let fault = World::new().fault("mqra");
    assert_eq!((fault.kind.as_str(), fault.code), ("refused", 2));
    fault.names(&["mqra"]);
}

#[test]
fn experiment_files_are_refused_with_file_and_place() {
    let world = World::new();
    world.fault("sweep nowhere.toml").at("nowhere.toml", None);
    for (text, line, names) in [
        ("task = \"mqar\"\n[[grid]]\nmixr = \"ssd\"\n", 3, &["`mixr`", "`mixer`"][..]),
        ("task = \"mqar\"\n[[grid]]\nd = \"wide\"\n", 3, &[]),
        ("task = \"mqar\"\n[[grid]\n", 2, &[]),
        ("task = \"mqar\"\n", 1, &["[[grid]]"]),
        ("task = \"mqar\"\n[[grid]]\nmixer = \"linnear\"\n", 2, &["`linear`"]),
        ("", 1, &["task = \"mqar\""]),
    ] {
        fs::write(world.path("file.toml"), text).unwrap();
        let fault = world.fault("sweep file.toml");
        assert_eq!((fault.kind.as_str(), fault.code), ("refused", 2), "{text:?}: {fault:?}");
        fault.at("file.toml", Some(line)).names(names);
    }
    assert!(!world.path("results").exists(), "a refusal makes nothing");
}

#[test]
fn a_file_that_is_no_text_of_utf8_is_refused_by_what_it_is() {
    let world = World::new();
    let utf16: Vec<u8> = "\u{feff}task = \"mqar\"\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::create_dir(world.path("folder.toml")).unwrap();
    for (file, content, place, is) in [
        ("wide.toml", Some(&utf16[..]), None, "UTF-16"),
        ("old.toml", Some(b"task = \"mqar\"\n# \xe4\n"), Some(2), "UTF-8"),
        ("folder.toml", None, None, "folder"),
        ("wide.json", Some(&utf16), None, "UTF-16"),
    ] {
        if let Some(content) = content {
            fs::write(world.path(file), content).unwrap();
        }
        let line = match file.ends_with("toml") {
            true => format!("sweep {file}"),
            false => format!("mqar --config {file}"),
        };
        let fault = world.fault(&line);
        assert_eq!((fault.kind.as_str(), fault.code), ("refused", 2), "{line}: {fault:?}");
        fault.at(file, place).names(&[is]);
    }
}

#[test]
fn a_config_behind_a_byte_order_mark_is_that_config() {
    let world = World::new();
    world.dsf("mqar --preset smoke --d 8 --n 8 --train-examples 8 --test-examples 4 --epochs 1 -q").ok();
    let config = fs::read(world.only_run("results").join("config.json")).unwrap();
    fs::write(world.path("plain.json"), &config).unwrap();
    fs::write(world.path("marked.json"), [b"\xef\xbb\xbf", &config[..]].concat()).unwrap();
    let told = |file: &str| world.dsf(&format!("mqar --config {file} --explain")).ok().replace(file, "FILE");
    assert_eq!(told("marked.json"), told("plain.json"));
}

#[cfg(unix)]
#[test]
fn nobody_waits_for_a_named_pipe() {
    let world = World::new();
    fs::create_dir(world.path("data")).unwrap();
    let (listops, others) = ("data/basic_train.tsv", ["data/basic_val.tsv", "data/basic_test.tsv"]);
    for name in others {
        fs::write(world.path(name), "").unwrap();
    }
    for (file, line, code) in [
        ("a.toml", "sweep a.toml", 2),
        ("a.json", "mqar --config a.json", 2),
        ("a.csv", "report a.csv", 65),
        (listops, "lra --dataset listops --preset smoke --data files --data-dir data", 65),
    ] {
        let made = std::process::Command::new("mkfifo").arg(world.path(file)).status();
        assert!(made.unwrap().success());
        let fault = world.fault(line);
        assert_eq!(fault.code, code, "{line}: {fault:?}");
        fault.at(file, None).names(&["pipe"]);
    }
}

#[test]
fn a_results_place_that_cannot_be_written_to_is_refused_before_training() {
    let world = World::new();
    fs::write(world.path("file"), "").unwrap();
    for out in ["file", "file/below"] {
        for command in ["mqar", "sweep --mixer ssd"] {
            let line = format!("{command} --preset smoke --out {out}");
            assert_eq!(world.fault(&line).flag.as_deref(), Some("--out"), "{line}");
        }
    }
}

#[test]
fn a_worker_without_a_config_says_what_it_wants() {
    let world = World::new();
    for stdin in [&b""[..], b"{}\n", b"not json\n", b"{\"format\": 999}\n", &[0xff, b'\n']] {
        let said = world.call(&["worker"], stdin);
        assert!([1, 2, 65].contains(&said.code), "{}", said.err);
        assert!(said.err.starts_with("error: "), "{}", said.err);
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let world = World::new();
    let binary = assert_cmd::cargo::cargo_bin("dsf");
    let line = format!("{} mixers | true; exit ${{PIPESTATUS[0]}}", binary.display());
    let output = std::process::Command::new("bash").args(["-c", &line]).current_dir(world.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
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
    let output = command.envs(empty.map(|name| (name, ""))).current_dir(world.path("")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(world.runs("results").len(), 1);
}

#[test]
fn every_kind_of_error_is_an_event_with_its_code_and_place() {
    let world = World::new();
    fs::create_dir(world.path("data")).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(world.path("data").join(name), bytes).unwrap();
    };
    for part in ["train", "val", "test"] {
        write(&format!("basic_{part}.tsv"), b"Source\tTarget\nno row\n");
    }
    // A picture of 32 x 32 pixels after its label, of which there are ten.
    let names = (1..=5).map(|number| format!("data_batch_{number}"));
    for name in names.chain(["test_batch".to_owned()]) {
        write(&format!("{name}.bin"), &[10; 1 + 3 * 32 * 32]);
    }
    fs::write(world.path("damaged.json"), "{").unwrap();
    let lra = "lra --preset smoke --train-examples 1 --val-examples 0 --test-examples 1 --dataset";
    let listops = format!("{lra} listops --data files --data-dir data");
    let (image, missing) = (format!("{lra} image --data-dir data"), format!("{lra} image"));
    let absent = "home/dsf/lra";
    for (line, kind, code, path, place) in [
        ("mqar --d x", "refused", 2, None, (None, None)),
        ("mqar --d 0", "refused", 2, None, (None, None)),
        (&*missing, "missing", 66, Some(absent), (None, None)),
        (&*listops, "data", 65, Some("data/basic_train.tsv"), (Some(2), None)),
        (&*image, "data", 65, Some("data/data_batch_1.bin"), (None, Some(0))),
        ("mqar --config damaged.json", "corrupt", 65, Some("damaged.json"), (None, None)),
        ("data generate retrieval --from none.txt --data-dir made", "io", 1, Some("none.txt"), (None, None)),
    ] {
        let fault = world.fault(line);
        let found = (fault.kind.as_str(), fault.code);
        assert_eq!(found, (kind, code), "{line}: {fault:?}");
        assert_eq!((fault.line, fault.row), place, "{line}: {fault:?}");
        match (&fault.path, path) {
            (Some(found), Some(path)) => assert!(found.ends_with(path), "{fault:?}"),
            (found, path) => assert_eq!((found, path), (&None, None), "{fault:?}"),
        }
    }
}
