//! Definitions of options: each states its name, help, text form, default and range once. The command line, `--like`,
//! `inspect --recipe` and the messages about options use these definitions; serde of the same struct is the form in the
//! manifest and in stored jobs.

use std::fmt::Display;
use std::num::NonZeroU16;
use std::str::FromStr;

use super::parse_size;
use crate::error::{Error, Result};

/// An option of the options struct `R`.
pub struct Definition<R> {
    /// Name in the library. The flag has dashes in place of underscores.
    pub name: &'static str,
    /// Heading in `--help`; empty for general options.
    pub heading: &'static str,
    /// Lines of the help. The first paragraph is the summary.
    pub help: &'static [&'static str],
    /// Name of the value in `--help`.
    pub value: &'static str,
    /// Accepted values.
    pub input: Input,
    /// Relations to other options, and further spellings.
    pub extra: Extra,
    set: Box<Setter<R>>,
    get: Box<Getter<R>>,
}

/// Sets an option to the value with a text form.
type Setter<R> = dyn Fn(&mut R, &str) -> Result<()>;
/// Returns the text form of an option; `None` if it has none.
type Getter<R> = dyn Fn(&R) -> Option<String>;
/// Functions that return a member of the options.
type Member<R, T> = (fn(&R) -> &T, fn(&mut R) -> &mut T);

/// What the command line accepts as the value of an option, before it is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// No value: the option is given or not.
    Flag,
    /// Any text.
    Text,
    /// Texts separated by commas; the option may be repeated.
    List,
    /// An integer of 16 bits, at least 1.
    Positive16,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A decimal number.
    Float,
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these words, each with its help.
    DescribedWords(&'static [(&'static str, &'static str)]),
}

/// Further properties of an option on the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extra {
    /// Short flag.
    pub short: Option<char>,
    /// Another spelling that `--help` shows.
    pub alias: Option<&'static str>,
    /// Option without which this one has no effect.
    pub requires: Option<&'static str>,
    /// Options that exclude this one.
    pub conflicts: &'static [&'static str],
}

impl<R: 'static> Definition<R> {
    /// Creates the definition of a member of type `T`, with the text form `F`.
    pub(crate) fn new<T: 'static, F: Form<T>>(
        name: &'static str,
        heading: &'static str,
        help: &'static [&'static str],
        value: &'static str,
        extra: Extra,
        member: Member<R, T>,
    ) -> Self {
        let (of, of_mut) = member;
        Self {
            name,
            heading,
            help,
            value,
            input: F::INPUT,
            extra,
            set: Box::new(move |options, text| {
                *of_mut(options) = F::parse(text).map_err(|e| e.of_option(name))?;
                Ok(())
            }),
            get: Box::new(move |options| F::text(of(options))),
        }
    }

    /// Sets the option to the value with this text form.
    ///
    /// # Errors
    ///
    /// If the option has no value with this text.
    pub fn set(&self, options: &mut R, text: &str) -> Result<()> {
        (self.set)(options, text)
    }

    /// Returns the text form of the value; `None` if the option has none: a flag that is off, or an absent limit.
    pub fn get(&self, options: &R) -> Option<String> {
        (self.get)(options)
    }

    /// Returns the flag, without dashes at its start.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Returns the same option as one of `Outer`, which has a member `R`.
    pub(crate) fn within<Outer: 'static>(
        self,
        of: fn(&Outer) -> &R,
        of_mut: fn(&mut Outer) -> &mut R,
    ) -> Definition<Outer> {
        let Self { name, heading, help, value, input, extra, set, get } = self;
        Definition {
            name,
            heading,
            help,
            value,
            input,
            extra,
            set: Box::new(move |outer, text| set(of_mut(outer), text)),
            get: Box::new(move |outer| get(of(outer))),
        }
    }
}

/// A text form of values of type `T`.
pub trait Form<T> {
    /// What the command line accepts.
    const INPUT: Input;

    /// Parses a value.
    ///
    /// # Errors
    ///
    /// If the text is not a value.
    fn parse(text: &str) -> Result<T>;

    /// Returns the text that [`Form::parse`] parses to `value`; `None` for the absence of a value.
    fn text(value: &T) -> Option<String>;
}

/// A type with one text form.
pub trait OptionValue: Sized {
    /// What the command line accepts.
    const INPUT: Input;

    /// Parses a value.
    ///
    /// # Errors
    ///
    /// If the text is not a value.
    fn parse(text: &str) -> Result<Self>;

    /// Returns the text form; `None` for the absence of a value.
    fn text(&self) -> Option<String>;
}

/// The text form of the type itself.
pub struct Plain;

impl<T: OptionValue> Form<T> for Plain {
    const INPUT: Input = T::INPUT;

    fn parse(text: &str) -> Result<T> {
        T::parse(text)
    }

    fn text(value: &T) -> Option<String> {
        value.text()
    }
}

/// An option whose value is one of a fixed set of words. The command line lists [`Choice::WORDS`] in `--help` and in
/// completions, and suggests the nearest word for a misspelled one.
pub trait Choice: FromStr<Err = Error> + Display + Clone + Send + Sync + 'static {
    /// All words, with the default first if there is one.
    const WORDS: &'static [&'static str];
}

impl<T: Choice> OptionValue for T {
    const INPUT: Input = Input::Words(T::WORDS);

    fn parse(text: &str) -> Result<Self> {
        text.parse()
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl OptionValue for bool {
    const INPUT: Input = Input::Flag;

    fn parse(text: &str) -> Result<Self> {
        text.parse().map_err(|_| Error::usage(format!("{text:?} is neither true nor false")))
    }

    fn text(&self) -> Option<String> {
        self.then(|| "true".to_owned())
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    const INPUT: Input = T::INPUT;

    fn parse(text: &str) -> Result<Self> {
        T::parse(text).map(Some)
    }

    fn text(&self) -> Option<String> {
        self.as_ref().and_then(T::text)
    }
}

impl OptionValue for Vec<String> {
    const INPUT: Input = Input::List;

    fn parse(text: &str) -> Result<Self> {
        Ok(text.split(',').map(str::to_owned).collect())
    }

    fn text(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.join(","))
    }
}

/// Implements [`OptionValue`] through `Display` and `FromStr`.
macro_rules! option_values {
    ($($input:ident: $($ty:ty),+;)+) => {$($(
        impl $crate::options::OptionValue for $ty {
            const INPUT: $crate::options::Input = $crate::options::Input::$input;

            fn parse(text: &str) -> $crate::error::Result<Self> {
                text.parse().map_err(|e| $crate::options::not_a_value(text, e))
            }

            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )+)+};
}
pub(crate) use option_values;

option_values! {
    Text: String;
    Positive16: NonZeroU16;
    Int32: u32;
    Int64: u64;
    Float: f64;
}

/// Returns the error for `text`, which is not a value. Errors of the library have their own message.
pub(crate) fn not_a_value(text: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    match error.into().downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => Error::usage(format!("invalid value {text:?}: {error}")),
    }
}

/// Implements [`OptionValue`] for an enum whose variants are words with a help.
macro_rules! word_values {
    ($ty:ty { $($variant:ident = $word:literal, $help:literal;)+ }) => {
        impl $crate::options::OptionValue for $ty {
            const INPUT: $crate::options::Input =
                $crate::options::Input::DescribedWords(&[$(($word, $help)),+]);

            fn parse(text: &str) -> $crate::error::Result<Self> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::error::Error::usage(format!("unknown value {text:?}"))
                        .help(format!("use one of {}", [$($word),+].join(", ")))),
                }
            }

            fn text(&self) -> Option<String> {
                Some(match self { $(Self::$variant => $word,)+ }.to_owned())
            }
        }
    };
}
pub(crate) use word_values;

/// Defines a choice among words: the enum, its parser and its printer. The last arm is the error for another word.
macro_rules! word_choice {
    (
        $(#[$meta:meta])* $name:ident, $other:ident => $unknown:expr;
        $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_meta])* $variant),+ }

        impl std::str::FromStr for $name {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> $crate::error::Result<Self> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    $other => Err($unknown),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),+ })
            }
        }

        impl $crate::options::Choice for $name {
            const WORDS: &'static [&'static str] = &[$($word),+];
        }
    };
}
pub(crate) use word_choice;

/// Implements serde for a type through its `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($($ty:ty),+ $(,)?) => {$(
        impl serde::Serialize for $ty {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $ty {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use serde_as_text;

/// A size in bytes of at least `MIN`, such as `256MiB`.
pub struct Size<const MIN: u64>;

impl<const MIN: u64> Form<u64> for Size<MIN> {
    const INPUT: Input = Input::Text;

    fn parse(text: &str) -> Result<u64> {
        let bytes = parse_size(text)?;
        if bytes < MIN {
            return Err(Error::usage(format!("{text} is below the minimum of {MIN} bytes")));
        }
        Ok(bytes)
    }

    fn text(bytes: &u64) -> Option<String> {
        let units = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let unit = units.into_iter().find(|(_, scale)| *bytes > 0 && bytes.is_multiple_of(*scale));
        Some(unit.map_or_else(|| bytes.to_string(), |(unit, scale)| format!("{}{unit}", bytes / scale)))
    }
}

impl<const MIN: u64> Form<Option<u64>> for Size<MIN> {
    const INPUT: Input = Input::Text;

    fn parse(text: &str) -> Result<Option<u64>> {
        <Self as Form<u64>>::parse(text).map(Some)
    }

    fn text(bytes: &Option<u64>) -> Option<String> {
        bytes.as_ref().and_then(<Self as Form<u64>>::text)
    }
}

/// Returns whether a value equals the default of its type, and is therefore not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Serde of values as their text form: `#[serde(with = "crate::options::as_text")]`.
pub(crate) mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::OptionValue;

    pub(crate) fn serialize<T: OptionValue, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value.text() {
            Some(text) => serializer.serialize_str(&text),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: OptionValue, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        T::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Selects the text form of an option: [`Plain`] unless another is given.
macro_rules! form_of {
    () => {
        $crate::options::Plain
    };
    ($form:ty) => {
        $form
    };
}
pub(crate) use form_of;

/// The default of a group of options: the default of its type unless another is given.
macro_rules! group_default {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}
pub(crate) use group_default;

/// Defines a struct of options: every option once, with its help (which is also its documentation), its attributes for
/// serde, type, text form, default, and name of the value in `--help`. The headings are those of `--help`. `groups` are
/// structs of options themselves, and `values` have no flag of this form.
///
/// Everything that reads or writes options uses `definitions`, serde or a pattern without `..`, so that an option cannot
/// be forgotten.
macro_rules! options {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident {
            $($heading:literal {
                $(
                    $(#[doc = $doc:literal])+
                    [$($attr:meta),*] $field:ident: $ty:ty $(as $form:ty)? = $default:expr, $value:literal
                    $(, $key:ident = $arg:expr)*;
                )+
            })+
            groups {
                $(
                    $(#[doc = $group_doc:literal])+
                    $([$($group_attr:meta),*])? $group:ident: $group_ty:ty $(= $group_default:expr)?;
                )*
            }
            values {
                $($(#[doc = $other_doc:literal])+ [$($other_attr:meta),*] $other:ident: $other_ty:ty = $other_default:expr;)*
            }
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        // The documentation of a field is its help, which is plain text.
        #[allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, rustdoc::bare_urls)]
        pub struct $name {
            $($($(#[doc = $doc])+ $(#[$attr])* pub $field: $ty,)+)+
            $($(#[doc = $group_doc])+ $($(#[$group_attr])*)? pub $group: $group_ty,)*
            $($(#[doc = $other_doc])+ $(#[$other_attr])* pub $other: $other_ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($($field: $default,)+)+
                    $($group: $crate::options::group_default!($($group_default)?),)*
                    $($other: $other_default,)*
                }
            }
        }

        impl $crate::options::Defined for $name {
            fn definitions() -> Vec<$crate::options::Definition<Self>> {
                #[allow(unused_mut)]
                let mut all = vec![$($($crate::options::Definition::new::<$ty, $crate::options::form_of!($($form)?)>(
                    stringify!($field),
                    $heading,
                    &[$($doc),+],
                    $value,
                    $crate::options::Extra { $($key: $arg,)* ..Default::default() },
                    (|options: &Self| &options.$field, |options: &mut Self| &mut options.$field),
                ),)+)+];
                $(
                    let within = |d: $crate::options::Definition<$group_ty>| {
                        d.within(|options: &Self| &options.$group, |options: &mut Self| &mut options.$group)
                    };
                    all.extend(<$group_ty as $crate::options::Defined>::definitions().into_iter().map(within));
                )*
                all
            }
        }
    };
}
pub(crate) use options;

/// A struct of options with definitions.
pub trait Defined: Sized {
    /// Returns the definitions of all options, in the order of `--help`.
    fn definitions() -> Vec<Definition<Self>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::pipeline::Dedup;
    use crate::source::names::layout::FolderLayout;
    use crate::transform::image::{Animated, Color, Filter, Icc};

    fn check<T: Choice>() {
        for word in T::WORDS {
            assert_eq!(word.parse::<T>().unwrap().to_string(), *word);
        }
        assert!(T::WORDS.len() == 1 || "no such word".parse::<T>().is_err());
    }

    #[test]
    fn every_word_parses_and_displays_as_itself() {
        check::<Format>();
        check::<FolderLayout>();
        check::<Dedup>();
        check::<Filter>();
        check::<Color>();
        check::<Animated>();
        check::<Icc>();
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for text in ["256MiB", "1KiB", "1000", "3GiB", "0", "1025KiB"] {
            let bytes = <Size<0> as Form<u64>>::parse(text).unwrap();
            assert_eq!(<Size<0> as Form<u64>>::text(&bytes).unwrap(), text);
        }
        let small = <Size<4096> as Form<u64>>::parse("1k").unwrap_err().to_string();
        assert_eq!(small, "1k is below the minimum of 4096 bytes");
    }
}
