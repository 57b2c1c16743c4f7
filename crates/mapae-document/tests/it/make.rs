//! Makes documents, honest and hostile ones, small enough to read here what is in them.

pub(crate) mod hwp;
pub(crate) mod scan;

use std::io::{Cursor, Write};

use md5::{Digest, Md5};

/// A PDF of one page of 600 by 800 points with these fonts (`/F1 << … >>`), content and further objects,
/// which are numbered from 10.
pub(crate) fn pdf(fonts: &str, content: &[u8], more: &[Vec<u8>]) -> Vec<u8> {
    pdf_with(fonts, &stream("", content), more, "")
}

fn pdf_with(fonts: &str, content: &[u8], more: &[Vec<u8>], trailer: &str) -> Vec<u8> {
    let page = format!(
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R \
         /Resources << /Font << {fonts} >> /XObject << /X 10 0 R >> >> >>"
    );
    let objects: Vec<(usize, Vec<u8>)> = [
        (1, b"<< /Type /Catalog /Pages 2 0 R >>".to_vec()),
        (2, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_vec()),
        (3, page.into_bytes()),
        (4, content.to_vec()),
    ]
    .into_iter()
    .chain((10..).zip(more.iter().cloned()))
    .collect();
    file(objects, trailer)
}

/// A PDF of a page of 600 by 800 points for each of these contents, with Helvetica as `/F1`.
pub(crate) fn pages(contents: &[String]) -> Vec<u8> {
    let kids: String = (0..contents.len()).map(|n| format!("{} 0 R ", 3 + 2 * n)).collect();
    let mut objects = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        format!("<< /Type /Pages /Kids [{kids}] /Count {} >>", contents.len()).into_bytes(),
    ];
    for (content, n) in contents.iter().zip(0..) {
        let page = format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {} 0 R \
             /Resources << /Font << {HELVETICA} >> >> >>",
            4 + 2 * n
        );
        objects.extend([page.into_bytes(), stream("", content.as_bytes())]);
    }
    file((1..).zip(objects).collect(), "")
}

/// A PDF of these objects.
fn file(objects: Vec<(usize, Vec<u8>)>, trailer: &str) -> Vec<u8> {
    let size = objects.iter().map(|(id, _)| id + 1).max().unwrap();
    let mut out = b"%PDF-1.7\n".to_vec();
    let mut offsets = Vec::new();
    for (id, object) in &objects {
        offsets.push((*id, out.len()));
        out.extend(format!("{id} 0 obj\n").bytes());
        out.extend(object);
        out.extend(b"\nendobj\n");
    }
    let xref = out.len();
    out.extend(b"xref\n");
    for (id, offset) in offsets {
        out.extend(format!("{id} 1\n{offset:010} 00000 n \n").bytes());
    }
    out.extend(
        format!("trailer\n<< /Size {size} /Root 1 0 R {trailer} >>\nstartxref\n{xref}\n%%EOF\n").bytes(),
    );
    out
}

pub(crate) fn stream(entries: &str, data: &[u8]) -> Vec<u8> {
    let head = format!("<< {entries} /Length {} >>\nstream\n", data.len());
    [head.as_bytes(), data, b"\nendstream"].concat()
}

pub(crate) const HELVETICA: &str = "/F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>";

/// A Korean font that is named, not embedded, with a predefined character map.
pub(crate) fn korean(map: &str) -> String {
    format!(
        "/F1 << /Type /Font /Subtype /Type0 /BaseFont /HYGoThic-Medium /Encoding /{map} /DescendantFonts [ \
         << /Type /Font /Subtype /CIDFontType0 /BaseFont /HYGoThic-Medium /DW 1000 /W [1 95 500] \
         /CIDSystemInfo << /Registry (Adobe) /Ordering (Korea1) /Supplement 1 >> >> ] >>"
    )
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02X}")).collect()
}

/// A page that says `text`, encrypted with RC4 and 40 bits for the user password `password`.
pub(crate) fn encrypted_pdf(text: &str, password: &str) -> Vec<u8> {
    const PAD: [u8; 32] = [
        0x28, 0xbf, 0x4e, 0x5e, 0x4e, 0x75, 0x8a, 0x41, 0x64, 0x00, 0x4e, 0x56, 0xff, 0xfa, 0x01, 0x08, 0x2e,
        0x2e, 0x00, 0xb6, 0xd0, 0x68, 0x3e, 0x80, 0x2f, 0x0c, 0xa9, 0xfe, 0x64, 0x53, 0x69, 0x7a,
    ];
    let padded: Vec<u8> = password.bytes().chain(PAD).take(32).collect();
    let id = b"0123456789abcdef";
    let owner = rc4(&Md5::digest(&padded)[..5], &padded);
    let key = Md5::digest([&padded[..], &owner, &(-4i32).to_le_bytes(), id].concat())[..5].to_vec();
    let user = rc4(&key, &PAD);
    let content = format!("BT /F1 12 Tf 50 700 Td ({text}) Tj ET");
    // Object 4, generation 0.
    let object_key = Md5::digest([&key[..], &[4, 0, 0, 0, 0]].concat());
    let content = rc4(&object_key[..10], content.as_bytes());
    let trailer = format!(
        "/ID [<{id}> <{id}>] /Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <{}> /U <{}> >>",
        hex(&owner),
        hex(&user),
        id = hex(id),
    );
    pdf_with(HELVETICA, &stream("", &content), &[], &trailer)
}

fn rc4(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut state: Vec<u8> = (0..=255).collect();
    let mut j = 0u8;
    for i in 0..256 {
        j = j.wrapping_add(state[i]).wrapping_add(key[i % key.len()]);
        state.swap(i, usize::from(j));
    }
    let (mut i, mut j) = (0u8, 0u8);
    let mut next = || {
        i = i.wrapping_add(1);
        j = j.wrapping_add(state[usize::from(i)]);
        state.swap(usize::from(i), usize::from(j));
        state[usize::from(state[usize::from(i)].wrapping_add(state[usize::from(j)]))]
    };
    data.iter().map(|byte| byte ^ next()).collect()
}

/// A zlib stream that unpacks to `mebibytes` of zeros, made of one block repeated.
pub(crate) fn zeros_packed(mebibytes: usize) -> Vec<u8> {
    let mut packer = flate2::Compress::new(flate2::Compression::best(), false);
    let mut block = Vec::with_capacity(64 * 1024);
    packer.compress_vec(&vec![0; 1024 * 1024], &mut block, flate2::FlushCompress::Full).unwrap();
    // Header, the blocks, an empty last block, no checksum anybody looks at.
    [&[0x78, 0x9c][..], &block.repeat(mebibytes), &[0x03, 0x00, 0, 0, 0, 0]].concat()
}

pub(crate) fn zip(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in parts {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A workbook of one sheet `S` with this content of its `worksheet` element.
pub(crate) fn xlsx(sheet: &str) -> Vec<u8> {
    workbook("visible", "", sheet)
}

/// The same in a state of the sheet, with this content of the `styleSheet` element.
pub(crate) fn workbook(state: &str, styles: &str, sheet: &str) -> Vec<u8> {
    const RELATIONS: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
    let relations = |targets: &[(&str, &str)]| {
        let one = |(number, (kind, target)): (usize, &(&str, &str))| {
            format!("<Relationship Id=\"r{}\" Type=\"{RELATIONS}/{kind}\" Target=\"{target}\"/>", number + 1)
        };
        let all: String = targets.iter().enumerate().map(one).collect();
        format!(
            "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">{all}</Relationships>"
        )
    };
    let workbook = format!(
        "<workbook xmlns=\"{MAIN}\" xmlns:r=\"{RELATIONS}\"><sheets>\
         <sheet name=\"S\" sheetId=\"1\" state=\"{state}\" r:id=\"r1\"/></sheets></workbook>"
    );
    let styles = format!("<styleSheet xmlns=\"{MAIN}\">{styles}</styleSheet>");
    let parts = [("worksheet", "worksheets/sheet1.xml"), ("styles", "styles.xml")];
    zip(&[
        ("[Content_Types].xml", b"<Types/>"),
        ("_rels/.rels", relations(&[("officeDocument", "xl/workbook.xml")]).as_bytes()),
        ("xl/workbook.xml", workbook.as_bytes()),
        ("xl/_rels/workbook.xml.rels", relations(&parts).as_bytes()),
        ("xl/styles.xml", styles.as_bytes()),
        ("xl/worksheets/sheet1.xml", format!("<worksheet xmlns=\"{MAIN}\">{sheet}</worksheet>").as_bytes()),
    ])
}

/// An OpenDocument spreadsheet with this content of its `office:spreadsheet` element.
pub(crate) fn ods(spreadsheet: &str) -> Vec<u8> {
    let content = format!(
        "<office:document-content xmlns:office=\"o\" xmlns:table=\"t\" xmlns:text=\"x\"><office:body>\
         <office:spreadsheet>{spreadsheet}</office:spreadsheet></office:body></office:document-content>"
    );
    zip(&[
        ("mimetype", b"application/vnd.oasis.opendocument.spreadsheet"),
        ("META-INF/manifest.xml", b"<manifest:manifest/>"),
        ("content.xml", content.as_bytes()),
    ])
}

/// An `xls` of one sheet with numbers at these places.
pub(crate) fn xls(numbers: &[(u16, u16, f64)]) -> Vec<u8> {
    fn record(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &(body.len() as u16).to_le_bytes(), body].concat()
    }
    let begin =
        |what: u16| record(0x0809, &[&0x0600u16.to_le_bytes()[..], &what.to_le_bytes(), &[0; 12]].concat());
    let end = record(0x000a, &[]);
    let sheet_at = begin(5).len() + 4 + 9 + end.len();
    let bound = record(0x0085, &[&(sheet_at as u32).to_le_bytes()[..], &[0, 0, 1, 0, b'S']].concat());
    let mut stream = [begin(5), bound, end.clone(), begin(0x10)].concat();
    for (row, col, number) in numbers {
        let body =
            [&row.to_le_bytes()[..], &col.to_le_bytes(), &0u16.to_le_bytes(), &number.to_le_bytes()].concat();
        stream.extend(record(0x0203, &body));
    }
    stream.extend(end);
    // Short streams live elsewhere in the container.
    stream.resize(stream.len().max(4096), 0);
    compound(&[("/Workbook", &stream)])
}

/// A compound file with these streams.
pub(crate) fn compound(streams: &[(&str, &[u8])]) -> Vec<u8> {
    compound_with(&[], streams)
}

/// A compound file with these storages and streams.
pub(crate) fn compound_with(storages: &[&str], streams: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = cfb::CompoundFile::create_with_version(cfb::Version::V3, Cursor::new(Vec::new())).unwrap();
    storages.iter().for_each(|storage| file.create_storage(storage).unwrap());
    for (name, bytes) in streams {
        file.create_stream(name).unwrap().write_all(bytes).unwrap();
    }
    file.into_inner().into_inner()
}

/// `package` protected with `password` as Excel does it: AES-256 in chained blocks, SHA-512.
pub(crate) fn protected(package: &[u8], password: &str) -> Vec<u8> {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};
    use sha2::Sha512;

    const SALT: [u8; 16] = *b"a salt of 16 by.";
    const KEY: [u8; 32] = *b"the key of the content, 32 bytes";
    const SPIN: u32 = 1000;
    let hash = |parts: &[&[u8]]| Sha512::digest(parts.concat()).to_vec();
    let encrypt = |key: &[u8], iv: &[u8], data: &[u8]| {
        let cipher = aes::Aes256::new_from_slice(&key[..32]).unwrap();
        let mut data = data.to_vec();
        data.resize(data.len().div_ceil(16) * 16, 0);
        let mut before = iv[..16].to_vec();
        for block in data.chunks_exact_mut(16) {
            block.iter_mut().zip(&before).for_each(|(b, x)| *b ^= x);
            cipher.encrypt_block((&mut *block).try_into().unwrap());
            before = block.to_vec();
        }
        data
    };
    let utf16: Vec<u8> = password.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut spun = hash(&[&SALT, &utf16]);
    for round in 0..SPIN {
        spun = hash(&[&round.to_le_bytes(), &spun]);
    }
    let sealed =
        |purpose: u64, value: &[u8]| base64(&encrypt(&hash(&[&spun, &purpose.to_be_bytes()]), &SALT, value));
    let salt = base64(&SALT);
    let common = format!(
        "saltSize=\"16\" blockSize=\"16\" keyBits=\"256\" hashSize=\"64\" cipherAlgorithm=\"AES\" \
         cipherChaining=\"ChainingModeCBC\" hashAlgorithm=\"SHA512\" saltValue=\"{salt}\""
    );
    let verifier = b"sixteen of bytes";
    let xml = format!(
        "<encryption xmlns:p=\"p\"><keyData {common}/><keyEncryptors><keyEncryptor><p:encryptedKey \
         spinCount=\"{SPIN}\" {common} encryptedVerifierHashInput=\"{}\" encryptedVerifierHashValue=\"{}\" \
         encryptedKeyValue=\"{}\"/></keyEncryptor></keyEncryptors></encryption>",
        sealed(0xfea7_d276_3b4b_9e79, verifier),
        sealed(0xd7aa_0f6d_3061_344e, &hash(&[verifier])),
        sealed(0x146e_0be7_abac_d0d6, &KEY),
    );
    let mut content = (package.len() as u64).to_le_bytes().to_vec();
    for (segment, number) in package.chunks(4096).zip(0u32..) {
        content.extend(encrypt(&KEY, &hash(&[&SALT, &number.to_le_bytes()]), segment));
    }
    let info = [&[4, 0, 4, 0, 0x40, 0, 0, 0][..], xml.as_bytes()].concat();
    compound(&[("/EncryptionInfo", &info), ("/EncryptedPackage", &content)])
}

/// A package with one part, protected with the password "열려라" as Hancom's programs do it.
pub(crate) fn protected_part(name: &str, content: &[u8]) -> Vec<u8> {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};
    use sha2::Sha256;

    const SALT: [u8; 16] = *b"a salt of 16 by.";
    // PBKDF2 with HMAC-SHA-1 of the SHA-256 of the password, three rounds, by another implementation.
    const KEY: [u8; 32] = [
        0x44, 0xd9, 0x37, 0x88, 0x36, 0xf5, 0x8c, 0x78, 0x13, 0xe6, 0x6c, 0x34, 0xfa, 0x05, 0xcd, 0x3f, 0x07,
        0x2c, 0xce, 0x19, 0x43, 0x8a, 0x19, 0x7f, 0x3c, 0x93, 0xb5, 0xd9, 0x73, 0x68, 0x8e, 0xb2,
    ];
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    let mut sealed = encoder.finish().unwrap();
    sealed.resize(sealed.len().div_ceil(16) * 16, 0);
    let cipher = aes::Aes256::new_from_slice(&KEY).unwrap();
    let mut before = SALT;
    for block in sealed.chunks_exact_mut(16) {
        block.iter_mut().zip(&before).for_each(|(b, x)| *b ^= x);
        cipher.encrypt_block((&mut *block).try_into().unwrap());
        before.copy_from_slice(block);
    }
    let (salt, checksum) = (base64(&SALT), base64(&Sha256::digest(&content[..content.len().min(1024)])));
    let manifest = format!(
        "<m:manifest xmlns:m=\"m\"><m:file-entry full-path=\"{name}\"><m:encryption-data \
         checksum-type=\"m#sha256-1k\" checksum=\"{checksum}\"><m:algorithm \
         algorithm-name=\"x#aes256-cbc\" initialisation-vector=\"{salt}\"/><m:key-derivation \
         key-derivation-name=\"m#pbkdf2\" key-size=\"32\" iteration-count=\"3\" salt=\"{salt}\"/>\
         <m:start-key-generation start-key-generation-name=\"x#sha256\" key-size=\"32\"/>\
         </m:encryption-data></m:file-entry></m:manifest>"
    );
    zip(&[
        ("mimetype", b"application/hwp+zip"),
        ("META-INF/manifest.xml", manifest.as_bytes()),
        (name, &sealed),
    ])
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, i| bits << 8 | u32::from(*three.get(i).unwrap_or(&0)));
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}
