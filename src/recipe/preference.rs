//! The options of preference data: pairs of completions, and completions with a label.

use super::chat::ChatRecipe;
use crate::error::{Error, Result};
use crate::options::word_values;
use crate::source::items::text::fields::JsonMember;

/// What happens to a pair whose sides have different ids before their completions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Seam {
    /// Both completions start where the ids first differ.
    #[default]
    CommonPrefix,
    /// The pair is rejected.
    Error,
}

word_values! {
    Seam {
        CommonPrefix = "common-prefix", "Both completions start where the ids first differ, and the pair is counted";
        Error = "error", "Reject them as seam-differs";
    }
}

impl ChatRecipe {
    /// Returns the fields that make up a pair, or a completion with a label.
    pub(super) fn preference_members(&self) -> Vec<JsonMember> {
        let member = |name, field: &Option<String>, option| {
            field.as_ref().map(|field| JsonMember {
                name,
                field: field.clone(),
                option,
                is_required: true,
                is_named: true,
                is_nested: false,
            })
        };
        let members = [
            member("prompt", &self.prompt_field, "prompt_field"),
            member("chosen", &self.chosen_field, "chosen_field"),
            member("rejected", &self.rejected_field, "rejected_field"),
            member("completion", &self.completion_field, "completion_field"),
            member("label", &self.label_field, "label_field"),
        ];
        members.into_iter().flatten().collect()
    }

    /// Refuses options that contradict `prompt_only`.
    pub(super) fn check_prompts(&self) -> Result<()> {
        if !self.prompt_only {
            return Ok(());
        }
        let defaults = Self::default();
        let given = [
            ("messages_field", self.messages_field.is_some()),
            ("completion_field", self.completion_field.is_some()),
            ("chosen_field", self.chosen_field.is_some()),
            ("label_field", self.label_field.is_some()),
            ("alpaca", self.alpaca.is_some()),
            ("train_on", self.train_on != defaults.train_on),
            ("train_parts", self.train_parts != defaults.train_parts),
            ("final_stop", self.final_stop.is_some()),
        ];
        if self.prompt_field.is_none() {
            return Err(Error::usage("`prompt_only` needs the field with the prompts")
                .help("name it with `prompt_field`"));
        }
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                Err(Error::usage(format!("`prompt_only` excludes `{name}`: nothing of a prompt is trained"))
                    .help("leave out one of them"))
            }
            None => Ok(()),
        }
    }

    /// Refuses options that contradict those of preference data.
    pub(super) fn check_preferences(&self) -> Result<()> {
        let refuse = |what: String, help: &str| Err(Error::usage(what).help(help));
        if self.chosen_field.is_some() != self.rejected_field.is_some() {
            return refuse(
                "`chosen_field` and `rejected_field` belong together".to_owned(),
                "name both, or neither",
            );
        }
        if self.label_field.is_some() && (self.prompt_field.is_none() || self.completion_field.is_none()) {
            return refuse(
                "`label_field` is the label of a completion".to_owned(),
                "name the fields of the pair with `prompt_field` and `completion_field`",
            );
        }
        if self.seam != Seam::default() && self.chosen_field.is_none() {
            return refuse(
                "`seam` applies only to preference pairs".to_owned(),
                "name their fields with `chosen_field` and `rejected_field`",
            );
        }
        if !self.are_preferences() {
            return Ok(());
        }
        let defaults = Self::default();
        for (name, is_given) in [
            ("messages_field", self.messages_field.is_some()),
            ("alpaca", self.alpaca.is_some()),
            ("completion_field", self.chosen_field.is_some() && self.completion_field.is_some()),
            ("label_field", self.chosen_field.is_some() && self.label_field.is_some()),
        ] {
            if is_given {
                let with = if self.chosen_field.is_some() { "chosen_field" } else { "label_field" };
                return refuse(format!("`{with}` excludes `{name}`"), "leave out one of them");
            }
        }
        for (name, is_given) in [
            ("train_on", self.train_on != defaults.train_on),
            ("train_parts", self.train_parts != defaults.train_parts),
        ] {
            if is_given {
                return refuse(
                    format!("`{name}` does not apply to preference data, whose completions are trained"),
                    "leave it out",
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_preference_data_fit_together() {
        let name = || Some("f".to_owned());
        let pairs = || ChatRecipe { chosen_field: name(), rejected_field: name(), ..ChatRecipe::default() };
        let labeled = || ChatRecipe {
            prompt_field: name(),
            completion_field: name(),
            label_field: name(),
            ..ChatRecipe::default()
        };
        for right in [pairs(), labeled(), ChatRecipe { prompt_field: name(), seam: Seam::Error, ..pairs() }] {
            assert!(right.check().is_ok() && right.are_preferences(), "{right:?}");
        }
        for (wrong, message) in [
            (ChatRecipe { rejected_field: None, ..pairs() }, "belong together"),
            (ChatRecipe { messages_field: name(), ..pairs() }, "`chosen_field` excludes `messages_field`"),
            (ChatRecipe { completion_field: name(), ..pairs() }, "excludes `completion_field`"),
            (ChatRecipe { completion_field: None, ..labeled() }, "is the label of a completion"),
            (ChatRecipe { seam: Seam::Error, ..labeled() }, "`seam` applies only to preference pairs"),
            (ChatRecipe { train_on: "all".parse().unwrap(), ..pairs() }, "`train_on` does not apply"),
            (ChatRecipe { train_parts: "content".parse().unwrap(), ..pairs() }, "`train_parts` does not"),
        ] {
            assert!(wrong.check().unwrap_err().to_string().contains(message), "{message}");
        }
    }
}
