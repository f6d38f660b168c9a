//! Flags of messages, and of the parts of their contents, by which trainers leave text out of the loss.

use crate::reject::{ChatReject, invalid};
use crate::value::{Map, Value};

/// `weight` is the flag of OpenAI, `loss`, `loss_weight` and `loss_scale` are those of ms-swift, and `train` and `training`
/// those in the guides of Axolotl.
const FLAGS: [&str; 6] = ["train", "training", "loss", "loss_weight", "loss_scale", "weight"];
/// Parts of an answer by character, as in Axolotl.
const DETAILS: [&str; 2] = ["train_detail", "training_detail"];

/// What the flags of a message say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrainFlags {
    /// One of them switches training off.
    pub(crate) off: bool,
    /// One of them switches training on.
    pub(crate) on: bool,
}

/// Whether a key of a message is a flag.
pub(crate) fn is_flag(name: &str) -> bool {
    FLAGS.contains(&name) || DETAILS.contains(&name)
}

impl TrainFlags {
    /// Reads the flags of `messages[at]`. A value that is neither 0, 1, true nor false is refused.
    pub(crate) fn of(at: usize, message: &Map) -> Result<TrainFlags, ChatReject> {
        let flags = Self::of_map(message, || format!("messages[{at}]"))?;
        let parts = message.get("content").and_then(Value::as_list).unwrap_or_default();
        let parts: Vec<TrainFlags> = parts
            .iter()
            .enumerate()
            .filter_map(|(part, value)| Some((part, value.as_map()?)))
            .map(|(part, fields)| Self::of_map(fields, || format!("messages[{at}].content[{part}]")))
            .collect::<Result<_, _>>()?;
        let off = parts.iter().filter(|part| part.off).count();
        if off > 0 && off < parts.len() && !flags.off {
            return Err(invalid(format!(
                "only some parts of the content of messages[{at}] are to be trained; make them messages, or give all the same flag"
            )));
        }
        Ok(TrainFlags { off: flags.off || off > 0, on: flags.on || parts.iter().any(|part| part.on) })
    }

    fn of_map(fields: &Map, place: impl Fn() -> String) -> Result<TrainFlags, ChatReject> {
        let mut flags = TrainFlags::default();
        // Most messages have none.
        if !fields.iter().any(|(name, _)| is_flag(name)) {
            return Ok(flags);
        }
        for name in FLAGS {
            let Some(value) = fields.get(name).filter(|value| !value.is_none()) else { continue };
            let is_on = match (value.as_bool(), value.as_f64()) {
                (Some(is_on), _) => is_on,
                (None, Some(0.0)) => false,
                (None, Some(1.0)) => true,
                _ => return Err(invalid(format!("`{name}` of {} is neither 0, 1, true nor false", place()))),
            };
            flags.on |= is_on;
            flags.off |= !is_on;
        }
        match DETAILS.iter().find(|name| fields.get(name).is_some_and(|value| !value.is_none())) {
            Some(name) => Err(invalid(format!(
                "`{name}` of {} trains parts of a text, which is not supported; leave it out to train the whole message",
                place()
            ))),
            None => Ok(flags),
        }
    }
}
