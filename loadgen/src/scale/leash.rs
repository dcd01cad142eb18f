//! Children that die with their parent, however it dies: Linux sends SIGKILL to a process whose
//! parent ends, if it has asked for that. A worker asks for itself; a gateway is started through
//! `loadgen leash`, which asks and then becomes the gateway.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Ties this process to its parent, which is that process. One whose parent has gone ends here.
pub(super) fn tie(parent: u32) {
    // An old kernel or a sandbox may refuse: then pipes and explicit ends have to do.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let present = getppid().map(Pid::as_raw_pid).and_then(|pid| u32::try_from(pid).ok());
    if present != Some(parent) {
        std::process::exit(1);
    }
}

/// Ties this process to that parent and becomes that program.
pub fn main(parent: u32, program: &[OsString]) -> ExitCode {
    let Some((name, arguments)) = program.split_first() else {
        eprintln!("loadgen leash: no program");
        return ExitCode::from(2);
    };
    tie(parent);
    let error = Command::new(name).args(arguments).exec();
    eprintln!("loadgen leash: {}: {error}", name.display());
    ExitCode::from(1)
}
