//! Bytes of a file, counted, in lines and records of bounded size.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one line or record, at most; a text has fewer by far.
const RECORD_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of a line that is passed over, at most: what has more is hardly a line, and may never end.
const PASSED_BYTES_MAX: u64 = 16 * RECORD_BYTES_MAX;
const BUFFER_BYTES: usize = 256 * 1024;

const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];
pub(super) const GZIP_ADVICE: &str = "it is packed with gzip; unpack it first, with gunzip -k";
const UTF16_ADVICE: &str =
    "it seems to be in UTF-16; write it in UTF-8 first, with iconv -f UTF-16 -t UTF-8";
/// What some editors put in front of a text in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// How far a file was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter {
    read: Arc<AtomicU64>,
    /// What may be read before the record under way is too long.
    limit: Arc<AtomicU64>,
}

impl Meter {
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// A record begins about here.
    pub(super) fn begin_record(&self) {
        let limit = self.read() + RECORD_BYTES_MAX;
        self.limit.store(limit, Ordering::Relaxed);
    }
}

/// A reader that counts, and fails when a record does not end: a quote that is never closed would
/// take a whole file into memory.
pub(super) struct Metered {
    inner: Box<dyn Read>,
    meter: Meter,
}

impl Metered {
    pub(super) fn new(inner: Box<dyn Read>) -> Self {
        let meter = Meter::default();
        meter.begin_record();
        Self { inner, meter }
    }

    /// What it counts, for whoever has handed the reader over.
    pub(super) fn meter(&self) -> Meter {
        self.meter.clone()
    }
}

impl Read for Metered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.meter.read() > self.meter.limit.load(Ordering::Relaxed) {
            let problem = format!(
                "a record that begins before byte {} has more than {RECORD_BYTES_MAX} bytes; a \
                 closing quote may be missing",
                self.meter.read() - RECORD_BYTES_MAX
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let count = self.inner.read(buffer)?;
        if self.meter.read() == 0
            && let Some(advice) = advice(&buffer[..count])
        {
            return Err(io::Error::new(io::ErrorKind::InvalidData, advice));
        }
        self.meter.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// What to do with a file that begins with these bytes, and is no text in UTF-8.
fn advice(first: &[u8]) -> Option<&'static str> {
    match first {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(UTF16_ADVICE),
        // Letters of English or signs of JSON; other zeros make a row wrong, not the file.
        [0, 1..=255, 0, 1..=255, ..] | [1..=255, 0, 1..=255, 0, ..] => Some(UTF16_ADVICE),
        _ if first.starts_with(&GZIP_MAGIC) => Some(GZIP_ADVICE),
        _ => None,
    }
}

/// A line's bytes without its end; else why they are not kept.
pub(crate) type Line<'a> = Result<&'a [u8], String>;

/// Lines of a file; one that is too long is passed over without being kept in memory, up to a
/// length from which on it ends the reading.
pub(crate) struct Lines {
    reader: BufReader<Metered>,
    meter: Meter,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    pub(crate) fn of(file: Box<dyn Read>) -> Self {
        Self::new(Metered::new(file))
    }

    pub(super) fn new(metered: Metered) -> Self {
        let meter = metered.meter();
        let reader = BufReader::with_capacity(BUFFER_BYTES, metered);
        Self { reader, meter, line: Vec::new(), number: 0 }
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let mut length = 0;
        let mut ended = false;
        while !ended {
            // A long line has a limit of its own.
            self.meter.begin_record();
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() {
                break;
            }
            let end = memchr::memchr(b'\n', bytes);
            let part = end.map_or(bytes.len(), |end| end + 1);
            if length + part as u64 <= RECORD_BYTES_MAX {
                self.line.extend_from_slice(&bytes[..part]);
            }
            length += part as u64;
            if length > PASSED_BYTES_MAX {
                return Err(self.endless());
            }
            ended = end.is_some();
            self.reader.consume(part);
        }
        if length == 0 {
            return Ok(None);
        }
        self.number += 1;
        if length > RECORD_BYTES_MAX {
            self.line = Vec::new();
            return Ok(Some(Err(format!("the line has more than {RECORD_BYTES_MAX} bytes"))));
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = match self.number {
            1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            _ => line,
        };
        Ok(Some(Ok(line.strip_suffix(b"\r").unwrap_or(line))))
    }

    fn endless(&self) -> io::Error {
        let problem = format!(
            "line {} has more than {PASSED_BYTES_MAX} bytes and may never end; a row has at most \
             {RECORD_BYTES_MAX}: give a file with a row a line",
            self.number + 1
        );
        io::Error::new(io::ErrorKind::InvalidData, problem)
    }

    /// The number of the line that was read last, from 1.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn position(&self) -> u64 {
        self.meter.read() - self.reader.buffer().len() as u64
    }
}
