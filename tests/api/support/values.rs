//! What answers consist of.

use serde_json::Value;

/// The floats of a JSON list, read as f32.
pub(crate) fn floats(value: &Value) -> Vec<f32> {
    let list = value.as_array().expect("a list");
    list.iter().map(|float| float.to_string().parse().expect("a float")).collect()
}

/// Ids and weights of an item's `sparse_values`.
pub(crate) fn pairs(item: &Value) -> Vec<(u32, f32)> {
    let values = &item["sparse_values"];
    let indices = values["indices"].as_array().expect("a list");
    let ids = indices.iter().map(|id| id.as_u64().expect("an id") as u32);
    ids.zip(floats(&values["values"])).collect()
}

/// The floats of a base64 text.
pub(crate) fn decode(value: &Value) -> Vec<f32> {
    use base64::Engine as _;
    let text = value.as_str().expect("base64");
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    assert_eq!(bytes.len() % 4, 0);
    bytes
        .chunks_exact(4)
        .map(|chunk| f32::from_le_bytes(chunk.try_into().expect("four bytes")))
        .collect()
}
