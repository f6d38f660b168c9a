//! The inverse discrete cosine transform of libjpeg (`islow`): accurate integer arithmetic after Loeffler, Ligtenberg
//! and Moschytz (1989), with 12 multiplications per eight values.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod backend;
mod constants;
mod portable;
mod reduced;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
pub(crate) use backend::{Backend, GROUP};
pub(crate) use constants::{MAX_COEFFICIENT, dc_sample};
pub(crate) use portable::Portable;
pub(crate) use reduced::{four, two};
