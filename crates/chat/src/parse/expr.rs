//! Expressions.

use std::sync::Arc;

use super::lexer::Token;
use super::{Parsed, Parser};
use crate::ast::*;
use crate::error::fail;
use crate::filters::{Filter, Test};
use crate::operators::{BinaryOp, CompareOp};

impl Parser {
    /// Whether a tuple without parentheses ends here.
    /// `is_tuple_end`.
    pub(super) fn tuple_end(&self, ends: &[&str]) -> bool {
        matches!(self.token(), Token::VariableEnd | Token::BlockEnd)
            || self.is_op(")")
            || ends.iter().any(|end| self.is_name(end))
    }

    /// An expression, or a tuple without parentheses.
    /// `parse_tuple`: `{{ 1, 2 }}` and `{% for x in 1, 2 %}` need no parentheses. `condition` allows `a if b else c`.
    pub(super) fn tuple(&mut self, condition: bool, ends: &[&str]) -> Parsed<Expr> {
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
    pub(super) fn tuple_items(&mut self, condition: bool, ends: &[&str]) -> Parsed<Result<Expr, Vec<Expr>>> {
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

    /// An expression with conditions: `a if b else c`.
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.nested(|parser| {
            let mut expr = parser.or()?;
            while parser.skip_name("if") {
                let line = expr.line;
                let test = parser.or()?;
                // Without `else`, the value is undefined: `{{ "x" if y }}`.
                let otherwise = if parser.skip_name("else") { Some(parser.expression()?) } else { None };
                expr = Expr { line, kind: ExprKind::Cond(Box::new((test, expr, otherwise))) };
                parser.link()?;
            }
            Ok(expr)
        })
    }

    // The rules below are those of Jinja2 in the order of precedence, from the operators that bind least: `or`, `and`,
    // `not`, comparisons, `+ -`, `~`, `* / // %`, `**`, signs, then filters and tests.
    /// `parse_or`.
    pub(super) fn or(&mut self) -> Parsed<Expr> {
        self.chain(|parser| parser.skip_name("or"), Self::and, ExprKind::Or)
    }

    /// `parse_and`.
    pub(super) fn and(&mut self) -> Parsed<Expr> {
        self.chain(|parser| parser.skip_name("and"), Self::not, ExprKind::And)
    }

    /// Operands of the same operator in one node, so that a long chain is not a deep tree.
    pub(super) fn chain(
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

    /// `not`, which binds less tightly than comparisons.
    pub(super) fn not(&mut self) -> Parsed<Expr> {
        let line = self.line();
        if self.skip_name("not") {
            let value = self.nested(Self::not)?;
            return Ok(Expr { line, kind: ExprKind::Not(Box::new(value)) });
        }
        self.compare()
    }

    /// Comparisons can be chained: `1 < x < 3`.
    pub(super) fn compare(&mut self) -> Parsed<Expr> {
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

    /// Operators of the same precedence, from left to right.
    pub(super) fn binary(
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

    /// `parse_math1`: sums.
    pub(super) fn math1(&mut self) -> Parsed<Expr> {
        self.binary(Self::concat, &[("+", BinaryOp::Add), ("-", BinaryOp::Sub)])
    }

    /// `parse_concat`: `~` binds more tightly than `+`, so that `a + b ~ c` adds `a` to a text.
    pub(super) fn concat(&mut self) -> Parsed<Expr> {
        self.chain(|parser| parser.skip_op("~"), Self::math2, ExprKind::Concat)
    }

    /// `parse_math2`: products.
    pub(super) fn math2(&mut self) -> Parsed<Expr> {
        let operators =
            [("*", BinaryOp::Mul), ("/", BinaryOp::Div), ("//", BinaryOp::FloorDiv), ("%", BinaryOp::Rem)];
        self.binary(Self::pow, &operators)
    }

    /// `parse_pow`. From left to right in Jinja2: `2 ** 3 ** 2` is 64, and 512 in Python.
    pub(super) fn pow(&mut self) -> Parsed<Expr> {
        self.binary(|parser| parser.unary(true), &[("**", BinaryOp::Pow)])
    }

    /// A sign binds less tightly than an attribute, and more tightly than a filter: `-x|abs` is the filter of `-x`.
    pub(super) fn unary(&mut self, with_filter: bool) -> Parsed<Expr> {
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

    /// Names, constants, and what is in parentheses or brackets. Adjacent strings are one, as in Python.
    pub(super) fn primary(&mut self) -> Parsed<Expr> {
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
                // `"a" "b"` is `"ab"`.
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
    pub(super) fn items<T>(
        &mut self,
        end: &str,
        mut parse: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
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

    /// Attributes, elements, slices and calls.
    pub(super) fn postfix(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            let line = self.line();
            if self.skip_op(".") {
                expr = match self.token().clone() {
                    Token::Name(_) => {
                        let name = self.expect_name()?;
                        Expr { line, kind: ExprKind::Attribute(Box::new(expr), name) }
                    }
                    // `messages.0.content`: an index after a dot.
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

    /// `[…]` after a value: an index, several of them as a tuple, or a slice.
    pub(super) fn subscript(&mut self, object: Expr, line: u32) -> Parsed<Expr> {
        // `[start:stop:step]`, each of which may be missing.
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
        // `x[1, 2]` is `x[(1, 2)]`.
        let index = match items.pop() {
            Some(index) if items.is_empty() => index,
            last => {
                items.extend(last);
                Expr { line, kind: ExprKind::Tuple(items) }
            }
        };
        Ok(Expr { line, kind: ExprKind::Item(Box::new(object), Box::new(index)) })
    }

    /// Filters, tests and calls after a value.
    pub(super) fn filter_expr(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            let line = self.line();
            if self.is_op("|") {
                expr = self.filter_chain(Some(expr), false)?;
            } else if self.skip_name("is") {
                expr = self.test(expr, line)?;
            // `x|filter(y)(z)`: the result of a filter may be called.
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
    /// `parse_filter`. Names are looked up here, and the resolver refuses unknown ones outside of conditions.
    pub(super) fn filter_chain(&mut self, mut value: Option<Expr>, mut inline: bool) -> Parsed<Expr> {
        // Each filter takes the value of the one before it.
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

    /// The name of a filter or test, which may have dots.
    pub(super) fn dotted_name(&mut self) -> Parsed<Arc<str>> {
        let mut name = self.expect_name()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.expect_name()?).into();
        }
        Ok(name)
    }

    /// `is`, with an argument that needs no parentheses.
    pub(super) fn test(&mut self, value: Expr, line: u32) -> Parsed<Expr> {
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let mut args = Args::default();
        // `x is divisibleby 3` and `x is in [1, 2]`: what can start a value is an argument, except for words that go on
        // with the expression around it.
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
            // Not a whole expression: in `x is eq 1 + 1`, the sum is that of the test and 1.
            let argument = self.primary()?;
            args.positional.push(self.postfix(argument)?);
        }
        let test = Test::named(&name);
        let test = Expr { line, kind: ExprKind::Test(Box::new(TestCall { value, name, test, args })) };
        Ok(if negated { Expr { line, kind: ExprKind::Not(Box::new(test)) } } else { test })
    }

    /// Arguments in parentheses: positional, by name, `*` and `**`, in this order.
    pub(super) fn call_args(&mut self) -> Parsed<Args> {
        let line = self.line();
        self.expect_op("(")?;
        let mut args = Args::default();
        self.items(")", |parser| {
            // `ensure` of `parse_call_args`: the order of the kinds of arguments is fixed.
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
