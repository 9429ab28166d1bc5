//! What the build of the CUDA kernels makes of ptxas' report and of `cuda/limits.toml`; the build
//! script's own modules, tested without CUDA.

#[path = "../gpu/build/limits.rs"]
mod limits;
#[path = "../gpu/build/report.rs"]
mod report;

use limits::Limits;
use report::{csv, parse, Usage};

/// As nvcc 13.0 prints it, for two GPUs.
const REPORT: &str = "\
ptxas warning : Value of threads per SM for entry wide is out of range. .minnctapersm will be ignored
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'stacked' for 'sm_75'
ptxas info    : Function properties for stacked
    160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 0 barriers, 160 bytes cumulative stack size, 364 bytes cmem[0]
ptxas info    : Compile time = 9.909 ms
ptxas info    : Function properties for _Z6helperPKfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'wide' for 'sm_75'
ptxas info    : Function properties for wide
    1120 bytes stack frame, 1428 bytes spill stores, 1444 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 1120 bytes cumulative stack size, 364 bytes cmem[0]
ptxas info    : Compile time = 17.157 ms
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'good' for 'sm_120'
ptxas info    : Function properties for good
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 9 registers, used 1 barriers, 256 bytes smem
ptxas info    : Compile time = 1.671 ms
";

fn report() -> Vec<Usage> {
    parse("scan", REPORT)
}

fn offences(limits: &str) -> Vec<String> {
    Limits::parse(limits).unwrap().offences(&report())
}

fn refused(limits: &str) -> String {
    Limits::parse(limits).unwrap_err()
}

#[test]
fn every_function_of_the_report_is_found() {
    let table = "file,kernel,arch,registers,shared,stack,spills\n\
                 scan,stacked,sm_75,64,0,160,0\n\
                 scan,_Z6helperPKfi,sm_75,,0,0,0\n\
                 scan,wide,sm_75,64,0,1120,2872\n\
                 scan,good,sm_120,9,256,0,0\n";
    assert_eq!(csv(&report()), table);
}

#[test]
fn a_kernel_above_its_limit_is_named() {
    let found = offences("[default]\nstack = 160\nspills = 0\n");
    let sentence = "cuda/scan.cu: wide uses 1120 bytes of stack and 2872 of spills on sm_75; its \
                    limits in cuda/limits.toml are 160 and 0";
    assert_eq!(found, [sentence]);
    assert_eq!(offences("[default]\n").len(), 2);
    assert!(offences("[default]\nstack = 1120\nspills = 2872\n").is_empty());
}

#[test]
fn an_exception_holds_for_its_kernel_and_gpu() {
    let wide = |more: &str| {
        format!("[default]\nstack = 160\n[[exception]]\nkernel = 'wide'\nreason = 'r'\n{more}")
    };
    assert!(offences(&wide("stack = 1120\nspills = 2872")).is_empty());
    assert!(offences(&wide("arch = 'sm_75'\nstack = 1120\nspills = 2872")).is_empty());
    assert_eq!(
        offences(&wide("arch = 'sm_80'\nstack = 1120\nspills = 2872")).len(),
        1
    );
    assert_eq!(offences(&wide("spills = 2872")).len(), 1); // the stack is still the default's
}

#[test]
fn an_exception_for_one_gpu_comes_before_one_for_all() {
    let all = "[[exception]]\nkernel = 'wide'\nreason = 'r'\n";
    let one = "[[exception]]\nkernel = 'wide'\narch = 'sm_75'\nreason = 'r'\nstack = 1120\n";
    let text = format!("[default]\nstack = 160\nspills = 2872\n{all}{one}");
    assert!(offences(&text).is_empty());
}

#[test]
fn an_exception_for_no_kernel_is_an_offence() {
    let text =
        "[default]\nstack = 1120\nspills = 2872\n[[exception]]\nkernel = 'gone'\nreason = 'r'";
    assert_eq!(offences(text).len(), 1);
    assert!(offences(text)[0].contains("no kernel gone"));
}

#[test]
fn limits_that_say_too_little_or_too_much_are_refused() {
    let exception = |lines: &str| refused(&format!("[default]\n[[exception]]\n{lines}"));
    assert!(refused("").contains("no [default]"));
    assert!(refused("[default]\nstak = 1").contains("unknown key `stak`"));
    assert!(refused("[default]\nstack = -1").contains("number of bytes"));
    assert!(refused("[default]\n[rest]").contains("unknown key `rest`"));
    assert!(refused("[default]\n[exception]").contains("[[exception]]"));
    assert!(exception("reason = 'r'").contains("names no `kernel`"));
    assert!(exception("kernel = 'k'").contains("of k: it gives no `reason`"));
    assert!(exception("kernel = 'k'\nreason = ' '").contains("must be a text"));
    assert!(exception("kernel = 'k'\nreason = 'r'\nspils = 1").contains("unknown key `spils`"));
}

#[test]
fn the_limits_of_this_project_can_be_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/limits.toml");
    Limits::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
}
