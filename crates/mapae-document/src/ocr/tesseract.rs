//! The program `tesseract`, version 4 or later, found in the PATH of this process.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::child::converter::{self, Group};

/// Languages that are read, as far as they are installed, the first being the main one.
const LANGUAGES: [&str; 2] = ["kor", "eng"];
/// What tells which way a page is turned.
const ORIENTATION: &str = "osd";
/// How long a page may take by the clock.
pub(crate) const PAGE_WALL: Duration = Duration::from_secs(120);
/// How long it may take to say what is installed.
const LIST_WALL: Duration = Duration::from_secs(10);
/// Bytes of what it says about a page or its languages.
const OUTPUT_MAX: u64 = 16 * 1024 * 1024;
/// Where the data of languages is, for installations that need to be told.
pub(crate) const DATA: &str = "TESSDATA_PREFIX";

/// Where the program is looked for.
#[derive(Clone, Default)]
pub struct Tesseract {
    /// Folders in place of the PATH of this process.
    pub path: Option<OsString>,
}

/// Why nothing can be recognised here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Program,
    /// The program is there and cannot read.
    Languages,
}

/// The program as it is installed.
#[derive(Clone, Debug)]
pub struct Installed {
    program: PathBuf,
    /// What is read, in order.
    languages: Vec<&'static str>,
    orientation: bool,
}

impl Tesseract {
    /// The program and its languages. `reader` is what children are made of.
    pub(crate) async fn installed(&self, reader: &Path) -> Result<Installed, Missing> {
        let path = self.path.clone().or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        // A relative folder would be another one for a child.
        let mut places = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        let program = places.find_map(|folder| {
            let program = folder.join("tesseract");
            program.is_file().then_some(program)
        });
        let program = program.ok_or(Missing::Program)?;
        let listed = run(reader, &program, &["--list-langs"], Vec::new(), LIST_WALL).await;
        let listed = listed.map_err(|_| Missing::Program)?;
        let listed = String::from_utf8_lossy(&listed);
        let has = |language: &&str| listed.lines().any(|line| line.trim() == *language);
        let languages: Vec<_> = LANGUAGES.into_iter().filter(has).collect();
        if languages.is_empty() {
            return Err(Missing::Languages);
        }
        Ok(Installed { program, languages, orientation: has(&ORIENTATION) })
    }
}

impl Installed {
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Languages that would be read and are not there.
    pub fn languages_missing(&self) -> Vec<&'static str> {
        LANGUAGES.into_iter().filter(|language| !self.languages.contains(language)).collect()
    }

    /// The words of a picture: pieces as a table of tab-separated values, then the text.
    pub(crate) async fn words(&self, reader: &Path, picture: Vec<u8>) -> io::Result<Vec<u8>> {
        let languages = self.languages.join("+");
        // 1: find out how the page is turned, then where its text stands. 3: the latter alone.
        let segmentation = if self.orientation { "1" } else { "3" };
        let dpi = super::picture::DPI.to_string();
        let options = ["-", "-", "-l", &languages, "--psm", segmentation, "--dpi", &dpi];
        // Without this the words of Korean fall apart in the text.
        let outputs = ["-c", "preserve_interword_spaces=1", "tsv", "txt"];
        let arguments = [&options[..], &outputs].concat();
        run(reader, &self.program, &arguments, picture, PAGE_WALL).await
    }
}

/// What `program` says to `input`, all of it and in time.
async fn run(
    reader: &Path,
    program: &Path,
    arguments: &[&str],
    input: Vec<u8>,
    wall: Duration,
) -> io::Result<Vec<u8>> {
    let mut command = converter::command(reader, program);
    // It would start a thread for each processor; how many pages are read at a time is decided elsewhere.
    command.args(arguments).env("OMP_THREAD_LIMIT", "1");
    if let Some(data) = std::env::var_os(DATA) {
        command.env(DATA, data);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let talk = async {
        let mut group: Group = converter::start(command).await?;
        let (Some(mut stdin), Some(stdout)) = (group.child.stdin.take(), group.child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let say = async move {
            // One that needs no input may close it.
            let _ = stdin.write_all(&input).await;
        };
        let hear = async move {
            let mut said = Vec::new();
            stdout.take(OUTPUT_MAX + 1).read_to_end(&mut said).await.map(|_| said)
        };
        let ((), said) = tokio::join!(say, hear);
        let said = said?;
        if said.len() as u64 > OUTPUT_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        match group.child.wait().await?.success() {
            true => Ok(said),
            false => Err(io::ErrorKind::Other.into()),
        }
    };
    tokio::time::timeout(wall, talk).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}
