//! The binary `mapae`.

fn main() -> std::process::ExitCode {
    mapae_server::cli::run()
}
