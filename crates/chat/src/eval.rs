//! The evaluator: runs the syntax tree of a template and collects marked text.
//!
//! A template is first [parsed](crate::parse), then its names are [resolved](crate::scope), then it is run, once for
//! each chat. Text reaches the output with its marks: who wrote each character (the template, or which part of the
//! chat), and in the turn of which message. From these, the caller finds what a model is trained on. In
//!
//! ```jinja
//! {% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}
//! ```
//!
//! `<|`, `|>` and `<|end|>` are text of the template, the rest is text of the message, and all of it is in the turn of
//! the message.
//!
//! Jinja2 compiles templates to Python. Walking the tree gives the same results, as long as names are resolved in the
//! same way and operands are evaluated in the same order.

mod calls;
mod expr;
mod peek;
mod statements;

use std::ops::Range;

use crate::ast::{For, Function, Load, Scope, Var};
use crate::budget::Budget;
use crate::error::{ErrorKind, Result, error};
use crate::functions;
use crate::rendered::{Piece, RenderOptions, Rendered};
use crate::runtime::Runtime;
use crate::value::{FORM, NO_TURN, TextBuilder, Value};

/// Nested statements, expressions and calls deeper than this are refused.
const MAX_EVAL_DEPTH: u32 = 400;

/// Bytes that are allocated for the output before there is any.
const FIRST_OUTPUT: usize = 4 << 10;
/// The same for a text inside of the output.
const FIRST_TEXT: usize = 1 << 10;

/// The variables of one call of a function. Jinja2 compiles a template to Python functions with local variables, and
/// closures over them; the slots of a frame are these variables.
struct Frame {
    slots: Vec<Option<Value>>,
    /// The frame in which the function was defined, not the one that calls it.
    parent: usize,
}

/// Runs one rendering. What values need is in the [`Runtime`]; what the syntax tree needs is here.
pub(crate) struct Evaluator<'t> {
    globals: &'t [(&'t str, Value)],
    runtime: Runtime,
    frames: Vec<Frame>,
    /// Frames to reuse.
    free: Vec<usize>,
    /// The current one.
    frame: usize,
    /// The macros of the runtime, each with the frame in which it was defined.
    macros: Vec<(&'t Function, usize)>,
    /// The nodes of the loops of the runtime.
    loop_nodes: Vec<&'t For>,
    /// The number of loops so far.
    serial: u64,
    /// The output, and the captures that are open.
    out: Vec<TextBuilder>,
    /// Empty buffers to reuse.
    spare: Vec<TextBuilder>,
    /// The message in whose iteration the text is emitted now, or [`NO_TURN`].
    turn: u32,
    /// The variable of a loop over a range, whose use as an index of the messages starts the turn of a message.
    index_var: Option<(usize, u32)>,
    /// Nested statements, expressions and calls at this point.
    depth: u32,
    /// Start in the output, length in bytes and, inside of captures, in characters.
    /// The generation blocks so far, in the form in which `AssistantTracker` of transformers notes them.
    generation: Vec<(usize, usize, Option<usize>)>,
}

impl<'t> Evaluator<'t> {
    pub(crate) fn render(
        root: &'t Function,
        globals: &'t [(&'t str, Value)],
        options: &RenderOptions,
    ) -> Result<Rendered> {
        let mut evaluator = Evaluator {
            globals,
            runtime: Runtime::new(Budget::new(options.steps, options.bytes), options.now),
            frames: Vec::new(),
            free: Vec::new(),
            frame: 0,
            macros: Vec::new(),
            loop_nodes: Vec::new(),
            serial: 0,
            out: vec![TextBuilder::with_capacity(FIRST_OUTPUT)],
            spare: Vec::new(),
            turn: NO_TURN,
            index_var: None,
            depth: 0,
            generation: Vec::new(),
        };
        // The body of a template is a function as well, which no other one encloses.
        evaluator.push_frame(root, 0)?;
        evaluator.enter(&root.scope)?;
        evaluator.body(&root.body)?;
        let builder = evaluator.out.pop().unwrap_or_default();
        let mut pieces: Vec<Piece> = Vec::with_capacity(builder.runs.len());
        for (end, mark) in builder.runs {
            let turn = (mark.turn != NO_TURN).then_some(mark.turn);
            // The bit is for the evaluator only: outside, it is a field.
            let (source, python_form) = (mark.source & !FORM, mark.source & FORM != 0);
            pieces.push(Piece { end: end as usize, source, turn, python_form });
        }
        let text = builder.text;
        let generation = evaluator.generation.iter().map(|range| generation_range(&text, *range)).collect();
        let (steps, bytes) = evaluator.runtime.budget.left();
        let (steps, bytes) = (options.steps - steps, options.bytes - bytes);
        Ok(Rendered { text, pieces, generation, steps, bytes })
    }

    /// Starts a frame. Frames that no function can reach any more are reused: a macro that is called for each message
    /// would otherwise make one each time.
    fn push_frame(&mut self, function: &Function, parent: usize) -> Result<usize> {
        let slots = function.slots as usize;
        // The frames of functions with functions inside are kept.
        if function.captured {
            self.runtime.budget.make_items(slots + 1)?;
        }
        self.runtime.budget.charge(slots / 8)?;
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

    /// Gives the variables of a scope their values. The resolver decided before rendering where each one comes from.
    fn enter(&mut self, scope: &Scope) -> Result<()> {
        self.runtime.budget.charge(scope.loads.len() * (1 + self.globals.len() / 32))?;
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

    /// A variable of the context, which hides a function of the same name as in Jinja2.
    fn global(&self, name: &str) -> Option<Value> {
        if let Some((_, value)) = self.globals.iter().find(|(known, _)| *known == name) {
            return Some(value.clone());
        }
        functions::function(name)
    }

    /// Follows closures outward.
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

    /// Assigns. The resolver has made sure that the variable is one of the scope that is running.
    fn set_var(&mut self, var: Var, value: Value) {
        let frame = self.frame_of(var);
        self.frames[frame].slots[var.slot as usize] = Some(value);
    }

    /// Assigns to a special variable of the current function, such as `loop` or `caller`.
    fn set_slot(&mut self, slot: u32, value: Value) {
        self.set_var(Var { up: 0, slot }, value);
    }

    /// Counts the depth of the Rust stack. A template that calls itself is refused before the stack overflows.
    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_EVAL_DEPTH {
            return error(ErrorKind::Limit, "the template calls itself too deeply");
        }
        self.runtime.budget.charge(1)
    }
}

/// The bytes of a generation block.
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
