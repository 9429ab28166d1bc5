//! Signal handling: signals that stop a run after a checkpoint, and SIGXFSZ, which would end it during a write.

use crate::error::Error;
use crate::sweep::STOPPING;
use signal_hook::consts::{SIGHUP, SIGINT, SIGXFSZ};
use signal_hook::{flag, low_level};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// Time after the first SIGINT within which others do not count, in milliseconds. `timeout`, for example, sends one to the
/// process and one to its group.
const ONE_INTERRUPTION: u64 = 1000;

/// Returns a flag that is set by the first of the signals [`STOPPING`]; a later SIGINT ends the process at once, unless it
/// comes within a second of the first one.
///
/// SIGQUIT keeps its default action, to end the process at once with a core dump.
pub(super) fn stop_flag() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    end_at_a_later_interruption(Arc::clone(&stop)).map_err(failed)?;
    // `nohup` ignores SIGHUP, so that the run outlives its terminal.
    let kept = |signal: &c_int| *signal == SIGHUP && is_ignored(*signal);
    for signal in STOPPING.into_iter().filter(|signal| !kept(signal)) {
        flag::register(signal, Arc::clone(&stop)).map_err(failed)?;
    }
    Ok(stop)
}

/// Ends the process at a SIGINT if `stop` is set already. It must be registered before the action that sets the flag.
#[allow(unsafe_code)] // the safe function of the crate does not know the time
fn end_at_a_later_interruption(stop: Arc<AtomicBool>) -> std::io::Result<()> {
    // Time of the first SIGINT, or 0 before it.
    let (begun, first) = (Instant::now(), AtomicU64::new(0));
    let interrupted = move || {
        let now = begun.elapsed().as_millis() as u64 + 1;
        let later = match first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => is_set(&stop), // by another signal
            Err(first) => now.saturating_sub(first) > ONE_INTERRUPTION,
        };
        if later {
            low_level::exit(130);
        }
    };
    // SAFETY: the action reads a clock and atomic values and may end the process, all of which signal handlers may do.
    unsafe { low_level::register(SIGINT, interrupted) }.map(drop)
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
