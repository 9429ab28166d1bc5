//! Signal handling: signals that stop a run after a checkpoint, and SIGXFSZ, which would end it during a write.

use crate::error::Error;
use crate::sweep::STOPPING;
use signal_hook::consts::{SIGHUP, SIGINT, SIGXFSZ};
use signal_hook::flag;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Returns a flag that is set by the first of the signals [`STOPPING`]; a second SIGINT ends the process at once.
///
/// SIGQUIT keeps its default action, to end the process at once with a core dump.
pub(super) fn stop_flag() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop)).map_err(failed)?;
    // `nohup` ignores SIGHUP, so that the run outlives its terminal.
    let kept = |signal: &c_int| *signal == SIGHUP && is_ignored(*signal);
    for signal in STOPPING.into_iter().filter(|signal| !kept(signal)) {
        flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    Ok(stop)
}

/// Makes writes beyond the file size limit (`ulimit -f`) return an error, like writes to a full disk. By default
/// SIGXFSZ would kill the process without a message.
pub(super) fn let_large_writes_fail() -> Result<(), Error> {
    // A handler, unlike SIG_IGN, is not inherited by child processes.
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop).map_err(failed)
}

fn failed(e: std::io::Error) -> Error {
    Error::usage(format!("cannot listen for signals: {e}"))
}

/// Whether the process ignores `signal`, from its start or since.
#[allow(unsafe_code)] // no dependency offers a safe call
fn is_ignored(signal: c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null action changes nothing; `now` is written if the call succeeds, and read only then.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
            && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Whether a flag from [`stop_flag`] is set.
pub(super) fn is_set(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

/// Returns [`Error::Stopped`] if a flag from [`stop_flag`] is set.
pub(super) fn check_stop(stop: &AtomicBool) -> Result<(), Error> {
    if is_set(stop) {
        Err(Error::Stopped)
    } else {
        Ok(())
    }
}
