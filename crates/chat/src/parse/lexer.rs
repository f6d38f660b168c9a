//! Lexer: the tokens of a template, with the white space rules of Jinja2.
//!
//! `trim_blocks` and `lstrip_blocks`, which transformers sets, remove the line break after a block tag, and the white
//! space before one on its line. So the three lines
//!
//! ```jinja
//! {% for message in messages %}
//!     {{ message.content }}
//! {% endfor %}
//! ```
//!
//! write four spaces, a content and a line break for each message, and nothing else. `{%-` and `-%}` remove all white
//! space on their side; `{%+` and `+%}` keep it.

use std::sync::Arc;

use crate::ast::Const;
use crate::chars::is_space;
use crate::error::{TemplateError, fail};

/// The tokens of `jinja2.lexer`. `Data` is the text outside of tags.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(Arc<str>),
    Str(String),
    Number(Const),
    Op(&'static str),
    End,
}

/// Operators, the longest first.
const OPERATORS: [&str; 27] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";", "!",
];

/// `Lexer.tokeniter`, which is a table of regular expressions in Jinja2.
struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: u32,
    /// Whether nothing but a tag with a line break after it precedes on this line, so that `lstrip_blocks` applies.
    line_starting: bool,
    tokens: Vec<(u32, Token)>,
}

/// The tokens of a template, each with its line.
pub(super) fn tokens(source: &str) -> Result<Vec<(u32, Token)>, TemplateError> {
    Lexer { source, at: 0, line: 1, line_starting: true, tokens: Vec::new() }.run()
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    /// Moves over `length` bytes and counts lines.
    fn advance(&mut self, length: usize) {
        let passed = &self.source[self.at..self.at + length];
        self.line += passed.bytes().filter(|byte| *byte == b'\n').count() as u32;
        self.line_starting = passed.ends_with('\n');
        self.at += length;
    }

    /// The bytes of white space at the start of a text.
    fn spaces(text: &str) -> usize {
        text.len() - text.trim_start_matches(is_space).len()
    }

    /// The length of a block with only `word` in it, after its `{%`: sign, word and end.
    /// Jinja2 finds `raw` by a regular expression of its own, before it reads tags as code.
    fn word_block(text: &str, word: &str, trim: bool) -> Option<usize> {
        let after_sign = text.strip_prefix(['-', '+']).unwrap_or(text);
        // The sign is optional in a regular expression that can also match without it, but no sign is followed by the word.
        let rest = after_sign.trim_start_matches(is_space).strip_prefix(word)?.trim_start_matches(is_space);
        let rest = if let Some(rest) = rest.strip_prefix("-%}") {
            rest.trim_start_matches(is_space)
        } else if let Some(rest) = rest.strip_prefix("+%}").filter(|_| trim) {
            rest
        } else {
            let rest = rest.strip_prefix("%}")?;
            if trim { rest.strip_prefix('\n').unwrap_or(rest) } else { rest }
        };
        Some(text.len() - rest.len())
    }

    /// Text before a tag. A `-` of the tag removes white space; otherwise, white space between the start of a line
    /// and a block tag is removed (`lstrip_blocks`).
    /// `Lexer.tokeniter` decides this at the tag, when it has seen its sign.
    fn data(&mut self, text: &str, sign: Option<char>, variable: bool) {
        let line = self.line;
        let text = match sign {
            // `{%- … %}`.
            Some('-') => text.trim_end_matches(is_space),
            None if !variable => {
                let start = text.rfind('\n').map_or(0, |at| at + 1);
                // `lstrip_blocks`, not for `{{ … }}`: indentation of statements is no text.
                let blank = !text[start..].is_empty() && text[start..].chars().all(is_space);
                if blank && (start > 0 || self.line_starting) { &text[..start] } else { text }
            }
            _ => text,
        };
        if !text.is_empty() {
            self.tokens.push((line, Token::Data(text.to_owned())));
        }
    }

    /// The tokens of the whole template.
    fn run(mut self) -> Result<Vec<(u32, Token)>, TemplateError> {
        while self.at < self.source.len() {
            let rest = self.rest();
            // The next tag of any kind: `{%`, `{{` or `{#`.
            let begin = rest.match_indices('{').find_map(|(at, _)| {
                Some((at, rest[at + 1..].chars().next().filter(|c| matches!(c, '%' | '{' | '#'))?))
            });
            let Some((start, kind)) = begin else {
                self.tokens.push((self.line, Token::Data(rest.to_owned())));
                break;
            };
            let inner = &rest[start + 2..];
            let sign = inner.chars().next().filter(|c| matches!(c, '-' | '+'));
            // In a `raw` block, which templates use to write about templates, nothing is code.
            let raw = if kind == '%' { Self::word_block(inner, "raw", false) } else { None };
            self.data(&rest[..start], sign, kind == '{');
            if let Some(length) = raw {
                self.advance(start + 2 + length);
                self.raw()?;
                continue;
            }
            let sign_length = usize::from(sign.is_some());
            self.advance(start + 2);
            let line = self.line;
            self.advance(sign_length);
            self.line_starting = false;
            match kind {
                '#' => self.comment()?,
                '%' => {
                    self.tokens.push((line, Token::BlockBegin));
                    self.code(true)?;
                }
                _ => {
                    self.tokens.push((line, Token::VariableBegin));
                    self.code(false)?;
                }
            }
        }
        self.tokens.push((self.line, Token::End));
        Ok(self.tokens)
    }

    /// The text of a `raw` block, in which tags are text.
    fn raw(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        for (start, _) in rest.match_indices("{%") {
            if let Some(length) = Self::word_block(&rest[start + 2..], "endraw", true) {
                let sign = rest[start + 2..].chars().next().filter(|c| matches!(c, '-' | '+'));
                self.data(&rest[..start], sign, false);
                self.advance(start + 2 + length);
                return Ok(());
            }
        }
        fail(self.line, "`raw` block without `endraw`")
    }

    /// Skips a comment, with the line break after it (`trim_blocks`).
    fn comment(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let Some(end) = rest.find("#}") else {
            return fail(self.line, "a comment has no end: expected `#}`");
        };
        let after = &rest[end + 2..];
        let skip = match rest[..end].chars().next_back() {
            Some('-') => Self::spaces(after),
            Some('+') => 0,
            _ => usize::from(after.starts_with('\n')),
        };
        self.advance(end + 2 + skip);
        Ok(())
    }

    /// Tokens up to the end of a block or an expression.
    fn code(&mut self, block: bool) -> Result<(), TemplateError> {
        let mut open: Vec<char> = Vec::new();
        loop {
            let rest = self.rest();
            if open.is_empty() {
                let (plain, end) = if block { ("%}", Token::BlockEnd) } else { ("}}", Token::VariableEnd) };
                // Inside of brackets, `}}` closes two of them: `{{ {"a": {}} }}`.
                let length = if rest.starts_with('-') && rest[1..].starts_with(plain) {
                    Some(3 + Self::spaces(&rest[3..]))
                } else if block && rest.starts_with("+%}") {
                    Some(3)
                } else if rest.starts_with(plain) {
                    Some(2 + usize::from(block && rest[2..].starts_with('\n')))
                } else {
                    None
                };
                if let Some(length) = length {
                    self.tokens.push((self.line, end));
                    self.advance(length);
                    return Ok(());
                }
            }
            let Some(c) = rest.chars().next() else {
                let end = if block { "`%}`" } else { "`}}`" };
                return fail(self.line, format!("unexpected end of template, expected {end}"));
            };
            if is_space(c) {
                self.advance(Self::spaces(rest));
            } else if c.is_ascii_digit() {
                self.number()?;
            } else if c.is_alphanumeric() || c == '_' {
                let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                self.tokens.push((self.line, Token::Name(rest[..length].into())));
                self.advance(length);
            } else if c == '\'' || c == '"' {
                self.string(c)?;
            } else {
                let Some(operator) = OPERATORS.iter().find(|operator| rest.starts_with(**operator)) else {
                    return fail(self.line, format!("unexpected character {c:?}"));
                };
                match c {
                    '(' => open.push(')'),
                    '[' => open.push(']'),
                    '{' => open.push('}'),
                    ')' | ']' | '}' => match open.pop() {
                        Some(expected) if expected == c => {}
                        Some(expected) => {
                            return fail(self.line, format!("unexpected `{c}`, expected `{expected}`"));
                        }
                        None => return fail(self.line, format!("unexpected `{c}`")),
                    },
                    '!' if *operator == "!" => return fail(self.line, "unexpected character '!'"),
                    _ => {}
                }
                self.tokens.push((self.line, Token::Op(operator)));
                self.advance(operator.len());
            }
        }
    }

    /// Digits that may be separated by single underscores.
    fn digits(text: &str, valid: impl Fn(u8) -> bool) -> usize {
        let bytes = text.as_bytes();
        let mut at = 0;
        loop {
            let skip = usize::from(at > 0 && bytes.get(at) == Some(&b'_'));
            match bytes.get(at + skip) {
                Some(byte) if valid(*byte) => at += skip + 1,
                _ => return at,
            }
        }
    }

    /// A number in the notation of Python.
    /// `number_re`, `float_re` and `integer_re` of `jinja2.lexer`: `1_000`, `0xff` and `1e3`, but not `.5`.
    fn number(&mut self) -> Result<(), TemplateError> {
        let rest = self.rest();
        let decimal = |byte: u8| byte.is_ascii_digit();
        let whole = Self::digits(rest, decimal);
        // A number after a dot is an index: `x.0.1`.
        let after_dot = self.source[..self.at].ends_with('.');
        let mut end = whole;
        if !after_dot {
            if rest[end..].starts_with('.') {
                let fraction = Self::digits(&rest[end + 1..], decimal);
                if fraction > 0 {
                    end += 1 + fraction;
                }
            }
            if rest[end..].starts_with(['e', 'E']) {
                let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
                let exponent = Self::digits(&rest[end + 1 + sign..], decimal);
                if exponent > 0 {
                    end += 1 + sign + exponent;
                }
            }
        }
        if end > whole {
            let value = rest[..end].replace('_', "").parse().unwrap_or(f64::NAN);
            self.tokens.push((self.line, Token::Number(Const::Float(value))));
            self.advance(end);
            return Ok(());
        }
        let prefix = rest.get(..2).unwrap_or_default().to_ascii_lowercase();
        let radix = match prefix.as_str() {
            "0b" => 2,
            "0o" => 8,
            "0x" => 16,
            _ => 10,
        };
        let (length, digits) = if radix == 10 {
            // `007` is not a number: the zeros are one, the rest is another.
            let length = if rest.starts_with('0') { Self::digits(rest, |byte| byte == b'0') } else { whole };
            (length, &rest[..length])
        } else {
            // An underscore may follow the prefix.
            let skip = usize::from(rest[2..].starts_with('_'));
            let length = Self::digits(&rest[2 + skip..], |byte| char::from(byte).is_digit(radix));
            if length == 0 {
                return fail(self.line, "invalid number");
            }
            (2 + skip + length, &rest[2 + skip..2 + skip + length])
        };
        let digits = digits.replace('_', "");
        let value = match i64::from_str_radix(&digits, radix) {
            Ok(value) => Const::Int(value),
            Err(_) if radix == 10 => Const::Big(digits.into()),
            Err(_) => return fail(self.line, "the number is too large"),
        };
        self.tokens.push((self.line, Token::Number(value)));
        self.advance(length);
        Ok(())
    }

    /// A string in quotes.
    /// `string_re`: both kinds of quotes, with line breaks inside.
    fn string(&mut self, quote: char) -> Result<(), TemplateError> {
        let rest = self.rest();
        // A quote after an odd number of backslashes does not end the string.
        let mut escaped = false;
        let end = rest.char_indices().skip(1).find_map(|(at, c)| {
            let end = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            end.then_some(at)
        });
        let Some(end) = end else { return fail(self.line, "a string has no end") };
        let text = unescape(&rest[1..end]).or_else(|message| fail(self.line, message))?;
        self.tokens.push((self.line, Token::Str(text)));
        self.advance(end + 1);
        Ok(())
    }
}

/// `.encode("ascii", "backslashreplace").decode("unicode-escape")`.
fn unescape(text: &str) -> Result<String, String> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else { return Err("a string ends with a backslash".to_owned()) };
        rest = &rest[c.len_utf8()..];
        let mut hex = |digits: usize| -> Result<char, String> {
            let code = rest.get(..digits).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let code =
                code.ok_or_else(|| format!("`\\{c}` in a string needs {digits} hexadecimal digits"))?;
            rest = &rest[digits..];
            u32::from_str_radix(code, 16).ok().and_then(char::from_u32).ok_or_else(|| {
                format!(
                    "`\\{c}{code}` in a string is not a character (write surrogate pairs as one `\\U` escape)"
                )
            })
        };
        match c {
            // A backslash before a line break joins the lines.
            '\n' => {}
            '\\' | '\'' | '"' => out.push(c),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\u{b}'),
            'x' => out.push(hex(2)?),
            'u' => out.push(hex(4)?),
            'U' => out.push(hex(8)?),
            // The names of all characters would be a large table.
            'N' => return Err("`\\N{...}` in a string is not supported: write the character".to_owned()),
            // Up to three octal digits.
            '0'..='7' => {
                let more = rest.bytes().take(2).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                let code = format!("{c}{}", &rest[..more]);
                rest = &rest[more..];
                out.push(u32::from_str_radix(&code, 8).ok().and_then(char::from_u32).unwrap_or('\0'));
            }
            // Python keeps the backslash of an unknown escape.
            c if c.is_ascii() => {
                out.push('\\');
                out.push(c);
            }
            // The character is escaped first, and its backslash by the one before it.
            c => {
                let code = c as u32;
                out.push('\\');
                out.push_str(&match code {
                    0..0x100 => format!("x{code:02x}"),
                    0x100..0x10000 => format!("u{code:04x}"),
                    _ => format!("U{code:08x}"),
                });
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}
