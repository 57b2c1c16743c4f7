//! Reads one document and writes its folder: `read FILE OUT-FOLDER [PASSWORD]`.

use mapae_document::child::{self, DocumentReader, Request};
use mapae_document::error::Language;
use mapae_document::limits::Limits;

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
    let [_, path, out, password @ ..] = args.as_slice() else {
        eprintln!("read FILE OUT-FOLDER [PASSWORD]");
        return 2.into();
    };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) => {
            eprintln!("{path}: {error}");
            return 1.into();
        }
    };
    let request = Request { name: path.clone(), password: password.first().cloned(), ..Request::default() };
    match DocumentReader::new().parse(file, request, &Limits::default()).await {
        Ok(document) => match mapae_document::output::write(&document, out.as_ref()) {
            Ok(()) => 0.into(),
            Err(error) => {
                eprintln!("{out}: {error}");
                1.into()
            }
        },
        Err(error) => {
            eprintln!("{}: {}", error.code(), error.message(Language::English));
            eprintln!("{}", error.message(Language::Korean));
            1.into()
        }
    }
}
