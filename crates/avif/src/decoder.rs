//! AV1 data to a picture, with rav1d: the only module with `unsafe` code, because the interface of rav1d is that of C.
//!
//! Each value of the C interface has one owner here, which releases it when it is dropped: [`Context`], [`Data`] and
//! [`Output`]. Nothing of it leaves this module; samples are copied.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::panic::PanicHookInfo;
use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rav1d::include::dav1d::data::Dav1dData;
use rav1d::include::dav1d::dav1d::{Dav1dContext, Dav1dLogger, Dav1dSettings};
use rav1d::include::dav1d::headers::{
    DAV1D_PIXEL_LAYOUT_I400, DAV1D_PIXEL_LAYOUT_I420, DAV1D_PIXEL_LAYOUT_I422, DAV1D_PIXEL_LAYOUT_I444,
};
use rav1d::include::dav1d::picture::Dav1dPicture;
use rav1d::src::lib::{
    dav1d_close, dav1d_data_create, dav1d_data_unref, dav1d_default_settings, dav1d_get_picture, dav1d_open,
    dav1d_picture_unref, dav1d_send_data,
};

use crate::error::{Error, ErrorKind, Result};
use crate::picture::{Chroma, Picture, Plane};
use crate::properties::Cicp;

/// Stack of the thread that decodes. Without optimization, the functions of rav1d need more than the default of 2 MiB.
const STACK_BYTES: usize = 8 << 20;
/// Maximum characters kept of a panic message; some messages print whole buffers.
const MAX_MESSAGE_CHARS: usize = 300;

/// The outcome of a decode.
enum Report {
    Done(Result<Picture>),
    /// The thread is blocked forever.
    Panicked(String),
}

thread_local! {
    /// Where a panic on this thread is reported, if it decodes an image.
    static REPORTS: RefCell<Option<Sender<Report>>> = const { RefCell::new(None) };
}

/// Reports the panic of `info` as an [`Error`] if it happened while an image was decoded. Call it first in a panic hook.
///
/// In that case it never returns: the panic would unwind into a function of a C interface, which ends the process. The
/// thread that decodes is blocked forever, with the memory of its image, and the hook must not be replaced afterwards,
/// because that waits for its calls. Returns for every other panic.
pub fn contain_panic(info: &PanicHookInfo<'_>) {
    let Some(reports) = REPORTS.try_with(|reports| reports.take()).ok().flatten() else { return };
    let message = info.payload_as_str().unwrap_or("no message");
    let message = message.chars().take(MAX_MESSAGE_CHARS).collect();
    // Fails if nobody waits for the image anymore.
    let _ = reports.send(Report::Panicked(message));
    loop {
        thread::park();
    }
}

/// Decodes the first picture of the AV1 data `stream`, which must not have more than `max_pixels`.
///
/// The work is done on a thread of its own, so that [`contain_panic`] can block it.
pub(crate) fn decode(stream: &[u8], max_pixels: u64) -> Result<Picture> {
    // The limit 0 means that there is none.
    let max_pixels = u32::try_from(max_pixels.max(1)).unwrap_or(u32::MAX);
    let mut owned = Vec::new();
    owned.try_reserve_exact(stream.len()).map_err(|_| Error::out_of_memory())?;
    owned.extend_from_slice(stream);
    let (reports, received) = channel();
    let work = move || {
        REPORTS.set(Some(reports.clone()));
        let picture = first_picture(&owned, max_pixels);
        REPORTS.set(None);
        // Fails if nobody waits for the image anymore.
        let _ = reports.send(Report::Done(picture));
    };
    match thread::Builder::new().name("avif".to_owned()).stack_size(STACK_BYTES).spawn(work) {
        Ok(_) => report(&received),
        // The system refuses another thread.
        Err(_) => first_picture(stream, max_pixels),
    }
}

fn report(received: &Receiver<Report>) -> Result<Picture> {
    match received.recv() {
        Ok(Report::Done(picture)) => picture,
        Ok(Report::Panicked(message)) => Err(Error::new(ErrorKind::Panicked, message)),
        // A panic of this crate, in a program without the hook.
        Err(_) => Err(Error::new(ErrorKind::Panicked, "no message")),
    }
}

/// An open decoder.
struct Context(Option<Dav1dContext>);

impl Context {
    fn open(max_pixels: u32) -> Result<Self> {
        let mut settings = MaybeUninit::<Dav1dSettings>::uninit();
        // SAFETY: the pointer is valid for a write of the settings.
        unsafe { dav1d_default_settings(NonNull::from(&mut settings).cast()) };
        // SAFETY: the function above initialized all of it.
        let mut settings = unsafe { settings.assume_init() };
        settings.n_threads = 1;
        settings.max_frame_delay = 1;
        settings.all_layers = 0;
        settings.frame_size_limit = max_pixels;
        // SAFETY: without a callback, nothing is called, and the logger is off.
        settings.logger = unsafe { Dav1dLogger::new(None, None) };
        let mut context = Self(None);
        // SAFETY: both pointers are those of initialized values, which outlive the call.
        let status =
            unsafe { dav1d_open(Some(NonNull::from(&mut context.0)), Some(NonNull::from(&mut settings))) };
        check(status.0)?;
        Ok(context)
    }

    /// Decodes `data` up to its first picture; `None` if there is none. Leaves in `data` what is not consumed.
    fn picture(&mut self, data: &mut Data) -> Result<Option<Output>> {
        loop {
            if data.0.data.is_some() {
                // SAFETY: the context is open, and the data comes from `dav1d_data_create`.
                let status = unsafe { dav1d_send_data(self.0, Some(NonNull::from(&mut data.0))) };
                if status.0 != AGAIN {
                    check(status.0)?;
                }
            }
            let mut output = Output(Dav1dPicture::default());
            // SAFETY: the context is open, and the pointer is valid for a write of a picture. The previous value is
            // empty, so it needs no release.
            let status = unsafe { dav1d_get_picture(self.0, Some(NonNull::from(&mut output.0))) };
            match status.0 {
                0 => return Ok(Some(output)),
                AGAIN if data.0.data.is_none() => return Ok(None),
                // The decoder has read a part that has no picture.
                AGAIN => {}
                status => check(status)?,
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context comes from `dav1d_open` and is closed once; without one, nothing happens. All pictures
        // are released before, because `first_picture` drops them first.
        unsafe { dav1d_close(Some(NonNull::from(&mut self.0))) };
    }
}

/// AV1 data for the decoder.
struct Data(Dav1dData);

impl Data {
    fn copy(bytes: &[u8]) -> Result<Self> {
        let mut data = Self(Dav1dData::default());
        // SAFETY: the pointer is valid for a write of the data.
        let start = unsafe { dav1d_data_create(Some(NonNull::from(&mut data.0)), bytes.len()) };
        let start = NonNull::new(start).ok_or_else(Error::out_of_memory)?;
        // SAFETY: the new allocation has `bytes.len()` bytes, cannot overlap `bytes`, and is not shared yet.
        unsafe { start.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(data)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // SAFETY: the value is empty or comes from `dav1d_data_create`; this empties it.
        unsafe { dav1d_data_unref(Some(NonNull::from(&mut self.0))) };
    }
}

/// A picture in the memory of the decoder.
struct Output(Dav1dPicture);

impl Drop for Output {
    fn drop(&mut self) {
        // SAFETY: the value is empty or comes from `dav1d_get_picture`; this empties it.
        unsafe { dav1d_picture_unref(Some(NonNull::from(&mut self.0))) };
    }
}

impl Output {
    fn copy(&self) -> Result<Picture> {
        let picture = &self.0;
        let header = picture.seq_hdr.ok_or_else(no_picture)?;
        // SAFETY: the header belongs to the picture, which is alive.
        let header = unsafe { header.as_ref() };
        let chroma = match picture.p.layout {
            DAV1D_PIXEL_LAYOUT_I400 => Chroma::Monochrome,
            DAV1D_PIXEL_LAYOUT_I420 => Chroma::S420,
            DAV1D_PIXEL_LAYOUT_I422 => Chroma::S422,
            DAV1D_PIXEL_LAYOUT_I444 => Chroma::S444,
            _ => return Err(no_picture()),
        };
        let side = |side| u32::try_from(side).ok().filter(|side| *side > 0).ok_or_else(no_picture);
        let (width, height) = (side(picture.p.w)?, side(picture.p.h)?);
        let depth = u8::try_from(picture.p.bpc).map_err(|_| no_picture())?;
        let code = |point: u32| u16::try_from(point).unwrap_or(u16::MAX);
        let cicp = Cicp {
            primaries: code(header.pri),
            matrix: code(header.mtrx),
            is_full_range: header.color_range != 0,
        };
        let (across, down) = chroma.shifts();
        let mut planes = [Plane::default(), Plane::default(), Plane::default()];
        for (index, plane) in planes.iter_mut().enumerate() {
            let is_luma = index == 0;
            if !is_luma && chroma == Chroma::Monochrome {
                break;
            }
            let (across, down) = if is_luma { (0, 0) } else { (across, down) };
            let (width, height) = (width.div_ceil(1 << across), height.div_ceil(1 << down));
            *plane = Plane::new(width as usize, height as usize)?;
            let start = picture.data[index].ok_or_else(no_picture)?;
            let stride = picture.stride[usize::from(!is_luma)];
            for (y, row) in (0..).zip(plane.samples.chunks_exact_mut(width as usize)) {
                // SAFETY: the plane has `height` rows that are `stride` bytes apart, so this is the start of a row.
                let from = unsafe { start.byte_offset(y * stride) };
                if depth == 8 {
                    // SAFETY: a row has at least `width` samples, of one byte with 8 bits, which are initialized. The
                    // picture is alive, and nothing writes to it.
                    let from =
                        unsafe { NonNull::slice_from_raw_parts(from.cast::<u8>(), row.len()).as_ref() };
                    row.iter_mut().zip(from).for_each(|(to, from)| *to = (*from).into());
                } else {
                    // SAFETY: as above, with samples of two bytes; planes and strides are aligned to 64 bytes.
                    let from =
                        unsafe { NonNull::slice_from_raw_parts(from.cast::<u16>(), row.len()).as_ref() };
                    row.copy_from_slice(from);
                }
            }
        }
        Ok(Picture { width, height, depth, chroma, cicp, planes })
    }
}

fn first_picture(stream: &[u8], max_pixels: u32) -> Result<Picture> {
    #[cfg(test)]
    if stream == tests::PANIC {
        tests::panic_in_c();
    }
    // Dropped in reverse order: the picture before the decoder that owns its memory.
    let mut context = Context::open(max_pixels)?;
    let mut data = Data::copy(stream)?;
    let output = context.picture(&mut data)?.ok_or_else(no_picture)?;
    output.copy()
}

fn no_picture() -> Error {
    Error::corrupt("its AV1 data contains no picture")
}

/// The status of a call that needs another call first.
const AGAIN: i32 = -libc::EAGAIN;

fn check(status: i32) -> Result<()> {
    match -status {
        0 => Ok(()),
        libc::ENOMEM => Err(Error::out_of_memory()),
        libc::ERANGE => Err(Error::corrupt("its AV1 data has more pixels than its header declares")),
        libc::ENOPROTOOPT => Err(Error::unsupported("its AV1 data uses features that the decoder lacks")),
        _ => Err(Error::corrupt("its AV1 data is damaged")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data for which the decoder panics.
    pub(super) const PANIC: &[u8] = b"panic";

    /// Panics as a function of rav1d would: the process ends if the panic unwinds into the caller.
    pub(super) extern "C" fn panic_in_c() {
        panic!("bad block {}", 7);
    }

    #[test]
    fn a_panic_of_the_decoder_is_an_error() {
        const CHILD: &str = "DSCONVERT_AVIF_TEST_CHILD";
        if std::env::var_os(CHILD).is_none() {
            // In a process of its own, which has another hook.
            let test = "decoder::tests::a_panic_of_the_decoder_is_an_error";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let output = child.args([test, "--exact"]).env(CHILD, "1").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            return;
        }
        std::panic::set_hook(Box::new(contain_panic));
        let error = decode(PANIC, 1).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Panicked, "bad block 7".to_owned()));
        // Other panics unwind.
        assert!(std::panic::catch_unwind(|| panic!("of another thread")).is_err());
        std::process::exit(0);
    }

    #[test]
    fn data_without_a_picture_is_damaged() {
        for stream in [&b""[..], b"\x12\0", b"\0\0\0\0", b"\xff\xff\xff", &[0x0a; 100]] {
            let error = decode(stream, 1 << 20).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{stream:?}");
        }
    }
}
