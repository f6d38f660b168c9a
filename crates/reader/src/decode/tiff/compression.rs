//! Decompression of a strip or tile.

use std::borrow::Cow;
use std::io::{Error, ErrorKind, Read};

use dsconvert_dataset::sample::Reject;
use flate2::read::ZlibDecoder;
use weezl::decode::Decoder as LzwDecoder;
use weezl::{BitOrder, LzwStatus};

use super::super::rejects::fill_zeros;
use super::super::{corrupt, truncated};
use super::fax;
use super::layout::{Compression, Layout};

/// Returns the `expected` bytes of a part of `rows` rows that is stored as `data`. Not for JPEG.
pub(super) fn decompress<'a>(
    layout: &Layout,
    data: &'a [u8],
    rows: u32,
    expected: usize,
) -> Result<Cow<'a, [u8]>, Reject> {
    let data = if layout.has_low_bits_first {
        Cow::Owned(data.iter().map(|byte| byte.reverse_bits()).collect())
    } else {
        Cow::Borrowed(data)
    };
    if layout.compression == Compression::None {
        let short = || truncated("its pixels");
        return match data {
            Cow::Borrowed(data) => data.get(..expected).map(Cow::Borrowed).ok_or_else(short),
            Cow::Owned(data) if data.len() < expected => Err(short()),
            data => Ok(data),
        };
    }
    let mut out = Vec::new();
    fill_zeros(&mut out, expected)?;
    match layout.compression {
        Compression::Lzw => lzw(&data, &mut out)?,
        Compression::Deflate => deflate(&data, &mut out)?,
        Compression::PackBits => pack_bits(&data, &mut out)?,
        compression => fax::decode(&data, (layout.part.width, rows), compression, &mut out)?,
    }
    Ok(Cow::Owned(out))
}

fn deflate(data: &[u8], out: &mut [u8]) -> Result<(), Reject> {
    let damaged = |error: Error| corrupt(format!("the compressed pixels of the TIFF are damaged: {error}"));
    let mut decoder = ZlibDecoder::new(data);
    decoder.read_exact(out).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => truncated("its compressed pixels"),
        _ => damaged(error),
    })?;
    // At the end, the decoder verifies the checksum.
    match decoder.read(&mut [0]) {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(damaged(error)),
        _ => Ok(()),
    }
}

/// Decodes LZW. Files of old writers store the lowest bit first, and widen codes one code later.
fn lzw(data: &[u8], out: &mut [u8]) -> Result<(), Reject> {
    let mut decoder = match data {
        // A clear code in the old order, as in libtiff.
        [0, second, ..] if second & 1 == 1 => LzwDecoder::new(BitOrder::Lsb, 8),
        _ => LzwDecoder::with_tiff_size_switch(BitOrder::Msb, 8),
    };
    let (mut read, mut written) = (0, 0);
    while written < out.len() {
        let result = decoder.decode_bytes(&data[read..], &mut out[written..]);
        read += result.consumed_in;
        written += result.consumed_out;
        match result.status {
            Err(_) => return Err(corrupt("the LZW codes of the TIFF are damaged")),
            Ok(LzwStatus::Done | LzwStatus::NoProgress) if written < out.len() => {
                return Err(truncated("its compressed pixels"));
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Decodes PackBits: a count, then bytes or one byte to repeat.
fn pack_bits(mut data: &[u8], mut out: &mut [u8]) -> Result<(), Reject> {
    while !out.is_empty() {
        let [count, rest @ ..] = data else { return Err(truncated("its compressed pixels")) };
        let (run, is_literal) = match count.cast_signed() {
            -128 => {
                data = rest;
                continue;
            }
            count @ 0.. => (count as usize + 1, true),
            count => (usize::from(count.unsigned_abs()) + 1, false),
        };
        let stored = if is_literal { run } else { 1 };
        let Some((bytes, rest)) = rest.split_at_checked(stored) else {
            return Err(truncated("its compressed pixels"));
        };
        // The last run may reach beyond the part.
        let (now, later) = out.split_at_mut(run.min(out.len()));
        match bytes {
            [byte] if !is_literal => now.fill(*byte),
            bytes => now.copy_from_slice(&bytes[..now.len()]),
        }
        (data, out) = (rest, later);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_bytes_are_unpacked() {
        let packed = b"\xfe\xaa\x02\x80\x00\x2a\x80\xfd\xaa\x03\x80\x00\x2a\x22\xf7\xaa";
        let mut out = [0; 24];
        pack_bits(packed, &mut out).unwrap();
        let expected =
            b"\xaa\xaa\xaa\x80\x00\x2a\xaa\xaa\xaa\xaa\x80\x00\x2a\x22\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaa";
        assert_eq!(&out, expected);
        // A run beyond the end.
        pack_bits(packed, &mut out[..20]).unwrap();
        for end in 0..packed.len() {
            assert_eq!(pack_bits(&packed[..end], &mut [0; 24]).unwrap_err().code.name(), "truncated");
        }
    }
}
