//! Declared tables of `anthill.toml`: one declaration of a key is its name, type, default, bounds,
//! documentation, suggestion and example.
//!
//! [`declare_table`] makes a struct with a field for each key, the list of keys for [`TableReader`] and the
//! parser. Test builds also get the documentation, from which a test writes the tables of the guide. Other
//! builds compile neither documentation nor examples, except the examples of required keys: the error about
//! a missing key shows the example.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::error::OperatorError;
use crate::config::toml_reader::{FromToml, SourceText, TableReader, TableSchema};

/// Table, or a part of several tables, made by [`declare_table`].
pub(super) trait DeclaredTable: Sized {
    /// Keys, with the keys of the parts.
    const KEYS: &'static [&'static str];
    /// Words of other servers with the help for each, including the words of the parts.
    const FOREIGN: &'static [(&'static str, &'static str)];
    /// Keys and name, for the reader.
    const SCHEMA: &'static TableSchema;

    /// Takes the keys out of a table, and records the errors. A key with an error counts as missing. Fails without
    /// a required key. The caller finishes the table.
    fn take(table: &mut TableReader<'_, '_>) -> Result<Self, OperatorError>;

    /// Returns the documentation of the keys.
    #[cfg(test)]
    fn documentation() -> TableDocumentation;

    /// Reads a whole table, with the position of its header.
    fn read_table(mut table: TableReader<'_, '_>) -> Result<Spanned<Self>, OperatorError> {
        let span = table.span.clone();
        let keys = Self::take(&mut table);
        table.finish()?;
        keys.map(|keys| Spanned::new(span, keys))
    }

    /// Reads a table without keys. Fails if a key is required.
    fn read_empty(source: &SourceText<'_>) -> Result<Self, OperatorError> {
        Self::take(&mut TableReader::new(
            source,
            Self::SCHEMA,
            0..0,
            DeTable::new(),
        ))
    }
}

/// Returns the name of a key: of a field `r#try`, the key `try`.
pub(super) const fn key_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// Joins lists at compile time. `N` is the sum of the lengths, and `fill` any value.
pub(super) const fn joined<T: Copy, const N: usize>(lists: &[&[T]], fill: T) -> [T; N] {
    let mut all = [fill; N];
    let mut count = 0;
    let mut list = 0;
    while list < lists.len() {
        let mut item = 0;
        while item < lists[list].len() {
            all[count] = lists[list][item];
            count += 1;
            item += 1;
        }
        list += 1;
    }
    assert!(count == N);
    all
}

/// Value that can be written as TOML, for bounds in error messages and for defaults in the guide.
pub(super) trait ShownValue {
    /// Returns the value as written in the file.
    fn shown(&self) -> String;

    /// Returns true for an upper bound that excludes no value.
    fn is_largest(&self) -> bool {
        false
    }
}

macro_rules! shown_as_is {
    ($($type:ty),*) => {$(
        impl ShownValue for $type {
            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
shown_as_is!(bool, u8, u16, u32);

impl ShownValue for usize {
    fn shown(&self) -> String {
        self.to_string()
    }

    fn is_largest(&self) -> bool {
        *self == usize::MAX
    }
}

impl ShownValue for Duration {
    fn shown(&self) -> String {
        let milliseconds = self.as_millis();
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)];
        let units = units.into_iter().chain([("s", 1_000), ("ms", 1)]);
        let mut fitting = units.filter(|(_, unit)| milliseconds.is_multiple_of(*unit));
        match fitting.find(|(_, unit)| milliseconds >= *unit) {
            Some((name, unit)) => format!("\"{}{name}\"", milliseconds / unit),
            None => "\"0s\"".to_owned(),
        }
    }
}

impl ShownValue for String {
    fn shown(&self) -> String {
        format!("\"{self}\"")
    }
}

impl<T: ShownValue> ShownValue for Spanned<T> {
    fn shown(&self) -> String {
        self.get_ref().shown()
    }
}

impl<T: ShownValue> ShownValue for Vec<T> {
    fn shown(&self) -> String {
        let items = self.iter().map(T::shown).collect::<Vec<_>>();
        format!("[{}]", items.join(", "))
    }
}

/// Takes a value out of a table, and fails if the value is outside of `range`.
pub(super) fn take_within<T: FromToml + PartialOrd + ShownValue>(
    table: &mut TableReader<'_, '_>,
    key: &'static str,
    range: &RangeInclusive<T>,
) -> Result<Option<Spanned<T>>, OperatorError> {
    let Some(item) = table.item(key) else {
        return Ok(None);
    };
    let span = item.value.span();
    let (is_text, number) = match item.value.get_ref() {
        DeValue::Integer(number) => (false, Some(number.as_str())),
        DeValue::String(_) => (true, None),
        _ => (false, None),
    };
    // The help for a number that no type of a key holds is not aware of the bounds.
    let is_unfit = number.is_some_and(|number| number.parse::<u32>().is_err());
    let error = match <Spanned<T>>::read(item) {
        Ok(value) if range.contains(value.get_ref()) => return Ok(Some(value)),
        Ok(_) => {
            let what = format!("`{}` is out of bounds", table.shown_key(key));
            table.source().error(span, what, "")
        }
        Err(error) if !is_text && !is_unfit => return Err(error),
        Err(error) => error,
    };
    let high = (!range.end().is_largest()).then(|| range.end().shown());
    Err(within_bounds(
        error,
        key,
        is_text,
        &range.start().shown(),
        high,
    ))
}

/// Adds the bounds of a key to the error about a refused value. For a number, the bounds are the whole help.
#[cold]
#[inline(never)]
fn within_bounds(
    error: OperatorError,
    key: &str,
    is_text: bool,
    low: &str,
    high: Option<String>,
) -> OperatorError {
    let bounds = match high {
        Some(high) => format!("between {low} and {high}"),
        None if is_text => format!("at least {low}"),
        None => format!("of at least {low}"),
    };
    let help = match error.hint() {
        Some(hint) if is_text => format!("{hint}, {bounds}"),
        // `rate` is a number of requests, or a table with the number.
        _ if key == "requests" => {
            format!("remove `rate` for no limit, or write a number {bounds}")
        }
        _ => format!("write a value {bounds}"),
    };
    error.help(help)
}

/// Takes a value out of a table like [`TableReader::fill`], and records an error if the value is outside of `range`.
#[inline(never)]
pub(super) fn fill_within<T: FromToml + PartialOrd + ShownValue>(
    table: &mut TableReader<'_, '_>,
    key: &'static str,
    range: &RangeInclusive<T>,
    slot: &mut Option<Spanned<T>>,
) {
    let value = take_within(table, key, range);
    *slot = table.keep(key, value);
}

/// Documentation of a declared table.
#[cfg(test)]
pub(super) struct TableDocumentation {
    /// Name of the table or part.
    pub(super) name: &'static str,
    /// Documentation of the keys in the order of the declaration.
    pub(super) keys: Vec<KeyDocumentation>,
    /// Documentation of the parts.
    pub(super) parts: Vec<TableDocumentation>,
    /// Schema of the table, for tests of single keys.
    pub(super) schema: &'static TableSchema,
    /// Reads a table without keys.
    pub(super) read_empty: fn(&SourceText<'_>) -> Result<(), OperatorError>,
}

/// Documentation of a key.
#[cfg(test)]
pub(super) struct KeyDocumentation {
    /// Name of the key.
    pub(super) name: &'static str,
    /// Lines of the documentation.
    pub(super) lines: &'static [&'static str],
    /// Value of a missing key.
    pub(super) default: KeyDefault,
    /// Bounds of the value, as written in the file; no upper bound if every larger value is accepted.
    pub(super) bounds: Option<(String, Option<String>)>,
    /// Words of other servers.
    pub(super) foreign: &'static [&'static str],
    /// Value as written in the file.
    pub(super) example: &'static str,
    /// Takes the key out of a table, and returns the value formatted for a comparison.
    pub(super) read: fn(&mut TableReader<'_, '_>) -> Result<String, OperatorError>,
}

/// Value of a missing key.
#[cfg(test)]
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyDefault {
    /// The key is required.
    Required,
    /// The effect of a missing key in words.
    Words(&'static str),
    /// A missing table counts as a table without keys.
    EmptyTable,
    /// A value: as written in the file, and formatted as by [`KeyDocumentation::read`].
    Value(String, String),
}

#[cfg(test)]
impl KeyDefault {
    /// Returns the default for a value.
    pub(super) fn of<T: ShownValue + std::fmt::Debug>(value: T) -> KeyDefault {
        KeyDefault::Value(value.shown(), format!("{:?}", Some(value)))
    }
}

/// Declares a table of `anthill.toml`, or a part that several tables share.
///
/// ```ignore
/// declare_table! {
///     /// Passive ejection.
///     pub(super) struct EjectTable: "the table `eject`" {
///         /// Failed requests in a row that eject a member.
///         failures: u32 = default(3), within(1, 100), also ["max_fails"], example "5";
///         ..connection: ConnectionKeys;
///     }
/// }
/// ```
///
/// A key is `required`; has a `default(VALUE)`; is `optional("effect of a missing key")`, with a field of type
/// `Option`; or is a `table`, which counts as a table without keys if missing. Each value is a [`Spanned`]; a
/// default has an empty span. `within` has the smallest and the largest value. `also` lists words of other
/// servers for the key. With `short KEY "a TYPE", "EXAMPLE"` after the name, the value may be the value of
/// the key alone instead of a table. `such as "EXAMPLE"` is the example in the error about a value that is
/// no table.
macro_rules! declare_table {
    (
        $(#[doc = $about:literal])+
        $visible:vis struct $table:ident: $name:literal $(, short $short:ident $kind:literal, $shown:literal)?
            $(, such as $sample:literal)?
        {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $type:ty = $presence:ident $(($value:expr))?
                    $(, within($low:expr, $high:expr))?
                    $(, also [$($foreign:literal),+])?
                    , example $example:literal;
            )*
            $(..$part:ident: $shared:ty;)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        $visible struct $table {
            $($(#[doc = $doc])+ $visible $key: declare_table!(@type $presence $type),)*
            $(#[doc = "Keys of a part that several tables share."] $visible $part: $shared,)*
        }

        const _: () = {
            use $crate::config::declared_table::*;
            use $crate::config::error::OperatorError;
            use $crate::config::toml_reader::{FromToml, KeyedValue, TableReader, TableSchema};

            impl DeclaredTable for $table {
                const KEYS: &'static [&'static str] = {
                    const OWN: &[&str] = &[$(key_name(stringify!($key))),*];
                    const COUNT: usize = OWN.len() $(+ <$shared>::KEYS.len())*;
                    &joined::<_, COUNT>(&[OWN $(, <$shared>::KEYS)*], "")
                };
                const FOREIGN: &'static [(&'static str, &'static str)] = {
                    const OWN: &[(&str, &str)] = &[$($($(
                        ($foreign, concat!("did you mean `", stringify!($key), "`?")),
                    )+)?)*];
                    const COUNT: usize = OWN.len() $(+ <$shared>::FOREIGN.len())*;
                    &joined::<_, COUNT>(&[OWN $(, <$shared>::FOREIGN)*], ("", ""))
                };
                const SCHEMA: &'static TableSchema = &TableSchema {
                    name: $name,
                    keys: Self::KEYS,
                    later: &[],
                    foreign: Self::FOREIGN,
                };

                // The part for test handlers has no keys in other builds.
                #[allow(unused_mut, unused_variables)]
                fn take(table: &mut TableReader<'_, '_>) -> Result<Self, OperatorError> {
                    // An error drops the values of all keys in one call, instead of key by key.
                    struct TakenValues {
                        $($key: Option<toml::Spanned<$type>>,)*
                    }
                    let mut taken = TakenValues { $($key: None,)* };
                    $(
                        declare_table!(@fill table key_name(stringify!($key)), taken.$key $(, $type, $low, $high)?);
                    )*
                    $(let $part = <$shared>::take(table);)*
                    Ok($table {
                        $($key: {
                            let value = taken.$key;
                            declare_table!(@present $presence $(($value))?, value, table $type,
                                key_name(stringify!($key)),
                                concat!($name, " needs `", stringify!($key), "`"),
                                concat!("for example ", stringify!($key), " = ", $example))
                        },)*
                        $($part: $part?,)*
                    })
                }

                #[cfg(test)]
                fn documentation() -> TableDocumentation {
                    TableDocumentation {
                        name: $name,
                        keys: vec![$(KeyDocumentation {
                            name: key_name(stringify!($key)),
                            lines: &[$($doc),+],
                            default: declare_table!(@default $presence $type $(, $value)?),
                            bounds: declare_table!(@bounds $type $(, $low, $high)?),
                            foreign: &[$($($foreign),+)?],
                            example: $example,
                            read: |table| {
                                let value = declare_table!(@take table key_name(stringify!($key)), $type $(, $low, $high)?)?;
                                Ok(format!("{:?}", value.map(toml::Spanned::into_inner)))
                            },
                        }),*],
                        parts: vec![$(<$shared>::documentation()),*],
                        schema: Self::SCHEMA,
                        read_empty: |source| Self::read_empty(source).map(drop),
                    }
                }
            }

            impl FromToml for $table {
                fn read(item: KeyedValue<'_, '_>) -> Result<Self, OperatorError> {
                    let table = declare_table!(@open item, $table $(, $short, $kind, $shown)? $(, $sample)?);
                    $table::read_table(table).map(toml::Spanned::into_inner)
                }
            }
        };
    };

    (@type optional $type:ty) => { Option<toml::Spanned<$type>> };
    (@type $presence:ident $type:ty) => { toml::Spanned<$type> };

    (@open $item:ident, $table:ident) => { $item.table($table::SCHEMA)? };
    (@open $item:ident, $table:ident, $sample:literal) => { $item.table_like($table::SCHEMA, $sample)? };
    (@open $item:ident, $table:ident, $short:ident, $kind:literal, $shown:literal) => {
        $item.table_or($table::SCHEMA, stringify!($short), $kind, $shown)?
    };

    (@fill $table:ident $name:expr, $slot:expr) => {
        $table.fill($name, &mut $slot)
    };
    (@fill $table:ident $name:expr, $slot:expr, $type:ty, $low:expr, $high:expr) => {{
        const BOUNDS: std::ops::RangeInclusive<$type> = $low..=$high;
        fill_within($table, $name, &BOUNDS, &mut $slot)
    }};

    (@take $table:ident $name:expr, $type:ty) => {
        $table.take::<toml::Spanned<$type>>($name)
    };
    (@take $table:ident $name:expr, $type:ty, $low:expr, $high:expr) => {
        take_within::<$type>($table, $name, &($low..=$high))
    };

    (@present required, $taken:ident, $table:ident $type:ty, $name:expr, $what:expr, $help:expr) => {
        match $taken {
            Some(value) => value,
            None => return Err($table.lacks($name, $what, $help)),
        }
    };
    (@present default($value:expr), $taken:ident, $table:ident $type:ty, $name:expr, $what:expr, $help:expr) => {
        $taken.unwrap_or(toml::Spanned::new(0..0, $value))
    };
    (@present optional($value:expr), $taken:ident, $table:ident $type:ty, $name:expr, $what:expr, $help:expr) => {
        $taken
    };
    (@present table, $taken:ident, $table:ident $type:ty, $name:expr, $what:expr, $help:expr) => {
        match $taken {
            Some(value) => value,
            None => toml::Spanned::new(0..0, <$type>::read_empty($table.source())?),
        }
    };

    (@default required $type:ty) => { KeyDefault::Required };
    (@default default $type:ty, $value:expr) => { KeyDefault::of::<$type>($value) };
    (@default optional $type:ty, $value:expr) => { KeyDefault::Words($value) };
    (@default table $type:ty) => { KeyDefault::EmptyTable };

    (@bounds $type:ty) => { None };
    (@bounds $type:ty, $low:expr, $high:expr) => {{
        let (low, high): ($type, $type) = ($low, $high);
        Some((low.shown(), (!high.is_largest()).then(|| high.shown())))
    }};
}
pub(super) use declare_table;
