//! Lexer and parser of Jinja2 3.1, with `trim_blocks`, `lstrip_blocks`, loop controls and `generation` blocks.
//!
//! The parser of the `minijinja` crate differs from Jinja2 in ways that change what is rendered (string escapes, adjacent
//! strings, signs before postfix operators, tuples without parentheses, line endings, `*args`), so this is a port.

use std::sync::Arc;

use crate::ast::*;
use crate::error::{ErrorKind, TemplateError};
use crate::filters::{Filter, Test};

/// Longer templates are refused. Those of models have at most some tens of thousands of bytes.
const MAX_SOURCE_BYTES: usize = 1 << 20;

/// Nested statements or parentheses deeper than this are refused.
const MAX_NESTING: u32 = 64;

/// More attributes, calls and filters in one expression are refused.
const MAX_CHAIN: u32 = 1000;

#[derive(Clone, Debug, PartialEq)]
enum Token {
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

/// Whitespace as Python's `str.isspace` and `\s` define it.
pub(crate) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)
}

/// Operators, the longest first.
const OPERATORS: [&str; 27] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",", ";", "!",
];

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: u32,
    line_starting: bool,
    tokens: Vec<(u32, Token)>,
}

pub(crate) fn fail<T>(line: u32, message: impl Into<String>) -> Result<T, TemplateError> {
    Err(TemplateError::of(ErrorKind::Syntax, message).or_line(line))
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

    fn spaces(text: &str) -> usize {
        text.len() - text.trim_start_matches(is_space).len()
    }

    /// The length of a block with only `word` in it, after its `{%`: sign, word and end.
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

    fn data(&mut self, text: &str, sign: Option<char>, variable: bool) {
        let line = self.line;
        let text = match sign {
            Some('-') => text.trim_end_matches(is_space),
            None if !variable => {
                let start = text.rfind('\n').map_or(0, |at| at + 1);
                let blank = !text[start..].is_empty() && text[start..].chars().all(is_space);
                if blank && (start > 0 || self.line_starting) { &text[..start] } else { text }
            }
            _ => text,
        };
        if !text.is_empty() {
            self.tokens.push((line, Token::Data(text.to_owned())));
        }
    }

    fn run(mut self) -> Result<Vec<(u32, Token)>, TemplateError> {
        while self.at < self.source.len() {
            let rest = self.rest();
            let begin = rest.match_indices('{').find_map(|(at, _)| {
                Some((at, rest[at + 1..].chars().next().filter(|c| matches!(c, '%' | '{' | '#'))?))
            });
            let Some((start, kind)) = begin else {
                self.tokens.push((self.line, Token::Data(rest.to_owned())));
                break;
            };
            let inner = &rest[start + 2..];
            let sign = inner.chars().next().filter(|c| matches!(c, '-' | '+'));
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

    fn string(&mut self, quote: char) -> Result<(), TemplateError> {
        let rest = self.rest();
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
            'N' => return Err("`\\N{...}` in a string is not supported: write the character".to_owned()),
            '0'..='7' => {
                let more = rest.bytes().take(2).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                let code = format!("{c}{}", &rest[..more]);
                rest = &rest[more..];
                out.push(u32::from_str_radix(&code, 8).ok().and_then(char::from_u32).unwrap_or('\0'));
            }
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

/// Parses a template. The function is its body.
pub(crate) fn parse(source: &str) -> Result<Vec<Stmt>, TemplateError> {
    if source.len() > MAX_SOURCE_BYTES {
        return fail(0, format!("the template has more than {MAX_SOURCE_BYTES} bytes"));
    }
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    let lexer = Lexer { source: &source, at: 0, line: 1, line_starting: true, tokens: Vec::new() };
    let tokens = lexer.run()?;
    let mut parser = Parser { tokens, at: 0, depth: 0, chain: 0 };
    parser.body(&[])
}

struct Parser {
    tokens: Vec<(u32, Token)>,
    at: usize,
    depth: u32,
    /// Attributes, calls and filters in the expressions that are open.
    chain: u32,
}

type Parsed<T> = Result<T, TemplateError>;

impl Parser {
    fn token(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::End, |(_, token)| token)
    }

    fn look(&self) -> &Token {
        self.tokens.get(self.at + 1).map_or(&Token::End, |(_, token)| token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(line, _)| *line)
    }

    fn describe(&self) -> String {
        match self.token() {
            Token::Data(_) => "text".to_owned(),
            Token::VariableBegin => "`{{`".to_owned(),
            Token::VariableEnd => "`}}`".to_owned(),
            Token::BlockBegin => "`{%`".to_owned(),
            Token::BlockEnd => "`%}`".to_owned(),
            Token::Name(name) => format!("`{name}`"),
            Token::Str(_) => "a string".to_owned(),
            Token::Number(_) => "a number".to_owned(),
            Token::Op(operator) => format!("`{operator}`"),
            Token::End => "the end of the template".to_owned(),
        }
    }

    fn unexpected<T>(&self, expected: &str) -> Parsed<T> {
        fail(self.line(), format!("unexpected {}, expected {expected}", self.describe()))
    }

    fn is_op(&self, operator: &str) -> bool {
        matches!(self.token(), Token::Op(found) if *found == operator)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.token(), Token::Name(found) if **found == *name)
    }

    fn skip_op(&mut self, operator: &str) -> bool {
        let found = self.is_op(operator);
        self.at += usize::from(found);
        found
    }

    fn skip_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        self.at += usize::from(found);
        found
    }

    fn expect_op(&mut self, operator: &str) -> Parsed<()> {
        if self.skip_op(operator) { Ok(()) } else { self.unexpected(&format!("`{operator}`")) }
    }

    fn expect_name(&mut self) -> Parsed<Arc<str>> {
        match self.token() {
            Token::Name(name) if !name.starts_with(char::is_numeric) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.unexpected("a name"),
        }
    }

    fn expect(&mut self, token: &Token, expected: &str) -> Parsed<()> {
        if self.token() == token {
            self.at += 1;
            Ok(())
        } else {
            self.unexpected(expected)
        }
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_NESTING {
            return fail(self.line(), format!("more than {MAX_NESTING} nested blocks or parentheses"));
        }
        let chain = self.chain;
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        self.chain = chain;
        result
    }

    /// Counts a step that makes the tree deeper without nesting.
    fn link(&mut self) -> Parsed<()> {
        self.chain += 1;
        if self.chain > MAX_CHAIN {
            return fail(
                self.line(),
                format!("more than {MAX_CHAIN} attributes, calls and filters in one expression"),
            );
        }
        Ok(())
    }

    /// Statements up to a tag of `ends`, which is the current token then; or up to the end of the template.
    fn body(&mut self, ends: &[&str]) -> Parsed<Vec<Stmt>> {
        let mut body = Vec::new();
        let start = self.line();
        loop {
            let line = self.line();
            match self.token() {
                Token::Data(text) => {
                    let text = text.as_str().into();
                    self.at += 1;
                    body.push(Stmt { line, kind: StmtKind::Raw(text) });
                }
                Token::VariableBegin => {
                    self.at += 1;
                    let value = self.tuple(true, &[])?;
                    self.expect(&Token::VariableEnd, "`}}`")?;
                    body.push(Stmt { line, kind: StmtKind::Print(value) });
                }
                Token::BlockBegin => {
                    self.at += 1;
                    if ends.iter().any(|end| self.is_name(end)) {
                        return Ok(body);
                    }
                    let first = self.line();
                    self.nested(|parser| parser.statement(first, &mut body))?;
                    self.expect(&Token::BlockEnd, "`%}`")?;
                }
                Token::End if ends.is_empty() => return Ok(body),
                Token::End => {
                    let ends: Vec<_> = ends.iter().map(|end| format!("`{end}`")).collect();
                    let ends = ends.join(" or ");
                    return fail(
                        line,
                        format!("unexpected end of template: the block of line {start} needs {ends}"),
                    );
                }
                _ => return self.unexpected("text or a tag"),
            }
        }
    }

    /// The rest of a tag, and the statements after it.
    fn statements(&mut self, ends: &[&str]) -> Parsed<Vec<Stmt>> {
        self.skip_op(":");
        self.expect(&Token::BlockEnd, "`%}`")?;
        self.body(ends)
    }

    /// As `statements`, and moves over the tag at the end.
    fn statements_and_end(&mut self, end: &str) -> Parsed<Vec<Stmt>> {
        let body = self.statements(&[end])?;
        self.at += 1;
        Ok(body)
    }

    fn statement(&mut self, line: u32, body: &mut Vec<Stmt>) -> Parsed<()> {
        let tag = match self.token() {
            Token::Name(name) => name.clone(),
            _ => return self.unexpected("the name of a tag"),
        };
        self.at += 1;
        let kind = match &*tag {
            "for" => self.for_loop()?,
            "if" => {
                let mut branches = Vec::new();
                let mut otherwise = Vec::new();
                loop {
                    let test = self.tuple(false, &[])?;
                    branches.push((test, self.statements(&["elif", "else", "endif"])?));
                    if self.skip_name("elif") {
                        continue;
                    }
                    if self.skip_name("else") {
                        otherwise = self.statements_and_end("endif")?;
                    } else {
                        self.at += 1;
                    }
                    break;
                }
                StmtKind::If(branches, otherwise)
            }
            "set" => {
                let target = self.assign_target(true, &[])?;
                if self.skip_op("=") {
                    StmtKind::Set(target, self.tuple(true, &[])?)
                } else {
                    let filter = if self.is_op("|") { Some(self.filter_chain(None, false)?) } else { None };
                    let body = self.statements_and_end("endset")?;
                    StmtKind::SetBlock(Box::new(SetBlock { target, filter, scope: Scope::default(), body }))
                }
            }
            "with" => {
                let mut targets = Vec::new();
                while *self.token() != Token::BlockEnd && !self.is_op(":") {
                    if !targets.is_empty() {
                        self.expect_op(",")?;
                    }
                    let target = self.assign_target(false, &[])?;
                    self.expect_op("=")?;
                    targets.push((target, self.expression()?));
                }
                let body = self.statements_and_end("endwith")?;
                StmtKind::With(Box::new(With { targets, scope: Scope::default(), body }))
            }
            "macro" => {
                let name = self.expect_name()?;
                let params = self.signature()?;
                let body = self.statements_and_end("endmacro")?;
                let function = Function { name: name.clone(), params, body, ..Function::default() };
                StmtKind::Macro(Name { name, var: Var::default() }, Arc::new(function))
            }
            "call" => {
                let params = if self.is_op("(") { self.signature()? } else { Vec::new() };
                let call = self.expression()?;
                if !matches!(call.kind, ExprKind::Call(..)) {
                    return fail(line, "a `call` block needs a call");
                }
                let body = self.statements_and_end("endcall")?;
                let function = Function { name: "caller".into(), params, body, ..Function::default() };
                StmtKind::CallBlock(Box::new((call, Arc::new(function))))
            }
            "filter" => {
                let filter = self.filter_chain(None, true)?;
                let body = self.statements_and_end("endfilter")?;
                StmtKind::FilterBlock(Box::new((filter, Scope::default(), body)))
            }
            "generation" => {
                let body = self.statements_and_end("endgeneration")?;
                let function = Function { name: "generation".into(), body, ..Function::default() };
                StmtKind::Generation(Arc::new(function))
            }
            "print" => {
                let mut first = true;
                while *self.token() != Token::BlockEnd {
                    if !first {
                        self.expect_op(",")?;
                    }
                    first = false;
                    let value = self.expression()?;
                    body.push(Stmt { line, kind: StmtKind::Print(value) });
                }
                return Ok(());
            }
            "break" => StmtKind::Break,
            "continue" => StmtKind::Continue,
            "block" | "extends" | "include" | "import" | "from" | "autoescape" => {
                return fail(
                    line,
                    format!("the tag `{tag}` is not supported: a chat template is one file of plain text"),
                );
            }
            _ => return fail(line, format!("unknown tag `{tag}`")),
        };
        body.push(Stmt { line, kind });
        Ok(())
    }

    fn for_loop(&mut self) -> Parsed<StmtKind> {
        let target = self.assign_target(false, &["in"])?;
        if !self.skip_name("in") {
            return self.unexpected("`in`");
        }
        let iter = self.tuple(false, &["recursive"])?;
        let test = if self.skip_name("if") { Some(self.expression()?) } else { None };
        let recursive = self.skip_name("recursive");
        let body = self.statements(&["endfor", "else"])?;
        let otherwise = if self.skip_name("else") {
            self.statements_and_end("endfor")?
        } else {
            self.at += 1;
            Vec::new()
        };
        Ok(StmtKind::For(Box::new(For {
            target,
            iter,
            test,
            recursive,
            body,
            otherwise,
            loop_slot: None,
            scope: Scope::default(),
            test_scope: Scope::default(),
            otherwise_scope: Scope::default(),
        })))
    }

    fn signature(&mut self) -> Parsed<Vec<(Name, Option<Expr>)>> {
        let mut params: Vec<(Name, Option<Expr>)> = Vec::new();
        self.expect_op("(")?;
        while !self.is_op(")") {
            if !params.is_empty() {
                self.expect_op(",")?;
            }
            let line = self.line();
            let name = self.expect_name()?;
            let default = if self.skip_op("=") { Some(self.expression()?) } else { None };
            if default.is_none() && params.last().is_some_and(|(_, default)| default.is_some()) {
                return fail(
                    line,
                    format!("the parameter `{name}` without a default follows one with a default"),
                );
            }
            if params.iter().any(|(other, _)| other.name == name) {
                return fail(line, format!("the parameter `{name}` is declared twice"));
            }
            params.push((Name { name, var: Var::default() }, default));
        }
        self.at += 1;
        Ok(params)
    }

    /// One target, or several that are separated by commas.
    fn assign_target(&mut self, namespace: bool, ends: &[&str]) -> Parsed<Target> {
        self.nested(|parser| {
            let mut targets = Vec::new();
            let mut tuple = false;
            loop {
                if parser.tuple_end(ends) || tuple && parser.is_op("=") {
                    break;
                }
                targets.push(parser.single_target(namespace)?);
                if !parser.skip_op(",") {
                    break;
                }
                tuple = true;
            }
            match targets.pop() {
                Some(target) if !tuple => Ok(target),
                Some(target) => {
                    targets.push(target);
                    Ok(Target::Tuple(targets))
                }
                None => parser.unexpected("a name to assign to"),
            }
        })
    }

    fn single_target(&mut self, namespace: bool) -> Parsed<Target> {
        if self.skip_op("(") {
            // Inside of parentheses the parser of Jinja2 reads an expression, which has no attributes to assign to.
            let target = self.assign_target(false, &[])?;
            self.expect_op(")")?;
            return Ok(target);
        }
        let line = self.line();
        let name = self.expect_name()?;
        if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
            return fail(line, format!("cannot assign to `{name}`"));
        }
        let target = Name { name, var: Var::default() };
        if namespace && self.skip_op(".") {
            return Ok(Target::Namespace(target, self.expect_name()?));
        }
        Ok(Target::Name(target))
    }

    fn tuple_end(&self, ends: &[&str]) -> bool {
        matches!(self.token(), Token::VariableEnd | Token::BlockEnd)
            || self.is_op(")")
            || ends.iter().any(|end| self.is_name(end))
    }

    /// An expression, or a tuple without parentheses.
    fn tuple(&mut self, condition: bool, ends: &[&str]) -> Parsed<Expr> {
        match self.tuple_items(condition, ends)? {
            Ok(expr) => Ok(expr),
            Err(items) if items.is_empty() => self.unexpected("an expression"),
            Err(items) => {
                let line = items.first().map_or(1, |item| item.line);
                Ok(Expr { line, kind: ExprKind::Tuple(items) })
            }
        }
    }

    /// One expression, or the items of a tuple.
    fn tuple_items(&mut self, condition: bool, ends: &[&str]) -> Parsed<Result<Expr, Vec<Expr>>> {
        let mut items = Vec::new();
        let mut tuple = false;
        while !self.tuple_end(ends) {
            items.push(if condition { self.expression()? } else { self.or()? });
            if !self.skip_op(",") {
                break;
            }
            tuple = true;
        }
        if !tuple && let Some(item) = items.pop() {
            return Ok(Ok(item));
        }
        Ok(Err(items))
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            let mut expr = parser.or()?;
            while parser.skip_name("if") {
                let line = expr.line;
                let test = parser.or()?;
                let otherwise = if parser.skip_name("else") { Some(parser.expression()?) } else { None };
                expr = Expr { line, kind: ExprKind::Cond(Box::new((test, expr, otherwise))) };
                parser.link()?;
            }
            Ok(expr)
        })
    }

    fn or(&mut self) -> Parsed<Expr> {
        self.chain(|parser| parser.skip_name("or"), Self::and, ExprKind::Or)
    }

    fn and(&mut self) -> Parsed<Expr> {
        self.chain(|parser| parser.skip_name("and"), Self::not, ExprKind::And)
    }

    fn chain(
        &mut self,
        skip: fn(&mut Self) -> bool,
        next: fn(&mut Self) -> Parsed<Expr>,
        kind: fn(Vec<Expr>) -> ExprKind,
    ) -> Parsed<Expr> {
        let first = next(self)?;
        let line = first.line;
        if !skip(self) {
            return Ok(first);
        }
        let mut items = vec![first, next(self)?];
        while skip(self) {
            items.push(next(self)?);
        }
        Ok(Expr { line, kind: kind(items) })
    }

    fn not(&mut self) -> Parsed<Expr> {
        let line = self.line();
        if self.skip_name("not") {
            let value = self.nested(Self::not)?;
            return Ok(Expr { line, kind: ExprKind::Not(Box::new(value)) });
        }
        self.compare()
    }

    fn compare(&mut self) -> Parsed<Expr> {
        let first = self.math1()?;
        let mut rest = Vec::new();
        loop {
            let operator = match self.token() {
                Token::Op("==") => CompareOp::Eq,
                Token::Op("!=") => CompareOp::Ne,
                Token::Op("<") => CompareOp::Lt,
                Token::Op("<=") => CompareOp::Le,
                Token::Op(">") => CompareOp::Gt,
                Token::Op(">=") => CompareOp::Ge,
                Token::Name(name) if **name == *"in" => CompareOp::In,
                Token::Name(name)
                    if **name == *"not" && matches!(self.look(), Token::Name(name) if **name == *"in") =>
                {
                    self.at += 1;
                    CompareOp::NotIn
                }
                _ => break,
            };
            self.at += 1;
            rest.push((operator, self.math1()?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expr { line: first.line, kind: ExprKind::Compare(Box::new(first), rest) })
    }

    fn binary(
        &mut self,
        next: fn(&mut Self) -> Parsed<Expr>,
        operators: &[(&'static str, BinaryOp)],
    ) -> Parsed<Expr> {
        let first = next(self)?;
        let mut rest = Vec::new();
        while let Some((_, operator)) = operators.iter().find(|(text, _)| self.is_op(text)) {
            self.at += 1;
            rest.push((*operator, next(self)?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Expr { line: first.line, kind: ExprKind::Binary(Box::new(first), rest) })
    }

    fn math1(&mut self) -> Parsed<Expr> {
        self.binary(Self::concat, &[("+", BinaryOp::Add), ("-", BinaryOp::Sub)])
    }

    fn concat(&mut self) -> Parsed<Expr> {
        self.chain(|parser| parser.skip_op("~"), Self::math2, ExprKind::Concat)
    }

    fn math2(&mut self) -> Parsed<Expr> {
        let operators =
            [("*", BinaryOp::Mul), ("/", BinaryOp::Div), ("//", BinaryOp::FloorDiv), ("%", BinaryOp::Rem)];
        self.binary(Self::pow, &operators)
    }

    fn pow(&mut self) -> Parsed<Expr> {
        self.binary(|parser| parser.unary(true), &[("**", BinaryOp::Pow)])
    }

    fn unary(&mut self, with_filter: bool) -> Parsed<Expr> {
        let line = self.line();
        let expr = if self.skip_op("-") {
            let value = self.nested(|parser| parser.unary(false))?;
            Expr { line, kind: ExprKind::Negative(Box::new(value)) }
        } else if self.skip_op("+") {
            let value = self.nested(|parser| parser.unary(false))?;
            Expr { line, kind: ExprKind::Positive(Box::new(value)) }
        } else {
            self.primary()?
        };
        let expr = self.postfix(expr)?;
        if with_filter { self.filter_expr(expr) } else { Ok(expr) }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let line = self.line();
        let kind = match self.token().clone() {
            Token::Name(name) => {
                let name_kind = match &*name {
                    "true" | "True" => ExprKind::Const(Const::Bool(true)),
                    "false" | "False" => ExprKind::Const(Const::Bool(false)),
                    "none" | "None" => ExprKind::Const(Const::None),
                    _ => ExprKind::Name(Name { name: self.expect_name()?, var: Var::default() }),
                };
                self.at += usize::from(matches!(name_kind, ExprKind::Const(_)));
                name_kind
            }
            Token::Str(first) => {
                let mut text = first;
                self.at += 1;
                while let Token::Str(more) = self.token() {
                    text.push_str(more);
                    self.at += 1;
                }
                ExprKind::Const(Const::Str(text.into()))
            }
            Token::Number(value) => {
                self.at += 1;
                ExprKind::Const(value)
            }
            Token::Op("(") => {
                self.at += 1;
                let items = self.nested(|parser| parser.tuple_items(true, &[]))?;
                self.expect_op(")")?;
                match items {
                    Ok(expr) => return Ok(expr),
                    Err(items) => ExprKind::Tuple(items),
                }
            }
            Token::Op("[") => {
                self.at += 1;
                let items = self.items("]", |parser| parser.expression())?;
                ExprKind::List(items)
            }
            Token::Op("{") => {
                self.at += 1;
                let items = self.items("}", |parser| {
                    let key = parser.expression()?;
                    parser.expect_op(":")?;
                    Ok((key, parser.expression()?))
                })?;
                ExprKind::Dict(items)
            }
            _ => return self.unexpected("an expression"),
        };
        Ok(Expr { line, kind })
    }

    /// What is between commas, up to the operator `end`. A comma may follow the last one.
    fn items<T>(&mut self, end: &str, mut parse: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        while !self.is_op(end) {
            if !items.is_empty() {
                self.expect_op(",")?;
            }
            if self.is_op(end) {
                break;
            }
            items.push(parse(self)?);
        }
        self.expect_op(end)?;
        Ok(items)
    }

    fn postfix(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            let line = self.line();
            if self.skip_op(".") {
                expr = match self.token().clone() {
                    Token::Name(_) => {
                        let name = self.expect_name()?;
                        Expr { line, kind: ExprKind::Attribute(Box::new(expr), name) }
                    }
                    Token::Number(index @ Const::Int(_)) => {
                        self.at += 1;
                        let index = Expr { line, kind: ExprKind::Const(index) };
                        Expr { line, kind: ExprKind::Item(Box::new(expr), Box::new(index)) }
                    }
                    _ => return self.unexpected("a name or a number"),
                };
            } else if self.skip_op("[") {
                expr = self.subscript(expr, line)?;
            } else if self.is_op("(") {
                let args = self.call_args()?;
                expr = Expr { line, kind: ExprKind::Call(Box::new(expr), Box::new(args)) };
            } else {
                return Ok(expr);
            }
            self.link()?;
        }
    }

    fn subscript(&mut self, object: Expr, line: u32) -> Parsed<Expr> {
        let (mut parts, mut colons) = ([None, None, None], 0);
        loop {
            if !self.is_op("]") && !self.is_op(":") {
                parts[colons] = Some(self.expression()?);
            }
            if colons == 2 || !self.skip_op(":") {
                break;
            }
            colons += 1;
        }
        if colons > 0 {
            self.expect_op("]")?;
            return Ok(Expr { line, kind: ExprKind::Slice(Box::new(object), Box::new(parts)) });
        }
        let mut items: Vec<Expr> = parts.into_iter().flatten().collect();
        while self.skip_op(",") {
            items.push(self.expression()?);
        }
        self.expect_op("]")?;
        let index = match items.pop() {
            Some(index) if items.is_empty() => index,
            last => {
                items.extend(last);
                Expr { line, kind: ExprKind::Tuple(items) }
            }
        };
        Ok(Expr { line, kind: ExprKind::Item(Box::new(object), Box::new(index)) })
    }

    fn filter_expr(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            let line = self.line();
            if self.is_op("|") {
                expr = self.filter_chain(Some(expr), false)?;
            } else if self.skip_name("is") {
                expr = self.test(expr, line)?;
            } else if self.is_op("(") {
                let args = self.call_args()?;
                expr = Expr { line, kind: ExprKind::Call(Box::new(expr), Box::new(args)) };
            } else {
                return Ok(expr);
            }
            self.link()?;
        }
    }

    /// Filters, the first without a bar before it if `inline`.
    fn filter_chain(&mut self, mut value: Option<Expr>, mut inline: bool) -> Parsed<Expr> {
        while inline || self.skip_op("|") {
            inline = false;
            let line = self.line();
            let name = self.dotted_name()?;
            let args = if self.is_op("(") { self.call_args()? } else { Args::default() };
            let filter = Filter::named(&name);
            value = Some(Expr {
                line,
                kind: ExprKind::Filter(Box::new(FilterCall { value, name, filter, args })),
            });
            self.link()?;
        }
        match value {
            Some(value) => Ok(value),
            None => self.unexpected("a filter"),
        }
    }

    fn dotted_name(&mut self) -> Parsed<Arc<str>> {
        let mut name = self.expect_name()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.expect_name()?).into();
        }
        Ok(name)
    }

    fn test(&mut self, value: Expr, line: u32) -> Parsed<Expr> {
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let mut args = Args::default();
        let starts = match self.token() {
            Token::Name(name) => {
                if **name == *"is" {
                    return fail(line, "tests with `is` cannot be chained");
                }
                !matches!(&**name, "else" | "or" | "and")
            }
            Token::Str(_) | Token::Number(_) | Token::Op("[" | "{") => true,
            _ => false,
        };
        if self.is_op("(") {
            args = self.call_args()?;
        } else if starts {
            let argument = self.primary()?;
            args.positional.push(self.postfix(argument)?);
        }
        let test = Test::named(&name);
        let test = Expr { line, kind: ExprKind::Test(Box::new(TestCall { value, name, test, args })) };
        Ok(if negated { Expr { line, kind: ExprKind::Not(Box::new(test)) } } else { test })
    }

    fn call_args(&mut self) -> Parsed<Args> {
        let line = self.line();
        self.expect_op("(")?;
        let mut args = Args::default();
        self.items(")", |parser| {
            let valid = if parser.skip_op("*") {
                let valid = args.splat.is_none() && args.keyword_splat.is_none();
                args.splat = Some(parser.expression()?);
                valid
            } else if parser.skip_op("**") {
                let valid = args.keyword_splat.is_none();
                args.keyword_splat = Some(parser.expression()?);
                valid
            } else if matches!(parser.token(), Token::Name(_)) && matches!(parser.look(), Token::Op("=")) {
                let name = parser.expect_name()?;
                parser.at += 1;
                let valid =
                    args.keyword_splat.is_none() && args.keyword.iter().all(|(other, _)| *other != name);
                args.keyword.push((name, parser.expression()?));
                valid
            } else {
                let valid = args.splat.is_none() && args.keyword_splat.is_none() && args.keyword.is_empty();
                args.positional.push(parser.expression()?);
                valid
            };
            if valid { Ok(()) } else { fail(line, "invalid arguments of a call") }
        })?;
        Ok(args)
    }
}
