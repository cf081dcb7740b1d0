//! Writer and strict reader of tar archives in the format of backups (POSIX.1-2001: ustar, with pax records
//! for values too long for their fields). The reader accepts archives of the writer in this module, or of
//! `git archive`, and rejects all other input with a description of the fault.
//!
//! Errors of kind `InvalidData` and `UnexpectedEof` are faults of the archive. All other errors come from
//! the disk.

use crate::limits::{TAR_NAME_BYTES_MAX, TAR_RECORDS_BYTES_MAX};
use std::io::{self, Read};

/// Type of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TarEntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
}

impl TarEntryKind {
    /// Returns the mask of the mode bits that are kept. On a file, the set-user-ID and set-group-ID bits
    /// would grant rights. On a folder, the set-group-ID bit only passes the group to new files.
    pub fn mode_bits(self) -> u32 {
        match self {
            TarEntryKind::Folder => 0o2777,
            TarEntryKind::File | TarEntryKind::Link => 0o777,
        }
    }
}

/// Header of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarEntry {
    /// Relative path without `..` and without a slash at the end.
    pub name: Vec<u8>,
    /// Type of the entry.
    pub kind: TarEntryKind,
    /// Permissions, nine bits, and the set-group-ID bit of a folder, which passes the folder's group to new
    /// files.
    pub mode: u32,
    /// Modification time in seconds since 1970.
    pub modified: u64,
    /// Bytes of the content.
    pub size: u64,
    /// Target of a symbolic link.
    pub link: Vec<u8>,
}

const BLOCK: usize = 512;
/// Largest number in eleven octal digits.
const NUMBER_MAX: u64 = 0o77_777_777_777;
/// Largest record, the unit of tar's output. Usually a record has 10 KiB.
const RECORD_BYTES_MAX: u64 = 64 * 1024;
const MAGIC: &[u8; 8] = b"ustar\x0000";

/// Returns the header blocks before an entry's content.
pub fn head(entry: &TarEntry) -> Vec<u8> {
    let mut name = entry.name.clone();
    if entry.kind == TarEntryKind::Folder {
        name.push(b'/');
    }
    let mut records = Vec::new();
    if name.len() > 100 {
        record("path", &name, &mut records);
    }
    if entry.link.len() > 100 {
        record("linkpath", &entry.link, &mut records);
    }
    if entry.size > NUMBER_MAX {
        record("size", entry.size.to_string().as_bytes(), &mut records);
    }
    let mut out = Vec::new();
    if !records.is_empty() {
        out.extend(block(b"records", b'x', 0o644, 0, records.len() as u64, b""));
        out.extend_from_slice(&records);
        out.resize(out.len() + padding(records.len() as u64), 0);
    }
    let letter = match entry.kind {
        TarEntryKind::File => b'0',
        TarEntryKind::Link => b'2',
        TarEntryKind::Folder => b'5',
    };
    let (mode, modified) = (entry.mode, entry.modified.min(NUMBER_MAX));
    let size = if entry.size > NUMBER_MAX {
        0
    } else {
        entry.size
    };
    out.extend(block(&name, letter, mode, modified, size, &entry.link));
    out
}

/// Returns the number of zeros after a content of `size` bytes.
pub fn padding(size: u64) -> usize {
    (BLOCK - (size % BLOCK as u64) as usize) % BLOCK
}

/// End of an archive: two blocks of zeros.
pub const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Appends a pax record `length key=value\n`. The length includes its own digits.
fn record(key: &str, value: &[u8], out: &mut Vec<u8>) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{length} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn block(name: &[u8], letter: u8, mode: u32, modified: u64, size: u64, link: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name[..name.len().min(100)]);
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\x000000000\0");
    put(
        124,
        format!("{size:011o}\0{modified:011o}\0        ").as_bytes(),
    );
    put(156, &[letter]);
    put(157, &link[..link.len().min(100)]);
    put(257, MAGIC);
    put(329, b"0000000\x000000000\0");
    let sum = sum(&block);
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Returns the checksum of a header, with spaces in place of the checksum field.
fn sum(block: &[u8; BLOCK]) -> u32 {
    let all: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = block[148..156].iter().map(|byte| u32::from(*byte)).sum();
    all - own + 8 * u32::from(b' ')
}

/// Reader of an archive, entry by entry.
pub struct TarReader<R> {
    input: R,
    maker: TarDialect,
    /// Bytes left in the content of the current entry.
    left: u64,
    padding: usize,
}

/// Program that wrote the archive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TarDialect {
    Backup,
    /// `git archive`. Git begins with a record for all entries, the commit's id, and may split a name into
    /// two parts.
    Git,
}

/// Pax records before an entry, for values too long for their fields.
#[derive(Default)]
struct PaxRecords {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

impl<R: Read> TarReader<R> {
    /// Makes a reader of an archive in the format of backups.
    pub fn new(input: R) -> TarReader<R> {
        TarReader::of(input, TarDialect::Backup)
    }

    /// Makes a reader of an archive made by `git archive`.
    pub fn of_git(input: R) -> TarReader<R> {
        TarReader::of(input, TarDialect::Git)
    }

    fn of(input: R, maker: TarDialect) -> TarReader<R> {
        TarReader {
            input,
            maker,
            left: 0,
            padding: 0,
        }
    }

    /// Returns the input after the archive.
    pub fn into_inner(self) -> R {
        self.input
    }

    /// Returns the next entry, or `None` at the end of the archive. Data after the end is an error.
    pub fn next_entry(&mut self) -> io::Result<Option<TarEntry>> {
        io::copy(&mut *self, &mut io::sink())?;
        let mut records = None;
        loop {
            let mut block = [0; BLOCK];
            self.input.read_exact(&mut block)?;
            if block == [0; BLOCK] {
                return match records {
                    None => self.end().map(|()| None),
                    Some(_) => Err(invalid_data("pax records without an entry")),
                };
            }
            if &block[257..265] != MAGIC {
                return Err(invalid_data("not a tar header"));
            }
            if number(&block[148..156])? != u64::from(sum(&block)) {
                return Err(invalid_data("a header with a wrong checksum"));
            }
            if block[156] == b'g' && self.maker == TarDialect::Git && records.is_none() {
                self.records(number(&block[124..136])?)?;
                continue;
            }
            if block[156] != b'x' {
                let records = records.unwrap_or_default();
                return entry(&block, records, self.maker).map(|entry| {
                    self.left = entry.size;
                    self.padding = padding(entry.size);
                    Some(entry)
                });
            }
            if records.is_some() {
                return Err(invalid_data("two sets of pax records before one entry"));
            }
            records = Some(self.records(number(&block[124..136])?)?);
        }
    }

    /// Reads the second block of zeros, and further zeros with which other programs fill their last record.
    fn end(&mut self) -> io::Result<()> {
        let mut block = [0; BLOCK];
        self.input.read_exact(&mut block)?;
        let mut rest = Vec::new();
        let most = RECORD_BYTES_MAX + 1;
        Read::by_ref(&mut self.input)
            .take(most)
            .read_to_end(&mut rest)?;
        let is_blank = block.iter().chain(&rest).all(|byte| *byte == 0);
        if is_blank && (rest.len() as u64) < most {
            Ok(())
        } else {
            Err(invalid_data("data after the end of the archive"))
        }
    }

    fn records(&mut self, size: u64) -> io::Result<PaxRecords> {
        if size > TAR_RECORDS_BYTES_MAX {
            return Err(invalid_data("pax records that are too long"));
        }
        let mut text = vec![0; size as usize];
        self.input.read_exact(&mut text)?;
        self.skip_padding(padding(size))?;
        parse_records(&text, self.maker).ok_or_else(|| invalid_data("malformed pax records"))
    }

    fn skip_padding(&mut self, length: usize) -> io::Result<()> {
        let mut zeros = [0; BLOCK];
        self.input.read_exact(&mut zeros[..length])?;
        if zeros.iter().all(|byte| *byte == 0) {
            Ok(())
        } else {
            Err(invalid_data("bytes between two entries"))
        }
    }
}

/// Reads the content of the current entry.
impl<R: Read> Read for TarReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let padding = std::mem::take(&mut self.padding);
            return self.skip_padding(padding).map(|()| 0);
        }
        let most = buffer
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.input.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

fn parse_records(mut text: &[u8], maker: TarDialect) -> Option<PaxRecords> {
    let mut records = PaxRecords::default();
    while !text.is_empty() {
        let space = text.iter().position(|byte| *byte == b' ')?;
        let length = decimal(&text[..space])?;
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length > space)?;
        let (line, rest) = text.split_at_checked(length)?;
        let line = line[space + 1..].strip_suffix(b"\n")?;
        let equals = line.iter().position(|byte| *byte == b'=')?;
        let value = &line[equals + 1..];
        match &line[..equals] {
            b"path" if records.path.is_none() => records.path = Some(value.to_vec()),
            b"linkpath" if records.link.is_none() => records.link = Some(value.to_vec()),
            b"size" if records.size.is_none() => records.size = Some(decimal(value)?),
            b"comment" | b"mtime" if maker == TarDialect::Git => {}
            _ => return None,
        }
        text = rest;
    }
    Some(records)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok()
}

fn entry(block: &[u8; BLOCK], records: PaxRecords, maker: TarDialect) -> io::Result<TarEntry> {
    let field = |from: usize, length: usize| {
        let field = &block[from..from + length];
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(length);
        field[..end].to_vec()
    };
    let mut first = field(345, 155);
    if block[345..500].iter().any(|byte| *byte != 0) && maker != TarDialect::Git {
        return Err(invalid_data("a name split into two fields"));
    }
    if !first.is_empty() {
        first.push(b'/');
    }
    let kind = match block[156] {
        b'0' => TarEntryKind::File,
        b'2' => TarEntryKind::Link,
        b'5' => TarEntryKind::Folder,
        _ => {
            return Err(invalid_data(
                "an entry that is not a file, folder or symbolic link",
            ));
        }
    };
    let mut name = records
        .path
        .unwrap_or_else(|| [first, field(0, 100)].concat());
    if kind == TarEntryKind::Folder && name.pop_if(|last| *last == b'/').is_none() {
        return Err(invalid_data("a name of a folder without a final slash"));
    }
    if !is_inside(&name) {
        return Err(invalid_data("a name that leads out of the folder"));
    }
    let link = records.link.unwrap_or_else(|| field(157, 100));
    let size = records.size.map_or_else(|| number(&block[124..136]), Ok)?;
    let is_right = match kind {
        TarEntryKind::File => link.is_empty(),
        TarEntryKind::Folder => link.is_empty() && size == 0,
        TarEntryKind::Link => {
            size == 0 && (1..=TAR_NAME_BYTES_MAX).contains(&link.len()) && !link.contains(&0)
        }
    };
    if !is_right {
        return Err(invalid_data(
            "an entry with fields that contradict its type",
        ));
    }
    Ok(TarEntry {
        name,
        kind,
        mode: number(&block[100..108])? as u32 & kind.mode_bits(),
        modified: number(&block[136..148])?.min(NUMBER_MAX),
        size,
        link,
    })
}

/// Returns true if `name` is a path below the folder of the archive, regardless of existing files.
fn is_inside(name: &[u8]) -> bool {
    let plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    name.len() <= TAR_NAME_BYTES_MAX
        && !name.contains(&0)
        && name.split(|byte| *byte == b'/').all(plain)
}

/// Parses octal digits followed by zeros or spaces.
fn number(field: &[u8]) -> io::Result<u64> {
    let is_digit = |byte: &u8| (b'0'..=b'7').contains(byte);
    let end = field.iter().position(|byte| !is_digit(byte));
    let (digits, rest) = field.split_at(end.unwrap_or(field.len()));
    if digits.is_empty() || rest.iter().any(|byte| !matches!(byte, 0 | b' ')) {
        return Err(invalid_data("a field that is not a number"));
    }
    let digit = |value: u64, byte: &u8| value * 8 + u64::from(byte - b'0');
    Ok(digits.iter().fold(0, digit))
}

/// Makes an error for a fault of the archive.
pub fn invalid_data(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads `bytes` as a tar archive to the end, for the fuzzer. For any input the reader doesn't panic,
/// returns no name that leads out of the folder, and returns no more content than `bytes` has.
#[cfg(any(test, feature = "fuzzing"))]
pub fn check(bytes: &[u8]) {
    check_with(TarReader::new(bytes), bytes);
    check_with(TarReader::of_git(bytes), bytes);
}

#[cfg(any(test, feature = "fuzzing"))]
fn check_with(mut reader: TarReader<&[u8]>, bytes: &[u8]) {
    let mut total = 0;
    while let Ok(Some(entry)) = reader.next_entry() {
        let mut parts = entry.name.split(|byte| *byte == b'/');
        assert!(!parts.any(|part| matches!(part, b"" | b"." | b"..")));
        let head = head(&entry);
        let again = TarReader::new(&head[..]).next_entry();
        assert!(again.is_ok_and(|again| again == Some(entry)));
        let read = io::copy(&mut reader, &mut io::sink());
        total += read.unwrap_or(0);
    }
    assert!(total <= bytes.len() as u64);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(name: &[u8], size: u64) -> TarEntry {
        TarEntry {
            name: name.to_vec(),
            kind: TarEntryKind::File,
            mode: 0o640,
            modified: 1_795_238_400,
            size,
            link: Vec::new(),
        }
    }

    fn archive(entries: &[(TarEntry, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (entry, content) in entries {
            out.extend(head(entry));
            out.extend_from_slice(content);
            out.resize(out.len() + padding(content.len() as u64), 0);
        }
        out.extend(END);
        out
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<(TarEntry, Vec<u8>)>> {
        let (mut reader, mut all) = (TarReader::new(bytes), Vec::new());
        while let Some(entry) = reader.next_entry()? {
            let mut content = Vec::new();
            reader.read_to_end(&mut content)?;
            all.push((entry, content));
        }
        Ok(all)
    }

    /// Makes a header changed by `change`, with a correct checksum.
    fn forged(change: impl FnOnce(&mut [u8; BLOCK])) -> Vec<u8> {
        let mut block: [u8; BLOCK] = head(&file(b"a", 0)).try_into().unwrap();
        change(&mut block);
        let sum = sum(&block);
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        [&block[..], &END].concat()
    }

    #[test]
    fn written_archives_are_read_back() {
        let link = TarEntry {
            kind: TarEntryKind::Link,
            link: b"../elsewhere/".repeat(20),
            ..file(b"root/link", 0)
        };
        let folder = TarEntry {
            kind: TarEntryKind::Folder,
            ..file(&b"long".repeat(25), 0)
        };
        let entries: [(TarEntry, &[u8]); 5] = [
            (file(b"root/\xff\n", 3), b"abc"),
            (file(&b"n/".repeat(400)[..799], 512), &[7; 512]),
            (folder, b""),
            (link, b""),
            (file(b"empty", 0), b""),
        ];
        let bytes = archive(&entries);
        let back = read(&bytes).unwrap();
        for (there, here) in back.iter().zip(&entries) {
            assert_eq!((&there.0, &there.1[..]), (&here.0, here.1));
        }
        assert_eq!(back.len(), entries.len());
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(read(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn no_changed_byte_breaks_the_reader() {
        let entries: [(TarEntry, &[u8]); 2] =
            [(file(&[b'n'; 150], 3), b"abc"), (file(b"b", 0), b"")];
        let bytes = archive(&entries);
        for at in 0..bytes.len() {
            for to in [0, b'/', b'.', b'7', b'x', 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = to;
                check(&bytes);
                // A second check with a correct checksum.
                if let Some(head) = bytes.get_mut(at / BLOCK * BLOCK..(at / BLOCK + 1) * BLOCK) {
                    let sum = sum(&(*head).try_into().unwrap());
                    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
                }
                check(&bytes);
            }
        }
    }

    #[test]
    fn numbers_too_large_for_their_field_are_records() {
        let entry = file(b"large", NUMBER_MAX + 5);
        let bytes = head(&entry);
        assert_eq!(
            TarReader::new(&bytes[..]).next_entry().unwrap(),
            Some(entry)
        );
    }

    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        for name in [
            "/etc/passwd",
            "../a",
            "a/../../b",
            "a//b",
            "./a",
            "a/.",
            "",
            "..",
        ] {
            let bytes = archive(&[(file(name.as_bytes(), 0), b"")]);
            let why = read(&bytes).unwrap_err().to_string();
            assert_eq!(why, "a name that leads out of the folder", "{name}");
        }
        let long = b"a/".repeat(TAR_NAME_BYTES_MAX);
        assert!(read(&archive(&[(file(&long, 0), b"")])).is_err());
    }

    #[test]
    fn forged_headers_are_refused() {
        assert!(read(&forged(|_| {})).is_ok());
        for letter in [
            0, b'1', b'3', b'4', b'6', b'7', b'g', b'L', b'K', b'S', b'5',
        ] {
            assert!(read(&forged(|block| block[156] = letter)).is_err());
        }
        let changes: [fn(&mut [u8; BLOCK]); 6] = [
            |block| block[124] = 0x80,
            |block| block[124..136].copy_from_slice(b"00000000009\0"),
            |block| block[345] = b'p',
            |block| block[157] = b'l',
            |block| block[257] = b'U',
            |block| block[263] = b' ',
        ];
        for change in changes {
            assert!(read(&forged(change)).is_err());
        }
        for text in [
            "5 a=b",
            "9 path=a\n9 path=b\n",
            "99 path=a\n",
            "0 path=a\n",
            "7 uid=\n",
        ] {
            for maker in [TarDialect::Backup, TarDialect::Git] {
                assert!(parse_records(text.as_bytes(), maker).is_none(), "{text}");
            }
        }
    }

    #[test]
    fn features_of_git_are_accepted_only_from_git() {
        let of_git = |bytes: &[u8]| TarReader::of_git(bytes).next_entry();
        let two = forged(|block| block[345..350].copy_from_slice(b"a/b/c"));
        assert_eq!(of_git(&two).unwrap().unwrap().name, b"a/b/c/a");
        assert!(read(&two).is_err());
        for first in [&b".."[..], b"/a", b"a/"] {
            let two = forged(|block| block[345..345 + first.len()].copy_from_slice(first));
            assert!(of_git(&two).is_err());
        }
        let text = b"52 comment=0123456789012345678901234567890123456789\n";
        let mut global = block(b"pax_global_header", b'g', 0o666, 0, 52, b"").to_vec();
        global.extend_from_slice(text);
        global.resize(2 * BLOCK, 0);
        let all = [global, archive(&[(file(b"a", 1), b"x")])].concat();
        assert_eq!(of_git(&all).unwrap(), Some(file(b"a", 1)));
        assert!(read(&all).is_err());
    }
}
