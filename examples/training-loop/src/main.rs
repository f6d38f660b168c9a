//! Data loading for a training loop: batches with a token budget, and a checkpoint to resume from.
//!
//! `training-loop DATASET CHECKPOINT [STEPS]` trains for at most STEPS steps (default: to the end of the second epoch)
//! and saves the loader's state. The next run continues with the next batch.

use std::error::Error;
use std::process::ExitCode;
use std::{env, fs, io};

use dsconvert_reader::Dataset;
use dsconvert_reader::batch::{BatchOptions, BatchSize, Oversize};
use dsconvert_reader::loader::{Batch, Loader, LoaderOptions};

const EPOCHS: u64 = 2;

fn main() -> ExitCode {
    match train(env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn train(args: Vec<String>) -> Result<(), Box<dyn Error>> {
    let [path, checkpoint, steps @ ..] = &args[..] else {
        return Err("usage: training-loop DATASET CHECKPOINT [STEPS]".into());
    };
    let mut steps_left = steps.first().map_or(Ok(u64::MAX), |steps| steps.parse())?;

    let train = Dataset::open(path)?.split("train")?;
    // Documents of similar length, at most 4,096 tokens including padding. Longer documents are truncated.
    let batches =
        BatchOptions { oversize: Oversize::Truncate, ..BatchOptions::new(BatchSize::MaxTokens(4096)) };
    let mut loader = Loader::new(train, LoaderOptions { seed: 7, threads: 2, ..LoaderOptions::new(batches) })?;
    match fs::read_to_string(checkpoint) {
        Ok(saved) => loader.restore(&serde_json::from_str(&saved)?)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e.into()),
    }

    let (mut tokens, mut elements) = (0, 0);
    'training: for epoch in loader.epoch()..EPOCHS {
        loader.set_epoch(epoch)?; // has no effect in the restored epoch
        while steps_left > 0 {
            let Some(batch) = loader.next_batch()? else { continue 'training };
            elements += step(&batch)?;
            tokens += batch.tokens();
            steps_left -= 1;
        }
        break;
    }
    // A real program also writes its weights, and renames both files when they are complete.
    fs::write(checkpoint, serde_json::to_string(&loader.state())?)?;
    println!("{tokens} tokens in {elements} elements");
    Ok(())
}

/// Stands in for a training step. Returns the number of elements, with padding, that a model would process.
fn step(batch: &Batch) -> Result<u64, Box<dyn Error>> {
    let ids = batch.array("input_ids").ok_or("the batch has no input_ids")?;
    let ids = ids.as_slice::<i64>().ok_or("the ids are not int64")?;
    println!("{:?}: {} documents, {} tokens", batch.id(), batch.rows(), batch.tokens());
    Ok(ids.len() as u64)
}
