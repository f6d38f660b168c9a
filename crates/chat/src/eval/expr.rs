//! Expressions. Strings that are joined stay in a buffer, which is often only printed.

use super::Evaluator;
use super::peek::Peeked;
use crate::ast::*;
use crate::error::{ErrorKind, Result, error, type_error};
use crate::operators::{BinaryOp, negate, operand_error};
use crate::runtime::undefined;
use crate::slices::{slice, slice_bound};
use crate::value::{Kind, Map, Mark, Missing, Number, TEMPLATE, Text, TextBuilder, Value, number};

/// The value of an expression, or the text of one that joins strings, which is often only printed.
pub(super) enum Joined {
    Value(Value),
    Text(TextBuilder),
}

impl<'t> Evaluator<'t> {
    /// The value of an expression. Names and constants cost nothing by themselves: what contains them is paid for.
    pub(super) fn eval(&mut self, expr: &'t Expr) -> Result<Value> {
        match &expr.kind {
            ExprKind::Const(value) => Ok(constant(value)),
            ExprKind::Name(name) => Ok(match self.var(name.var) {
                Some(value) => value.clone(),
                None => Kind::Undefined(Missing::Name(name.name.clone())).into(),
            }),
            // `message["content"]`: most values of a template are read where they are, without a step down the Rust
            // stack.
            ExprKind::Attribute(..) | ExprKind::Item(..)
                if let Some(Peeked::Value(value)) = self.peek(expr) =>
            {
                let value = value.clone();
                self.runtime.budget.charge(1)?;
                Ok(value)
            }
            ExprKind::Binary(..) | ExprKind::Concat(_) => Ok(match self.eval_joined(expr)? {
                Joined::Value(value) => value,
                Joined::Text(text) => self.text(text)?.into(),
            }),
            _ => {
                self.deeper()?;
                let result = self.eval_inner(expr).map_err(|error| error.or_line(expr.line));
                self.depth -= 1;
                result
            }
        }
    }

    /// As [`eval`](Self::eval), but strings that are joined stay in a buffer.
    pub(super) fn eval_joined(&mut self, expr: &'t Expr) -> Result<Joined> {
        let joined = match &expr.kind {
            ExprKind::Binary(first, rest) => {
                self.deeper()?;
                self.chain(first, rest)
            }
            ExprKind::Concat(items) => {
                self.deeper()?;
                self.concat(items).map(Joined::Text)
            }
            _ => return self.eval(expr).map(Joined::Value),
        };
        self.depth -= 1;
        joined.map_err(|error| error.or_line(expr.line))
    }

    /// Applies operators from left to right. Strings that are added one after the other are joined in one buffer.
    pub(super) fn chain(&mut self, first: &'t Expr, rest: &'t [(BinaryOp, Expr)]) -> Result<Joined> {
        // `"<|im_start|>" + role + "\n" + content` would copy the text for each `+`: the cost of a template would be
        // quadratic in the number of its parts.
        let (joined, count, next) = self.join(first, rest)?;
        let (mut left, mut at) = match (count, next) {
            (0, next) => {
                self.reuse(joined);
                (Joined::Value(next.unwrap_or_else(Value::none)), 0)
            }
            // The next operand is no string: an error, unless the operator is another one.
            (count, Some(right)) => {
                let left = self.text(joined)?.into();
                (Joined::Value(self.runtime.binary(BinaryOp::Add, left, right)?), count)
            }
            (count, None) => (Joined::Text(joined), count - 1),
        };
        while let Some((operator, right)) = rest.get(at) {
            at += 1;
            let right = self.eval(right)?;
            left = match left {
                Joined::Text(text) => {
                    let left = self.text(text)?.into();
                    Joined::Value(self.runtime.binary(*operator, left, right)?)
                }
                Joined::Value(left) => Joined::Value(self.runtime.binary(*operator, left, right)?),
            };
        }
        Ok(left)
    }

    /// The expressions that have others inside.
    pub(super) fn eval_inner(&mut self, expr: &'t Expr) -> Result<Value> {
        match &expr.kind {
            ExprKind::Const(_) | ExprKind::Name(_) | ExprKind::Binary(..) | ExprKind::Concat(_) => {
                self.eval(expr)
            }
            ExprKind::Tuple(items) => {
                self.runtime.budget.make_items(items.len())?;
                let items = self.eval_all(items)?;
                self.runtime.new_list(items, true)
            }
            ExprKind::List(items) => {
                self.runtime.budget.make_items(items.len())?;
                let items = self.eval_all(items)?;
                self.runtime.new_list(items, false)
            }
            ExprKind::Dict(items) => self.dict(items),
            ExprKind::Attribute(object, name) => {
                let object = self.eval(object)?;
                self.runtime.attribute(&object, name)
            }
            ExprKind::Item(object, index) => self.item_expr(object, index),
            // `messages[1:]`, with which templates skip a system message.
            ExprKind::Slice(object, bounds) => {
                let object = self.eval(object)?;
                let mut values = [None, None, None];
                for (value, bound) in values.iter_mut().zip(bounds.iter()) {
                    if let Some(bound) = bound {
                        *value = slice_bound(&self.eval(bound)?)?;
                    }
                }
                slice(&object, values, &mut self.runtime.budget)
            }
            ExprKind::Call(callee, args) => self.call(callee, args, None),
            ExprKind::Filter(call) => {
                let value = match &call.value {
                    Some(value) => self.eval(value)?,
                    None => return type_error("a filter without a value"),
                };
                let args = self.args(&call.args, None)?;
                self.call_filter(call, value, args)
            }
            ExprKind::Test(call) => {
                let value = self.eval(&call.value)?;
                let args = self.args(&call.args, None)?;
                // Inside of a condition, an unknown test is an error only if it is reached.
                let Some(test) = call.test else {
                    return error(ErrorKind::Unknown, format!("unknown test `{}`", call.name));
                };
                Ok(test.call(&mut self.runtime, &value, args)?.into())
            }
            ExprKind::Not(value) => Ok((!self.test_expr(value)?).into()),
            ExprKind::Negative(value) => {
                let value = self.eval(value)?;
                negate(&value)
            }
            // `+True` is 1 in Python.
            ExprKind::Positive(value) => {
                let value = self.eval(value)?;
                match number(&value) {
                    Some(Number::Int(int)) => Ok(int.into()),
                    Some(Number::Float(float)) => Ok(float.into()),
                    None => operand_error("+", &value, &value),
                }
            }
            // The value of an operand, not of a condition: `message.name or "user"`.
            ExprKind::And(items) => self.short_circuit(items, false),
            ExprKind::Or(items) => self.short_circuit(items, true),
            ExprKind::Compare(first, rest) => {
                let mut left = self.eval(first)?;
                for (operator, right) in rest {
                    let right = self.eval(right)?;
                    // Later operands are not evaluated.
                    if !self.runtime.compare(*operator, &left, &right)? {
                        return Ok(false.into());
                    }
                    left = right;
                }
                Ok(true.into())
            }
            ExprKind::Cond(parts) => {
                let (test, value, otherwise) = &**parts;
                if self.test_expr(test)? {
                    return self.eval(value);
                }
                match otherwise {
                    Some(otherwise) => self.eval(otherwise),
                    // `{{ x if y }}` prints nothing (`nodes.CondExpr` without `expr2`).
                    None => Ok(undefined("the condition of a value without `else` is false")),
                }
            }
        }
    }

    /// The values of operands or arguments.
    pub(super) fn eval_all(&mut self, items: &'t [Expr]) -> Result<Vec<Value>> {
        self.runtime.budget.charge(items.len())?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.push(self.eval(item)?);
        }
        Ok(values)
    }

    /// A mapping. A key that is given twice keeps its place and has the last value, as in Python.
    pub(super) fn dict(&mut self, items: &'t [(Expr, Expr)]) -> Result<Value> {
        let mut map = Map::new();
        for (key, value) in items {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            self.runtime.insert(&mut map, key, value)?;
        }
        self.runtime.new_map(map)
    }

    /// `and` and `or`, whose value is that of the last operand that was evaluated.
    pub(super) fn short_circuit(&mut self, items: &'t [Expr], stop: bool) -> Result<Value> {
        let mut value = Value::none();
        for (at, item) in items.iter().enumerate() {
            // Evaluating a constant or a name costs nothing by itself.
            self.runtime.budget.charge(1)?;
            value = self.eval(item)?;
            if at + 1 < items.len() && self.runtime.truth(&value)? == stop {
                break;
            }
        }
        Ok(value)
    }

    /// `~`: everything is printed, also numbers and undefined values.
    pub(super) fn concat(&mut self, items: &'t [Expr]) -> Result<TextBuilder> {
        let mut out = self.buffer();
        for item in items {
            if !self.push_peeked(item, &mut out)? {
                let value = self.eval(item)?;
                let text = self.runtime.printed(&value)?;
                self.runtime.budget.make_text(&text)?;
                out.push_text(&text);
            }
        }
        Ok(out)
    }

    /// `object[index]`. The messages of a loop over positions are found here: see `index_var`.
    pub(super) fn item_expr(&mut self, object: &'t Expr, index: &'t Expr) -> Result<Value> {
        let object = self.eval(object)?;
        let key = self.eval(index)?;
        let value = self.runtime.item(&object, &key)?;
        if let (Some((frame, slot)), ExprKind::Name(name), Kind::Map(map)) =
            (self.index_var, &index.kind, &value.0)
            && let Some(message) = map.message
            && name.var == (Var { up: 0, slot })
            && self.frame == frame
        {
            // `{% for i in range(messages|length) %}` with `messages[i]`: from here to the end of the iteration, text
            // belongs to this message. Other indexes, such as `messages[i - 1]`, only look at a neighbor.
            self.turn = message;
        }
        Ok(value)
    }
}

/// The value of a constant, which the template wrote.
fn constant(value: &Const) -> Value {
    match value {
        Const::None => Kind::None(TEMPLATE),
        Const::Bool(value) => Kind::Bool(*value, TEMPLATE),
        Const::Int(value) => Kind::Int(*value, TEMPLATE),
        Const::Big(digits) => Kind::Big(digits.clone(), TEMPLATE),
        Const::Float(value) => Kind::Float(*value, TEMPLATE),
        Const::Str(text) => Kind::Str(Text::marked(text.clone(), Mark::TEMPLATE)),
    }
    .into()
}
