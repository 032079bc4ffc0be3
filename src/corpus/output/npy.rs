//! numpy's `.npy`: a matrix of dense vectors, in which row n is that of the input's row n. A row
//! that was not embedded is all NaN; of signed bytes all -128, of unsigned ones all 0. No vector in
//! int8 or uint8 has these.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use super::PartContent;
use vectors::small::NumberType;

/// Bytes in front of the numbers; a multiple of 64, as the format asks.
const HEADER_BYTES: usize = 128;
/// What every file of version 1.0 begins with.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

pub(super) fn write(part: &PartContent<'_>, out: &mut impl Write) -> io::Result<()> {
    let recipe = part.recipe;
    let (kind, missing) = match recipe.numbers {
        NumberType::Float => ("<f4", None),
        NumberType::Float16 => ("<f2", None),
        NumberType::Int8 | NumberType::Binary => ("|i1", Some(0x80)),
        NumberType::Uint8 | NumberType::Ubinary => ("|u1", Some(0)),
    };
    let columns = recipe.numbers.length(recipe.dimensions);
    out.write_all(&header(kind, part.outcomes.len() as u64, columns))?;
    let missing = match missing {
        Some(byte) => vec![byte; columns],
        None => recipe.bytes(&vec![f32::NAN; columns]),
    };
    for outcome in part.outcomes {
        let item = outcome.as_ref().ok().and_then(|items| items.first());
        match item {
            Some(item) => out.write_all(&recipe.bytes(&item.dense))?,
            None => out.write_all(&missing)?,
        }
    }
    Ok(())
}

pub(super) fn merge(parts: &[PathBuf], out: &mut impl Write) -> io::Result<()> {
    let (mut rows, mut shape) = (0, None);
    for path in parts {
        let mut file = File::open(path)?;
        let mut head = [0; HEADER_BYTES];
        file.read_exact(&mut head)?;
        let (kind, own, dimensions) = parse(&head).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{} is broken", path.display()))
        })?;
        rows += own;
        shape = Some((kind, dimensions));
    }
    let Some((kind, dimensions)) = shape else { return Ok(()) };
    out.write_all(&header(&kind, rows, dimensions))?;
    // One part is open at a time.
    for path in parts {
        let mut file = File::open(path)?;
        file.read_exact(&mut [0; HEADER_BYTES])?;
        io::copy(&mut file, out)?;
    }
    Ok(())
}

fn header(kind: &str, rows: u64, dimensions: usize) -> [u8; HEADER_BYTES] {
    let text =
        format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({rows}, {dimensions}), }}");
    let mut head = [b' '; HEADER_BYTES];
    let length = (HEADER_BYTES - MAGIC.len() - 2) as u16;
    head[..MAGIC.len()].copy_from_slice(MAGIC);
    head[MAGIC.len()..][..2].copy_from_slice(&length.to_le_bytes());
    head[MAGIC.len() + 2..][..text.len()].copy_from_slice(text.as_bytes());
    head[HEADER_BYTES - 1] = b'\n';
    head
}

/// Type, rows and columns of a header that [`header`] made.
fn parse(head: &[u8]) -> Option<(String, u64, usize)> {
    let text = std::str::from_utf8(head.get(MAGIC.len() + 2..)?).ok()?;
    let kind = text.split('\'').nth(3)?.to_owned();
    let (rows, columns) = text.split('(').nth(1)?.split(')').next()?.split_once(", ")?;
    Some((kind, rows.parse().ok()?, columns.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_has_the_formats_length() {
        let head = header("<f4", 123_456_789_012, 1024);
        assert_eq!(&head[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(parse(&head), Some(("<f4".to_owned(), 123_456_789_012, 1024)));
        assert_eq!(parse(&[b' '; HEADER_BYTES]), None);
    }
}
