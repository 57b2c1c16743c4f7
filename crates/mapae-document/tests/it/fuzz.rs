//! Small documents, changed at random from a seed: no parser panics, runs over its stack or goes on without end.
//!
//! A few rounds of each target run with every test. `MAPAE_FUZZ_SECONDS=600` gives each target so long instead,
//! `MAPAE_FUZZ_ONLY=NAME` runs one, `MAPAE_FUZZ_SEED=N` begins elsewhere. What breaks a parser is told as target, seed
//! and round, and kept as a file; the same targets are there for libFuzzer in `fuzz/`.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mapae_document::fuzz::TARGETS;

use crate::make;
use crate::samples::sample;

/// Rounds of each target with every test.
const ROUNDS: u64 = 150;
/// A round that takes longer has no end.
const PATIENCE: Duration = Duration::from_secs(120);
/// As much as a child gives its parser.
const STACK_BYTES: usize = 64 * 1024 * 1024;

#[test]
fn no_parser_breaks_on_documents_changed_at_random() {
    let set = |name: &str| std::env::var(name).ok();
    let seconds = set("MAPAE_FUZZ_SECONDS").map(|seconds| seconds.parse().expect("a number of seconds"));
    let seed: u64 = set("MAPAE_FUZZ_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let only = set("MAPAE_FUZZ_ONLY");
    let mut broken = Vec::new();
    for (name, target) in TARGETS.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)) {
        let (rounds, found) = run(name, *target, seed, seconds.map(Duration::from_secs));
        if seconds.is_some() {
            println!("{name}: {rounds} rounds, {} broke it", found.len());
        }
        broken.extend(found);
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The rounds of a target, and those that broke it.
fn run(name: &'static str, target: fn(&[u8]), seed: u64, span: Option<Duration>) -> (u64, Vec<String>) {
    let seeds = seeds(name);
    let now = Arc::new((AtomicU64::new(0), Mutex::new(Instant::now())));
    watch(name, seed, Arc::downgrade(&now));
    let work = move || {
        let begun = Instant::now();
        let (mut round, mut broken) = (0, Vec::new());
        // A key may be stretched two million times, which is bounded and slow.
        let rounds = if name == "decrypt-info" { ROUNDS / 10 } else { ROUNDS };
        while span.map_or(round < rounds, |span| begun.elapsed() < span) {
            now.0.store(round, Ordering::Relaxed);
            *now.1.lock().unwrap() = Instant::now();
            let input = changed(&seeds, seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            if catch_unwind(AssertUnwindSafe(|| target(&input))).is_err() {
                let kept = std::env::temp_dir().join(format!("mapae-fuzz-{name}-{seed}-{round}"));
                let _ = std::fs::write(&kept, &input);
                broken.push(format!("{name}, seed {seed}, round {round}: {}", kept.display()));
            }
            round += 1;
        }
        (round, broken)
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap().join().unwrap()
}

/// Ends the process, with the round that is to blame, where one does not end.
fn watch(name: &'static str, seed: u64, now: std::sync::Weak<(AtomicU64, Mutex<Instant>)>) {
    std::thread::spawn(move || {
        while let Some(now) = now.upgrade() {
            if now.1.lock().unwrap().elapsed() > PATIENCE {
                let round = now.0.load(Ordering::Relaxed);
                // Past what the test harness would keep to itself.
                let _ = writeln!(std::io::stderr(), "{name}, seed {seed}, round {round} does not end");
                std::process::abort();
            }
            drop(now);
            std::thread::sleep(Duration::from_millis(500));
        }
    });
}

/// A generator of numbers that is the same everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// One of the seeds with one to eight changes.
fn changed(seeds: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut numbers = Numbers(number);
    let mut bytes = seeds[numbers.below(seeds.len())].clone();
    for _ in 0..numbers.below(8) + 1 {
        let at = numbers.below(bytes.len() + 1);
        let end = (at + 1 + numbers.below(64)).min(bytes.len());
        match numbers.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << numbers.below(8),
            1 if at < bytes.len() => bytes[at] = numbers.next() as u8,
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                let to = numbers.below(bytes.len() + 1);
                bytes.splice(to..to, piece.repeat(numbers.below(20) + 1));
            }
            // A length or a count at its ends.
            4 => {
                let edge: [&[u8]; 6] = [
                    &[0; 4],
                    &[0xff; 4],
                    &[0xff, 0xff, 0xff, 0x7f],
                    &[0, 0, 0, 0x80],
                    &[1, 0],
                    &[0xff, 0xff],
                ];
                let edge = edge[numbers.below(edge.len())];
                let end = (at + edge.len()).min(bytes.len());
                bytes.splice(at..end, edge.iter().copied());
            }
            // A number in writing at its ends.
            5 => {
                let digits = ["0", "-1", "65536", "4294967295", "99999999999999999999", "1e308", "NaN"];
                let (Some(begin), number) =
                    (bytes[at..].iter().position(u8::is_ascii_digit), digits[numbers.below(digits.len())])
                else {
                    continue;
                };
                let begin = at + begin;
                let end = begin + bytes[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                bytes.splice(begin..end, number.bytes());
            }
            6 => {
                let other = &seeds[numbers.below(seeds.len())];
                let from = numbers.below(other.len() + 1);
                let to = (from + numbers.below(256)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Documents that the parser of this name reads.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let text = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    match name {
        "detect" | "archive" => vec![
            make::pdf(make::HELVETICA, b"BT ET", &[]),
            make::xlsx("<sheetData/>"),
            sample("library-notice.hwpx"),
            make::compound(&[("/Workbook", &[0; 64])]),
            b"\xff\xfea\0,\0b\0".to_vec(),
        ],
        "pdf" | "pdf-tables" | "bombs" => vec![
            sample("budget-2026.pdf"),
            make::pdf(&make::korean("KSCms-UHC-H"), b"BT /F1 12 Tf 50 700 Td <B0A1B3AA20> Tj ET", &[]),
            make::pdf(
                make::HELVETICA,
                b"q 50 600 200 50 re S 50 550 200 50 re S 1 0 0 1 5 5 cm BT /F1 9 Tf 60 620 Td (a) Tj 90 0 Td (1,200) Tj ET Q /X Do",
                &[make::stream("/Type /XObject /Subtype /Form /BBox [0 0 99 99] /Filter /FlateDecode", &make::zeros_packed(1))],
            ),
            make::encrypted_pdf("text", ""),
        ],
        "hwp" | "hwp-body" => {
            let paragraph = |characters: &str| {
                let units: Vec<u8> = characters.encode_utf16().flat_map(u16::to_le_bytes).collect();
                [make::hwp::record(66, 0, &[0; 24]), make::hwp::record(67, 1, &units)].concat()
            };
            // A table of two cells anchored in a paragraph.
            let mut table = paragraph("\u{b}\u{6263}\u{7462}\0\0\0\0\u{b}\r");
            table.extend(make::hwp::record(71, 1, &[b" lbt", &[0; 40][..]].concat()));
            table.extend(make::hwp::record(77, 2, &[0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]));
            for column in 0..2u8 {
                let mut cell = vec![0; 40];
                (cell[8], cell[12], cell[14]) = (column, 1, 1);
                table.extend(make::hwp::record(72, 2, &cell));
                table.extend(make::hwp::record(66, 2, &[0; 24]));
                table.extend(make::hwp::record(67, 3, &[65, 0, 13, 0]));
            }
            let bodies = [paragraph("가나다 one\r"), table];
            match name {
                "hwp-body" => bodies.into(),
                _ => (0..2)
                    .flat_map(|properties| bodies.clone().map(|body| (properties, body)))
                    .map(|(properties, body)| make::hwp::Hwp { properties, shapes: Vec::new(), body }.bytes())
                    .collect(),
            }
        }
        "decrypt" => vec![make::protected(&make::xlsx("<sheetData/>"), "password")],
        "decrypt-info" => vec![
            [&[4, 0, 4, 0, 0x40, 0, 0, 0][..], br#"<encryption><keyData saltSize="16" blockSize="16" keyBits="256" hashSize="64" cipherAlgorithm="AES" cipherChaining="ChainingModeCBC" hashAlgorithm="SHA512" saltValue="YSBzYWx0IG9mIDE2IGJ5Lg=="/><keyEncryptors><keyEncryptor><p:encryptedKey spinCount="100" saltSize="16" blockSize="16" keyBits="256" hashSize="64" cipherAlgorithm="AES" cipherChaining="ChainingModeCBC" hashAlgorithm="SHA512" saltValue="YSBzYWx0IG9mIDE2IGJ5Lg==" encryptedVerifierHashInput="YSBzYWx0IG9mIDE2IGJ5Lg==" encryptedVerifierHashValue="YSBzYWx0IG9mIDE2IGJ5Lg==" encryptedKeyValue="YSBzYWx0IG9mIDE2IGJ5Lg=="/></keyEncryptor></keyEncryptors></encryption>"#].concat(),
            [&[3, 0, 2, 0, 0x24, 0, 0, 0, 0x98, 0, 0, 0][..], &[0x24, 0, 0, 0, 0, 0, 0, 0, 0x0e, 0x66, 0, 0, 4, 0x80, 0, 0, 128, 0, 0, 0], &[0x18; 200]].concat(),
        ],
        "xls" => vec![make::xls(&[(0, 0, 1.0), (3, 2, 2.5)])],
        "xls-stream" => {
            let file = make::xls(&[(0, 0, 1.0), (3, 2, 2.5)]);
            let begin = file.windows(4).position(|bytes| bytes == [9, 8, 16, 0]).unwrap();
            vec![file[begin..begin + 200].to_vec()]
        }
        "xlsb" => vec![make::xlsx("<sheetData/>"), make::zip(&[("xl/workbook.bin", &[0x83, 1, 0, 0x8f, 1, 0])])],
        "xlsx" => text(&[r#"<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><dimension ref="A1:C2"/><sheetData><row r="1"><c r="A1" t="inlineStr"><is><t>name</t></is></c><c r="B1" t="s"><v>0</v></c></row><row r="2"><c r="A2"><v>12</v></c><c r="C2" t="e"><v>#N/A</v></c><c r="D2"><f>A2+1</f><v>13</v></c></row></sheetData><mergeCells count="1"><mergeCell ref="A1:B1"/></mergeCells></worksheet>"#,
            r#"<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" count="1" uniqueCount="1"><si><t>shared</t></si></sst>"#]),
        "ods" => text(&[r#"<o:document-content xmlns:o="o" xmlns:t="t" xmlns:x="x"><o:body><o:spreadsheet><t:table t:name="S"><t:table-row t:number-rows-repeated="2"><t:table-cell o:value-type="float" o:value="1.5" t:number-columns-repeated="3"><x:p>1.5</x:p></t:table-cell><t:table-cell t:number-columns-spanned="2" t:number-rows-spanned="2"><x:p>a<x:s x:c="4"/>b</x:p></t:table-cell></t:table-row></t:table></o:spreadsheet></o:body></o:document-content>"#]),
        "hwpx" => text(&[r#"<hs:sec xmlns:hs="s" xmlns:hp="p"><hp:p><hp:run><hp:t>가나다</hp:t><hp:tbl rowCnt="2" colCnt="2" repeatHeader="1"><hp:tr><hp:tc><hp:subList><hp:p><hp:run><hp:t>a</hp:t></hp:run></hp:p></hp:subList><hp:cellAddr colAddr="0" rowAddr="0"/><hp:cellSpan colSpan="2" rowSpan="1"/></hp:tc></hp:tr><hp:tr><hp:tc><hp:subList><hp:p><hp:run><hp:t>b</hp:t></hp:run></hp:p></hp:subList><hp:cellAddr colAddr="1" rowAddr="1"/><hp:cellSpan colSpan="1" rowSpan="1"/></hp:tc></hp:tr></hp:tbl></hp:run></hp:p></hs:sec>"#]),
        "docx" => text(&[r#"<w:document xmlns:w="w"><w:body><w:p><w:pPr><w:pStyle w:val="Heading1"/><w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr></w:pPr><w:r><w:t>head</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="2"/><w:vMerge w:val="restart"/></w:tcPr><w:p><w:r><w:t>a</w:t><w:tab/></w:r></w:p></w:tc></w:tr><w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc></w:tr></w:tbl></w:body></w:document>"#,
            r#"<w:numbering xmlns:w="w"><w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:start w:val="3"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="%1."/></w:lvl></w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>"#]),
        "pptx" => text(&[r#"<p:sld xmlns:p="p" xmlns:a="a"><p:cSld><p:spTree><p:sp><p:nvSpPr><p:nvPr><p:ph type="title"/></p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>title</a:t></a:r></a:p></p:txBody></p:sp><p:graphicFrame><a:tbl><a:tr><a:tc gridSpan="2" rowSpan="2"><a:txBody><a:p><a:r><a:t>x</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame></p:spTree></p:cSld></p:sld>"#]),
        "html" => text(&["<!doctype html><meta charset=euc-kr><h1>head</h1><ol start=3><li>one<li>two</ol><table><caption>c</caption><tr><th colspan=2 rowspan=3>a<td>b<tr><td><table><tr><td>in</table></table><pre> x\n y</pre>&amp;&#x1F600;<script>no</script>"]),
        "markdown" => text(&["# head\n\ntext *x* [l](u)\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n1. one\n   - two\n\n```\ncode\n```\n<b>html</b>\n"]),
        "xml" => text(&["<?xml version='1.0'?><!DOCTYPE a [<!ENTITY x 'y'>]><w:a x:n='7'>one &amp; <b/>&#44032;<![CDATA[z]]></w:a>"]),
        "csv" | "tsv" | "text" => vec![
            "name,count\n\"a \"\"b\"\"\nc\",\"1,200\"\n가,₩3.50\n2026-01-31,8.5%\n".into(),
            "a\tb\n1\t2\n".into(),
            b"\xff\xfea\0,\0b\0\n\x001\0".to_vec(),
            b"\xb0\xa1,\xb3\xaa\n1,2\n".to_vec(),
        ],
        _ => panic!("{name} has no seeds"),
    }
}
