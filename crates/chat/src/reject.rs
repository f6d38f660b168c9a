//! `ChatReject`: why a chat is not converted.

use std::fmt;

/// Why a chat is not converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatReject {
    /// The kind of the reject.
    pub code: ChatRejectCode,
    /// What is wrong, and where.
    pub message: String,
}

impl fmt::Display for ChatReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ChatReject {}

/// The kind of a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChatRejectCode {
    /// The chat is malformed, or the template refuses it.
    InvalidChat,
    /// The chat has too much text.
    TooLarge,
    /// The template writes nothing of a message.
    NotRendered,
    /// A content has several text parts, and the template does not iterate over them.
    TextParts,
    /// No text is trained.
    NothingToTrain,
    /// The row has a system message, and its list of messages another one.
    TwoSystems,
}

impl ChatRejectCode {
    /// The code in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            ChatRejectCode::InvalidChat => "invalid-chat",
            ChatRejectCode::TooLarge => "too-large",
            ChatRejectCode::NotRendered => "not-rendered",
            ChatRejectCode::TextParts => "text-parts",
            ChatRejectCode::NothingToTrain => "nothing-to-train",
            ChatRejectCode::TwoSystems => "two-systems",
        }
    }
}

pub(crate) fn invalid(message: String) -> ChatReject {
    ChatReject { code: ChatRejectCode::InvalidChat, message }
}
