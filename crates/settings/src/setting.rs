//! What a setting is, and the macro that makes its flag and its field of one entry.

use std::fmt;
use std::path::PathBuf;

use super::Config;

/// What the name of every variable begins with.
pub(super) const PREFIX: &str = "DUOVEC_";

/// How many values a setting takes. In a variable the values of a list have commas between them,
/// in the file they are a list of strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    One,
    /// A list, all of it in one flag, with commas.
    ListInOneFlag,
    /// A list with a flag for each value, in which a comma is a character like others.
    ListOfFlags,
}

/// A command besides `serve` and `check --config`, which take every setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    Check,
    Bench,
    BuildEngine,
    /// `embed`, `batch` and `adopt`.
    Offline,
}

/// Where a value was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Flag,
    Environment,
    File(PathBuf),
    /// A variable that a release's start sets, for what came with it.
    Release,
    Default,
}

/// What was typed for a setting: any number of values for a list, else one.
#[derive(Clone, PartialEq, Eq)]
pub struct RawValue {
    pub values: Vec<String>,
    pub origin: Origin,
}

impl RawValue {
    /// What is taken where nothing is typed; an empty text is no value.
    pub(super) fn unset(default: &str) -> Self {
        let default = Some(default).filter(|text| !text.is_empty());
        Self { values: default.map(str::to_owned).into_iter().collect(), origin: Origin::Default }
    }

    /// The value of a setting that takes one, without blanks around it.
    pub fn text(&self) -> &str {
        self.values.first().map_or("", |text| text.trim())
    }

    /// Whether somebody typed it.
    pub fn is_given(&self) -> bool {
        self.origin != Origin::Default
    }
}

/// Without the values, which may be keys.
impl fmt::Debug for RawValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RawValue").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// A setting's value; else everything that is wrong with what was typed.
pub(super) type Read<T> = Result<T, Vec<String>>;

/// Reads what was typed into the setting's field.
type Update = fn(&mut Config, &RawValue) -> Read<()>;

/// One setting: `--max-items`, `DUOVEC_MAX_ITEMS` and the file's `max_items` are the same.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Names the variable and the file's key.
    pub name: &'static str,
    /// The flag without its dashes; another word than the name where a flag gives one of many.
    pub flag: &'static str,
    /// What stands behind the flag in the help.
    pub value: &'static str,
    /// What is taken when nothing is configured, as it would be typed.
    pub default: &'static str,
    pub help: &'static str,
    pub takes: Takes,
    /// Whether its value is never shown.
    pub secret: bool,
    /// Commands besides `serve` that have its flag.
    pub commands: &'static [Command],
    pub(super) update: Update,
}

impl Setting {
    /// One value, which is no secret, for `serve` alone.
    pub(super) const fn new(
        name: &'static str,
        value: &'static str,
        default: &'static str,
        help: &'static str,
        update: Update,
    ) -> Self {
        let (takes, commands): (_, &[Command]) = (Takes::One, &[]);
        Self { name, flag: name, value, default, help, takes, secret: false, commands, update }
    }

    /// The environment variable's name.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key().to_ascii_uppercase())
    }

    /// The variable that anything else replaces, the configuration file too.
    pub(super) fn default_variable(&self) -> String {
        format!("{PREFIX}DEFAULT_{}", self.key().to_ascii_uppercase())
    }

    /// The key in the configuration file.
    pub fn key(&self) -> String {
        self.name.replace('-', "_")
    }
}

pub(super) trait Words: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

impl Words for bool {
    const WORDS: &'static [(&'static str, Self)] = &[("true", true), ("false", false)];
}

/// Makes enums whose variants have words: `named! { pub enum Side { Left = "left" } }`. Each has
/// `name`, and `ALL` in the order of its variants.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All of them, in their order.
            $vis const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// Its word.
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

/// Makes enums whose words are typed: `choices! { LogFormat { Text = "text", Json = "json" } }`. An
/// `Option` of one also takes `auto`, which is `None`.
macro_rules! choices {
    ($($(#[$meta:meta])* $name:ident {
        $($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)?
    })*) => {$(
        $crate::named! {
            $(#[$meta])*
            pub enum $name {
                $($(#[$doc])* $variant = $word),*
            }
        }

        impl Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),*];
        }

        impl Words for Option<$name> {
            const WORDS: &'static [(&'static str, Self)] =
                &[("auto", None), $(($word, Some($name::$variant))),*];
        }
    )*};
}

/// Makes the structs of the configuration, their defaults and the table `SETTINGS`. The head of a
/// struct says where it lies in `Config` and which other structs are parts of it. An entry is
/// `field: type = default as it is typed, function that reads it`, then the setting's name, value
/// and help, and what differs from [`Setting::new`].
macro_rules! settings {
    ($(
        $(#[$meta:meta])*
        pub struct $Struct:ident at $place:expr, with [$($part:ident: $Part:ty),* $(,)?] {
            $(
                $(#[$doc:meta])*
                $field:ident: $type:ty = $default:literal, $reader:expr,
                $name:literal, $value:literal, $help:literal $(, $option:ident: $set:expr)*;
            )*
        }
    )*) => {
        $(
            $(#[$meta])*
            pub struct $Struct {
                $(
                    #[doc = concat!("`", $name, "`: ", $help, ".")]
                    ///
                    $(#[$doc])*
                    pub $field: $type,
                )*
                $(pub $part: $Part,)*
            }

            impl Default for $Struct {
                fn default() -> Self {
                    Self {
                        $($field: {
                            let typed = RawValue::unset($default);
                            $reader(&typed).expect("the table's defaults are valid")
                        },)*
                        $($part: Default::default(),)*
                    }
                }
            }
        )*

        /// Every setting of `duovec serve`, in the order of the help and of `docs/settings.md`.
        pub const SETTINGS: &[Setting] = &[$($(
            Setting {
                $($option: $set,)*
                ..Setting::new(
                    $name,
                    $value,
                    $default,
                    $help,
                    |config, typed| {
                        let value = $reader(typed)?;
                        let place: fn(&mut Config) -> &mut $Struct = $place;
                        place(config).$field = value;
                        Ok(())
                    },
                )
            },
        )*)*];
    };
}

pub(super) use {choices, settings};
