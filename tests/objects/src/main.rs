//! Stand-alone server for tests in other languages: prints its endpoint, and serves until it is killed.
//!
//! `objects [--latency-ms N] [--bytes-per-second N] [--one-in N --seed N] [--page N] [BUCKET=FOLDER …]`: the files of
//! each folder become objects. `GET /_counts` returns the counters as JSON.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use objects::{Faults, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut faults = Faults::usual(0, 0);
    let mut folders = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number =
            || -> Result<u64, Box<dyn Error>> { Ok(args.next().ok_or("a number is missing")?.parse()?) };
        match arg.as_str() {
            "--latency-ms" => faults.latency = Duration::from_millis(number()?),
            "--bytes-per-second" => faults.bytes_per_second = Some(number()?),
            "--one-in" => faults.one_in = number()?,
            "--seed" => faults.seed = number()?,
            "--page" => faults.page = number()? as usize,
            other => folders.push(other.to_owned()),
        }
    }
    let server = Server::start(0, faults)?;
    for folder in &folders {
        let (bucket, folder) = folder.split_once('=').ok_or("write BUCKET=FOLDER")?;
        add(&server, bucket, Path::new(folder))?;
    }
    println!("{}", server.endpoint());
    server.wait();
    Ok(())
}

fn add(server: &Server, prefix: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let key = format!("{prefix}/{}", entry.file_name().to_str().ok_or("a name is not UTF-8")?);
        if entry.file_type()?.is_dir() {
            add(server, &key, &entry.path())?;
        } else {
            server.put(&key, std::fs::read(entry.path())?);
        }
    }
    Ok(())
}
