//! The main job on real documents: to be looked at (`demo`), and to be measured (`score`).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::models;
use crate::step::{Failure, Outcome, cargo, run, step};

const EXAMPLES: &str = "examples";
const RESULTS: &str = "results/demo";
const DOCUMENTS: [&str; 8] = ["csv", "docx", "hwpx", "ods", "pdf", "xls", "xlsb", "xlsx"];
/// Source code, which may lie beside them, as a README may.
const CODE: [&str; 3] = ["py", "rs", "toml"];

/// Builds the program for release and lets it analyse every document of the examples.
pub(crate) fn analyze_examples() -> Outcome<()> {
    step("Demo: build", || {
        run(
            &mut cargo(&["build", "--release", "--locked", "-p", "mapae-server"]),
            "see the compiler's message above",
        )
    })?;
    let documents = documents()?;
    if let Err(error) = std::fs::remove_dir_all(RESULTS)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(Failure::new(format!("cannot empty {RESULTS}: {error}"), "remove it by hand"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let mut analyze = Command::new(Path::new(&target).join("release/mapae"));
    analyze.arg("analyze").args(&documents).args(["--out", RESULTS]);
    step("Demo: analyse the examples", || {
        run(&mut analyze, "the program's own message above says what to do")
    })?;

    println!("\nThe results:");
    for document in &documents {
        let name = document.file_name().expect("the path of a file ends with its name");
        let result = Path::new(RESULTS).join(name).join("document.json");
        if !result.metadata().is_ok_and(|result| result.len() > 0) {
            return Err(Failure::new(
                format!(
                    "{} is missing or empty although the program said that all is well",
                    result.display()
                ),
                "this is a bug of `mapae analyze`",
            ));
        }
        println!("  {}", result.display());
    }
    Ok(())
}

/// Measures the quality of the analysis where the documents for it are.
pub(crate) fn score(data: &Path) -> Outcome<()> {
    if !data.is_dir() {
        eprintln!("No documents to measure with: {} is not there. Nothing was measured.", data.display());
        return Ok(());
    }
    let mut command =
        cargo(&["run", "--release", "--locked", "-p", "mapae-document", "--example", "score", "--"]);
    step("Score", || run(command.arg(data), "see the message above"))?;
    models::make()?;
    let mut command =
        cargo(&["run", "--release", "--locked", "-p", "mapae-ai", "--example", "understanding", "--"]);
    step("Score: texts", || run(command.arg(data).arg(models::MODELS), "see the message above"))
}

fn documents() -> Outcome<Vec<PathBuf>> {
    let unreadable = |error: std::io::Error| {
        Failure::new(format!("cannot read {EXAMPLES}/: {error}"), "is the repository complete?")
    };
    let mut documents = Vec::new();
    for entry in std::fs::read_dir(EXAMPLES).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let is_readme = path.file_stem().is_some_and(|stem| stem == "README");
        if path.is_dir() || is_readme || CODE.contains(&extension) {
            continue;
        }
        // One that is not known must not be left out of the demo in silence.
        if !DOCUMENTS.contains(&extension) {
            return Err(Failure::new(
                format!("{} is of a kind that the demo does not know", path.display()),
                "name its extension in xtask/src/demo.rs, or take the file away",
            ));
        }
        documents.push(path);
    }
    documents.sort();
    if documents.is_empty() {
        return Err(Failure::new(
            format!("there is no document in {EXAMPLES}/"),
            "is the repository complete?",
        ));
    }
    Ok(documents)
}
