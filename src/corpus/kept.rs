//! Columns of the input that are kept beside the vectors, as Arrow's arrays.
//!
//! A column of Parquet keeps its type. One of JSON gets the type of the first rows: whole numbers
//! of 64 bits, numbers, booleans, or text for everything else, where what is no text is kept as its
//! JSON. CSV has texts only.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array,
    downcast_integer,
};
use arrow_schema::DataType;
use serde_json::Value;

/// Types of numbers and booleans in JSON; a column has the first that all of its values fit.
pub(super) const OF_JSON: [DataType; 4] =
    [DataType::Boolean, DataType::Int64, DataType::UInt64, DataType::Float64];

/// The type of a column whose first rows hold these values.
pub(super) fn infer<'a>(values: impl Iterator<Item = &'a Value>) -> DataType {
    let values: Vec<_> = values.filter(|value| !value.is_null()).collect();
    let holds_all = |kind: &DataType| values.iter().all(|value| fits(value, kind));
    let found = OF_JSON.into_iter().find(holds_all).filter(|_| !values.is_empty());
    found.unwrap_or(DataType::Utf8)
}

/// Whether a value can stand in a column of this type and be read back as it was.
pub(super) fn fits(value: &Value, kind: &DataType) -> bool {
    value.is_null()
        || match kind {
            DataType::Boolean => value.is_boolean(),
            DataType::Int64 => value.is_i64(),
            DataType::UInt64 => value.is_u64(),
            DataType::Float64 => is_exact(value),
            _ => true,
        }
}

/// Whether a float of 64 bits holds the number: it does not hold whole numbers such as hashes.
fn is_exact(value: &Value) -> bool {
    let is_held = |whole: i128| whole as f64 as i128 == whole;
    value.as_number().is_some_and(|number| number.as_i128().is_none_or(is_held))
}

/// The values as an array of this type, which is one of [`infer`]'s; those that do not fit are
/// null.
pub(super) fn array(values: &[Value], kind: &DataType) -> ArrayRef {
    match kind {
        DataType::Boolean => {
            Arc::new(values.iter().map(Value::as_bool).collect::<BooleanArray>()) as ArrayRef
        }
        DataType::Int64 => Arc::new(values.iter().map(Value::as_i64).collect::<Int64Array>()),
        DataType::UInt64 => Arc::new(values.iter().map(Value::as_u64).collect::<UInt64Array>()),
        DataType::Float64 => Arc::new(values.iter().map(Value::as_f64).collect::<Float64Array>()),
        _ => {
            let texts = values.iter().map(|value| match value {
                Value::Null => None,
                Value::String(text) => Some(Cow::Borrowed(text.as_str())),
                other => Some(Cow::Owned(other.to_string())),
            });
            Arc::new(texts.collect::<StringArray>())
        }
    }
}

/// Whether [`json`] can write values of this type.
pub(super) fn has_json(kind: &DataType) -> bool {
    let is_other = matches!(kind, DataType::Boolean | DataType::Float32 | DataType::Float64);
    kind.is_integer() || is_text(kind) || is_other
}

/// A value of a column as JSON; null for a type that has none here.
pub(super) fn json(column: &dyn Array, row: usize) -> Value {
    if column.is_null(row) {
        return Value::Null;
    }
    macro_rules! integer {
        ($kind:ty) => {
            column.as_primitive::<$kind>().value(row).into()
        };
    }
    downcast_integer! {
        column.data_type() => (integer),
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).into(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).into(),
        _ => text(column, row).map_or(Value::Null, Value::from),
    }
}

/// Whether a column of this type has texts.
pub(super) const fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// A text of a column; `None` where there is none.
pub(super) fn text(column: &dyn Array, row: usize) -> Option<&str> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value(row)),
        DataType::Utf8View => Some(column.as_string_view().value(row)),
        _ => None,
    }
}

/// Bytes of memory that a value takes, about: its text's, or `mean`, the [`mean_bytes`] of its
/// column.
pub(super) fn bytes(column: &dyn Array, row: usize, mean: usize) -> usize {
    match is_text(column.data_type()) {
        true => text(column, row).map_or(0, str::len),
        false => mean,
    }
}

/// The mean bytes of the values of a column without texts. Numbers count nothing, beside the text
/// of their row. Ask for it before the column is cut: Arrow says of a part of some lists that it
/// has the bytes of all of them.
pub(super) fn mean_bytes(column: &dyn Array) -> usize {
    let kind = column.data_type();
    if is_text(kind) || kind.is_primitive() || *kind == DataType::Boolean {
        return 0;
    }
    column.to_data().get_slice_memory_size().unwrap_or(0) / column.len().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::BinaryArray;
    use serde_json::json;

    fn kind(values: &Value) -> DataType {
        infer(values.as_array().expect("a list").iter())
    }

    #[test]
    fn a_column_has_the_type_that_holds_all_of_its_first_values() {
        assert_eq!(kind(&json!([null, 1, -2])), DataType::Int64);
        assert_eq!(kind(&json!([1, 0.5])), DataType::Float64);
        assert_eq!(kind(&json!([true, null])), DataType::Boolean);
        assert_eq!(kind(&json!([1, "a"])), DataType::Utf8);
        assert_eq!(kind(&json!([true, 1])), DataType::Utf8);
        assert_eq!(kind(&json!([null])), DataType::Utf8);
    }

    #[test]
    fn whole_numbers_stay_whole() {
        assert_eq!(kind(&json!([u64::MAX, 1])), DataType::UInt64);
        assert_eq!(kind(&json!([u64::MAX, -1])), DataType::Utf8, "no type has both");
        let beyond_f64 = 9_007_199_254_740_993_u64;
        assert_eq!(kind(&json!([beyond_f64, 0.5])), DataType::Utf8);
        assert!(!fits(&json!(beyond_f64), &DataType::Float64));
        assert!(fits(&json!(beyond_f64 - 1), &DataType::Float64));
    }

    #[test]
    fn values_read_back_as_they_were() {
        for values in [
            json!([1, null, -7]),
            json!([u64::MAX, null, u64::MAX - 1]),
            json!([0.5, 1.0]),
            json!([true, false, null]),
        ] {
            let list = values.as_array().expect("a list");
            let column = array(list, &kind(&values));
            let back: Vec<Value> = (0..column.len()).map(|row| json(&column, row)).collect();
            assert_eq!(Value::from(back), values);
        }
        let mixed = json!(["a", 1, {"b": null}]);
        let column = array(mixed.as_array().expect("a list"), &kind(&mixed));
        let texts: Vec<_> = (0..3).map(|row| text(&column, row)).collect();
        assert_eq!(texts, [Some("a"), Some("1"), Some("{\"b\":null}")]);
    }

    #[test]
    fn a_value_counts_with_its_text_or_the_mean_of_its_column() {
        let texts = array(&[json!("four"), Value::Null], &DataType::Utf8);
        let of = |column: &dyn Array, row| bytes(column, row, mean_bytes(column));
        assert_eq!([of(&texts, 0), of(&texts, 1)], [4, 0]);
        assert_eq!(of(&array(&[json!(7)], &DataType::Int64), 0), 0);
        let blobs = BinaryArray::from_iter_values([vec![0_u8; 1000], vec![0; 3000]]);
        assert!((2000..2100).contains(&of(&blobs, 0)), "{}", of(&blobs, 0));
    }

    #[test]
    fn a_value_of_another_type_does_not_fit() {
        assert!(!fits(&json!("a"), &DataType::Int64) && fits(&json!(3), &DataType::Float64));
        assert!(!fits(&json!(0.5), &DataType::Int64) && fits(&Value::Null, &DataType::Boolean));
        assert!(fits(&json!([1]), &DataType::Utf8));
    }
}
