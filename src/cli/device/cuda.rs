//! Requirements of `--device cuda`, checked one by one. The libraries are loaded at run time, and Candle's crates panic
//! if one is missing.

use crate::gpu::{BUILT_WITH, CAPABILITY};
use cudarc::{cublas, curand, driver};
use driver::sys::CUdevice_attribute as Attribute;
use std::ffi::c_int;

/// Number of GPUs that the driver reports; 0 without a driver.
pub(super) fn gpus() -> usize {
    if !has_driver() {
        return 0;
    }
    let count = driver::result::init().and_then(|()| driver::result::device::get_count());
    count.ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

#[allow(unsafe_code)]
fn has_driver() -> bool {
    // SAFETY: runs the initialisers of NVIDIA's library, as in every program linked to it.
    unsafe { driver::sys::is_culib_present() }
}

/// Returns the first missing library among those, beside the driver, that Candle loads with a device.
#[allow(unsafe_code)]
fn missing_library() -> Option<&'static str> {
    // SAFETY: as for the driver.
    let (cublas, curand) = unsafe { (cublas::sys::is_culib_present(), curand::sys::is_culib_present()) };
    [(cublas, "libcublas"), (curand, "libcurand")].iter().find(|(there, _)| !there).map(|(_, name)| *name)
}

/// Latest CUDA version that the driver supports; 0 if it does not report one.
#[allow(unsafe_code)]
fn served() -> i32 {
    let mut version: c_int = 0;
    // SAFETY: the driver is there, and writes one number.
    let _ = unsafe { driver::sys::cuDriverGetVersion(&mut version) };
    version
}

/// Returns ten times the compute capability, and the name of a GPU.
#[allow(unsafe_code)]
fn gpu(ordinal: c_int) -> Result<(i32, String), driver::result::DriverError> {
    let device = driver::result::device::get(ordinal)?;
    let name = driver::result::device::get_name(device)?;
    // SAFETY: the device comes from the driver.
    let ask = |what| unsafe { driver::result::device::get_attribute(device, what) };
    let major = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = ask(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok((10 * major + minor, name))
}

fn driver_says(e: driver::result::DriverError) -> String {
    let words = e.error_string().map(|words| words.to_string_lossy()).unwrap_or_else(|_| format!("{e:?}").into());
    format!("the NVIDIA driver refuses: {words}; use --device cpu")
}

/// Formats a CUDA version: 12040 is 12.4.
fn version(v: i32) -> String {
    format!("{}.{}", v / 1000, v % 1000 / 10)
}

/// Formats a compute capability: 75 is 7.5.
fn tenths(v: i32) -> String {
    format!("{}.{}", v / 10, v % 10)
}

/// Message for a GPU that is too old for this build, with a remedy. Our kernels require 7.5; Candle's require the
/// capability they were built for.
fn too_old(name: &str, capability: i32, floor: i32) -> String {
    let remedy = if capability >= 75 { "build it with `make cuda COMPUTE_CAP=75`" } else { "use --device cpu" };
    let (capability, floor) = (tenths(capability), tenths(floor));
    format!("{name} has compute capability {capability} and this build starts at {floor}; {remedy}")
}

fn missing(library: &str, major: i32) -> String {
    let fetched = match major {
        13 => ", or run `make cuda-libraries`", // which installs those of CUDA 13
        _ => "",
    };
    format!("{library} of CUDA {major} is missing; install it{fetched}")
}

/// Checks that this build can run on GPU `ordinal`. The error contains the reason and a remedy.
pub(super) fn check(ordinal: usize) -> Result<(), String> {
    if !has_driver() {
        return Err("no NVIDIA driver on this machine (libcuda.so.1 is missing); use --device cpu".to_owned());
    }
    let (served, built) = (served(), BUILT_WITH.parse().unwrap_or(0));
    if served < built {
        let (served, built) = (version(served), version(built));
        return Err(format!(
            "the NVIDIA driver serves CUDA {served} and this build needs {built}; update the driver, \
             or build with an older toolkit"
        ));
    }
    driver::result::init().map_err(driver_says)?;
    let count = driver::result::device::get_count().map_err(driver_says)?;
    let inside = c_int::try_from(ordinal).ok().filter(|&i| i < count);
    let Some(index) = inside else {
        return Err(match count {
            0 => "the NVIDIA driver finds no GPU; use --device cpu".to_owned(),
            1 => format!("there is no GPU {ordinal}, only GPU 0"),
            _ => format!("there is no GPU {ordinal}, only 0 to {}", count - 1),
        });
    };
    let (capability, name) = gpu(index).map_err(driver_says)?;
    let floor = CAPABILITY.parse().unwrap_or(0);
    if capability < floor {
        return Err(too_old(&name, capability, floor));
    }
    missing_library().map_or(Ok(()), |library| Err(missing(library, built / 1000)))
}
