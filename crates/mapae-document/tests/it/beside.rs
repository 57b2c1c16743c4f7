//! Twelve hostile documents beside twelve good ones, eight at a time: no good one notices.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mapae_document::child::DocumentReader;
use mapae_document::error::DocumentError;
use mapae_document::limits::Limits;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::samples::sample;
use crate::{file, make, named, patient};

const SLOTS: usize = 8;
/// What all readers together may have in memory.
const MEMORY: u64 = 1 << 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_hostile_documents_cost_twelve_good_ones_nothing() {
    // An eighth each would be too little to begin in: what counts is what is really used, and that is measured.
    let limits = Limits { memory_bytes: 300 << 20, cpu_seconds: 5, page_operations: 20_000, ..patient() };
    let reader = DocumentReader::with_program(env!("CARGO_BIN_EXE_document-probe"));
    let done = Arc::new(AtomicBool::new(false));
    let measured = std::thread::spawn({
        let done = done.clone();
        move || watch(&done)
    });
    let slots = Arc::new(Semaphore::new(SLOTS));
    let mut calls = JoinSet::new();
    let (good, hostile) = (good(), hostile());
    assert_eq!((good.len(), hostile.len()), (12, 12));
    for (good, hostile) in good.into_iter().zip(hostile) {
        for (is_good, (name, bytes)) in [(false, hostile), (true, good)] {
            let (reader, limits, slots) = (reader.clone(), limits.clone(), slots.clone());
            calls.spawn(async move {
                let _slot = slots.acquire().await.unwrap();
                let read = reader.parse(file(&bytes), named(name), &limits).await;
                (is_good, name, read)
            });
        }
    }
    let mut lost = 0;
    while let Some(call) = calls.join_next().await {
        let (is_good, name, read) = call.unwrap();
        match read {
            Ok(document) if is_good => assert!(!document.text.is_empty(), "{name}"),
            Err(error) if is_good => panic!("{name} is good: {error:?}"),
            Ok(_) => {}
            Err(error) => {
                assert_ne!(error, DocumentError::Unavailable, "{name}");
                lost += usize::from(error.loss().is_some());
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    let (peak, first_to_go) = measured.join().unwrap();
    assert_eq!(lost, 4, "crash, overflow, time and memory: these readers were lost, and no other");
    assert!(peak < MEMORY, "{} MiB at once", peak >> 20);
    assert!(first_to_go, "where memory runs out, readers go before whoever started them");
}

/// Names with bytes.
type Documents = Vec<(&'static str, Vec<u8>)>;

fn good() -> Documents {
    let names = [
        "budget-2026.pdf",
        "budget-2026.xlsx",
        "library-report.pdf",
        "library-notice.hwpx",
        "board-minutes.docx",
    ];
    let samples = names.map(|name| (name, sample(name)));
    let small = ("a.csv", b"name,count\nbooks,12\n".to_vec());
    samples.into_iter().chain([small]).cycle().take(12).collect()
}

fn hostile() -> Documents {
    const FORM: &str = "/Type /XObject /Subtype /Form /BBox [0 0 600 800]";
    let bomb = |packed: &[u8], filter: &str| {
        let form = make::stream(&format!("{FORM} /Filter {filter}"), packed);
        make::pdf("", b"/X Do", &[form])
    };
    let zeros = make::zeros_packed(800);
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &zeros).unwrap();
    let twice = encoder.finish().unwrap();
    let laughs = |next: usize| {
        let entries = format!("{FORM} /Resources << /XObject << /N {next} 0 R >> >>");
        make::stream(&entries, "/N Do ".repeat(10).as_bytes())
    };
    let deep = b"[".repeat(200_000);
    let cells = "<c/>".repeat(3 << 20);
    vec![
        ("bomb.pdf", bomb(&zeros, "/FlateDecode")),
        ("bomb-twice.pdf", bomb(&twice, "[/FlateDecode /FlateDecode]")),
        ("laughs.pdf", make::pdf("", b"/X Do", &(11..21).map(laughs).collect::<Vec<_>>())),
        ("deep.pdf", make::pdf("", &deep, std::slice::from_ref(&deep))),
        ("states.pdf", make::pdf("", &b"q ".repeat(1_000_000), &[])),
        ("string.xlsx", make::xlsx(&" ".repeat(11 << 20))),
        ("cells.xlsx", make::xlsx(&format!("<sheetData>{cells}</sheetData>"))),
        ("corners.xls", make::xls(&[(0, 0, 1.0), (65_535, 65_535, 2.0)])),
        ("abort.txt", b"probe abort".to_vec()),
        ("overflow.txt", b"probe overflow".to_vec()),
        ("hang.txt", b"probe hang".to_vec()),
        ("allocate.txt", b"probe allocate".to_vec()),
    ]
}

/// The most that children of this process had in memory at once, and whether each was set to go first where it ends.
fn watch(done: &AtomicBool) -> (u64, bool) {
    let (mut peak, mut first_to_go) = (0, false);
    while !done.load(Ordering::Relaxed) {
        let readers = readers();
        peak = peak.max(readers.values().sum());
        first_to_go |= readers.keys().any(|id| {
            let set = std::fs::read_to_string(format!("/proc/{id}/oom_score_adj"));
            set.is_ok_and(|set| set.trim() == "500")
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    (peak, first_to_go)
}

/// Resident bytes of each process of the probe's name that this one started.
fn readers() -> HashMap<u32, u64> {
    let own = std::process::id().to_string();
    let ids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let resident = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (head, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let ours = head.ends_with("document-probe") && fields.get(1) == Some(&own.as_str());
        let pages: u64 = fields.get(21)?.parse().ok()?;
        ours.then_some(pages * 4096)
    };
    ids.filter_map(|id| Some((id, resident(id)?))).collect()
}
