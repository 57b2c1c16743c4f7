//! The child process alone, for programs that would rather run a small one than themselves, and for tests.

fn main() -> std::process::ExitCode {
    if std::env::args().nth(1).as_deref() != Some(mapae_document::child::ARGUMENT) {
        eprintln!("document-child reads one document for the program that starts it");
        return std::process::ExitCode::from(2);
    }
    mapae_document::child::child_main()
}
