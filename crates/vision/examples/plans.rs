//! Prints the plans of images: the first argument is a `preprocessor_config.json`, further ones are NAME=VALUE, and each line of
//! standard input is a height and a width.

use std::error::Error;
use std::io::{BufRead, Write};

use dsconvert_vision::{ModelFiles, Processor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = std::fs::read(args.next().ok_or("name a preprocessor_config.json")?)?;
    let files = ModelFiles { preprocessor: Some(serde_json::from_slice(&file)?), ..ModelFiles::default() };
    let mut values = Vec::new();
    for arg in args {
        let (name, value) = arg.split_once('=').ok_or("expected NAME=VALUE")?;
        values.push((name.to_owned(), serde_json::from_str(value)?));
    }
    let processor = Processor::resolve(&files, &values, |_| Some(0))?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (height, width) = line.split_once(' ').ok_or("expected a height and a width")?;
        match processor.plan(height.parse()?, width.parse()?) {
            Ok(plan) => {
                let [_, rows, columns] = plan.grid;
                writeln!(
                    out,
                    "{} {} {rows} {columns} {} {}",
                    plan.height, plan.width, plan.tokens, plan.patches
                )?;
            }
            Err(_) => writeln!(out, "refused")?,
        }
    }
    Ok(())
}
