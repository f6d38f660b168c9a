//! Lexer and parser of Jinja2 3.1, with `trim_blocks`, `lstrip_blocks`, loop controls and `generation` blocks.
//!
//! The parser of the `minijinja` crate differs from Jinja2 in ways that change what is rendered (string escapes, adjacent
//! strings, signs before postfix operators, tuples without parentheses, line endings, `*args`), so this is a port.

mod expr;
mod lexer;

use std::sync::Arc;

use self::lexer::Token;
use crate::ast::*;
use crate::error::{TemplateError, fail};

/// Longer templates are refused. Those of models have at most some tens of thousands of bytes.
const MAX_SOURCE_BYTES: usize = 1 << 20;

/// Nested statements or parentheses deeper than this are refused.
const MAX_NESTING: u32 = 64;

/// More attributes, calls and filters in one expression are refused.
const MAX_CHAIN: u32 = 1000;

/// Parses a template. The function is its body.
pub(crate) fn parse(source: &str) -> Result<Vec<Stmt>, TemplateError> {
    if source.len() > MAX_SOURCE_BYTES {
        return fail(0, format!("the template has more than {MAX_SOURCE_BYTES} bytes"));
    }
    // `Lexer._normalize_newlines`, and `keep_trailing_newline=False`: one line break at the end of the file is not
    // text.
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    let mut parser = Parser { tokens: lexer::tokens(&source)?, at: 0, depth: 0, chain: 0 };
    parser.body(&[])
}

/// `jinja2.parser.Parser`: recursive descent, one function per rule, named as there without
/// `parse_`, so that the two can be compared side by side.
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

    /// The token after the current one.
    fn look(&self) -> &Token {
        self.tokens.get(self.at + 1).map_or(&Token::End, |(_, token)| token)
    }

    /// The line of the current token, or of the last one at the end of the template.
    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |(line, _)| *line)
    }

    /// The current token, for a message.
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

    /// The error about the current token.
    fn unexpected<T>(&self, expected: &str) -> Parsed<T> {
        fail(self.line(), format!("unexpected {}, expected {expected}", self.describe()))
    }

    fn is_op(&self, operator: &str) -> bool {
        matches!(self.token(), Token::Op(found) if *found == operator)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.token(), Token::Name(found) if **found == *name)
    }

    /// `TokenStream.skip_if`.
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

    /// `TokenStream.expect`.
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

    /// Parses something that may contain itself, up to a depth that the stack can hold.
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
    /// `Parser.parse_statements`, which also takes a colon before the end of a tag.
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

    /// The rest of a tag after its name, and the statements that belong to it.
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
            // `parse_set`: with `=` a value, without it a block.
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
            // `parse_with`.
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
            // `parse_call_block`: the parameters are those of the block, which the macro passes to `caller(…)`.
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
            // `AssistantTracker.parse` of transformers.
            "generation" => {
                let body = self.statements_and_end("endgeneration")?;
                let function = Function { name: "generation".into(), body, ..Function::default() };
                StmtKind::Generation(Arc::new(function))
            }
            // `parse_print`: `{% print a, b %}` is the same as `{{ a }}{{ b }}`.
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

    /// A loop: a target, what it runs over, and perhaps a condition, `recursive` and an `else` block.
    fn for_loop(&mut self) -> Parsed<StmtKind> {
        let target = self.assign_target(false, &["in"])?;
        if !self.skip_name("in") {
            return self.unexpected("`in`");
        }
        // Without conditions, so that `if` after it starts the filter of the loop.
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

    /// The parameters of a macro.
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
    /// `parse_assign_target`. `namespace` allows `ns.attribute`, which only `set` does.
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

    /// A name to assign to, or names in parentheses.
    fn single_target(&mut self, namespace: bool) -> Parsed<Target> {
        if self.skip_op("(") {
            // Inside of parentheses the parser of Jinja2 reads an expression, which has no attributes to assign to.
            let target = self.assign_target(false, &[])?;
            self.expect_op(")")?;
            return Ok(target);
        }
        let line = self.line();
        let name = self.expect_name()?;
        // `nodes.Name.can_assign`.
        if matches!(&*name, "true" | "false" | "none" | "True" | "False" | "None") {
            return fail(line, format!("cannot assign to `{name}`"));
        }
        let target = Name { name, var: Var::default() };
        if namespace && self.skip_op(".") {
            return Ok(Target::Namespace(target, self.expect_name()?));
        }
        Ok(Target::Name(target))
    }
}
