//! The roles of messages in the first rows of files, so that a misspelled role does not reject every chat.

use dsconvert_chat::{TrainOn, sharegpt_role};
use serde_json::{Map, Value as Json};

use crate::error::Error;
use crate::recipe::ChatRecipe;
use crate::source::items::json_line::members::MemberPath;
use crate::source::table::missing_field::quoted;

/// Roles that only later rows may have.
const USUAL: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
/// Maximum number of roles that are listed.
const MAX_ROLES: usize = 32;

/// The roles that an option names, and those that occur.
pub(super) struct MessageRoles {
    wanted: Vec<String>,
    lists: Vec<MemberPath>,
    found: Vec<String>,
}

impl MessageRoles {
    /// Returns `None` if the option names no roles.
    pub(super) fn new(recipe: &ChatRecipe) -> Option<Self> {
        let TrainOn::Roles(wanted) = &recipe.train_on else { return None };
        let lists = [&recipe.messages_field, &recipe.prompt_field, &recipe.completion_field];
        let lists = lists.into_iter().flatten().map(|name| MemberPath::new(name)).collect();
        Some(Self { wanted: wanted.clone(), lists, found: Vec::new() })
    }

    /// Adds the roles of a row.
    pub(super) fn add(&mut self, row: &Map<String, Json>) {
        for list in self.lists.iter().filter_map(|path| path.find_in(row)) {
            let parsed = list.as_str().and_then(|text| serde_json::from_str::<Json>(text).ok());
            for message in parsed.as_ref().unwrap_or(list).as_array().into_iter().flatten() {
                let text = |name: &str| message.get(name).and_then(Json::as_str);
                let role =
                    text("role").or_else(|| text("from").map(|from| sharegpt_role(from).unwrap_or(from)));
                let Some(role) = role else { continue };
                if self.found.len() < MAX_ROLES && !self.found.iter().any(|known| known == role) {
                    self.found.push(role.to_owned());
                }
            }
        }
    }

    /// Returns the error about a role that no message has. `complete`: whether all rows were examined.
    pub(super) fn unknown(&self, complete: bool) -> Option<Error> {
        let is_missing = |role: &&String| !self.found.contains(role);
        if self.found.is_empty() || self.found.len() == MAX_ROLES {
            return None;
        }
        let missing: Vec<&String> = self.wanted.iter().filter(is_missing).collect();
        let odd = missing.iter().find(|role| !USUAL.contains(&role.as_str()));
        let role =
            odd.or_else(|| missing.first().filter(|_| complete && missing.len() == self.wanted.len()))?;
        let message = format!("no message has the role {role:?}; the roles are {}", quoted(&self.found));
        Some(
            Error::usage(message)
                .of_option("train_on")
                .help("name some of these; `train_on last` trains the last turn of the assistant"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_roles_are_refused_and_usual_ones_may_come_later() {
        let unknown = |wanted: &str, complete| {
            let recipe = ChatRecipe {
                train_on: wanted.parse().unwrap(),
                messages_field: Some("m".to_owned()),
                ..Default::default()
            };
            let mut roles = MessageRoles::new(&recipe).unwrap();
            for row in [
                r#"{"m": [{"from": "human"}, {"from": "narrator"}]}"#,
                r#"{"m": "[{\"role\": \"assistant\"}]"}"#,
            ] {
                roles.add(&serde_json::from_str(row).unwrap());
            }
            roles.unknown(complete).map(|error| error.to_string())
        };
        assert_eq!(
            unknown("last_turn", false).unwrap(),
            "train_on: no message has the role \"last_turn\"; the roles are \"user\", \"narrator\", \"assistant\""
        );
        assert!(unknown("user,final", true).is_some());
        assert_eq!(unknown("user,tool,narrator", true), None);
        assert_eq!(unknown("tool", false), None);
        assert!(unknown("tool", true).is_some());
    }
}
