//! The system calls of each profile.
//!
//! Two answers to a call that is not to be made. What no honest program of ours comes near (another program, a socket,
//! somebody else's memory, the kernel's own affairs) kills: whoever tries it has taken over the process. What a
//! library may try on its way (a file under `/proc`, the number of processors, a second thread) is answered as by a
//! kernel that does not have it, which libraries are written for.

use std::collections::BTreeMap;
use std::io;

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};

use super::Profile;

/// Calls by number; each without rules, or with rules of which one must hold for the call to be meant.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// The programs for the kernel, in the order in which they are to be installed.
pub(super) fn filters(profile: Profile<'_>) -> io::Result<Vec<BpfProgram>> {
    let kill = |calls| program(calls, SeccompAction::Allow, SeccompAction::KillProcess);
    match profile {
        Profile::Parser => {
            let mut killed = plain(OTHERS_AND_KERNEL);
            killed.extend(plain(PROGRAMS));
            killed.extend(plain(SOCKETS));
            // A thread may be asked for and is refused; a process is another matter.
            killed.insert(libc::SYS_clone, vec![rule([masked(0, libc::CLONE_THREAD as u64, 0)?])?]);
            let missing = SeccompAction::Errno(libc::ENOSYS as u32);
            Ok(vec![kill(killed)?, program(parser()?, missing, SeccompAction::Allow)?])
        }
        Profile::Converter { .. } => {
            // Libraries ask who is logged in, over a socket, and live with a refusal.
            let refused = SeccompAction::Errno(libc::EPERM as u32);
            let sockets = program(plain(SOCKETS), SeccompAction::Allow, refused)?;
            Ok(vec![kill(plain(OTHERS_AND_KERNEL))?, sockets])
        }
    }
}

fn program(calls: Calls, others: SeccompAction, these: SeccompAction) -> io::Result<BpfProgram> {
    let unsupported = |_| io::Error::from(io::ErrorKind::Unsupported);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(unsupported)?;
    SeccompFilter::new(calls, others, these, arch).and_then(TryInto::try_into).map_err(unsupported)
}

/// What our own parsers live on: memory, time, the open input and output, and an end.
fn parser() -> io::Result<Calls> {
    let mut calls = plain(PARSER);
    // Memory is never to be executed, and never a file's.
    let no_code = |argument| masked(argument, libc::PROT_EXEC as u64, 0);
    let of_no_file = masked(3, libc::MAP_ANONYMOUS as u64, libc::MAP_ANONYMOUS as u64)?;
    calls.insert(libc::SYS_mmap, vec![rule([no_code(2)?, of_no_file])?]);
    calls.insert(libc::SYS_mprotect, vec![rule([no_code(2)?])?]);
    // A socket that is connected needs no address.
    calls.insert(libc::SYS_sendto, vec![rule([is(4, 0)?])?]);
    // How a process ends itself by a signal; others it cannot reach.
    let own = u64::from(std::process::id());
    calls.insert(libc::SYS_tgkill, vec![rule([is(0, own)?])?]);
    Ok(calls)
}

fn plain(calls: &[i64]) -> Calls {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions.into()).map_err(io::Error::other)
}

fn masked(argument: u8, mask: u64, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, Dword, MaskedEq(mask), value).map_err(io::Error::other)
}

fn is(argument: u8, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, Dword, Eq, value).map_err(io::Error::other)
}

const PARSER: &[i64] = &[
    // the input and the answer
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    // memory
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // threads that are there already, or are just beginning
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // time and chance
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // signals to itself, as of a stack that ran over, and ends
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Becoming or making another program.
const PROGRAMS: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

const SOCKETS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// What belongs to other processes, to the kernel, or to whoever runs the machine.
const OTHERS_AND_KERNEL: &[i64] = &[
    // others
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    // ways around what is refused
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_personality,
    libc::SYS_open_by_handle_at,
    // keys, programs and counters in the kernel
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    // what is mounted
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // the machine
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];
