//! The binary for GPUs, from its first call of the driver to its last.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use tempfile::TempDir;

/// Folder of the project.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The binary, the mock libraries, and a folder for what it writes.
struct Mock {
    binary: PathBuf,
    folder: TempDir,
}

/// Graphs and broken rules of a run.
struct Ran {
    text: String,
    graphs: Vec<BTreeMap<String, usize>>,
}

impl Mock {
    /// Returns the binary in `DSF_CUDA`; `None` without it, said on standard error.
    fn of(test: &str) -> Option<Self> {
        let Some(binary) = std::env::var_os("DSF_CUDA").map(PathBuf::from) else {
            eprintln!("{test} was skipped: DSF_CUDA names no binary; `make test-cuda` builds it");
            return None;
        };
        assert!(binary.is_file(), "DSF_CUDA: {} is missing", binary.display());
        let folder = tempfile::tempdir().unwrap();
        let library = std::env::current_exe().unwrap().with_file_name("libdsf_mock_cuda.so");
        assert!(library.is_file(), "{} is missing", library.display());
        for name in ["cuda", "cublas", "curand"] {
            std::os::unix::fs::symlink(&library, folder.path().join(format!("lib{name}.so"))).unwrap();
        }
        // The program looks for the driver under this name before it opens it.
        std::os::unix::fs::symlink(&library, folder.path().join("libcuda.so.1")).unwrap();
        Some(Self { binary, folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the binary, and returns what it said and the driver's log, which is one of its own.
    fn output(&self, variables: &[(&str, &str)], arguments: &[&str]) -> (Output, PathBuf) {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let log = self.path().join(format!("log-{}", RUNS.fetch_add(1, Ordering::Relaxed)));
        let mut command = Command::new(&self.binary);
        command.current_dir(PROJECT).env("LD_LIBRARY_PATH", self.path()).env("DSF_MOCK_CUDA_LOG", &log);
        command.envs(variables.iter().copied()).args(arguments);
        (command.output().unwrap(), log)
    }

    /// Runs the binary, which must succeed and break no rule.
    fn run(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Ran {
        let (output, log) = self.output(variables, arguments);
        let text = [output.stdout, output.stderr].map(|part| String::from_utf8_lossy(&part).into_owned()).concat();
        let log = std::fs::read_to_string(log).unwrap_or_default();
        let faults: Vec<_> = log.lines().filter(|line| line.starts_with("fault: ")).collect();
        assert!(output.status.success() && faults.is_empty(), "{arguments:?}: {faults:#?}\n{text}");
        let graphs = log.lines().filter_map(|line| line.strip_prefix("graph: ")).map(counts).collect();
        Ran { text, graphs }
    }

    /// Folder of results with a name.
    fn results(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }
}

/// Reads `nodes=86 own=63 badd_f32:4` as counts by name.
fn counts(line: &str) -> BTreeMap<String, usize> {
    let pairs = line.split(' ').filter_map(|pair| pair.split_once(['=', ':']));
    pairs.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect()
}

/// Files with a name in the folder of each run, by the name of the run.
fn of_runs(results: &str, file: &str) -> BTreeMap<String, Vec<u8>> {
    let runs = std::fs::read_dir(Path::new(results).join("runs")).unwrap().map(|run| run.unwrap().path());
    let name = |run: &Path| run.file_name().unwrap().to_string_lossy().into_owned();
    runs.map(|run| (name(&run), std::fs::read(run.join(file)).unwrap())).collect()
}

/// The losses and the accuracy of each epoch, with all digits, by the name of the run.
fn metrics(results: &str) -> BTreeMap<String, Vec<String>> {
    let of_run = |(name, bytes): (String, Vec<u8>)| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let epochs = text.lines().skip(1).map(|row| row.split(',').take(4).collect::<Vec<_>>().join(","));
        (name, epochs.collect())
    };
    of_runs(results, "metrics.csv").into_iter().map(of_run).collect()
}

/// The losses that a run prints.
fn losses(text: &str) -> Vec<&str> {
    text.split("loss ").skip(1).filter_map(|rest| rest.split_whitespace().next()).collect()
}

#[test]
fn a_run_trains_as_on_a_cpu_and_replays_the_bits_of_launches() {
    let Some(mock) = Mock::of("a_run_trains_as_on_a_cpu_and_replays_the_bits_of_launches") else { return };
    let run = |device: &str, name: &str, more: &[&str]| {
        let out = mock.results(name);
        let flags = ["mqar", "--preset", "smoke", "--device", device, "--out", &out];
        (mock.run(&[], &[&flags[..], more].concat()), out)
    };
    let (on_cpu, _) = run("cpu", "cpu", &[]);
    let (recorded, replays) = run("cuda", "recorded", &[]);
    let (launched, launches) = run("cuda", "launched", &["--no-cuda-graph"]);
    assert_eq!(losses(&on_cpu.text), losses(&recorded.text));
    assert_eq!(losses(&on_cpu.text), losses(&launched.text));
    assert_eq!((on_cpu.graphs.len(), recorded.graphs.len(), launched.graphs.len()), (0, 1, 0));
    let weights = |out: &str| of_runs(out, "weights.safetensors").into_values().collect::<Vec<_>>();
    assert_eq!(weights(&replays), weights(&launches));
}

/// The first steps of each mixer on the CPU in f64 and here agree to what the precision allows.
#[test]
fn every_mixer_trains_and_can_be_recorded() {
    let Some(mock) = Mock::of("every_mixer_trains_and_can_be_recorded") else { return };
    let all = std::env::var_os("DSF_MOCK_CUDA_ALL").is_some();
    let case =
        |mixer: &str| if all { format!("model {mixer} ") } else { format!("model {mixer} 6,36,24,12 recorded f32") };
    for_each_in_parallel(&mixers(&mock), |mixer| {
        let csv = mock.results(&format!("{mixer}.csv"));
        let case = case(mixer);
        let flags = ["bench", "--device", "cuda", "--only", &case, "--again", "--minutes", "60", "--csv", &csv];
        let ran = mock.run(&[], &flags);
        assert!(ran.text.contains("checks passed"), "{}", ran.text);
        assert!(!ran.graphs.is_empty(), "{mixer} was not recorded");
    });
}

/// Four steps of each mixer, of which the last two replay a recording in one of two runs, have the same bits.
#[test]
fn every_mixer_replays_the_bits_of_launches() {
    let Some(mock) = Mock::of("every_mixer_replays_the_bits_of_launches") else { return };
    for_each_in_parallel(&mixers(&mock), |mixer| {
        let weights = [("recorded", &[][..]), ("launched", &["--no-cuda-graph"])].map(|(name, more)| {
            let out = mock.results(&format!("{mixer}-{name}"));
            let flags = ["mqar", "--preset", "smoke", "--mixer", mixer, "--device", "cuda", "--out", &out];
            let few = ["--layers", "1", "--batch-size", "4", "--train-examples", "16", "--test-examples", "4"];
            let ran = mock.run(&[], &[&flags[..], &few, more].concat());
            assert_eq!(ran.graphs.len(), usize::from(more.is_empty()), "{mixer}");
            of_runs(&out, "weights.safetensors").into_values().collect::<Vec<_>>()
        });
        assert!(weights[0] == weights[1], "{mixer}");
    });
}

/// A recording may upload small tables alone: larger ones are made by the steps before it.
#[test]
fn large_tables_are_made_before_a_step_is_recorded() {
    let Some(mock) = Mock::of("large_tables_are_made_before_a_step_is_recorded") else { return };
    let sizes = "--d 16 --n 64 --seq-len 64 --vocab-size 256 --train-examples 320 --test-examples 8";
    let sizes: Vec<&str> = sizes.split(' ').collect();
    let out = mock.results("lmu");
    let run = ["mqar", "--preset", "smoke", "--device", "cuda", "--mixer", "lmu", "--out", &out];
    let ran = mock.run(&[], &[&run[..], &sizes].concat());
    assert!(!ran.graphs.is_empty(), "{}", ran.text);
}

/// Steps of this mixer read sums on the host, and cannot be recorded.
#[test]
fn a_mixer_that_reads_its_sums_on_the_host_trains() {
    let Some(mock) = Mock::of("a_mixer_that_reads_its_sums_on_the_host_trains") else { return };
    let out = mock.results("spatten");
    let run =
        ["mqar", "--preset", "smoke", "--device", "cuda", "--mixer", "spatten", "--variant", "cascade", "--out", &out];
    let ran = mock.run(&[], &run);
    assert!(ran.text.contains("of the test answers right"), "{}", ran.text);
}

/// The names of all mixers.
fn mixers(mock: &Mock) -> Vec<String> {
    let table = mock.run(&[], &["mixers", "--json"]).text;
    let names = table.split("\"mixer\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mixers: Vec<String> = names.map(str::to_owned).collect();
    assert!(mixers.len() >= 50, "{table}");
    mixers
}

/// Calls `work` with each text, two at a time.
fn for_each_in_parallel(texts: &[impl AsRef<str> + Sync], work: impl Fn(&str) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(text) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(text.as_ref());
                }
            });
        }
    });
}

/// The table counts the nodes of a recorded step at the sizes of the paper's smallest task.
#[test]
fn the_guide_lists_the_nodes_of_a_step() {
    let Some(mock) = Mock::of("the_guide_lists_the_nodes_of_a_step") else { return };
    let guide = std::fs::read_to_string(Path::new(PROJECT).join("cuda/README.md")).unwrap();
    let (_, table) = guide.split_once("| mixer | nodes | ours | cuBLAS | Candle |").unwrap();
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let told: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let counts = cells[2..6].iter().map(|count| count.replace(',', "").parse::<usize>().unwrap());
            (cells[1].trim_matches('`'), counts.collect::<Vec<_>>())
        })
        .collect();
    let mixers: Vec<_> = told.keys().copied().collect();
    let counted = Mutex::new(BTreeMap::new());
    for_each_in_parallel(&mixers, |mixer| {
        let out = mock.results(&format!("nodes-{mixer}"));
        let sizes = ["--preset", "paper", "--mixer", mixer, "--d", "64", "--n", "64", "--epochs", "1"];
        let examples = ["--train-examples", "1536", "--test-examples", "512", "--device", "cuda", "--out", &out];
        // Kernels do nothing, so that it takes a second.
        let ran = mock.run(&[("DSF_MOCK_CUDA_SKIP", "1")], &[&["mqar"], &sizes[..], &examples].concat());
        let of = |kinds: &[&str]| kinds.iter().map(|kind| ran.graphs[0][*kind]).sum::<usize>();
        let counts = [&["nodes"][..], &["own"], &["products"], &["candle", "copies", "clears"]].map(of);
        counted.lock().unwrap().insert(mixer.to_owned(), counts.to_vec());
    });
    let told: BTreeMap<_, _> = told.into_iter().map(|(mixer, counts)| (mixer.to_owned(), counts)).collect();
    assert!(told.len() >= 13);
    assert_eq!(told, counted.into_inner().unwrap());
}

/// The time of a short op is that of its kernels, not of their launches.
#[test]
fn ops_are_timed_by_replays() {
    let Some(mock) = Mock::of("ops_are_timed_by_replays") else { return };
    let csv = mock.results("ops.csv");
    let flags =
        ["bench", "--device", "cuda", "--only", "512,64,64,64 both f32", "--again", "--minutes", "60", "--csv", &csv];
    let ran = mock.run(&[("DSF_MOCK_CUDA_SKIP", "1")], &flags);
    let table = std::fs::read_to_string(&csv).unwrap();
    let ops = table.lines().filter(|line| line.starts_with("op,")).count();
    assert!(ops >= 10 && ran.graphs.len() == ops, "{ops} ops, {} graphs", ran.graphs.len());
    assert!(!table.contains("launched, not recorded"), "{table}");
}

#[test]
fn eight_runs_share_a_gpu_with_the_numbers_of_one() {
    let Some(mock) = Mock::of("eight_runs_share_a_gpu_with_the_numbers_of_one") else { return };
    let sweep = |name: &str, runs: &str| {
        let out = mock.results(name);
        let sizes = ["--preset", "smoke", "--mixer", "softmax,s6,delta-net,rnn", "--seeds", "2"];
        let flags = ["sweep", "--task", "mqar", "--device", "cuda", "--out", &out, "--per-gpu", runs];
        (mock.run(&[], &[&flags[..], &sizes].concat()), metrics(&out))
    };
    let ((together, shared), (alone, single)) = (sweep("together", "8"), sweep("alone", "1"));
    assert_eq!((together.graphs.len(), alone.graphs.len()), (8, 8));
    assert_eq!(shared, single);
    assert_eq!(shared.len(), 8);
}

#[test]
fn two_gpus_share_a_sweep() {
    let Some(mock) = Mock::of("two_gpus_share_a_sweep") else { return };
    let out = mock.results("two");
    let sizes = ["--preset", "smoke", "--mixer", "softmax,linear", "--seeds", "2"];
    let flags = ["sweep", "--task", "mqar", "--device", "cuda", "--out", &out];
    let ran = mock.run(&[("DSF_MOCK_CUDA_GPUS", "2")], &[&flags[..], &sizes].concat());
    assert!(ran.text.contains("4 runs: 4 finished"), "{}", ran.text);
}

#[test]
fn a_gpu_without_memory_is_an_error_in_words() {
    let Some(mock) = Mock::of("a_gpu_without_memory_is_an_error_in_words") else { return };
    let out = mock.results("small");
    let flags = ["mqar", "--preset", "smoke", "--device", "cuda", "--out", &out];
    let (output, _) = mock.output(&[("DSF_MOCK_CUDA_MEMORY", "33800000")], &flags);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("memory"), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
}
