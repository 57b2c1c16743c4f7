//! What reading a long PDF costs, beside `pdftotext` (poppler-utils) on the same file in the same run: `pages [FILE…]`.
//!
//! Without files it makes reports of its own, of 100 and of 1,000 pages of prose and tables. Times are processor
//! seconds of the child, the best of a few runs, so that what else the machine does counts little.

#[path = "pages/report.rs"]
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mapae_document::child::{self, DocumentReader, Request};
use mapae_document::limits::Limits;

type Failure = Box<dyn std::error::Error>;

/// Runs of each, of which the best counts.
const RUNS: usize = 5;
/// Ticks of the kernel's clock in `/proc`.
const TICKS: f64 = 100.0;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|a| a == child::ARGUMENT) {
        return child::child_main();
    }
    let done = async {
        let mut files: Vec<PathBuf> = args[1..].iter().map(PathBuf::from).collect();
        let folder = std::env::temp_dir().join(format!("mapae-pages-{}", std::process::id()));
        if files.is_empty() {
            std::fs::create_dir_all(&folder)?;
            for pages in [100, 1_000] {
                let path = folder.join(format!("report-{pages}.pdf"));
                std::fs::write(&path, report::pdf(pages))?;
                files.push(path);
            }
        }
        for file in &files {
            measure(file).await?;
        }
        let _ = std::fs::remove_dir_all(folder);
        Ok::<(), Failure>(())
    };
    match done.await {
        Ok(()) => 0.into(),
        Err(error) => {
            eprintln!("{error}");
            1.into()
        }
    }
}

async fn measure(path: &Path) -> Result<(), Failure> {
    let reader = DocumentReader::new();
    let limits = Limits { cpu_seconds: 600, wall: Duration::from_secs(600), ..Limits::default() };
    let (mut theirs, mut text, mut tables) = (f64::MAX, f64::MAX, f64::MAX);
    let (mut pages, mut found) = (0, 0);
    let memory = Peak::watch();
    for _ in 0..RUNS {
        let begun = spent()?;
        let ran =
            Command::new("pdftotext").arg(path).arg("-").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if ran.is_ok_and(|status| status.success()) {
            theirs = theirs.min(spent()? - begun);
        }
        let begun = spent()?;
        let read = reader.parse(std::fs::File::open(path)?, named(path), &limits).await?;
        text = text.min(spent_by_all().await? - begun);
        pages = read.pages.map_or(0, |pages| pages.len());
        let begun = spent()?;
        let read = reader.tables(std::fs::File::open(path)?, named(path), &[], &limits).await?;
        tables = tables.min(spent_by_all().await? - begun);
        found = read.tables.len();
    }
    let ratio = if theirs < f64::MAX { format!("{:.2}", theirs / text) } else { "unknown".to_owned() };
    println!("{}: {pages} pages, {found} tables", path.file_name().unwrap_or_default().to_string_lossy());
    println!("  pdftotext {theirs:.2} s, text {text:.2} s, tables {tables:.2} s");
    println!(
        "  speed of text / pdftotext {ratio} (goal 0.70); time of tables / text {:.2} (goal 2.00)",
        tables / text
    );
    println!("  largest child {:.0} MiB", memory.end());
    Ok(())
}

fn named(path: &Path) -> Request {
    Request { name: path.to_string_lossy().into_owned(), ..Request::default() }
}

/// Processor seconds of the children that have ended.
fn spent() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name in brackets may hold anything; user and system time of children are the 14th and 15th after it.
    let (_, fields) = stat.rsplit_once(')').ok_or("no statistics")?;
    let ticks = fields.split_ascii_whitespace().skip(13).take(2).map(|field| field.parse::<f64>());
    Ok(ticks.sum::<Result<f64, _>>()? / TICKS)
}

/// The same, once there are no others: a reader is answered a moment before its child has ended.
async fn spent_by_all() -> Result<f64, Failure> {
    while largest_child().is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    spent()
}

/// The most memory that a child of this process has had.
struct Peak {
    most: Arc<AtomicU64>,
    on: Arc<AtomicBool>,
}

impl Peak {
    fn watch() -> Self {
        let (most, on) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let (seen, going) = (most.clone(), on.clone());
        std::thread::spawn(move || {
            while going.load(Ordering::Relaxed) {
                seen.fetch_max(largest_child().unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self { most, on }
    }

    /// Mebibytes.
    fn end(self) -> f64 {
        self.on.store(false, Ordering::Relaxed);
        self.most.load(Ordering::Relaxed) as f64 / 1024.0
    }
}

/// Kibibytes.
fn largest_child() -> Option<u64> {
    let parent = format!("PPid:\t{}\n", std::process::id());
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let statuses =
        processes.filter_map(|process| std::fs::read_to_string(process.path().join("status")).ok());
    let ours = statuses.filter(|status| status.contains(&parent) && !status.starts_with("Name:\tpdftotext"));
    // One that has ended and is not yet waited for has no memory.
    let peak = |status: &str| -> Option<u64> {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        peak.trim().trim_end_matches(" kB").parse().ok()
    };
    ours.map(|status| peak(&status).unwrap_or(0)).max()
}
