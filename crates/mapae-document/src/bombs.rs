//! Streams of a PDF that would unpack to more than they may, made harmless before the parser sees them.
//!
//! The parser unpacks a stream whole, and a hundred bytes can ask for a gigabyte. Only a stream that is large enough
//! to be one is looked at: Flate packs a thousand to one at best. It is unpacked into nothing, layer by layer where
//! packed bytes come out again, and where it goes over the cap its first bytes are spoilt: it unpacks to nothing then,
//! and what else the file holds is read.

use std::io::{BufReader, Read};

use flate2::read::ZlibDecoder;
use memchr::memmem;

/// What Flate packs to one, at best, with some grace.
const RATIO_MAX: u64 = 1_050;
/// Packed bytes in packed bytes. Deeper ones go over any memory by then, or are small.
const LAYERS_MAX: usize = 3;

/// Spoils every stream of `data` that unpacks to more than `bytes_max`; answers how many there were.
pub(crate) fn defuse(data: &mut [u8], bytes_max: u64) -> usize {
    let starts: Vec<usize> = memmem::find_iter(data, b"stream").map(|at| at + b"stream".len()).collect();
    let mut spoilt = 0;
    for (at, next) in starts.iter().zip(starts.iter().skip(1).chain([&data.len()])) {
        let begin = at + data[*at..].iter().take(2).take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let packed = (*next).saturating_sub(begin) as u64;
        let layered = packed.saturating_mul(RATIO_MAX.pow(2)) > bytes_max;
        if !layered || !is_zlib(&data[begin..]) {
            continue;
        }
        if unpacks_beyond(&data[begin..*next], bytes_max, LAYERS_MAX) {
            data[begin..(begin + 2).min(*next)].fill(0);
            spoilt += 1;
        }
    }
    spoilt
}

/// The two bytes every zlib stream begins with: the method, and a check over both.
fn is_zlib(bytes: &[u8]) -> bool {
    matches!(bytes, [a, b, ..] if a & 0x0f == 8 && (u16::from(*a) << 8 | u16::from(*b)) % 31 == 0)
}

fn unpacks_beyond(packed: &[u8], bytes_max: u64, layers: usize) -> bool {
    let mut first = Vec::new();
    let _ = ZlibDecoder::new(packed).take(2).read_to_end(&mut first);
    let inside = layers > 1 && is_zlib(&first);
    // A stream that is too short to go over the cap by itself may still hold one that does.
    let alone = packed.len() as u64 * RATIO_MAX > bytes_max;
    (alone && measure(ZlibDecoder::new(packed), bytes_max) > bytes_max)
        || (inside && layered(ZlibDecoder::new(packed), bytes_max, layers - 1))
}

/// Whether what `packed` gives unpacks to too much, or what that gives, and so on.
fn layered(packed: impl Read, bytes_max: u64, layers: usize) -> bool {
    let mut inner: Box<dyn Read + '_> = Box::new(ZlibDecoder::new(BufReader::new(packed)));
    for layer in 1..=layers {
        let mut first = [0; 2];
        if inner.read_exact(&mut first).is_err() {
            return false;
        }
        let whole = std::io::Cursor::new(first).chain(inner);
        if layer == layers || !is_zlib(&first) {
            return measure(whole, bytes_max) > bytes_max;
        }
        inner = Box::new(ZlibDecoder::new(BufReader::new(whole)));
    }
    false
}

/// How much comes out, counted to a little over `bytes_max`; of what breaks off, what came before.
fn measure(mut unpacked: impl Read, bytes_max: u64) -> u64 {
    let mut buffer = vec![0; 64 * 1024];
    let mut size = 0;
    while size <= bytes_max {
        match unpacked.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(read) => size += read as u64,
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::ZlibEncoder};

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn file(stream: &[u8]) -> Vec<u8> {
        [b"4 0 obj <</Filter/FlateDecode>>\nstream\r\n", stream, b"\nendstream endobj"].concat()
    }

    #[test]
    fn a_stream_over_the_cap_is_spoilt_and_others_stay_as_they_are() {
        let zeros = packed(&[0; 3_000_000]);
        let twice = packed(&zeros);
        for bomb in [&zeros, &twice] {
            let mut data = [file(b"q Q"), file(bomb), file(&packed(b"BT ET"))].concat();
            let before = data.clone();
            assert_eq!(defuse(&mut data, 1_000_000), 1);
            let changed = data.iter().zip(&before).filter(|(a, b)| a != b).count();
            assert_eq!(changed, 2);
            assert_eq!(defuse(&mut before.clone(), 4_000_000), 0);
        }
    }

    #[test]
    fn what_is_no_stream_is_let_be() {
        for data in [&b"stream"[..], b"stream\n", b"streamstreamendstream\r\n\x78\x9c", b""] {
            let mut copy = data.to_vec();
            assert_eq!((defuse(&mut copy, 0), copy.as_slice()), (0, data));
        }
    }
}
