//! Reading datasets: what a training loop uses.

pub mod batch;
