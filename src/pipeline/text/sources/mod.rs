//! The kinds of text files: one file for each, behind the trait `TextSource`.

mod arrow;
mod batches;
mod delimited;
mod json_lines;
mod megatron;
mod parquet;
mod pieces;
mod plain;
pub(super) mod source;

use self::arrow::ArrowFile;
pub(super) use self::batches::check_type;
use self::delimited::DelimitedFile;
use self::json_lines::JsonFile;
use self::megatron::MegatronIndex;
pub(super) use self::megatron::refusal;
use self::parquet::ParquetTable;
use self::plain::PlainText;
use self::source::TextSource;
use crate::error::Result;
use crate::source::io::encoding::TextEncoding;
use crate::source::io::stream::Stream;
use crate::source::items::text::kind::{FileKind, TextFormat};
use crate::source::table::delimited::Dialect;

/// Returns the kind of the files of a format.
pub(super) fn source_of(format: TextFormat) -> &'static dyn TextSource {
    match format {
        TextFormat::Text => &PlainText,
        TextFormat::JsonLines => &JsonFile { is_array: false },
        TextFormat::Json => &JsonFile { is_array: true },
        TextFormat::Delimited(Dialect::Csv) => &DelimitedFile(Dialect::Csv),
        TextFormat::Delimited(Dialect::Tsv) => &DelimitedFile(Dialect::Tsv),
        TextFormat::Parquet => &ParquetTable,
        TextFormat::Arrow => &ArrowFile,
        TextFormat::Megatron => &MegatronIndex,
    }
}

/// Returns standard input as a stream of a kind, as [`TextSource::decoded`] does.
///
/// # Errors
///
/// Returns an error if standard input cannot be read.
pub(super) fn stdin(kind: FileKind, given: Option<TextEncoding>) -> Result<Stream> {
    let format = FileKind { compression: None, ..kind }.to_string();
    let stream = Stream::stdin(&format, kind.compression)?;
    Ok(source_of(kind.format).decoded(stream, given))
}
