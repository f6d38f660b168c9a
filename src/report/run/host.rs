//! Description of the machine. Values that the system does not provide are missing.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::storage::ObjectUrl;

/// The machine of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Host name.
    pub name: Option<String>,
    /// Model of the processor.
    pub cpu: Option<String>,
    /// Cores that the process may use.
    pub cores: usize,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// Name and release of the kernel.
    pub kernel: Option<String>,
    /// Type of the file system of the output; for object storage, the scheme of its URL.
    pub file_system: Option<String>,
}

impl Host {
    /// Describes this machine and the file system of `out`.
    pub fn of(out: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let trimmed = |path: &str| read(path).map(|text| text.trim().to_owned());
        let kernel = match (trimmed("/proc/sys/kernel/ostype"), trimmed("/proc/sys/kernel/osrelease")) {
            (Some(name), Some(release)) => Some(format!("{name} {release}")),
            _ => None,
        };
        Self {
            name: trimmed("/proc/sys/kernel/hostname"),
            cpu: read("/proc/cpuinfo").and_then(|text| value_of(&text, "model name")),
            cores: crate::options::default_threads(),
            memory_bytes: read("/proc/meminfo").and_then(|text| kilobytes(&text, "MemTotal")),
            kernel,
            file_system: match ObjectUrl::is_url(out) {
                true => out.to_str().and_then(|url| Some(url.split_once("://")?.0.to_owned())),
                false => read("/proc/self/mountinfo").and_then(|mounts| {
                    let out = fs::canonicalize(out).ok()?;
                    file_system(&mounts, &out)
                }),
            },
        }
    }
}

/// Returns the peak memory of this process (`VmHWM`), if the system reports it.
pub fn peak_memory_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM")
}

/// Returns the value of the first line `name: value`.
fn value_of(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// Returns the bytes of the line `name: 123 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    value_of(text, name)?.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the type of the file system of `path`: the deepest mount point above it, and among equals the last one mounted.
fn file_system(mounts: &str, path: &Path) -> Option<String> {
    let mounted = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        // Spaces in names are octal escapes.
        let point = mount.split(' ').nth(4)?.replace("\\040", " ");
        path.starts_with(&point).then(|| (point.len(), kind.split(' ').next().unwrap_or_default().to_owned()))
    });
    mounted.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_the_files_of_linux() {
        let info = "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\nmodel name\t: Other\n";
        assert_eq!(value_of(info, "model name").as_deref(), Some("Fast CPU @ 3 GHz"));
        assert_eq!(kilobytes("MemFree: 1 kB\nMemTotal:       16 kB\n", "MemTotal"), Some(16 << 10));
        assert_eq!(kilobytes("", "MemTotal"), None);
        let mounts = "21 1 8:1 / / rw - ext4 /dev/a rw\n22 21 0:5 / /data rw shared:1 - nfs4 host:/x rw\n\
                      23 21 0:6 / /my\\040data rw - xfs /dev/b rw\n24 21 0:7 / /data rw - lustre x rw\n";
        let of = |path: &str| file_system(mounts, Path::new(path));
        assert_eq!(of("/home/x").as_deref(), Some("ext4"));
        assert_eq!(of("/data/x").as_deref(), Some("lustre"));
        assert_eq!(of("/database").as_deref(), Some("ext4"));
        assert_eq!(of("/my data/x").as_deref(), Some("xfs"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_memory_and_a_kernel() {
        let host = Host::of(Path::new("."));
        assert!(host.cores > 0 && host.memory_bytes > Some(1 << 20) && host.kernel.is_some());
        assert!(peak_memory_bytes() > Some(1 << 20));
    }
}
