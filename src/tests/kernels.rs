//! The build of the CUDA kernels: its reading of ptxas' report and of `cuda/limits.toml`; the build
//! script's own modules, tested without CUDA.

#[path = "../gpu/build/limits.rs"]
mod limits;
#[path = "../gpu/build/report.rs"]
mod report;

use limits::Limits;
use report::{csv, parse, Usage};

/// Report of nvcc 13.0 for two GPUs.
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
    let found = offences("[default]\nstack = 160\nregisters = 64\n");
    let sentence = "cuda/scan.cu: wide uses 1120 bytes of stack and 2872 of spills on sm_75; its \
                    limits in cuda/limits.toml are 160 and 0";
    assert_eq!(found, [sentence]);
    assert_eq!(offences("[default]\nregisters = 64\n").len(), 2);
    assert!(offences("[default]\nregisters = 64\nstack = 1120\nspills = 2872\n").is_empty());
}

#[test]
fn an_exception_holds_for_its_kernel_and_gpu() {
    let wide = |more: &str| {
        let one = "[[exception]]\nkernel = 'wide'\nreason = 'r'";
        format!("[default]\nstack = 160\nregisters = 64\n{one}\n{more}")
    };
    assert!(offences(&wide("stack = 1120\nspills = 2872")).is_empty());
    assert!(offences(&wide("arch = 'sm_75'\nstack = 1120\nspills = 2872")).is_empty());
    assert_eq!(offences(&wide("arch = 'sm_80'\nstack = 1120\nspills = 2872")).len(), 1);
    assert_eq!(offences(&wide("spills = 2872")).len(), 1); // the stack is still the default's
}

#[test]
fn an_exception_for_one_gpu_comes_before_one_for_all() {
    let all = "[[exception]]\nkernel = 'wide'\nreason = 'r'\n";
    let one = "[[exception]]\nkernel = 'wide'\narch = 'sm_75'\nreason = 'r'\nstack = 1120\n";
    let text = format!("[default]\nstack = 160\nspills = 2872\nregisters = 64\n{all}{one}");
    assert!(offences(&text).is_empty());
}

#[test]
fn a_kernel_that_takes_more_registers_than_it_may_is_named() {
    let text = |registers: &str| format!("[default]\nstack = 1120\nspills = 2872\n{registers}");
    let found = offences(&text("registers = 63"));
    let sentence = "cuda/scan.cu: wide takes 64 registers on sm_75; its limit in cuda/limits.toml is 63";
    assert_eq!(found.len(), 2);
    assert_eq!(found[1], sentence);
    let fewer = "registers = 64\n[[exception]]\nkernel = 'good'\nreason = 'r'\nregisters = 8";
    let found = offences(&text(fewer));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("good takes 9 registers on sm_120"));
}

#[test]
fn a_star_stands_for_any_text_and_the_longest_name_counts() {
    let text = |of_kernels: &[(&str, u32)]| {
        let one = |(kernel, registers): &(&str, u32)| {
            format!("[[exception]]\nkernel = '{kernel}'\nreason = 'r'\nregisters = {registers}\n")
        };
        let all: String = of_kernels.iter().map(one).collect();
        format!("[default]\nstack = 1120\nspills = 2872\nregisters = 9\n{all}")
    };
    assert_eq!(offences(&text(&[])).len(), 2);
    for all in ["*", "*d*", "*e*d*"] {
        let of_stacked = offences(&text(&[(all, 64), ("wide", 64)]));
        assert!(of_stacked.is_empty(), "{all}: {of_stacked:?}");
    }
    assert!(offences(&text(&[("sta*ed", 64), ("w*", 64)])).is_empty());
    assert_eq!(offences(&text(&[("*", 64), ("w*e", 63)])).len(), 1);
    assert_eq!(offences(&text(&[("w*e", 63), ("*", 64)])).len(), 1);
    // A kernel of another name is none of these.
    for other in ["tacked", "stacke", "s*a*k", "wide*r", "*wide_"] {
        assert!(offences(&text(&[(other, 64)]))[2].contains("no kernel"));
    }
}

#[test]
fn an_exception_for_no_kernel_is_an_offence() {
    let text = "[default]\nstack = 1120\nspills = 2872\nregisters = 64\n[[exception]]\nkernel = 'gone'\nreason = 'r'";
    assert_eq!(offences(text).len(), 1);
    assert!(offences(text)[0].contains("no kernel gone"));
}

#[test]
fn limits_that_say_too_little_or_too_much_are_refused() {
    let exception = |lines: &str| refused(&format!("[default]\nregisters = 1\n[[exception]]\n{lines}"));
    assert!(refused("").contains("no [default]"));
    assert!(refused("[default]").contains("gives no `registers`"));
    assert!(refused("[default]\nregisters = 1\nstak = 1").contains("unknown key `stak`"));
    assert!(refused("[default]\nregisters = 1\nstack = -1").contains("number of bytes"));
    assert!(refused("[default]\nregisters = 'few'").contains("number of registers"));
    assert!(refused("[default]\nregisters = 1\n[rest]").contains("unknown key `rest`"));
    assert!(refused("[default]\nregisters = 1\n[exception]").contains("[[exception]]"));
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
