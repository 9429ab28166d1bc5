//! Signals: those that end work behind a checkpoint, and the one that would end it in the middle of a write.

use crate::error::Error;
use crate::sweep::STOPPING;
use signal_hook::consts::{SIGHUP, SIGINT, SIGXFSZ};
use signal_hook::flag;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// A flag that rises at the first of the signals [`STOPPING`]; an INT after that ends the process at once.
///
/// QUIT keeps ending a process at once, with an image of its memory: it is how a person asks for just that.
pub(super) fn stop_flag() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop)).map_err(failed)?;
    // `nohup` ignores it, so that the run outlives its terminal.
    let kept = |signal: &c_int| *signal == SIGHUP && is_ignored(*signal);
    for signal in STOPPING.into_iter().filter(|signal| !kept(signal)) {
        flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    Ok(stop)
}

/// Has a write beyond the limit on the size of files (`ulimit -f`) fail like one on a full disk: without it a signal ends
/// the process without a word.
pub(super) fn let_large_writes_fail() -> Result<(), Error> {
    // Caught and not ignored: the programs that this one starts find their own setting.
    let register = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    register.map(drop).map_err(failed)
}

fn failed(e: std::io::Error) -> Error {
    Error::usage(format!("cannot listen for signals: {e}"))
}

/// Whether the process was started with `signal` ignored, or ignores it since.
#[allow(unsafe_code)] // no crate here has a safe way to ask
fn is_ignored(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: nothing is changed where no new action is given; the present one is written if the call succeeds, and
    // read only then.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Whether a flag from [`stop_flag`] is up.
pub(super) fn raised(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

/// [`Error::Stopped`] once a flag from [`stop_flag`] is up.
pub(super) fn go_on(stop: &AtomicBool) -> Result<(), Error> {
    match raised(stop) {
        true => Err(Error::Stopped),
        false => Ok(()),
    }
}
