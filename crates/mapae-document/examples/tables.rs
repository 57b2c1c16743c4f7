//! Writes the tables of documents for a scorer: `tables OUT-FOLDER FILE...`, one JSON file a document.

use std::path::Path;

use mapae_document::child::{self, DocumentReader, Request};
use mapae_document::limits::Limits;
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

fn main() -> std::process::ExitCode {
    // Before there is a second thread: what the child takes from itself is to hold for all of it.
    if std::env::args().nth(1).is_some_and(|a| a == child::ARGUMENT) {
        return child::child_main();
    }
    run()
}

#[tokio::main]
async fn run() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, out, files @ ..] = args.as_slice() else {
        eprintln!("tables OUT-FOLDER FILE...");
        return 2.into();
    };
    for file in files {
        if let Err(error) = tables(Path::new(file), Path::new(out)).await {
            eprintln!("{file}: {error}");
            return 1.into();
        }
    }
    0.into()
}

async fn tables(path: &Path, out: &Path) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let request = Request { name: name.clone(), ..Request::default() };
    let found =
        DocumentReader::new().tables(std::fs::File::open(path)?, request, &[], &Limits::default()).await?;
    let document = json!({ "format": "mapae-tables/1", "file": name, "tables": found.tables });
    std::fs::create_dir_all(out)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    std::fs::write(out.join(format!("{stem}.json")), serde_json::to_vec(&document)?)?;
    Ok(())
}
