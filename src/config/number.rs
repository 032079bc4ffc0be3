//! Whole numbers with a range and a unit, each a type of its own.

use thiserror::Error;

/// A number that does not fit its range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LimitError {
    #[error("'{0}' is not a whole number")]
    NotANumber(String),
    #[error("{value} is outside {min} to {max} ({unit})")]
    OutOfRange { value: u64, min: u64, max: u64, unit: &'static str },
}

/// Makes the type of a number: `number!(MaxItems, 1..=65_536, "items", 2048)`. The last one is the
/// type's default; it may be left out.
macro_rules! number {
    (
        $(#[$meta:meta])*
        $name:ident, $min:literal ..= $max:literal, $unit:literal $(, $default:literal)?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Smallest value accepted.
            pub const MIN: u64 = $min;
            /// Largest value accepted.
            pub const MAX: u64 = $max;
            $(
                /// The value when nothing else is said.
                pub const DEFAULT: Self = Self($default);
            )?

            /// Refuses a value outside `MIN..=MAX`.
            pub const fn new(value: u64) -> Result<Self, $crate::config::LimitError> {
                if value < Self::MIN || value > Self::MAX {
                    let (min, max, unit) = (Self::MIN, Self::MAX, $unit);
                    return Err($crate::config::LimitError::OutOfRange { value, min, max, unit });
                }
                Ok(Self(value))
            }

            /// The nearest value in `MIN..=MAX`.
            pub const fn nearest(value: u64) -> Self {
                if value < Self::MIN {
                    Self(Self::MIN)
                } else if value > Self::MAX {
                    Self(Self::MAX)
                } else {
                    Self(value)
                }
            }

            #[doc = concat!("The value, in ", $unit, ".")]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The value as a length or a count in memory.
            pub const fn as_usize(self) -> usize {
                self.0 as usize
            }
        }

        $(
            impl Default for $name {
                fn default() -> Self {
                    Self($default)
                }
            }
        )?

        impl std::str::FromStr for $name {
            type Err = $crate::config::LimitError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let value = text.trim().parse::<u64>();
                Self::new(value.map_err(|_| Self::Err::NotANumber(text.to_owned()))?)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

pub(super) use number;

#[cfg(test)]
mod tests {
    use super::LimitError;
    use crate::config::numbers::{MaxItems, Workers};

    #[test]
    fn values_outside_the_range_are_refused_with_the_range() {
        let error = MaxItems::new(0).expect_err("zero items make no request");
        assert_eq!(error.to_string(), "0 is outside 1 to 65536 (items)");
        assert_eq!(MaxItems::new(65_536).map(MaxItems::get), Ok(65_536));
        assert!(MaxItems::new(65_537).is_err());
        assert_eq!([0, 7, 65_537].map(|n| MaxItems::nearest(n).get()), [1, 7, 65_536]);
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        for text in ["", "-1", "1.5", "ten", "18446744073709551616"] {
            assert!(matches!(text.parse::<Workers>(), Err(LimitError::NotANumber(_))), "{text}");
        }
        assert_eq!(" 7 ".parse::<Workers>().map(Workers::get), Ok(7));
    }
}
