//! What a process that meets a stranger's bytes takes from itself before it reads the first of them.
//!
//! | profile | for | files | network | system calls |
//! |---|---|---|---|---|
//! | [`Profile::Parser`] | our own parsers | none | none | a list of some thirty; the rest does not exist |
//! | [`Profile::Converter`] | a program that is about to be executed | the system's, to read; its own folder | none | all but those for other processes and the system |
//!
//! Files are Landlock's part (and TCP, from Linux 6.7 on), calls are seccomp's. Neither can be taken back, both hold
//! for every process started later. Where the kernel has neither, the document is read all the same: limits and a
//! process of its own are left, and [`Protection`] says what is missing, so that an operator can be told.

mod calls;

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use serde::{Deserialize, Serialize};

/// The newest rules asked for; a kernel that knows fewer is asked for those.
const RULES: ABI = ABI::V6;

/// What programs of a distribution are made of.
const SYSTEM_FOLDERS: [&str; 8] =
    ["/usr", "/lib", "/lib64", "/bin", "/etc/fonts", "/etc/ld.so.cache", "/etc/alternatives", "/dev/urandom"];

/// What is taken away.
#[derive(Clone, Copy, Debug)]
pub enum Profile<'p> {
    /// What is open stays open, and there is nothing else.
    Parser,
    /// For a program of others: what it is made of, folders of its own to read, and one that it may write to.
    Converter { own: &'p [&'p Path], scratch: &'p Path },
}

/// What of it holds in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// No file can be opened but those that are allowed (Landlock).
    pub landlock_files: bool,
    /// No TCP (Landlock from Linux 6.7 on). Without it [`Self::seccomp`] still refuses sockets.
    pub landlock_network: bool,
    /// No system calls but those that are allowed.
    pub seccomp: bool,
}

impl Protection {
    /// Each part under the name that doctor and metrics use, and whether it holds.
    pub fn parts(self) -> [(&'static str, bool); 3] {
        [
            ("landlock-files", self.landlock_files),
            ("landlock-network", self.landlock_network),
            ("seccomp", self.seccomp),
        ]
    }

    /// The names of the parts that do not hold.
    pub fn missing(self) -> Vec<&'static str> {
        self.parts().into_iter().filter(|(_, holds)| !holds).map(|(name, _)| name).collect()
    }
}

/// Takes from this process, for good, what `profile` says. A process does this before it has a second thread.
pub fn enter(profile: Profile<'_>) -> Protection {
    // Landlock first: installing it takes calls that are gone afterwards.
    let (landlock_files, landlock_network) = wall_off(profile);
    Protection { landlock_files, landlock_network, seccomp: forbid_calls(profile).is_ok() }
}

/// Landlock's part: whether files are refused, and whether TCP is. Threads that are there already are not held by it, so
/// where there are any, nothing is claimed.
pub(super) fn wall_off(profile: Profile<'_>) -> (bool, bool) {
    let alone = std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
    match restrict(profile) {
        _ if !alone => (false, false),
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => (true, effective_abi >= ABI::V4),
            LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => (false, false),
        },
        Ok(_) | Err(_) => (false, false),
    }
}

fn restrict(profile: Profile<'_>) -> Result<landlock::RestrictionStatus, RulesetError> {
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?;
    let rules = match profile {
        Profile::Parser => rules,
        Profile::Converter { own, scratch } => {
            let system = SYSTEM_FOLDERS.iter().map(Path::new).chain(own.iter().copied());
            let rules = rules.add_rules(path_beneath_rules(system, AccessFs::from_read(RULES)))?;
            let null = path_beneath_rules(["/dev/null"], AccessFs::from_file(RULES));
            let rules = rules.add_rules(null)?;
            // A scratch folder that is not there is one that cannot be written to.
            match PathFd::new(scratch) {
                Ok(folder) => {
                    let all = AccessFs::from_all(RULES) & !AccessFs::Execute;
                    rules.add_rule(PathBeneath::new(folder, all))?
                }
                Err(_) => rules,
            }
        }
    };
    rules.restrict_self()
}

/// Seccomp's part, for every thread of the process.
pub(super) fn forbid_calls(profile: Profile<'_>) -> io::Result<()> {
    let install = |filter: &seccompiler::BpfProgram| {
        seccompiler::apply_filter_all_threads(filter).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))
    };
    // The one that kills comes first: where filters disagree the stricter answer counts, and the last one of a
    // parser leaves no call to install another with.
    calls::filters(profile)?.iter().try_for_each(install)
}
