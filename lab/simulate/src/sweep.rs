//! Parameter sweeps: throughput as a function of one parameter.

use std::fmt;
use std::str::FromStr;

use crate::engine::simulate;
use crate::error::Error;
use crate::format::{number, percent};
use crate::json::Object;
use crate::options::{MAX_PREFETCH, MAX_WORKERS, Options};
use crate::report::Report;

/// Maximum number of points in a sweep.
const MAX_POINTS: usize = 256;
/// Width of the longest bar in the terminal.
const BAR_WIDTH: usize = 40;

/// Parameter that a sweep varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepParameter {
    /// [`Options::workers`].
    Workers,
    /// [`Options::prefetch`].
    Prefetch,
}

impl SweepParameter {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Prefetch => "prefetch",
        }
    }
}

/// A parameter and its values, parsed from `workers=1..16` (both ends included) or `workers=1,2,4,8`.
///
/// ```
/// use dsconvert_simulate::{SweepParameter, SweepRange};
///
/// let range: SweepRange = "workers=1..4".parse()?;
/// assert_eq!(range.parameter, SweepParameter::Workers);
/// assert_eq!(range.values, [1, 2, 3, 4]);
/// # Ok::<(), dsconvert_simulate::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepRange {
    /// The varied parameter.
    pub parameter: SweepParameter,
    /// Its values, in simulation order.
    pub values: Vec<u32>,
}

impl FromStr for SweepRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: String| {
            Error::new("sweep", why).help("write workers=1..16, workers=1,2,4,8 or prefetch=1..8")
        };
        let shown: String = text.chars().take(60).collect();
        let (name, values) = text.split_once('=').ok_or_else(|| bad(format!("{shown:?} has no `=`")))?;
        let (parameter, max) = match name.trim() {
            "workers" => (SweepParameter::Workers, MAX_WORKERS),
            "prefetch" => (SweepParameter::Prefetch, MAX_PREFETCH),
            _ => return Err(bad(format!("unknown parameter in {shown:?}; expected workers or prefetch"))),
        };
        let parse = |text: &str| match text.trim().parse::<u32>() {
            Ok(n) if (1..=max).contains(&n) => Ok(n),
            _ => Err(bad(format!("{:?} is not a number from 1 to {max}", text.trim()))),
        };
        let values: Vec<u32> = match values.split_once("..") {
            Some((first, last)) => (parse(first)?..=parse(last.trim_start_matches('='))?).collect(),
            None => values.split(',').map(parse).collect::<Result<_, _>>()?,
        };
        if values.is_empty() {
            return Err(bad(format!("{shown:?} is an empty range")));
        }
        if values.len() > MAX_POINTS {
            return Err(bad(format!("{shown:?} has more than {MAX_POINTS} values")));
        }
        Ok(Self { parameter, values })
    }
}

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepPoint {
    /// Value of the parameter.
    pub value: u32,
    /// Summary of the run.
    pub report: Report,
}

impl SweepPoint {
    /// Simulates `options` with the given value of `parameter`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`simulate`].
    pub fn run(options: &Options, parameter: SweepParameter, value: u32) -> Result<Self, Error> {
        let varied = match parameter {
            SweepParameter::Workers => Options { workers: value, ..options.clone() },
            SweepParameter::Prefetch => Options { prefetch: value, ..options.clone() },
        };
        Ok(Self { value, report: simulate(&varied)?.report() })
    }
}

/// A finished sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The varied parameter.
    pub parameter: SweepParameter,
    /// The runs.
    pub points: Vec<SweepPoint>,
}

impl Sweep {
    /// Simulates `options` with each value of `range`.
    ///
    /// ```
    /// use dsconvert_simulate::{Options, Sweep};
    ///
    /// let options = Options::new(400.0, 100.0, 1)?;
    /// let sweep = Sweep::run(&options, &"workers=1..8".parse()?)?;
    /// // Four workers are enough; more do not help.
    /// assert!(sweep.points[3].report.batches > 3 * sweep.points[0].report.batches);
    /// assert_eq!(sweep.points[3].report.batches, sweep.points[7].report.batches);
    /// # Ok::<(), dsconvert_simulate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`simulate`].
    pub fn run(options: &Options, range: &SweepRange) -> Result<Self, Error> {
        let mut sweep = Self { parameter: range.parameter, points: Vec::with_capacity(range.values.len()) };
        for &value in &range.values {
            sweep.points.push(SweepPoint::run(options, range.parameter, value)?);
        }
        Ok(sweep)
    }

    /// Returns the sweep as JSON: `{"parameter": …, "points": [{"value", "batches", …}]}`.
    pub fn to_json(&self) -> String {
        let points: Vec<String> = self
            .points
            .iter()
            .map(|point| {
                let report = &point.report;
                Object::default()
                    .raw("value", point.value)
                    .raw("batches", report.batches)
                    .raw("batches_per_second", (report.batches_per_second * 1e6).round() / 1e6)
                    .raw("idle_share", (report.idle_share * 1e6).round() / 1e6)
                    .finish()
            })
            .collect();
        Object::default()
            .string("parameter", self.parameter.name())
            .raw("points", format!("[{}]", points.join(",")))
            .finish()
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.points.iter().map(|p| p.report.batches_per_second).fold(0.0, f64::max).max(1e-9);
        writeln!(f, "{:>8}  {:>8}  {:>8}  {:>8}", self.parameter.name(), "batches", "per s", "GPU idle")?;
        for point in &self.points {
            let rate = point.report.batches_per_second;
            let bar = "█".repeat((rate / most * BAR_WIDTH as f64).round() as usize);
            writeln!(
                f,
                "{:>8}  {:>8}  {:>8}  {:>8}  {bar}",
                point.value,
                point.report.batches,
                number(rate),
                percent(point.report.idle_share)
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_or_rejected() {
        let values = |text: &str| text.parse::<SweepRange>().map(|range| range.values);
        assert_eq!(values("workers=1..=3").unwrap(), [1, 2, 3]);
        assert_eq!(values("prefetch=1, 4").unwrap(), [1, 4]);
        for text in [
            "",
            "workers",
            "workers=",
            "workers=3..1",
            "workers=0..2",
            "workers=1..1000000",
            "cores=1..2",
            "workers=1..x",
            "workers=1..1024",
        ] {
            let error = values(text).unwrap_err();
            assert_eq!(error.option, "sweep");
            assert!(error.help.is_some(), "{text}");
        }
    }
}
