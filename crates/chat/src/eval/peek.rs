//! Values of an expression that exist already, such as `message.role`: they are read where they are, and not copied.
//!
//! Most expressions of a chat template are of this kind. Everything here agrees with [`Evaluator::eval`], which decides
//! all other cases.

use super::Evaluator;
use crate::ast::{Const, Expr, ExprKind};
use crate::attributes::{Attribute, map_attribute};
use crate::error::Result;
use crate::operators::{BinaryOp, CompareOp};
use crate::runtime::undefined;
use crate::value::{Kind, Mark, TextBuilder, Value, equal_atoms};

/// Longest path that is read, so that a long one is not read again for each of its parts.
const MAX_PATH: u32 = 8;

/// Attributes of a namespace that are searched without being paid for.
const MAX_SEARCHED: usize = 16;

/// A value that is not copied.
#[derive(Clone, Copy)]
pub(super) enum Peeked<'a> {
    Value(&'a Value),
    /// A string of the template.
    Literal(&'a str),
    /// A member that a mapping does not have.
    Missing,
}

impl<'a> Peeked<'a> {
    pub(super) fn as_str(self) -> Option<&'a str> {
        match self {
            Peeked::Value(value) => value.as_str(),
            Peeked::Literal(text) => Some(text),
            Peeked::Missing => None,
        }
    }

    /// The bytes of a string.
    pub(super) fn len(self) -> usize {
        self.as_str().map_or(0, str::len)
    }

    /// Appends a string. Returns false if this is none.
    pub(super) fn push_to(self, out: &mut TextBuilder) -> bool {
        match self {
            Peeked::Literal(text) => out.push(text, Mark::TEMPLATE),
            Peeked::Value(Value(Kind::Str(text))) => out.push_text(text),
            Peeked::Value(_) | Peeked::Missing => return false,
        }
        true
    }
}

impl<'t> Evaluator<'t> {
    /// Returns the value of an expression if it exists already, and reading it has no effect.
    pub(super) fn peek(&self, expr: &'t Expr) -> Option<Peeked<'_>> {
        self.peek_path(expr, MAX_PATH)
    }

    /// `most` counts the parts of the path that are left.
    pub(super) fn peek_path(&self, expr: &'t Expr, most: u32) -> Option<Peeked<'_>> {
        let object = |object: &'t Expr| match self.peek_path(object, most.checked_sub(1)?)? {
            Peeked::Value(object) => Some(object),
            Peeked::Literal(_) | Peeked::Missing => None,
        };
        match &expr.kind {
            ExprKind::Const(Const::Str(text)) => Some(Peeked::Literal(text)),
            ExprKind::Name(name) => self.var(name.var).as_ref().map(Peeked::Value),
            // A method hides a key of its name, so `message.items` is left to `Evaluator::eval`.
            ExprKind::Attribute(value, name) => match &object(value)?.0 {
                Kind::Map(map) if matches!(map_attribute(name), Attribute::None) => {
                    Some(map.get(name).map_or(Peeked::Missing, Peeked::Value))
                }
                Kind::Namespace(at) => {
                    let entries =
                        self.runtime.namespaces.get(*at).filter(|entries| entries.len() <= MAX_SEARCHED)?;
                    let found = entries.iter().find(|(known, _)| known == name);
                    found.map(|(_, value)| Peeked::Value(value))
                }
                _ => None,
            },
            ExprKind::Item(value, index) => match (&object(value)?.0, &index.kind) {
                (Kind::Map(map), ExprKind::Const(Const::Str(name))) => match map.get(name) {
                    Some(value) => Some(Peeked::Value(value)),
                    None if matches!(map_attribute(name), Attribute::None) => Some(Peeked::Missing),
                    None => None,
                },
                // `messages[0]`; others, such as `messages[-1]`, are left to `Evaluator::eval`.
                (Kind::List(list) | Kind::Tuple(list), ExprKind::Const(Const::Int(at))) => {
                    list.items.get(usize::try_from(*at).ok()?).map(Peeked::Value)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The truth of an expression.
    pub(super) fn test_expr(&mut self, expr: &'t Expr) -> Result<bool> {
        let known = match &expr.kind {
            ExprKind::Not(_) | ExprKind::And(_) | ExprKind::Or(_) => {
                self.deeper()?;
                let result = self.logic(expr).map_err(|error| error.or_line(expr.line));
                self.depth -= 1;
                return result;
            }
            ExprKind::Compare(first, rest) => match &rest[..] {
                [(operator, second)] => self.peek_compare(first, *operator, second),
                _ => None,
            },
            ExprKind::Test(call) if call.args.exprs().next().is_none() => {
                call.test.zip(self.peek(&call.value)).and_then(|(test, value)| match value {
                    Peeked::Value(value) => test.of_type(value),
                    Peeked::Missing => test.of_type(&undefined("")),
                    Peeked::Literal(_) => None,
                })
            }
            _ => match self.peek(expr) {
                Some(Peeked::Value(value)) => Some(self.runtime.truth(value)?),
                Some(Peeked::Missing) => Some(false),
                Some(Peeked::Literal(text)) => Some(!text.is_empty()),
                None => None,
            },
        };
        match known {
            Some(known) => {
                self.runtime.budget.charge(1)?;
                Ok(known)
            }
            None => {
                let value = self.eval(expr)?;
                self.runtime.truth(&value)
            }
        }
    }

    /// Conditions joined by `and`, `or` and `not`, as truth values: their operands are not needed as values.
    pub(super) fn logic(&mut self, expr: &'t Expr) -> Result<bool> {
        let (items, stop) = match &expr.kind {
            ExprKind::Not(value) => return Ok(!self.test_expr(value)?),
            ExprKind::And(items) => (items, false),
            ExprKind::Or(items) => (items, true),
            _ => return self.test_expr(expr),
        };
        for item in items {
            if self.test_expr(item)? == stop {
                return Ok(stop);
            }
        }
        Ok(!stop)
    }

    /// Compares values of constant size, and short strings.
    pub(super) fn peek_compare(
        &self,
        first: &'t Expr,
        operator: CompareOp,
        second: &'t Expr,
    ) -> Option<bool> {
        let is_equal = match operator {
            CompareOp::Eq => true,
            CompareOp::Ne => false,
            _ => return None,
        };
        let (left, right) = (self.peek(first)?, self.peek(second)?);
        let found = match (left, right) {
            (Peeked::Value(left), Peeked::Value(right)) => equal_atoms(left, right)?,
            // Two undefined values are equal, and an undefined one equals nothing else: rare enough for the long way.
            (Peeked::Missing, _) | (_, Peeked::Missing) => return None,
            _ => match (left.as_str(), right.as_str()) {
                (Some(left), Some(right)) => left == right,
                _ => return None,
            },
        };
        Some(found == is_equal)
    }

    /// Joins strings that are added one after the other. Returns them, and the number of the operands that were joined:
    /// the next one is no string, or not added.
    pub(super) fn join(
        &mut self,
        first: &'t Expr,
        rest: &'t [(BinaryOp, Expr)],
    ) -> Result<(TextBuilder, usize, Option<Value>)> {
        let mut out = self.buffer();
        let operands = std::iter::once((BinaryOp::Add, first));
        let operands = operands.chain(rest.iter().map(|(operator, operand)| (*operator, operand)));
        for (at, (operator, operand)) in operands.enumerate() {
            if operator != BinaryOp::Add {
                return Ok((out, at, None));
            }
            if !self.push_peeked(operand, &mut out)? {
                let value = self.eval(operand)?;
                let Kind::Str(text) = &value.0 else { return Ok((out, at, Some(value))) };
                self.runtime.budget.make_text(text)?;
                out.push_text(text);
            }
        }
        Ok((out, 1 + rest.len(), None))
    }

    /// Appends a string that exists already. Returns false if the value is none.
    pub(super) fn push_peeked(&mut self, expr: &'t Expr, out: &mut TextBuilder) -> Result<bool> {
        // A copy, because the value that is looked at is borrowed from the evaluator.
        let mut budget = self.runtime.budget;
        let pushed = match self.peek(expr) {
            Some(peeked) => {
                budget.make(peeked.len())?;
                peeked.push_to(out)
            }
            None => false,
        };
        self.runtime.budget = budget;
        Ok(pushed)
    }
}
