//! Vectors → the bytes of an answer, written straight into one buffer.

use std::io::Write;

use serde::Deserialize;
use utoipa::ToSchema;

use crate::dense;
use crate::service::{EmbedReply, EmbeddedItem, Vectors};
use crate::sparse::SparseVector;

/// How dense vectors are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum DenseFormat {
    /// The shortest decimals that read back as the same f32.
    #[default]
    Float,
    /// Little-endian f32.
    Base64,
}

/// How sparse vectors are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum SparseFormat {
    /// `{"indices": […], "values": […]}`
    #[default]
    Indices,
    /// `{"<token id>": weight}`
    Dict,
    /// `{"<vocabulary piece>": weight}`
    Tokens,
    /// `"{index:weight,…}/vocabulary size"`, the text of pgvector's type `sparsevec`, whose indices
    /// start at 1.
    PgVector,
}

/// How the vectors of an answer are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) dense: DenseFormat,
    pub(super) sparse: SparseFormat,
}

/// Numbers from which writing should leave the connection's thread; about 5 ms of work.
pub(super) const MANY_NUMBERS: usize = 256 * 1024;

/// Characters of one decimal with its comma, typically.
const DECIMAL_BYTES: usize = 13;
/// Names, braces and counts around the vectors of one item.
const FRAME_BYTES: usize = 128;

/// Floats and weights of an answer.
pub(super) fn numbers(reply: &EmbedReply) -> usize {
    reply.items.iter().map(item_numbers).sum()
}

fn item_numbers(item: &EmbeddedItem) -> usize {
    let dense = item.dense.as_ref().map_or(0, Vec::len);
    dense + item.sparse.as_ref().map_or(0, |sparse| 2 * sparse.indices.len())
}

/// What an answer tells of the resident model.
pub(super) struct Resident<'a, P> {
    pub(super) id: &'a str,
    /// Above every token id.
    pub(super) vocab_size: usize,
    /// The vocabulary piece of a token id.
    pub(super) piece: P,
}

/// The body of an answer.
pub(super) fn write<P: Fn(u32) -> Option<String>>(
    reply: &EmbedReply,
    vectors: Vectors,
    form: Form,
    resident: Resident<'_, P>,
) -> Vec<u8> {
    let capacity = numbers(reply) * DECIMAL_BYTES + (reply.items.len() + 1) * FRAME_BYTES;
    let mut writer = Writer { out: Vec::with_capacity(capacity), form, resident };
    let object = match vectors {
        Vectors::Dense => "embedding",
        Vectors::Sparse => "sparse_embedding",
        Vectors::Both => "paired_embedding",
    };
    writer.put(r#"{"object":"list","data":["#);
    for (index, item) in reply.items.iter().enumerate() {
        writer.put(if index == 0 { r#"{"object":""# } else { r#",{"object":""# });
        writer.put(object);
        writer.put(r#"","index":"#);
        writer.number(index);
        writer.item(item);
        writer.put("}");
    }
    writer.put(r#"],"model":"#);
    writer.string(writer.resident.id);
    let tokens = reply.prompt_tokens;
    writer.put(&format!(r#","usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}}}"#));
    writer.out
}

struct Writer<'a, P> {
    out: Vec<u8>,
    form: Form,
    resident: Resident<'a, P>,
}

impl<P: Fn(u32) -> Option<String>> Writer<'_, P> {
    fn put(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        write!(self.out, "{number}").expect("a Vec takes all bytes");
    }

    fn string(&mut self, text: &str) {
        serde_json::to_writer(&mut self.out, text).expect("a Vec takes all bytes");
    }

    fn float(&mut self, float: f32) {
        serde_json::to_writer(&mut self.out, &float).expect("a Vec takes all bytes");
    }

    fn floats(&mut self, floats: &[f32]) {
        serde_json::to_writer(&mut self.out, floats).expect("a Vec takes all bytes");
    }

    fn item(&mut self, item: &EmbeddedItem) {
        if let Some(row) = &item.dense {
            self.put(r#","embedding":"#);
            match self.form.dense {
                DenseFormat::Float => self.floats(row),
                DenseFormat::Base64 => {
                    self.put("\"");
                    dense::write_base64(row, &mut self.out);
                    self.put("\"");
                }
            }
        }
        if let Some(vector) = &item.sparse {
            self.put(r#","sparse_values":"#);
            self.sparse(vector);
        }
        if let Some(tokens) = item.truncated_from {
            self.put(r#","truncated_from":"#);
            self.number(tokens);
        }
    }

    fn sparse(&mut self, vector: &SparseVector) {
        match self.form.sparse {
            SparseFormat::Indices => self.indices(vector),
            SparseFormat::Dict => self.object(vector, |_, id| id.to_string()),
            SparseFormat::Tokens => {
                // The service gives ids of its own vocabulary, so that each has a piece.
                self.object(vector, |resident, id| {
                    (resident.piece)(id).unwrap_or_else(|| id.to_string())
                });
            }
            SparseFormat::PgVector => self.pgvector(vector),
        }
    }

    fn indices(&mut self, vector: &SparseVector) {
        self.put(r#"{"indices":"#);
        serde_json::to_writer(&mut self.out, &vector.indices).expect("a Vec takes all bytes");
        self.put(r#","values":"#);
        self.floats(&vector.values);
        self.put("}");
    }

    fn object(&mut self, vector: &SparseVector, key: impl Fn(&Resident<'_, P>, u32) -> String) {
        self.put("{");
        for (position, (id, weight)) in vector.pairs().enumerate() {
            self.put(if position == 0 { "" } else { "," });
            let key = key(&self.resident, id);
            self.string(&key);
            self.put(":");
            self.float(weight);
        }
        self.put("}");
    }

    fn pgvector(&mut self, vector: &SparseVector) {
        self.put("\"{");
        for (position, (id, weight)) in vector.pairs().enumerate() {
            self.put(if position == 0 { "" } else { "," });
            self.number(u64::from(id) + 1);
            self.put(":");
            self.float(weight);
        }
        self.put("}/");
        self.number(self.resident.vocab_size);
        self.put("\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Milestones;
    use proptest::prelude::*;

    fn reply() -> EmbedReply {
        let sparse = SparseVector { indices: vec![7, 12], values: vec![0.25, 1e-7] };
        let whole = EmbeddedItem {
            dense: Some(vec![1.0, -0.1]),
            sparse: Some(sparse),
            tokens: 3,
            truncated_from: None,
        };
        let empty = EmbeddedItem {
            dense: Some(vec![0.0, 1.0]),
            sparse: Some(SparseVector::default()),
            tokens: 2,
            truncated_from: Some(700),
        };
        let milestones = Milestones::default();
        EmbedReply { items: vec![whole, empty], prompt_tokens: 5, milestones }
    }

    fn written(dense: DenseFormat, sparse: SparseFormat) -> String {
        let piece = |id: u32| (id == 7).then(|| "▁\"a\\".to_owned());
        let resident = Resident { id: "a/\"b", vocab_size: 20, piece };
        let bytes = write(&reply(), Vectors::Both, Form { dense, sparse }, resident);
        String::from_utf8(bytes).expect("it is UTF-8")
    }

    #[test]
    fn answers_are_written_byte_for_byte() {
        let expected = concat!(
            r#"{"object":"list","data":["#,
            r#"{"object":"paired_embedding","index":0,"embedding":[1.0,-0.1],"#,
            r#""sparse_values":{"indices":[7,12],"values":[0.25,1e-7]}},"#,
            r#"{"object":"paired_embedding","index":1,"embedding":[0.0,1.0],"#,
            r#""sparse_values":{"indices":[],"values":[]},"truncated_from":700}"#,
            r#"],"model":"a/\"b","usage":{"prompt_tokens":5,"total_tokens":5}}"#,
        );
        assert_eq!(written(DenseFormat::Float, SparseFormat::Indices), expected);
    }

    #[test]
    fn other_formats_replace_only_their_values() {
        let dict = written(DenseFormat::Base64, SparseFormat::Dict);
        assert!(
            dict.contains(r#""embedding":"AACAP83MzL0=","sparse_values":{"7":0.25,"12":1e-7}"#)
        );
        assert!(dict.contains(r#""sparse_values":{},"truncated_from":700"#));
        let tokens = written(DenseFormat::Float, SparseFormat::Tokens);
        assert!(tokens.contains(r#"{"▁\"a\\":0.25,"12":1e-7}"#), "{tokens}");
        let pgvector = written(DenseFormat::Float, SparseFormat::PgVector);
        assert!(pgvector.contains(r#""sparse_values":"{8:0.25,13:1e-7}/20"}"#), "{pgvector}");
        assert!(pgvector.contains(r#""sparse_values":"{}/20","truncated_from":700"#));
    }

    /// The significant digits of a decimal.
    fn digits(decimal: &str) -> String {
        let (mantissa, _) = decimal.split_once('e').unwrap_or((decimal, ""));
        let digits = mantissa.replace(['-', '.'], "");
        digits.trim_matches('0').to_owned()
    }

    proptest! {
        #[test]
        fn decimals_read_back_as_the_same_float(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            let item = EmbeddedItem {
                dense: Some(vec![value]),
                sparse: None,
                tokens: 1,
                truncated_from: None,
            };
            let milestones = Milestones::default();
            let reply = EmbedReply { items: vec![item], prompt_tokens: 1, milestones };
            let form = Form { dense: DenseFormat::Float, sparse: SparseFormat::Indices };
            let resident = Resident { id: "m", vocab_size: 1, piece: |_| None };
            let text = write(&reply, Vectors::Dense, form, resident);
            let text = String::from_utf8(text).expect("it is UTF-8");
            let (_, rest) = text.split_once("\"embedding\":[").expect("there is a row");
            let (decimal, _) = rest.split_once(']').expect("it ends");
            prop_assert_eq!(decimal.parse::<f32>().map(f32::to_bits), Ok(bits));
            // Several decimals of one length may stand for a float; any of them will do.
            let shortest = digits(&format!("{value:e}"));
            prop_assert!(digits(decimal).len() <= shortest.len(), "{decimal} is not the shortest");
        }
    }
}
