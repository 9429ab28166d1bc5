//! A program under `ptrace`, which can be killed, or refused by the system, at any of its calls that change files.
//!
//! This needs nothing of the program, which is the one that users have, and sees every call of every library in it.

#![allow(unsafe_code)] // a child asks to be traced between fork and exec

use nix::errno::Errno;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Fault injected into the program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Nothing: its calls are counted.
    None,
    /// It is killed, with all its children, before the call of this number, counted from 0.
    Kill(usize),
    /// [`Self::Kill`], but half of the call before is done, if it writes.
    Tear(usize),
    /// From the call of this number on every one fails with this error.
    Fail(usize, Errno),
    /// It is asked to end, by SIGTERM, at the call of the first number, and killed before that of the second.
    EndAndKill(usize, usize),
    /// The file system has no locks.
    NoLocks,
}

/// End of a traced program.
#[derive(Debug)]
pub struct End {
    /// Its exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// Its stdout.
    pub out: String,
    /// Its stderr.
    pub said: String,
    /// Its calls that change files, by name.
    pub changes: BTreeMap<&'static str, usize>,
    /// Whether the fault was reached.
    pub reached: bool,
}

impl End {
    pub fn count(&self) -> usize {
        self.changes.values().sum()
    }
}

/// Whether this machine lets a process trace its children; some containers do not.
pub fn permitted() -> bool {
    let mut probe = Command::new("true");
    // SAFETY: as below.
    unsafe {
        probe.pre_exec(|| ptrace::traceme().map_err(std::io::Error::from));
    }
    let Ok(mut child) = probe.spawn() else {
        println!("skipped: this test may not trace processes");
        return false;
    };
    child.kill().unwrap();
    child.wait().unwrap();
    true
}

/// Runs `command` to its end under `fault`.
#[allow(clippy::zombie_processes, reason = "the tracer waits for it")]
pub fn run(mut command: Command, fault: Fault) -> End {
    let [stdout, stderr] = [0; 2].map(|_| tempfile::NamedTempFile::new().unwrap());
    command.stdin(std::process::Stdio::null());
    command.stdout(stdout.reopen().unwrap());
    command.stderr(stderr.reopen().unwrap());
    // SAFETY: a system call that touches no memory of the parent.
    unsafe {
        command.pre_exec(|| ptrace::traceme().map_err(std::io::Error::from));
    }
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let mut tracer =
        Tracer { fault, changes: BTreeMap::new(), made: 0, reached: false, seen: vec![pid], failing: BTreeMap::new() };
    let code = tracer.follow(pid);
    End {
        code,
        out: fs::read_to_string(stdout.path()).unwrap(),
        said: fs::read_to_string(stderr.path()).unwrap(),
        changes: tracer.changes,
        reached: tracer.reached,
    }
}

struct Tracer {
    fault: Fault,
    changes: BTreeMap<&'static str, usize>,
    made: usize,
    reached: bool,
    /// Threads and processes.
    seen: Vec<Pid>,
    /// Processes whose current call is to fail, and the error.
    failing: BTreeMap<Pid, Errno>,
}

impl Tracer {
    /// Until the program and all its children have ended.
    fn follow(&mut self, program: Pid) -> Option<i32> {
        assert!(matches!(waitpid(program, None).unwrap(), WaitStatus::Stopped(_, Signal::SIGTRAP)));
        let options = ptrace::Options::PTRACE_O_TRACESYSGOOD
            | ptrace::Options::PTRACE_O_TRACECLONE
            | ptrace::Options::PTRACE_O_TRACEFORK
            | ptrace::Options::PTRACE_O_TRACEVFORK
            | ptrace::Options::PTRACE_O_TRACEEXEC
            | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::setoptions(program, options).unwrap();
        ptrace::syscall(program, None).unwrap();
        let mut code = None;
        // Of this thread alone: other tests wait for children of their own.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        loop {
            let status = match waitpid(None, Some(flags)) {
                Err(Errno::ECHILD) => return code,
                Err(Errno::EINTR) => continue,
                status => status.unwrap(),
            };
            let (stopped, signal) = match status {
                WaitStatus::Exited(pid, with) if pid == program => {
                    code = Some(with);
                    continue;
                }
                WaitStatus::PtraceSyscall(pid) => {
                    self.at_call(pid);
                    (pid, None)
                }
                WaitStatus::PtraceEvent(pid, ..) => (pid, None),
                WaitStatus::Stopped(pid, Signal::SIGSTOP) if !self.seen.contains(&pid) => {
                    self.seen.push(pid);
                    (pid, None)
                }
                WaitStatus::Stopped(pid, Signal::SIGTRAP) => (pid, None),
                WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
                _ => continue,
            };
            // Gone where it was just killed.
            let _ = ptrace::syscall(stopped, signal);
        }
    }

    fn at_call(&mut self, pid: Pid) {
        let Ok(mut registers) = ptrace::getregs(pid) else {
            return;
        };
        if let Some(error) = self.failing.remove(&pid) {
            registers.rax = (-i64::from(error as i32)).cast_unsigned();
            let _ = ptrace::setregs(pid, registers);
            return;
        }
        // On entry the kernel leaves this there; it is what tells entry from return.
        if registers.rax.cast_signed() != -i64::from(libc::ENOSYS) {
            return;
        }
        if self.fault == Fault::NoLocks && registers.orig_rax.cast_signed() == libc::SYS_flock {
            self.reached = true;
            self.fail(pid, registers, Errno::ENOLCK);
            return;
        }
        let Some(name) = change(&registers) else {
            return;
        };
        let number = self.made;
        self.made += 1;
        *self.changes.entry(name).or_default() += 1;
        match self.fault {
            Fault::Kill(at) | Fault::Tear(at) | Fault::EndAndKill(_, at) if number == at => {
                self.reached = true;
                for pid in &self.seen {
                    let _ = kill(*pid, Signal::SIGKILL);
                }
            }
            Fault::Tear(at) if number + 1 == at && name == "write" => {
                registers.rdx /= 2;
                let _ = ptrace::setregs(pid, registers);
            }
            Fault::EndAndKill(at, _) if number == at => {
                let _ = kill(self.seen[0], Signal::SIGTERM);
            }
            Fault::Fail(at, error) if number >= at && can_fail(name, error) => {
                self.reached = true;
                self.fail(pid, registers, error);
            }
            _ => {}
        }
    }

    fn fail(&mut self, pid: Pid, registers: user_regs_struct, error: Errno) {
        let none = user_regs_struct { orig_rax: u64::MAX, ..registers };
        ptrace::setregs(pid, none).unwrap();
        self.failing.insert(pid, error);
    }
}

/// Whether a call can fail with an error: a full disk refuses only calls that take space.
fn can_fail(name: &str, error: Errno) -> bool {
    error != Errno::ENOSPC || !["unlink", "rmdir", "fsync", "ftruncate"].contains(&name)
}

/// The name of a call that changes a file or a folder.
fn change(registers: &user_regs_struct) -> Option<&'static str> {
    let creates = |flags: u64| flags & u64::from(libc::O_CREAT.cast_unsigned()) != 0;
    let is_file = |descriptor: u64| descriptor > 2;
    match registers.orig_rax.cast_signed() {
        libc::SYS_openat if creates(registers.rdx) => Some("create"),
        libc::SYS_open if creates(registers.rsi) => Some("create"),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev if is_file(registers.rdi) => Some("write"),
        libc::SYS_fsync | libc::SYS_fdatasync => Some("fsync"),
        libc::SYS_rename | libc::SYS_renameat | libc::SYS_renameat2 => Some("rename"),
        libc::SYS_unlink | libc::SYS_unlinkat => Some("unlink"),
        libc::SYS_link | libc::SYS_linkat => Some("link"),
        libc::SYS_mkdir | libc::SYS_mkdirat => Some("mkdir"),
        libc::SYS_rmdir => Some("rmdir"),
        libc::SYS_ftruncate => Some("ftruncate"),
        _ => None,
    }
}
