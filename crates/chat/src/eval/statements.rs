//! Statements: what is written, assignments and loops.

use super::expr::Joined;
use super::peek::Peeked;
use super::{Evaluator, FIRST_TEXT};
use crate::args::CallArgs;
use crate::ast::*;
use crate::error::{Result, type_error};
use crate::runtime::{Items, LoopState};
use crate::value::{Kind, Mark, NO_TURN, TEMPLATE, Text, TextBuilder, Value};

/// Where to go on after a statement.
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t> Evaluator<'t> {
    /// Runs statements until one leaves the loop. Text between tags is the most frequent statement, and takes a short
    /// way.
    pub(super) fn body(&mut self, body: &'t [Stmt]) -> Result<Flow> {
        self.deeper()?;
        self.runtime.budget.charge(body.len())?;
        let mut flow = Flow::Next;
        for stmt in body {
            flow = match &stmt.kind {
                StmtKind::Raw(text) => {
                    self.emit_raw(text).map_err(|error| error.or_line(stmt.line))?;
                    continue;
                }
                _ => self.stmt(stmt).map_err(|error| error.or_line(stmt.line))?,
            };
            if !matches!(flow, Flow::Next) {
                break;
            }
        }
        self.depth -= 1;
        Ok(flow)
    }

    /// Writes text of the template itself.
    pub(super) fn emit_raw(&mut self, text: &str) -> Result<()> {
        let mark = Mark { source: TEMPLATE, turn: self.turn };
        self.runtime.budget.make(text.len())?;
        // The innermost capture: text of a macro reaches the output only when its result is printed.
        if let Some(out) = self.out.last_mut() {
            out.push(text, mark);
        }
        Ok(())
    }

    /// Writes a string with its marks.
    pub(super) fn emit(&mut self, text: &Text) -> Result<()> {
        self.runtime.budget.make_text(text)?;
        let turn = self.turn;
        if let Some(out) = self.out.last_mut() {
            out.push_in_turn(text, turn);
        }
        Ok(())
    }

    /// Emits a string that exists already. Returns false if the value of `expr` is none.
    pub(super) fn emit_peeked(&mut self, expr: &'t Expr) -> Result<bool> {
        // Taken out, because the text that is looked at is borrowed from the evaluator.
        let Some(mut out) = self.out.pop() else { return Ok(false) };
        let (turn, mut budget) = (self.turn, self.runtime.budget);
        let emitted = match self.peek(expr) {
            Some(Peeked::Literal(text)) => {
                budget.make(text.len())?;
                out.push(text, Mark { source: TEMPLATE, turn });
                true
            }
            Some(Peeked::Value(Value(Kind::Str(text)))) => {
                budget.make_text(text)?;
                out.push_in_turn(text, turn);
                true
            }
            _ => false,
        };
        self.out.push(out);
        self.runtime.budget = budget;
        Ok(emitted)
    }

    /// Writes a string that was joined in a buffer, without making a value of it.
    pub(super) fn emit_built(&mut self, text: TextBuilder) -> Result<()> {
        self.runtime.budget.make_built(&text)?;
        let turn = self.turn;
        if let Some(out) = self.out.last_mut() {
            out.append_in_turn(&text, turn);
        }
        self.reuse(text);
        Ok(())
    }

    /// Runs `body` with a buffer of its own.
    pub(super) fn capture(&mut self, body: impl FnOnce(&mut Self) -> Result<Flow>) -> Result<(Text, Flow)> {
        // Marks and turns are kept in the captured text. A text that was captured in the turn of a message keeps that
        // turn, wherever it is printed later (`Mark::in_turn`).
        let buffer = self.buffer();
        self.out.push(buffer);
        let flow = body(self);
        let text = self.out.pop().unwrap_or_default();
        let flow = flow?;
        Ok((self.text(text)?, flow))
    }

    /// Makes a value of a buffer.
    pub(super) fn text(&mut self, built: TextBuilder) -> Result<Text> {
        self.runtime.budget.make_built(&built)?;
        let text = built.finish();
        self.reuse(built);
        Ok(text)
    }

    pub(super) fn stmt(&mut self, stmt: &'t Stmt) -> Result<Flow> {
        match &stmt.kind {
            StmtKind::Raw(text) => self.emit_raw(text)?,
            StmtKind::Print(expr) => {
                if self.emit_peeked(expr)? {
                    return Ok(Flow::Next);
                }
                let value = match self.eval_joined(expr)? {
                    // The usual case of a chat template: a concatenation that is only printed.
                    Joined::Text(text) => {
                        self.emit_built(text)?;
                        return Ok(Flow::Next);
                    }
                    Joined::Value(value) => value,
                };
                match &value.0 {
                    Kind::Str(text) => self.emit(text)?,
                    _ => {
                        let text = self.runtime.printed(&value)?;
                        self.emit(&text)?;
                    }
                }
            }
            StmtKind::If(branches, otherwise) => {
                for (test, body) in branches {
                    if self.test_expr(test)? {
                        return self.body(body);
                    }
                }
                return self.body(otherwise);
            }
            StmtKind::For(node) => return self.for_loop(node),
            StmtKind::Set(target, expr) => {
                let value = self.eval(expr)?;
                self.assign(target, value)?;
            }
            StmtKind::SetBlock(node) => return self.set_block(node),
            // All values are evaluated in the outer scope, before the first name is assigned.
            StmtKind::With(node) => {
                let mut values = Vec::with_capacity(node.targets.len());
                for (_, value) in &node.targets {
                    values.push(self.eval(value)?);
                }
                self.enter(&node.scope)?;
                for ((target, _), value) in node.targets.iter().zip(values) {
                    self.assign(target, value)?;
                }
                return self.body(&node.body);
            }
            StmtKind::Macro(name, function) => {
                let value = self.function_value(function)?;
                self.set_var(name.var, value);
            }
            // `{% call macro(args) %}…{% endcall %}`: the macro may print the block with `caller()`.
            StmtKind::CallBlock(node) => {
                let (call, function) = &**node;
                let caller = self.function_value(function)?;
                let ExprKind::Call(callee, args) = &call.kind else { return Ok(Flow::Next) };
                let value =
                    self.call(callee, args, Some(caller)).map_err(|error| error.or_line(call.line))?;
                let text = self.runtime.printed(&value)?;
                self.emit(&text)?;
            }
            StmtKind::FilterBlock(node) => {
                let (filter, scope, body) = &**node;
                self.enter(scope)?;
                let (text, flow) = self.capture(|evaluator| evaluator.body(body))?;
                if !matches!(flow, Flow::Next) {
                    return Ok(flow);
                }
                // `{% filter upper %}…{% endfilter %}`.
                let value = self.filter_chain(filter, text)?;
                let text = self.runtime.printed(&value)?;
                self.emit(&text)?;
            }
            // `AssistantTracker._generation_support`: the start is the length of the blocks that were rendered so far,
            // in the output itself, even if this block is inside of a capture.
            StmtKind::Generation(function) => {
                let text = self.call_function(function, self.frame, CallArgs::default())?;
                let start = self.out.first().map_or(0, TextBuilder::len);
                self.runtime.budget.read(text.len())?;
                self.runtime.budget.make_items(1)?;
                let chars = (self.out.len() > 1).then(|| text.chars());
                self.generation.push((start, text.len(), chars));
                self.emit(&text)?;
            }
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// `{% set x %}…{% endset %}`: the body writes into a buffer of its own.
    pub(super) fn set_block(&mut self, node: &'t SetBlock) -> Result<Flow> {
        self.enter(&node.scope)?;
        let (text, flow) = self.capture(|evaluator| evaluator.body(&node.body))?;
        if !matches!(flow, Flow::Next) {
            return Ok(flow);
        }
        let value = match &node.filter {
            Some(filter) => self.filter_chain(filter, text)?,
            None => text.into(),
        };
        self.assign(&node.target, value)?;
        Ok(Flow::Next)
    }

    /// Filters whose innermost value is the text of a block.
    pub(super) fn filter_chain(&mut self, filter: &'t Expr, text: Text) -> Result<Value> {
        let ExprKind::Filter(call) = &filter.kind else { return self.eval(filter) };
        let value = match &call.value {
            Some(inner) => self.filter_chain(inner, text)?,
            None => text.into(),
        };
        let args = self.args(&call.args, None)?;
        self.call_filter(call, value, args).map_err(|error| error.or_line(filter.line))
    }

    /// Assigns to names. As in Jinja2, only a namespace has attributes that can be set.
    pub(super) fn assign(&mut self, target: &'t Target, value: Value) -> Result<()> {
        match target {
            Target::Name(name) => {
                self.set_var(name.var, value);
                Ok(())
            }
            Target::Namespace(name, attribute) => {
                let Some(Kind::Namespace(at)) = self.var(name.var).as_ref().map(|value| &value.0) else {
                    return type_error(format!(
                        "`{}` is not a namespace: its attributes cannot be set",
                        name.name
                    ));
                };
                let at = *at;
                // `TemplateNamespace._check_name` of transformers.
                if attribute.starts_with('_') {
                    return type_error(format!("the attribute `{attribute}` of a namespace starts with `_`"));
                }
                self.runtime.set_attribute(at, attribute, value)
            }
            Target::Tuple(targets) => {
                self.runtime.budget.charge(targets.len())?;
                let items = self.runtime.items(&value)?;
                if items.len() != targets.len() {
                    let (count, names) = (items.len(), targets.len());
                    return type_error(format!("{count} values cannot be assigned to {names} names"));
                }
                for (at, target) in targets.iter().enumerate() {
                    if let Some(item) = items.get(at) {
                        self.assign(target, item)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// A loop. One that is `recursive` is captured, since its text is also the value of `loop(…)`.
    pub(super) fn for_loop(&mut self, node: &'t For) -> Result<Flow> {
        let iterable = self.eval(&node.iter)?;
        if node.recursive {
            let text = self.recursive_loop(node, &iterable, 0)?;
            self.emit(&text)?;
            return Ok(Flow::Next);
        }
        self.run_loop(node, &iterable, 0)
    }

    /// A recursive loop is a function: its variables are those of one call.
    pub(super) fn recursive_loop(&mut self, node: &'t For, iterable: &Value, depth: usize) -> Result<Text> {
        self.deeper()?;
        self.runtime.budget.make_items(self.frames[self.frame].slots.len())?;
        // An inner call would otherwise change the variables of the iteration that calls it.
        let saved = self.frames[self.frame].slots.clone();
        let result = self.capture(|evaluator| evaluator.run_loop(node, iterable, depth));
        self.frames[self.frame].slots = saved;
        self.depth -= 1;
        Ok(result?.0)
    }

    /// Runs the iterations of a loop. The outermost loop over messages decides to which turn text belongs: each
    /// iteration is the turn of its message, and a loop over positions is that of the message that it indexes.
    pub(super) fn run_loop(&mut self, node: &'t For, iterable: &Value, depth: usize) -> Result<Flow> {
        let mut items = self.runtime.items(iterable)?;
        // Loops inside of a turn, such as over tool calls, belong to the message of the outer loop.
        let outer_turn = self.turn;
        let outer_index = self.index_var;
        // Only the outermost loop can be one over the positions of messages.
        if self.turn == NO_TURN
            && let (Items::Range(..), Target::Name(name)) = (&items, &node.target)
        {
            self.index_var = Some((self.frame, name.var.slot));
        }
        if let Some(test) = &node.test {
            self.enter(&node.test_scope)?;
            self.runtime.budget.make_items(items.len())?;
            let mut kept = Vec::new();
            for at in 0..items.len() {
                let Some(item) = items.get(at) else { break };
                self.assign(&node.target, item.clone())?;
                if self.test_expr(test)? {
                    kept.push(item);
                }
            }
            // `loop.length` counts the items that pass, so they are all found before the first iteration, as in Jinja2.
            items = Items::Owned(kept);
        }
        // A loop object is a position and a number, so that one that outlives its loop is found out.
        let position = self.runtime.loops.len();
        self.serial += 1;
        let serial = self.serial;
        self.runtime.loops.push(LoopState { serial, items, index: 0, depth, changed: None });
        self.loop_nodes.push(node);
        let mut completed = false;
        let mut at = 0;
        while let Some(item) = self.runtime.loops[position].items.get(at) {
            self.runtime.budget.charge(1)?;
            self.runtime.loops[position].index = at;
            if outer_turn == NO_TURN {
                self.turn = match &item.0 {
                    Kind::Map(map) => map.message.unwrap_or(NO_TURN),
                    _ => NO_TURN,
                };
            }
            self.assign(&node.target, item)?;
            if let Some(slot) = node.loop_slot {
                self.set_slot(slot, Kind::Loop(position, serial).into());
            }
            self.enter(&node.scope)?;
            at += 1;
            match self.body(&node.body)? {
                Flow::Next => completed = true,
                // As in Jinja2, an iteration that ends here does not count for `else`.
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        self.runtime.loops.truncate(position);
        self.loop_nodes.truncate(position);
        self.turn = outer_turn;
        self.index_var = outer_index;
        if !completed && !node.otherwise.is_empty() {
            self.enter(&node.otherwise_scope)?;
            return self.body(&node.otherwise);
        }
        Ok(Flow::Next)
    }

    /// A buffer for a text inside of the output. They are reused, because a template captures several texts for each
    /// message.
    pub(super) fn buffer(&mut self) -> TextBuilder {
        self.spare.pop().unwrap_or_else(|| TextBuilder::with_capacity(FIRST_TEXT))
    }

    pub(super) fn reuse(&mut self, mut text: TextBuilder) {
        text.clear();
        self.spare.push(text);
    }
}
