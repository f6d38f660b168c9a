//! Retries of file operations that failed with an operating-system error.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rustix::io::Errno;

/// Pauses between attempts of an operation that failed with an operating-system error, in milliseconds.
const RETRY_PAUSES_MS: [u64; 2] = [50, 250];

/// Number of retries in this process.
static RETRIES: AtomicU64 = AtomicU64::new(0);

/// Returns how often this process has repeated an operation on a source file after an operating-system error.
pub fn retries() -> u64 {
    RETRIES.load(Relaxed)
}

/// Returns whether a failure is permanent: damaged data (not an error of the operating system), no such file, no
/// permission, or a link or socket in place of the file. Requests to object storage have already been retried.
fn is_permanent(error: &io::Error) -> bool {
    let Some(code) = error.raw_os_error() else { return true };
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        || [Errno::LOOP, Errno::NXIO].iter().any(|errno| errno.raw_os_error() == code)
}

/// Runs `operation`, and repeats it after failures that may be temporary.
pub(in crate::source) fn retried<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for pause in RETRY_PAUSES_MS {
        match operation() {
            Err(e) if !is_permanent(&e) => {
                RETRIES.fetch_add(1, Relaxed);
                std::thread::sleep(Duration::from_millis(pause));
            }
            other => return other,
        }
    }
    operation()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(error: impl Fn() -> io::Error) -> usize {
        let mut attempts = 0;
        let result: io::Result<()> = retried(|| {
            attempts += 1;
            Err(error())
        });
        assert!(result.is_err());
        attempts
    }

    #[test]
    fn only_errors_of_the_operating_system_are_retried() {
        assert_eq!(attempts(|| Errno::IO.into()), 1 + RETRY_PAUSES_MS.len());
        assert_eq!(attempts(|| Errno::NOENT.into()), 1);
        assert_eq!(attempts(|| Errno::LOOP.into()), 1);
        assert_eq!(attempts(|| io::ErrorKind::InvalidData.into()), 1, "damaged data");
        assert_eq!(attempts(|| io::ErrorKind::UnexpectedEof.into()), 1);
    }
}
