//! Finds the end of a request's body among the bytes that come.
//!
//! No byte is taken that actix's own decoder would not take: who reads less than the other would
//! take the rest for a request. A test compares the two. Trailers must be headers here. Actix takes
//! any bytes for them, and so the next request, when a line that ends the body ends with LF alone.

/// Bytes of a chunked body that nobody reads: extensions of its chunks, and trailers. Actix keeps a
/// chunk of one byte together with what was read around it.
const UNREAD_MAX_BYTES: usize = 16 * 1024;

/// What is to come of the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// So many bytes.
    Bytes(u64),
    /// What comes next, and how many bytes may come yet that nobody reads.
    Chunks(ChunkPart, usize),
    /// Nothing that means anything: a chunk was not well-formed, or too much of it is not read.
    Broken,
}

/// What comes next in a chunked body; the number is the size of the chunk, or what is left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkPart {
    /// The first digit of its size.
    Size,
    MoreSize(u64),
    SpaceAfterSize(u64),
    Extension(u64),
    SizeLineFeed(u64),
    Data(u64),
    DataReturn,
    DataLineFeed,
    /// Behind the last chunk: an empty line, or a trailer.
    EndReturn,
    EndLineFeed,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    /// The body has ended.
    End,
}

impl Rest {
    /// A chunked body from its start.
    pub(super) const fn chunks() -> Self {
        Self::Chunks(ChunkPart::Size, UNREAD_MAX_BYTES)
    }

    pub(super) fn has_ended(self) -> bool {
        matches!(self, Self::Bytes(0) | Self::Chunks(ChunkPart::End, _))
    }

    /// More bytes may belong to the body.
    pub(super) fn goes_on(self) -> bool {
        !self.has_ended() && self != Self::Broken
    }

    /// How many of `bytes`, which come next, belong to the body and are well-formed.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Bytes(left) => {
                let own = clamp(*left, bytes.len());
                *left -= own as u64;
                own
            }
            Self::Chunks(chunk, unread) => match chunk.advance(bytes, unread) {
                Ok(own) => own,
                Err(Malformed { at }) => {
                    *self = Self::Broken;
                    at
                }
            },
            Self::Broken => 0,
        }
    }
}

/// The byte at this place cannot be.
struct Malformed {
    at: usize,
}

impl ChunkPart {
    fn advance(&mut self, bytes: &[u8], unread: &mut usize) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() && *self != Self::End {
            if let Self::Data(left) = *self {
                let own = clamp(left, bytes.len() - at);
                at += own;
                *self = match left - own as u64 {
                    0 => Self::DataReturn,
                    left => Self::Data(left),
                };
            } else {
                *self = self.next(bytes[at]).ok_or(Malformed { at })?;
                if self.is_unread() {
                    *unread = unread.checked_sub(1).ok_or(Malformed { at })?;
                }
                at += 1;
            }
        }
        Ok(at)
    }

    /// The last byte has no meaning here.
    const fn is_unread(self) -> bool {
        use ChunkPart::{Extension, SpaceAfterSize, TrailerName, TrailerValue};
        matches!(self, SpaceAfterSize(_) | Extension(_) | TrailerName | TrailerValue)
    }

    /// What comes behind this byte; `None` when it cannot be.
    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Size, _) => Self::MoreSize(digit(byte)?),
            (Self::MoreSize(size) | Self::SpaceAfterSize(size), b' ' | b'\t') => {
                Self::SpaceAfterSize(size)
            }
            (Self::MoreSize(size) | Self::SpaceAfterSize(size), b';') => Self::Extension(size),
            (Self::MoreSize(size) | Self::SpaceAfterSize(size) | Self::Extension(size), b'\r') => {
                Self::SizeLineFeed(size)
            }
            (Self::MoreSize(size), _) => Self::MoreSize(size.checked_mul(16)? + digit(byte)?),
            (Self::Extension(size), _) if is_text(byte) => Self::Extension(size),
            (Self::SizeLineFeed(0) | Self::TrailerLineFeed, b'\n') => Self::EndReturn,
            (Self::SizeLineFeed(size), b'\n') => Self::Data(size),
            (Self::DataReturn, b'\r') => Self::DataLineFeed,
            (Self::DataLineFeed, b'\n') => Self::Size,
            (Self::EndReturn, b'\r') => Self::EndLineFeed,
            (Self::EndLineFeed, b'\n') => Self::End,
            (Self::TrailerName, b':') => Self::TrailerValue,
            (Self::EndReturn | Self::TrailerName, _) if is_of_name(byte) => Self::TrailerName,
            (Self::TrailerValue, b'\r') => Self::TrailerLineFeed,
            (Self::TrailerValue, _) if is_text(byte) => Self::TrailerValue,
            _ => return None,
        })
    }
}

/// May be in the value of a header, or in an extension.
fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

/// May be in the name of a header.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

/// The smaller of the two.
fn clamp(left: u64, length: usize) -> usize {
    usize::try_from(left).map_or(length, |left| left.min(length))
}
