//! The evaluator: runs the syntax tree of a template and collects marked text.

mod operators;
mod peek;
mod slices;

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use self::operators::{negate, operand_error};
use self::peek::Peeked;
use self::slices::{char_at, position, slice_bound};
use crate::args::CallArgs;
use crate::ast::*;
use crate::budget::Budget;
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::methods::{Attribute, attribute_kind, strftime};
use crate::value::{
    FORM, Function as Builtin, Kind, List, Map, Mark, Missing, NO_TURN, Number, TEMPLATE, Text, TextBuilder,
    Value, View, equal, hashable, number, range_len, view_items,
};
use crate::{Piece, RenderOptions, Rendered};

/// Nested statements, expressions and calls deeper than this are refused.
const MAX_EVAL_DEPTH: u32 = 400;

/// Bytes that are allocated for the output before there is any.
const FIRST_OUTPUT: usize = 4 << 10;
/// The same for a text inside of the output.
const FIRST_TEXT: usize = 1 << 10;

/// The sandbox of Jinja2 refuses longer ranges.
const MAX_RANGE: usize = 100_000;

/// A namespace with more attributes is refused: they are searched one by one.
const MAX_ATTRIBUTES: usize = 256;

struct Frame {
    slots: Vec<Option<Value>>,
    parent: usize,
}

/// What a loop runs over.
enum Items {
    List(Rc<List>),
    Owned(Vec<Value>),
    Range(i64, i64, i64),
}

impl Items {
    fn len(&self) -> usize {
        match self {
            Items::List(list) => list.items.len(),
            Items::Owned(items) => items.len(),
            Items::Range(start, stop, step) => range_len(*start, *stop, *step),
        }
    }

    fn get(&self, at: usize) -> Option<Value> {
        match self {
            Items::List(list) => list.items.get(at).cloned(),
            Items::Owned(items) => items.get(at).cloned(),
            Items::Range(start, _, step) => {
                (at < self.len()).then(|| (start + step * i64::try_from(at).unwrap_or(0)).into())
            }
        }
    }
}

struct LoopState<'t> {
    serial: u64,
    items: Items,
    index: usize,
    depth: usize,
    changed: Option<Vec<Value>>,
    node: &'t For,
}

/// The value of an expression, or the text of one that joins strings, which is often only printed.
enum Joined {
    Value(Value),
    Text(TextBuilder),
}

enum Flow {
    Next,
    Break,
    Continue,
}

pub(crate) struct Evaluator<'t> {
    globals: &'t [(&'t str, Value)],
    options: &'t RenderOptions,
    frames: Vec<Frame>,
    free: Vec<usize>,
    frame: usize,
    namespaces: Vec<Vec<(Arc<str>, Value)>>,
    /// Each with the frame in which it was defined.
    macros: Vec<(&'t Function, usize)>,
    loops: Vec<LoopState<'t>>,
    serial: u64,
    /// The output, and the captures that are open.
    out: Vec<TextBuilder>,
    /// Empty buffers to reuse.
    spare: Vec<TextBuilder>,
    turn: u32,
    /// The variable of a loop over a range, whose use as an index of the messages starts the turn of a message.
    index_var: Option<(usize, u32)>,
    pub(crate) budget: Budget,
    depth: u32,
    /// Start in the output, length in bytes and, inside of captures, in characters.
    generation: Vec<(usize, usize, Option<usize>)>,
}

impl<'t> Evaluator<'t> {
    pub(crate) fn render(
        root: &'t Function,
        globals: &'t [(&'t str, Value)],
        options: &'t RenderOptions,
    ) -> Result<Rendered> {
        let mut evaluator = Evaluator {
            globals,
            options,
            frames: Vec::new(),
            free: Vec::new(),
            frame: 0,
            namespaces: Vec::new(),
            macros: Vec::new(),
            loops: Vec::new(),
            serial: 0,
            out: vec![TextBuilder::with_capacity(FIRST_OUTPUT)],
            spare: Vec::new(),
            turn: NO_TURN,
            index_var: None,
            budget: Budget::new(options.steps, options.bytes),
            depth: 0,
            generation: Vec::new(),
        };
        evaluator.push_frame(root, 0)?;
        evaluator.enter(&root.scope)?;
        evaluator.body(&root.body)?;
        let builder = evaluator.out.pop().unwrap_or_default();
        let mut pieces: Vec<Piece> = Vec::with_capacity(builder.runs.len());
        for (end, mark) in builder.runs {
            let turn = (mark.turn != NO_TURN).then_some(mark.turn);
            let (source, python_form) = (mark.source & !FORM, mark.source & FORM != 0);
            pieces.push(Piece { end: end as usize, source, turn, python_form });
        }
        let text = builder.text;
        let generation = evaluator.generation.iter().map(|range| generation_range(&text, *range)).collect();
        let (steps, bytes) = evaluator.budget.left();
        let (steps, bytes) = (options.steps - steps, options.bytes - bytes);
        Ok(Rendered { text, pieces, generation, steps, bytes })
    }

    fn push_frame(&mut self, function: &Function, parent: usize) -> Result<usize> {
        let slots = function.slots as usize;
        // The frames of functions with functions inside are kept.
        if function.captured {
            self.budget.make_items(slots + 1)?;
        }
        self.budget.charge(slots / 8)?;
        let frame = match self.free.pop() {
            Some(at) => {
                self.frames[at].slots.clear();
                self.frames[at].slots.resize(slots, None);
                self.frames[at].parent = parent;
                at
            }
            None => {
                self.frames.push(Frame { slots: vec![None; slots], parent });
                self.frames.len() - 1
            }
        };
        self.frame = frame;
        Ok(frame)
    }

    fn enter(&mut self, scope: &Scope) -> Result<()> {
        self.budget.charge(scope.loads.len() * (1 + self.globals.len() / 32))?;
        for (slot, load) in &scope.loads {
            let value = match load {
                Load::Global(name) => self.global(name),
                Load::Copy(var) => self.var(*var).clone(),
                Load::Undefined => None,
            };
            self.frames[self.frame].slots[*slot as usize] = value;
        }
        Ok(())
    }

    fn global(&self, name: &str) -> Option<Value> {
        if let Some((_, value)) = self.globals.iter().find(|(known, _)| *known == name) {
            return Some(value.clone());
        }
        Builtin::named(name).map(|builtin| Kind::Function(builtin).into())
    }

    fn frame_of(&self, var: Var) -> usize {
        let mut frame = self.frame;
        for _ in 0..var.up {
            frame = self.frames[frame].parent;
        }
        frame
    }

    fn var(&self, var: Var) -> &Option<Value> {
        &self.frames[self.frame_of(var)].slots[var.slot as usize]
    }

    fn set_var(&mut self, var: Var, value: Value) {
        let frame = self.frame_of(var);
        self.frames[frame].slots[var.slot as usize] = Some(value);
    }

    fn set_slot(&mut self, slot: u32, value: Value) {
        self.set_var(Var { up: 0, slot }, value);
    }

    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_EVAL_DEPTH {
            return error(ErrorKind::Limit, "the template calls itself too deeply");
        }
        self.budget.charge(1)
    }

    // Statements

    fn body(&mut self, body: &'t [Stmt]) -> Result<Flow> {
        self.deeper()?;
        self.budget.charge(body.len())?;
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

    fn emit_raw(&mut self, text: &str) -> Result<()> {
        let mark = Mark { source: TEMPLATE, turn: self.turn };
        self.budget.make(text.len())?;
        if let Some(out) = self.out.last_mut() {
            out.push(text, mark);
        }
        Ok(())
    }

    fn emit(&mut self, text: &Text) -> Result<()> {
        self.budget.make_text(text)?;
        let turn = self.turn;
        if let Some(out) = self.out.last_mut() {
            out.push_in_turn(text, turn);
        }
        Ok(())
    }

    /// Emits a string that exists already. Returns false if the value of `expr` is none.
    fn emit_peeked(&mut self, expr: &'t Expr) -> Result<bool> {
        let Some(mut out) = self.out.pop() else { return Ok(false) };
        let (turn, mut budget) = (self.turn, self.budget);
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
        self.budget = budget;
        Ok(emitted)
    }

    fn emit_built(&mut self, text: TextBuilder) -> Result<()> {
        self.budget.make_built(&text)?;
        let turn = self.turn;
        if let Some(out) = self.out.last_mut() {
            out.append_in_turn(&text, turn);
        }
        self.reuse(text);
        Ok(())
    }

    fn buffer(&mut self) -> TextBuilder {
        self.spare.pop().unwrap_or_else(|| TextBuilder::with_capacity(FIRST_TEXT))
    }

    fn reuse(&mut self, mut text: TextBuilder) {
        text.clear();
        self.spare.push(text);
    }

    /// Runs `body` with a buffer of its own.
    fn capture(&mut self, body: impl FnOnce(&mut Self) -> Result<Flow>) -> Result<(Text, Flow)> {
        let buffer = self.buffer();
        self.out.push(buffer);
        let flow = body(self);
        let text = self.out.pop().unwrap_or_default();
        let flow = flow?;
        Ok((self.text(text)?, flow))
    }

    fn text(&mut self, built: TextBuilder) -> Result<Text> {
        self.budget.make_built(&built)?;
        let text = built.finish();
        self.reuse(built);
        Ok(text)
    }

    fn stmt(&mut self, stmt: &'t Stmt) -> Result<Flow> {
        match &stmt.kind {
            StmtKind::Raw(text) => self.emit_raw(text)?,
            StmtKind::Print(expr) => {
                if self.emit_peeked(expr)? {
                    return Ok(Flow::Next);
                }
                let value = match self.eval_joined(expr)? {
                    Joined::Text(text) => {
                        self.emit_built(text)?;
                        return Ok(Flow::Next);
                    }
                    Joined::Value(value) => value,
                };
                match &value.0 {
                    Kind::Str(text) => self.emit(text)?,
                    _ => {
                        let text = self.printed(&value)?;
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
            StmtKind::CallBlock(node) => {
                let (call, function) = &**node;
                let caller = self.function_value(function)?;
                let ExprKind::Call(callee, args) = &call.kind else { return Ok(Flow::Next) };
                let value =
                    self.call(callee, args, Some(caller)).map_err(|error| error.or_line(call.line))?;
                let text = self.printed(&value)?;
                self.emit(&text)?;
            }
            StmtKind::FilterBlock(node) => {
                let (filter, scope, body) = &**node;
                self.enter(scope)?;
                let (text, flow) = self.capture(|evaluator| evaluator.body(body))?;
                if !matches!(flow, Flow::Next) {
                    return Ok(flow);
                }
                let value = self.filter_chain(filter, text)?;
                let text = self.printed(&value)?;
                self.emit(&text)?;
            }
            StmtKind::Generation(function) => {
                let text = self.call_function(function, self.frame, CallArgs::default())?;
                let start = self.out.first().map_or(0, TextBuilder::len);
                self.budget.read(text.len())?;
                self.budget.make_items(1)?;
                let chars = (self.out.len() > 1).then(|| text.chars());
                self.generation.push((start, text.len(), chars));
                self.emit(&text)?;
            }
            StmtKind::Break => return Ok(Flow::Break),
            StmtKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn set_block(&mut self, node: &'t SetBlock) -> Result<Flow> {
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
    fn filter_chain(&mut self, filter: &'t Expr, text: Text) -> Result<Value> {
        let ExprKind::Filter(call) = &filter.kind else { return self.eval(filter) };
        let value = match &call.value {
            Some(inner) => self.filter_chain(inner, text)?,
            None => text.into(),
        };
        let args = self.args(&call.args, None)?;
        self.call_filter(call, value, args).map_err(|error| error.or_line(filter.line))
    }

    fn function_value(&mut self, function: &'t Arc<Function>) -> Result<Value> {
        self.budget.make_items(1)?;
        self.macros.push((function, self.frame));
        Ok(Kind::Macro(self.macros.len() - 1).into())
    }

    fn assign(&mut self, target: &'t Target, value: Value) -> Result<()> {
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
                if attribute.starts_with('_') {
                    return type_error(format!("the attribute `{attribute}` of a namespace starts with `_`"));
                }
                self.set_attribute(at, attribute, value)
            }
            Target::Tuple(targets) => {
                self.budget.charge(targets.len())?;
                let items = self.items(&value)?;
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

    fn set_attribute(&mut self, namespace: usize, name: &Arc<str>, value: Value) -> Result<()> {
        let Some(entries) = self.namespaces.get_mut(namespace) else { return Ok(()) };
        self.budget.charge(entries.len() / 8)?;
        let is_full = entries.len() == MAX_ATTRIBUTES;
        match entries.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None if is_full => return too_many_attributes(),
            None => entries.push((name.clone(), value)),
        }
        Ok(())
    }

    fn for_loop(&mut self, node: &'t For) -> Result<Flow> {
        let iterable = self.eval(&node.iter)?;
        if node.recursive {
            let text = self.recursive_loop(node, &iterable, 0)?;
            self.emit(&text)?;
            return Ok(Flow::Next);
        }
        self.run_loop(node, &iterable, 0)
    }

    /// A recursive loop is a function: its variables are those of one call.
    fn recursive_loop(&mut self, node: &'t For, iterable: &Value, depth: usize) -> Result<Text> {
        self.deeper()?;
        self.budget.make_items(self.frames[self.frame].slots.len())?;
        let saved = self.frames[self.frame].slots.clone();
        let result = self.capture(|evaluator| evaluator.run_loop(node, iterable, depth));
        self.frames[self.frame].slots = saved;
        self.depth -= 1;
        Ok(result?.0)
    }

    fn run_loop(&mut self, node: &'t For, iterable: &Value, depth: usize) -> Result<Flow> {
        let mut items = self.items(iterable)?;
        let outer_turn = self.turn;
        let outer_index = self.index_var;
        if self.turn == NO_TURN
            && let (Items::Range(..), Target::Name(name)) = (&items, &node.target)
        {
            self.index_var = Some((self.frame, name.var.slot));
        }
        if let Some(test) = &node.test {
            self.enter(&node.test_scope)?;
            self.budget.make_items(items.len())?;
            let mut kept = Vec::new();
            for at in 0..items.len() {
                let Some(item) = items.get(at) else { break };
                self.assign(&node.target, item.clone())?;
                if self.test_expr(test)? {
                    kept.push(item);
                }
            }
            items = Items::Owned(kept);
        }
        let position = self.loops.len();
        self.serial += 1;
        let serial = self.serial;
        self.loops.push(LoopState { serial, items, index: 0, depth, changed: None, node });
        let mut completed = false;
        let mut at = 0;
        while let Some(item) = self.loops[position].items.get(at) {
            self.budget.charge(1)?;
            self.loops[position].index = at;
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
        self.loops.truncate(position);
        self.turn = outer_turn;
        self.index_var = outer_index;
        if !completed && !node.otherwise.is_empty() {
            self.enter(&node.otherwise_scope)?;
            return self.body(&node.otherwise);
        }
        Ok(Flow::Next)
    }

    /// The items of something that can be iterated over.
    fn items(&mut self, value: &Value) -> Result<Items> {
        Ok(match &value.0 {
            Kind::List(list) | Kind::Tuple(list) => Items::List(list.clone()),
            Kind::Range(start, stop, step) => Items::Range(*start, *stop, *step),
            _ => Items::Owned(self.iterate(value)?),
        })
    }

    /// The items of something that can be iterated over. An iterator is empty afterwards.
    pub(crate) fn iterate(&mut self, value: &Value) -> Result<Vec<Value>> {
        self.budget.make_items(match &value.0 {
            Kind::List(list) | Kind::Tuple(list) => list.items.len(),
            Kind::Map(map) => map.len(),
            Kind::View(View::Items, map) => map.len().saturating_mul(4),
            Kind::View(_, map) => map.len(),
            Kind::Str(text) | Kind::Safe(text) => text.len(),
            Kind::Range(start, stop, step) => range_len(*start, *stop, *step),
            // The items are there already.
            _ => 0,
        })?;
        Ok(match &value.0 {
            Kind::List(list) | Kind::Tuple(list) => list.items.clone(),
            Kind::Map(map) => view_items(View::Keys, map),
            Kind::View(view, map) => view_items(*view, map),
            Kind::Iterator(items) => std::mem::take(&mut *items.items.borrow_mut()).collect(),
            Kind::Undefined(_) => Vec::new(),
            Kind::Str(text) | Kind::Safe(text) => {
                let chars = text.as_str().char_indices();
                chars.map(|(at, c)| text.slice(at..at + c.len_utf8()).into()).collect()
            }
            Kind::Range(start, stop, step) => {
                let items = Items::Range(*start, *stop, *step);
                (0..items.len()).filter_map(|at| items.get(at)).collect()
            }
            Kind::Loop(..) => return unsupported("a loop over a loop object is not supported"),
            _ => return type_error(format!("a value of type {} cannot be iterated over", value.type_name())),
        })
    }

    // Expressions

    pub(crate) fn truth(&self, value: &Value) -> Result<bool> {
        Ok(match &value.0 {
            Kind::Undefined(_) | Kind::None(_) => false,
            Kind::Bool(value, _) => *value,
            Kind::Int(value, _) => *value != 0,
            Kind::Float(value, _) => *value != 0.0,
            Kind::Str(text) | Kind::Safe(text) => !text.is_empty(),
            Kind::List(list) | Kind::Tuple(list) => !list.items.is_empty(),
            Kind::Map(map) | Kind::View(_, map) => !map.is_empty(),
            Kind::Range(start, stop, step) => range_len(*start, *stop, *step) > 0,
            Kind::Loop(at, serial) => self.loop_state(*at, *serial)?.items.len() > 0,
            _ => true,
        })
    }

    /// `str()`, as in an output.
    pub(crate) fn printed(&mut self, value: &Value) -> Result<Text> {
        value.to_text(&mut self.budget)
    }

    fn eval(&mut self, expr: &'t Expr) -> Result<Value> {
        match &expr.kind {
            ExprKind::Const(value) => Ok(constant(value)),
            ExprKind::Name(name) => Ok(match self.var(name.var) {
                Some(value) => value.clone(),
                None => Kind::Undefined(Missing::Name(name.name.clone())).into(),
            }),
            ExprKind::Attribute(..) | ExprKind::Item(..)
                if let Some(Peeked::Value(value)) = self.peek(expr) =>
            {
                let value = value.clone();
                self.budget.charge(1)?;
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
    fn eval_joined(&mut self, expr: &'t Expr) -> Result<Joined> {
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
    fn chain(&mut self, first: &'t Expr, rest: &'t [(BinaryOp, Expr)]) -> Result<Joined> {
        let (joined, count, next) = self.join(first, rest)?;
        let (mut left, mut at) = match (count, next) {
            (0, next) => {
                self.reuse(joined);
                (Joined::Value(next.unwrap_or_else(Value::none)), 0)
            }
            // The next operand is no string: an error, unless the operator is another one.
            (count, Some(right)) => {
                let left = self.text(joined)?.into();
                (Joined::Value(self.binary(BinaryOp::Add, left, right)?), count)
            }
            (count, None) => (Joined::Text(joined), count - 1),
        };
        while let Some((operator, right)) = rest.get(at) {
            at += 1;
            let right = self.eval(right)?;
            left = match left {
                Joined::Text(text) => {
                    let left = self.text(text)?.into();
                    Joined::Value(self.binary(*operator, left, right)?)
                }
                Joined::Value(left) => Joined::Value(self.binary(*operator, left, right)?),
            };
        }
        Ok(left)
    }

    fn eval_inner(&mut self, expr: &'t Expr) -> Result<Value> {
        match &expr.kind {
            ExprKind::Const(_) | ExprKind::Name(_) | ExprKind::Binary(..) | ExprKind::Concat(_) => {
                self.eval(expr)
            }
            ExprKind::Tuple(items) => {
                self.budget.make_items(items.len())?;
                let items = self.eval_all(items)?;
                self.new_list(items, true)
            }
            ExprKind::List(items) => {
                self.budget.make_items(items.len())?;
                let items = self.eval_all(items)?;
                self.new_list(items, false)
            }
            ExprKind::Dict(items) => self.dict(items),
            ExprKind::Attribute(object, name) => {
                let object = self.eval(object)?;
                self.attribute(&object, name)
            }
            ExprKind::Item(object, index) => self.item_expr(object, index),
            ExprKind::Slice(object, bounds) => {
                let object = self.eval(object)?;
                let mut values = [None, None, None];
                for (value, bound) in values.iter_mut().zip(bounds.iter()) {
                    if let Some(bound) = bound {
                        *value = slice_bound(&self.eval(bound)?)?;
                    }
                }
                self.slice(&object, values)
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
                let Some(test) = call.test else {
                    return error(ErrorKind::Unknown, format!("unknown test `{}`", call.name));
                };
                Ok(self.call_test(test, &value, args)?.into())
            }
            ExprKind::Not(value) => Ok((!self.test_expr(value)?).into()),
            ExprKind::Negative(value) => {
                let value = self.eval(value)?;
                negate(&value)
            }
            ExprKind::Positive(value) => {
                let value = self.eval(value)?;
                match number(&value) {
                    Some(Number::Int(int)) => Ok(int.into()),
                    Some(Number::Float(float)) => Ok(float.into()),
                    None => operand_error("+", &value, &value),
                }
            }
            ExprKind::And(items) => self.short_circuit(items, false),
            ExprKind::Or(items) => self.short_circuit(items, true),
            ExprKind::Compare(first, rest) => {
                let mut left = self.eval(first)?;
                for (operator, right) in rest {
                    let right = self.eval(right)?;
                    if !self.compare(*operator, &left, &right)? {
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
                    None => Ok(undefined("the condition of a value without `else` is false")),
                }
            }
        }
    }

    fn eval_all(&mut self, items: &'t [Expr]) -> Result<Vec<Value>> {
        self.budget.charge(items.len())?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.push(self.eval(item)?);
        }
        Ok(values)
    }

    /// A list of items that are paid for.
    pub(crate) fn new_list(&mut self, items: Vec<Value>, tuple: bool) -> Result<Value> {
        let list = List::new(items, TEMPLATE);
        check_depth(list.depth)?;
        let list = Rc::new(list);
        Ok(if tuple { Kind::Tuple(list) } else { Kind::List(list) }.into())
    }

    pub(crate) fn new_map(&mut self, map: Map) -> Result<Value> {
        check_depth(map.depth)?;
        Ok(map.into())
    }

    fn dict(&mut self, items: &'t [(Expr, Expr)]) -> Result<Value> {
        let mut map = Map::new();
        for (key, value) in items {
            let key = self.eval(key)?;
            let value = self.eval(value)?;
            self.insert(&mut map, key, value)?;
        }
        self.new_map(map)
    }

    pub(crate) fn insert(&mut self, map: &mut Map, key: Value, value: Value) -> Result<()> {
        hashable(&key, &mut self.budget)?;
        map.insert_value(key, value, &mut self.budget)
    }

    fn short_circuit(&mut self, items: &'t [Expr], stop: bool) -> Result<Value> {
        let mut value = Value::none();
        for (at, item) in items.iter().enumerate() {
            // Evaluating a constant or a name costs nothing by itself.
            self.budget.charge(1)?;
            value = self.eval(item)?;
            if at + 1 < items.len() && self.truth(&value)? == stop {
                break;
            }
        }
        Ok(value)
    }

    fn concat(&mut self, items: &'t [Expr]) -> Result<TextBuilder> {
        let mut out = self.buffer();
        for item in items {
            if !self.push_peeked(item, &mut out)? {
                let value = self.eval(item)?;
                let text = self.printed(&value)?;
                self.budget.make_text(&text)?;
                out.push_text(&text);
            }
        }
        Ok(out)
    }

    fn item_expr(&mut self, object: &'t Expr, index: &'t Expr) -> Result<Value> {
        let object = self.eval(object)?;
        let key = self.eval(index)?;
        let value = self.item(&object, &key)?;
        if let (Some((frame, slot)), ExprKind::Name(name), Kind::Map(map)) =
            (self.index_var, &index.kind, &value.0)
            && let Some(message) = map.message
            && name.var == (Var { up: 0, slot })
            && self.frame == frame
        {
            self.turn = message;
        }
        Ok(value)
    }

    pub(crate) fn item(&mut self, object: &Value, key: &Value) -> Result<Value> {
        let found = match &object.0 {
            Kind::Undefined(missing) => return error(ErrorKind::Undefined, missing.to_string()),
            Kind::Map(map) => map.get_value(key, &mut self.budget)?.cloned(),
            Kind::List(list) | Kind::Tuple(list) => {
                position(key, list.items.len()).and_then(|at| list.items.get(at)).cloned()
            }
            Kind::Str(text) => {
                self.budget.read(text.len())?;
                char_at(text, key).map(Value::from)
            }
            Kind::Range(start, stop, step) => {
                let items = Items::Range(*start, *stop, *step);
                position(key, items.len()).and_then(|at| items.get(at))
            }
            _ => None,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        self.budget.make(key.as_text().map_or(0, Text::len).saturating_mul(2))?;
        if let Some(name) = key.as_str()
            && let Some(value) = self.own_attribute(object, &name.into())?
        {
            return Ok(value);
        }
        let missing = match key.as_str() {
            Some(name) => Missing::Attribute(object.type_name(), name.into()),
            None => Missing::Element(object.type_name()),
        };
        Ok(Kind::Undefined(missing).into())
    }

    pub(crate) fn attribute(&mut self, object: &Value, name: &Arc<str>) -> Result<Value> {
        if let Kind::Undefined(missing) = &object.0 {
            return error(ErrorKind::Undefined, missing.to_string());
        }
        if let Some(value) = self.own_attribute(object, name)? {
            return Ok(value);
        }
        if let Kind::Map(map) = &object.0
            && let Some(value) = map.get(name)
        {
            return Ok(value.clone());
        }
        Ok(Kind::Undefined(Missing::Attribute(object.type_name(), name.clone())).into())
    }

    /// An attribute in the sense of Python's `getattr`.
    fn own_attribute(&mut self, object: &Value, name: &Arc<str>) -> Result<Option<Value>> {
        Ok(match (&object.0, &**name) {
            (Kind::Namespace(at), _) => {
                let entries = self.namespaces.get(*at).map_or(&[][..], Vec::as_slice);
                self.budget.charge(entries.len() / 8)?;
                let mut entries = entries.iter();
                entries.find(|(known, _)| known == name).map(|(_, value)| value.clone())
            }
            (Kind::Loop(at, serial), _) => return self.loop_attribute(*at, *serial, name),
            (Kind::Macro(at), "name") => {
                self.macros.get(*at).map(|(function, _)| Value::str(function.name.clone(), TEMPLATE))
            }
            (Kind::Tuple(list), "grouper") if list.group => list.items.first().cloned(),
            (Kind::Tuple(list), "list") if list.group => list.items.get(1).cloned(),
            _ => match attribute_kind(object, name) {
                Attribute::None => None,
                Attribute::Unsafe => Some(undefined("access to this attribute is unsafe")),
                Attribute::Method => Some(Kind::Method(Rc::new((object.clone(), name.clone()))).into()),
            },
        })
    }

    fn loop_state(&self, at: usize, serial: u64) -> Result<&LoopState<'t>> {
        match self.loops.get(at) {
            Some(state) if state.serial == serial => Ok(state),
            _ => unsupported("a loop object is used after its loop"),
        }
    }

    fn loop_attribute(&mut self, at: usize, serial: u64, name: &Arc<str>) -> Result<Option<Value>> {
        let state = self.loop_state(at, serial)?;
        let (index, length) = (state.index, state.items.len());
        Ok(Some(match &**name {
            "index" => Value::int(index + 1),
            "index0" => Value::int(index),
            "revindex" => Value::int(length - index),
            "revindex0" => Value::int(length - index - 1),
            "first" => (index == 0).into(),
            "last" => (index + 1 == length).into(),
            "length" => Value::int(length),
            "depth" => Value::int(state.depth + 1),
            "depth0" => Value::int(state.depth),
            "previtem" => {
                let item = index.checked_sub(1).and_then(|at| state.items.get(at));
                item.unwrap_or_else(|| undefined("there is no previous item"))
            }
            "nextitem" => state.items.get(index + 1).unwrap_or_else(|| undefined("there is no next item")),
            "cycle" | "changed" => {
                Kind::Method(Rc::new((Kind::Loop(at, serial).into(), name.clone()))).into()
            }
            _ => return Ok(None),
        }))
    }

    // Calls

    fn args(&mut self, args: &'t Args, caller: Option<Value>) -> Result<CallArgs> {
        let mut positional = self.eval_all(&args.positional)?;
        let mut keyword = Vec::with_capacity(args.keyword.len() + usize::from(caller.is_some()));
        if let Some(splat) = &args.splat {
            let items = self.eval(splat)?;
            positional.extend(self.iterate(&items)?);
        }
        for (name, value) in &args.keyword {
            keyword.push((name.clone(), self.eval(value)?));
        }
        if let Some(splat) = &args.keyword_splat {
            let map = self.eval(splat)?;
            let Kind::Map(map) = &map.0 else {
                return type_error("the value after `**` must be a mapping");
            };
            if map.len() > MAX_ATTRIBUTES {
                return error(
                    ErrorKind::Limit,
                    format!("a call with more than {MAX_ATTRIBUTES} arguments by name"),
                );
            }
            self.budget.charge(map.len().saturating_mul(map.len() + keyword.len()) / 8)?;
            for (name, value) in &map.entries {
                if name.source() != TEMPLATE {
                    return unsupported("names of arguments from the chat are not supported");
                }
                let Some(name) = name.as_str() else {
                    return type_error("names of arguments must be strings");
                };
                if keyword.iter().any(|(known, _): &(Arc<str>, Value)| **known == *name) {
                    return type_error(format!("the argument `{name}` is given twice"));
                }
                self.budget.make(name.len())?;
                keyword.push((name.into(), value.clone()));
            }
        }
        if let Some(caller) = caller {
            keyword.push(("caller".into(), caller));
        }
        Ok(CallArgs { positional, keyword })
    }

    fn call(&mut self, callee: &'t Expr, args: &'t Args, caller: Option<Value>) -> Result<Value> {
        let value = if let ExprKind::Attribute(object, name) = &callee.kind {
            let object = self.eval(object)?;
            if let Attribute::Method = attribute_kind(&object, name) {
                let args = self.args(args, caller)?;
                return self.call_method(&object, name, args);
            }
            self.attribute(&object, name).map_err(|error| error.or_line(callee.line))?
        } else {
            self.eval(callee)?
        };
        let args = self.args(args, caller)?;
        self.call_value(&value, args)
    }

    fn call_value(&mut self, value: &Value, args: CallArgs) -> Result<Value> {
        match &value.0 {
            Kind::Undefined(missing) => error(ErrorKind::Undefined, format!("{missing}, but is called")),
            Kind::Macro(at) => match self.macros.get(*at) {
                Some(&(function, frame)) => Ok(self.call_function(function, frame, args)?.into()),
                None => type_error("an unknown macro is called"),
            },
            Kind::Function(function) => self.call_builtin(*function, args),
            Kind::Method(method) => {
                let (object, name) = &**method;
                self.call_method(object, name, args)
            }
            Kind::Loop(at, serial) => {
                let state = self.loop_state(*at, *serial)?;
                let (node, depth) = (state.node, state.depth);
                if !node.recursive {
                    return type_error("`loop` is called in a loop that is not `recursive`");
                }
                let iterable = args.one("loop", "iterable")?;
                Ok(self.recursive_loop(node, &iterable, depth + 1)?.into())
            }
            _ => type_error(format!("a value of type {} cannot be called", value.type_name())),
        }
    }

    /// Calls a macro, or the body of a `call` or `generation` block.
    fn call_function(&mut self, function: &'t Function, parent: usize, args: CallArgs) -> Result<Text> {
        self.deeper()?;
        let caller_frame = self.frame;
        let frame = self.push_frame(function, parent)?;
        let outer_index = self.index_var.take();
        let result = self.capture(|evaluator| {
            evaluator.enter(&function.scope)?;
            evaluator.bind_macro(function, args)?;
            evaluator.body(&function.body)
        });
        self.index_var = outer_index;
        self.frame = caller_frame;
        if !function.captured {
            self.free.push(frame);
        }
        self.depth -= 1;
        Ok(result?.0)
    }

    fn bind_macro(&mut self, function: &'t Function, args: CallArgs) -> Result<()> {
        let CallArgs { positional, mut keyword } = args;
        let name = &function.name;
        self.budget.charge(function.params.len() * (1 + keyword.len() / 8))?;
        let given = positional.len();
        let mut positional = positional.into_iter();
        let mut found_caller = false;
        let mut values: Vec<Option<Value>> = Vec::with_capacity(function.params.len());
        for (param, _) in &function.params {
            let value = positional.next().or_else(|| {
                found_caller |= *param.name == *"caller";
                let at = keyword.iter().position(|(known, _)| *known == param.name)?;
                Some(keyword.remove(at).1)
            });
            values.push(value);
        }
        if given >= function.params.len() {
            found_caller = function.explicit_caller;
        }
        if let Some(slot) = function.caller
            && !found_caller
        {
            let caller = match keyword.iter().position(|(known, _)| **known == *"caller") {
                Some(at) => keyword.remove(at).1,
                None => undefined("no caller is defined"),
            };
            self.set_slot(slot, caller);
        }
        if let Some(slot) = function.kwargs {
            let mut map = Map::new();
            self.budget.make_entries(keyword.len())?;
            for (name, value) in keyword {
                map.insert_text(Text::new(name, TEMPLATE), value);
            }
            let map = self.new_map(map)?;
            self.set_slot(slot, map);
        } else if let Some((unknown, _)) = keyword.first() {
            return type_error(format!("the macro `{name}` has no argument `{unknown}`"));
        }
        let rest: Vec<Value> = positional.collect();
        if let Some(slot) = function.varargs {
            self.budget.make_items(rest.len())?;
            let rest = self.new_list(rest, true)?;
            self.set_slot(slot, rest);
        } else if !rest.is_empty() {
            let count = function.params.len();
            return type_error(format!("the macro `{name}` takes at most {count} arguments"));
        }
        for ((param, _), value) in function.params.iter().zip(&mut values) {
            if let Some(value) = value.take() {
                self.set_var(param.var, value);
            }
        }
        for (param, default) in &function.params {
            if self.var(param.var).is_none() {
                let value = match default {
                    Some(default) => self.eval(default)?,
                    None => Kind::Undefined(Missing::Parameter(param.name.clone())).into(),
                };
                self.set_var(param.var, value);
            }
        }
        Ok(())
    }

    fn call_builtin(&mut self, function: Builtin, args: CallArgs) -> Result<Value> {
        match function {
            Builtin::Range => {
                if !args.keyword.is_empty() {
                    return type_error("`range` takes no keyword arguments");
                }
                let mut numbers = Vec::with_capacity(3);
                for value in &args.positional {
                    match number(value) {
                        Some(Number::Int(value)) => numbers.push(value),
                        _ => return type_error(format!("`range` needs integers, not {}", value.type_name())),
                    }
                }
                let (start, stop, step) = match numbers[..] {
                    [stop] => (0, stop, 1),
                    [start, stop] => (start, stop, 1),
                    [start, stop, step] if step != 0 => (start, stop, step),
                    [_, _, _] => return error(ErrorKind::Value, "the step of `range` is zero"),
                    _ => return type_error("`range` takes one to three arguments"),
                };
                if range_len(start, stop, step) > MAX_RANGE {
                    return error(ErrorKind::Limit, format!("a range of more than {MAX_RANGE} numbers"));
                }
                Ok(Kind::Range(start, stop, step).into())
            }
            Builtin::Dict => {
                let map = self.dict_of(args)?;
                self.new_map(map)
            }
            Builtin::Namespace => {
                let map = self.dict_of(args)?;
                check_depth(map.depth)?;
                if map.len() > MAX_ATTRIBUTES {
                    return too_many_attributes();
                }
                let mut entries = Vec::with_capacity(map.len());
                for (name, value) in map.entries {
                    let Some(name) = name.as_str() else {
                        return unsupported("names in a namespace must be strings");
                    };
                    if name.starts_with('_') {
                        return type_error(format!("the attribute `{name}` of a namespace starts with `_`"));
                    }
                    entries.push((name.into(), value));
                }
                self.namespaces.push(entries);
                Ok(Kind::Namespace(self.namespaces.len() - 1).into())
            }
            Builtin::RaiseException => {
                let message = self.printed(&args.one("raise_exception", "message")?)?;
                error(ErrorKind::Raised, message.as_str())
            }
            Builtin::StrftimeNow => {
                let format = args.one("strftime_now", "format")?;
                let Some(format) = format.as_text() else {
                    return type_error("`strftime_now` needs a string");
                };
                let Some(now) = self.options.now else {
                    return error(ErrorKind::Now, "the template writes the current time: set `now`");
                };
                // A character of a format becomes at most so many.
                const GROWTH: usize = 16;
                self.budget.make_chars(format.len().saturating_mul(GROWTH))?;
                strftime(format, now)
            }
            Builtin::Lipsum | Builtin::Cycler | Builtin::Joiner => {
                unsupported(format!("the function `{}` is not supported", function.name()))
            }
        }
    }

    /// `dict(...)`.
    fn dict_of(&mut self, args: CallArgs) -> Result<Map> {
        if args.positional.len() > 1 {
            return type_error("`dict` takes at most one argument");
        }
        let mut map = Map::new();
        if let Some(first) = args.positional.first() {
            match &first.0 {
                Kind::Map(other) => {
                    self.budget.make_entries(other.len())?;
                    map = (**other).clone();
                    map.message = None;
                }
                _ => {
                    for pair in self.iterate(first)? {
                        let pair = self.iterate(&pair)?;
                        let [key, value] = &pair[..] else {
                            return type_error("`dict` needs pairs of keys and values");
                        };
                        self.insert(&mut map, key.clone(), value.clone())?;
                    }
                }
            }
        }
        self.budget.make_entries(args.keyword.len())?;
        for (name, value) in args.keyword {
            map.insert_text(Text::new(name, TEMPLATE), value);
        }
        Ok(map)
    }

    pub(crate) fn call_loop_method(
        &mut self,
        at: usize,
        serial: u64,
        name: &str,
        args: CallArgs,
    ) -> Result<Value> {
        self.loop_state(at, serial)?;
        let state = &mut self.loops[at];
        if name == "cycle" {
            let count = args.positional.len();
            if count == 0 {
                return type_error("`loop.cycle` needs arguments");
            }
            return Ok(args.positional[state.index % count].clone());
        }
        let mut same = state.changed.as_ref().is_some_and(|last| last.len() == args.positional.len());
        for (a, b) in state.changed.iter().flatten().zip(&args.positional) {
            same = same && equal(a, b, &mut self.budget)?;
        }
        if !same {
            state.changed = Some(args.positional);
        }
        Ok((!same).into())
    }

    fn call_filter(&mut self, call: &'t FilterCall, value: Value, args: CallArgs) -> Result<Value> {
        match call.filter {
            Some(filter) => self.apply_filter(filter, value, args),
            None => error(ErrorKind::Unknown, format!("unknown filter `{}`", call.name)),
        }
    }
}

fn generation_range(text: &str, (start, bytes, chars): (usize, usize, Option<usize>)) -> Range<usize> {
    let start = start.min(text.len());
    let end = match chars {
        None => start + bytes,
        // The tracker of `transformers` counts from the start of the capture, whatever is written there in the end.
        Some(chars) => {
            let rest = text.get(start..).unwrap_or_default();
            start + rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at)
        }
    };
    start..end.min(text.len())
}

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

fn too_many_attributes<T>() -> Result<T> {
    error(ErrorKind::Limit, format!("a namespace with more than {MAX_ATTRIBUTES} attributes"))
}

pub(crate) fn undefined(hint: &'static str) -> Value {
    Kind::Undefined(Missing::Hint(hint)).into()
}

fn check_depth(depth: u16) -> Result<()> {
    if depth > crate::value::MAX_DEPTH {
        return error(ErrorKind::Limit, "lists and mappings are nested too deeply");
    }
    Ok(())
}
