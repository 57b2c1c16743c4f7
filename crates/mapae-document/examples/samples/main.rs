//! Makes the sample documents of this project: `samples FOLDER`.

mod files;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "examples".to_owned());
    std::fs::create_dir_all(&folder)?;
    for (name, bytes) in files::all() {
        std::fs::write(std::path::Path::new(&folder).join(name), bytes)?;
        println!("{folder}/{name}");
    }
    Ok(())
}
