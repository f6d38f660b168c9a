//! Calls of macros, functions, methods and filters.

use std::sync::Arc;

use super::Evaluator;
use crate::args::CallArgs;
use crate::ast::*;
use crate::attributes::{Attribute, attribute_kind};
use crate::error::{ErrorKind, Result, error, type_error, unsupported};
use crate::functions;
use crate::runtime::{MAX_ATTRIBUTES, undefined};
use crate::value::{Kind, Map, Missing, TEMPLATE, Text, Value};

impl<'t> Evaluator<'t> {
    /// Evaluates arguments. Those after `**` may not have names from the chat: a name is no text, and would lose its
    /// mark.
    pub(super) fn args(&mut self, args: &'t Args, caller: Option<Value>) -> Result<CallArgs> {
        let mut positional = self.eval_all(&args.positional)?;
        let mut keyword = Vec::with_capacity(args.keyword.len() + usize::from(caller.is_some()));
        // Python evaluates `*args` before arguments by name, whatever their order in the source.
        if let Some(splat) = &args.splat {
            let items = self.eval(splat)?;
            positional.extend(self.runtime.iterate(&items)?);
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
            self.runtime.budget.charge(map.len().saturating_mul(map.len() + keyword.len()) / 8)?;
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
                self.runtime.budget.make(name.len())?;
                keyword.push((name.into(), value.clone()));
            }
        }
        // `CallBlock` passes the function of its body by this name; a macro that does not read it refuses it below.
        if let Some(caller) = caller {
            keyword.push(("caller".into(), caller));
        }
        Ok(CallArgs { positional, keyword })
    }

    /// Calls a method without making a value of it first, which is what nearly all calls are.
    pub(super) fn call(&mut self, callee: &'t Expr, args: &'t Args, caller: Option<Value>) -> Result<Value> {
        let value = if let ExprKind::Attribute(object, name) = &callee.kind {
            let object = self.eval(object)?;
            if let Attribute::Method = attribute_kind(&object, name) {
                let args = self.args(args, caller)?;
                return self.runtime.call_method(&object, name, args);
            }
            self.runtime.attribute(&object, name).map_err(|error| error.or_line(callee.line))?
        } else {
            self.eval(callee)?
        };
        // Jinja2 evaluates the callee first, so an undefined one is an error of the call, after those of its arguments.
        let args = self.args(args, caller)?;
        self.call_value(&value, args)
    }

    /// Calls a value: a macro, a function, a method that was stored, or `loop` in a recursive loop.
    pub(super) fn call_value(&mut self, value: &Value, args: CallArgs) -> Result<Value> {
        match &value.0 {
            Kind::Undefined(missing) => error(ErrorKind::Undefined, format!("{missing}, but is called")),
            Kind::Macro(at) => match self.macros.get(*at) {
                Some(&(function, frame)) => Ok(self.call_function(function, frame, args)?.into()),
                None => type_error("an unknown macro is called"),
            },
            Kind::Function(name) => functions::call_function(&mut self.runtime, name, args),
            Kind::Method(method) => {
                let (object, name) = &**method;
                self.runtime.call_method(object, name, args)
            }
            Kind::Loop(at, serial) => {
                let depth = self.runtime.loop_state(*at, *serial)?.depth;
                // `loop(items)` renders the loop again with other items, and returns the text (`LoopContext.__call__`).
                let Some(node) = self.loop_nodes.get(*at).copied() else {
                    return unsupported("a loop object is used after its loop");
                };
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
    pub(super) fn call_function(
        &mut self,
        function: &'t Function,
        parent: usize,
        args: CallArgs,
    ) -> Result<Text> {
        self.deeper()?;
        let caller_frame = self.frame;
        let frame = self.push_frame(function, parent)?;
        // A macro that is called for a message has loops of its own, whose positions are not those of messages.
        let outer_index = self.index_var.take();
        // The text is a value first: a template may test, strip or print the result of a macro.
        let result = self.capture(|evaluator| {
            evaluator.enter(&function.scope)?;
            evaluator.bind_macro(function, args)?;
            evaluator.body(&function.body)
        });
        self.index_var = outer_index;
        self.frame = caller_frame;
        // No function was defined inside, so nothing refers to the frame any more.
        if !function.captured {
            self.free.push(frame);
        }
        self.depth -= 1;
        Ok(result?.0)
    }

    /// Assigns arguments to the parameters of a macro, with the rules of Jinja2 for `caller`, `kwargs` and `varargs`,
    /// which a macro only has if it reads them. Defaults are evaluated last, so that they can use other parameters.
    pub(super) fn bind_macro(&mut self, function: &'t Function, args: CallArgs) -> Result<()> {
        let CallArgs { positional, mut keyword } = args;
        let name = &function.name;
        self.runtime.budget.charge(function.params.len() * (1 + keyword.len() / 8))?;
        // `Macro.__call__` of `jinja2.runtime`, step by step: positional arguments, then those by name for the
        // parameters that are left, then `caller`, `kwargs` and `varargs`.
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
        // All parameters were given by position, `caller` among them if it is one.
        if given >= function.params.len() {
            found_caller = function.explicit_caller;
        }
        if let Some(slot) = function.caller
            && !found_caller
        {
            let caller = match keyword.iter().position(|(known, _)| **known == *"caller") {
                Some(at) => keyword.remove(at).1,
                // A template can test it: `{% if caller %}`.
                None => undefined("no caller is defined"),
            };
            self.set_slot(slot, caller);
        }
        // Only a macro that reads `kwargs` takes other names; for others they are a mistake in the template.
        if let Some(slot) = function.kwargs {
            let mut map = Map::new();
            self.runtime.budget.make_entries(keyword.len())?;
            for (name, value) in keyword {
                map.insert_text(Text::new(name, TEMPLATE), value);
            }
            let map = self.runtime.new_map(map)?;
            self.set_slot(slot, map);
        } else if let Some((unknown, _)) = keyword.first() {
            return type_error(format!("the macro `{name}` has no argument `{unknown}`"));
        }
        let rest: Vec<Value> = positional.collect();
        if let Some(slot) = function.varargs {
            self.runtime.budget.make_items(rest.len())?;
            let rest = self.runtime.new_list(rest, true)?;
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
        // A default sees the parameters before it, and those after it only if they were given.
        for (param, default) in &function.params {
            if self.var(param.var).is_none() {
                let value = match default {
                    Some(default) => self.eval(default)?,
                    // Not an error until it is used: macros test for arguments that were left out.
                    None => Kind::Undefined(Missing::Parameter(param.name.clone())).into(),
                };
                self.set_var(param.var, value);
            }
        }
        Ok(())
    }

    /// Applies a filter. An unknown one is an error only here if it is inside a condition, as in Jinja2.
    pub(super) fn call_filter(
        &mut self,
        call: &'t FilterCall,
        value: Value,
        args: CallArgs,
    ) -> Result<Value> {
        match call.filter {
            Some(filter) => filter.apply(&mut self.runtime, value, args),
            None => error(ErrorKind::Unknown, format!("unknown filter `{}`", call.name)),
        }
    }

    /// A macro as a value. It keeps the frame of its definition, whose variables it can read.
    pub(super) fn function_value(&mut self, function: &'t Arc<Function>) -> Result<Value> {
        self.runtime.budget.make_items(1)?;
        self.macros.push((function, self.frame));
        self.runtime.macros.push(function.name.clone());
        Ok(Kind::Macro(self.macros.len() - 1).into())
    }
}
