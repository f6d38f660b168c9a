//! What limits the throughput of a run.

/// The part that limits throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The workers load fewer batches per second than the model consumes.
    Loading,
    /// The workers are fast enough on average, but the model still waits: load times vary, or too few batches are
    /// loaded ahead.
    Uneven,
    /// The model waits only at the start of the run: for its first batch, or until the workers are ahead of it.
    Start,
    /// Workers and model share their cores, which are busy: neither more workers nor a larger prefetch helps.
    Cores,
    /// Loader and model are equally fast, within 10%. The model does not wait, but the loader has no reserve.
    Balanced,
    /// The model does not wait.
    Model,
}

impl Bottleneck {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Uneven => "uneven",
            Self::Start => "start",
            Self::Cores => "cores",
            Self::Balanced => "balanced",
            Self::Model => "model",
        }
    }
}
