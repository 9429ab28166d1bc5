//! Answers of the driver, and the record of broken rules.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// Results of driver calls, with the numbers of `cuda.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    InvalidValue = 1,
    OutOfMemory = 2,
    NotInitialized = 3,
    InvalidDevice = 101,
    InvalidImage = 200,
    InvalidContext = 201,
    InvalidHandle = 400,
    NotFound = 500,
    NotReady = 600,
    IllegalAddress = 700,
    LaunchFailed = 719,
    CaptureUnsupported = 900,
    CaptureInvalidated = 901,
}

impl Code {
    /// Name and description of a result, each with a terminating zero.
    pub(crate) fn words(code: i32) -> (&'static str, &'static str) {
        match code {
            0 => ("CUDA_SUCCESS\0", "no error\0"),
            1 => ("CUDA_ERROR_INVALID_VALUE\0", "invalid argument\0"),
            2 => ("CUDA_ERROR_OUT_OF_MEMORY\0", "out of memory\0"),
            3 => ("CUDA_ERROR_NOT_INITIALIZED\0", "initialization error\0"),
            101 => ("CUDA_ERROR_INVALID_DEVICE\0", "invalid device ordinal\0"),
            200 => ("CUDA_ERROR_INVALID_IMAGE\0", "device kernel image is invalid\0"),
            201 => ("CUDA_ERROR_INVALID_CONTEXT\0", "invalid device context\0"),
            400 => ("CUDA_ERROR_INVALID_HANDLE\0", "invalid resource handle\0"),
            500 => ("CUDA_ERROR_NOT_FOUND\0", "named symbol not found\0"),
            600 => ("CUDA_ERROR_NOT_READY\0", "device not ready\0"),
            700 => ("CUDA_ERROR_ILLEGAL_ADDRESS\0", "an illegal memory access was encountered\0"),
            719 => ("CUDA_ERROR_LAUNCH_FAILED\0", "unspecified launch failure\0"),
            900 => ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED\0", "operation not permitted when stream is capturing\0"),
            901 => {
                ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED\0", "operation failed due to a previous error during capture\0")
            }
            _ => ("CUDA_ERROR_UNKNOWN\0", "unknown error\0"),
        }
    }
}

/// A refused call.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    /// The rule that the caller broke; `None` for refusals that a correct program may meet.
    pub(crate) rule: Option<String>,
}

pub(crate) type Answer<T = ()> = Result<T, Refusal>;

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self { code, rule: None }
    }
}

/// Returns the refusal of a call that breaks a rule.
pub(crate) fn broken(code: Code, rule: impl Into<String>) -> Refusal {
    Refusal { code, rule: Some(rule.into()) }
}

/// Refuses unless `holds`.
pub(crate) fn require(holds: bool, code: Code, rule: &str) -> Answer {
    match holds {
        true => Ok(()),
        false => Err(broken(code, rule)),
    }
}

/// Appends a line to the log.
pub(crate) fn log(kind: &str, line: impl Display) {
    let line = format!("{kind}: {line}\n");
    let file = std::env::var_os("DSF_MOCK_CUDA_LOG");
    let file = file.and_then(|file| OpenOptions::new().create(true).append(true).open(file).ok());
    // A log that cannot be written must not change what the program does.
    let _ = match file {
        Some(mut file) => file.write_all(line.as_bytes()),
        None if kind == "fault" => std::io::stderr().write_all(line.as_bytes()),
        None => Ok(()),
    };
}
