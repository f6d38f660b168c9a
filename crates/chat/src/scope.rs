//! Scopes: which variable a name stands for, decided before rendering as Jinja2 decides it (`idtracking.py`).
//!
//! The rules are those of a language whose blocks have their own variables, with three surprises that templates depend
//! on:
//!
//! * An assignment in a loop does not reach the code after it, nor the next iteration: `{% set last = message.role %}`
//!   is lost at `{% endfor %}`. Templates use `namespace` instead.
//! * `if` is no scope: an assignment in a branch does reach the code after `{% endif %}`.
//! * A macro reads the variables around its definition as they are when it is called.
//!
//! Each scope is analyzed before it is resolved, because an assignment anywhere in it decides what the name stands for
//! in all of it. Like Jinja2, the resolver therefore visits a scope once for its names, and once for its slots.

mod undeclared;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use self::undeclared::Undeclared;
use crate::ast::*;
use crate::error::{TemplateError, fail};

/// Names that may be copied for the branches of conditions: the product of their numbers, in the worst case. A template of a
/// model copies some thousands.
const MAX_COPIED: usize = 1 << 20;

/// Where a variable of a scope gets its value from when the scope is entered.
/// The instructions `VAR_LOAD_…` of `jinja2.idtracking`.
#[derive(Clone, Debug)]
enum Origin {
    Parameter,
    Global,
    Undefined,
    /// The scope on the stack that has the variable.
    Outer(usize),
}

/// `jinja2.idtracking.Symbols`.
#[derive(Clone, Debug, Default)]
struct Symbols {
    loads: BTreeMap<Arc<str>, Origin>,
    /// Names that are assigned to in the scope.
    stores: BTreeSet<Arc<str>>,
}

/// A scope on the stack. Several levels share the slots of one function.
#[derive(Default)]
struct Level {
    symbols: Symbols,
    /// Position in `functions`.
    function: usize,
    /// Whether `break` and `continue` are allowed.
    in_loop: bool,
}

/// The slots of a function: one for each name of each of its scopes.
#[derive(Default)]
struct FunctionSlots {
    slots: HashMap<(usize, Arc<str>), u32>,
    /// Whether a function is defined inside.
    captured: bool,
}

/// A template whose names stand for slots.
pub(crate) struct Resolved {
    pub(crate) root: Function,
    /// Whether there is a `generation` block.
    pub(crate) generation: bool,
    /// The names of the variables that the template does not define itself.
    pub(crate) globals: BTreeSet<Arc<str>>,
    /// The texts, and the strings in expressions.
    pub(crate) literals: Vec<Arc<str>>,
}

/// Resolves the names of a template, whose `body` becomes the root function.
pub(crate) fn resolve(body: Vec<Stmt>) -> Result<Resolved, TemplateError> {
    let mut resolver = Resolver::default();
    let mut root = Function { name: "template".into(), body, ..Function::default() };
    let resolved = resolver.function(&mut root, false);
    if resolver.copied.get() > MAX_COPIED {
        return fail(0, "the template has too many names and conditions");
    }
    resolved?;
    let Resolver { generation, globals, literals, .. } = resolver;
    Ok(Resolved { root, generation, globals, literals })
}

#[derive(Default)]
struct Resolver {
    levels: Vec<Level>,
    functions: Vec<FunctionSlots>,
    /// Whether there is a `generation` block.
    generation: bool,
    globals: BTreeSet<Arc<str>>,
    /// The texts, and the strings in expressions.
    literals: Vec<Arc<str>>,
    /// The names that were copied for the branches of conditions.
    copied: Cell<usize>,
}

impl Resolver {
    // Analysis: which names a scope loads and stores.

    /// The innermost scope that has a variable.
    fn outer(&self, name: &str) -> Option<usize> {
        self.levels.iter().rposition(|level| level.symbols.loads.contains_key(name))
    }

    /// Notes that a scope assigns to a name, which hides the variable of an outer scope from here on.
    fn store(&self, symbols: &mut Symbols, name: &Arc<str>) {
        symbols.stores.insert(name.clone());
        if !symbols.loads.contains_key(name) {
            // The value from outside until the assignment: `{% set x = x + 1 %}` in a loop reads the outer `x` in each
            // iteration.
            let origin = self.outer(name).map_or(Origin::Undefined, Origin::Outer);
            symbols.loads.insert(name.clone(), origin);
        }
    }

    /// Notes that a scope reads a name that no scope has.
    fn load(&self, symbols: &mut Symbols, name: &Arc<str>) {
        if !symbols.loads.contains_key(name) && self.outer(name).is_none() {
            symbols.loads.insert(name.clone(), Origin::Global);
        }
    }

    /// Notes a name that has a value from the start, such as the target of a loop.
    fn parameter(symbols: &mut Symbols, name: &Arc<str>) {
        symbols.stores.insert(name.clone());
        symbols.loads.insert(name.clone(), Origin::Parameter);
    }

    /// `parameter`: the target has a value when the scope is entered, as that of a loop does.
    fn analyze_target(&self, symbols: &mut Symbols, target: &Target, parameter: bool) {
        match target {
            Target::Name(name) if parameter => Self::parameter(symbols, &name.name),
            Target::Name(name) => self.store(symbols, &name.name),
            Target::Namespace(name, _) => self.load(symbols, &name.name),
            Target::Tuple(targets) => {
                targets.iter().for_each(|target| self.analyze_target(symbols, target, parameter))
            }
        }
    }

    fn analyze_body(&self, symbols: &mut Symbols, body: &[Stmt]) {
        for stmt in body {
            self.analyze_stmt(symbols, stmt);
        }
    }

    /// `FrameSymbolVisitor.visit_If`: each branch is analyzed with the names before it, and `Symbols.branch_update`
    /// joins them.
    fn analyze_if(
        &self,
        symbols: &mut Symbols,
        (test, body): &(Expr, Vec<Stmt>),
        elifs: &[(Expr, Vec<Stmt>)],
        otherwise: &[Stmt],
    ) {
        self.analyze_expr(symbols, test);
        // Each nested condition copies all names three times, so a hostile template could make this exponential.
        self.copied.set(self.copied.get().saturating_add(symbols.loads.len() + symbols.stores.len() + 1));
        if self.copied.get() > MAX_COPIED {
            return;
        }
        // The body, the `elif`s and the `else` block, which are branches even where they are missing.
        let mut branches = [symbols.clone(), symbols.clone(), symbols.clone()];
        self.analyze_body(&mut branches[0], body);
        // `nodes.If` has the `elif`s as a list; they share one branch in `visit_If`.
        for elif in elifs {
            self.analyze_if(&mut branches[1], elif, &[], &[]);
        }
        self.analyze_body(&mut branches[2], otherwise);
        let mut stored: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for branch in &branches {
            for name in branch.stores.difference(&symbols.stores) {
                *stored.entry(name.clone()).or_default() += 1;
            }
        }
        let count = branches.len();
        for branch in branches {
            symbols.loads.extend(branch.loads);
            symbols.stores.extend(branch.stores);
        }
        // Where not all branches assign a name, its value may be the one from outside.
        for (name, branches) in stored {
            if branches < count {
                let origin = self.outer(&name).map_or(Origin::Global, Origin::Outer);
                symbols.loads.insert(name, origin);
            }
        }
    }

    /// What a statement reads and assigns in the scope that contains it. Bodies with a scope of their own are left out.
    fn analyze_stmt(&self, symbols: &mut Symbols, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Raw(_) | StmtKind::Break | StmtKind::Continue | StmtKind::Generation(_) => {}
            StmtKind::Print(value) => self.analyze_expr(symbols, value),
            StmtKind::For(node) => self.analyze_expr(symbols, &node.iter),
            StmtKind::If(branches, otherwise) => {
                if let Some((first, elifs)) = branches.split_first() {
                    self.analyze_if(symbols, first, elifs, otherwise);
                }
            }
            StmtKind::Set(target, value) => {
                self.analyze_expr(symbols, value);
                self.analyze_target(symbols, target, false);
            }
            StmtKind::SetBlock(node) => self.analyze_target(symbols, &node.target, false),
            StmtKind::With(node) => {
                node.targets.iter().for_each(|(_, value)| self.analyze_expr(symbols, value))
            }
            StmtKind::Macro(name, _) => self.store(symbols, &name.name),
            StmtKind::CallBlock(node) => self.analyze_expr(symbols, &node.0),
            StmtKind::FilterBlock(node) => self.analyze_expr(symbols, &node.0),
        }
    }

    fn analyze_expr(&self, symbols: &mut Symbols, expr: &Expr) {
        if let ExprKind::Name(name) = &expr.kind {
            self.load(symbols, &name.name);
        }
        // Expressions have no scopes of their own in Jinja2.
        each_child(expr, &mut |child| self.analyze_expr(symbols, child));
    }

    // Resolution: slots for the names.

    /// The slot of a name of a scope. Scopes that do not overlap could share slots, but templates have few names.
    fn slot(&mut self, level: usize, name: &Arc<str>) -> u32 {
        let function = self.levels[level].function;
        let slots = &mut self.functions[function].slots;
        let next = slots.len() as u32;
        *slots.entry((level, name.clone())).or_insert(next)
    }

    /// The variable that a name stands for at this point.
    fn var(&mut self, line: u32, name: &Arc<str>) -> Result<Var, TemplateError> {
        let Some(level) = self.outer(name) else {
            return fail(line, format!("`{name}` cannot be resolved"));
        };
        let up = self.functions.len() - 1 - self.levels[level].function;
        Ok(Var { up: up as u32, slot: self.slot(level, name) })
    }

    /// Enters a scope with the analyzed `symbols`.
    fn push(&mut self, symbols: Symbols, in_loop: bool) -> Scope {
        let function = self.functions.len() - 1;
        let names: Vec<(Arc<str>, Origin)> =
            symbols.loads.iter().map(|(name, origin)| (name.clone(), origin.clone())).collect();
        self.levels.push(Level { symbols, function, in_loop });
        let level = self.levels.len() - 1;
        let mut scope = Scope::default();
        for (name, origin) in names {
            let slot = self.slot(level, &name);
            let load = match origin {
                // Set by the loop or the call.
                Origin::Parameter => continue,
                Origin::Global => {
                    self.globals.insert(name.clone());
                    Load::Global(name)
                }
                Origin::Undefined => Load::Undefined,
                Origin::Outer(outer) => {
                    let up = (function - self.levels[outer].function) as u32;
                    Load::Copy(Var { up, slot: self.slot(outer, &name) })
                }
            };
            scope.loads.push((slot, load));
        }
        scope
    }

    fn in_loop(&self) -> bool {
        self.levels.last().is_some_and(|level| level.in_loop)
    }

    fn function(&mut self, function: &mut Function, is_macro: bool) -> Result<(), TemplateError> {
        if let Some(outer) = self.functions.last_mut() {
            outer.captured = true;
        }
        let mut symbols = Symbols::default();
        // `CodeGenerator.macro_body` of `jinja2.compiler`.
        let special = ["caller", "kwargs", "varargs"].map(Arc::<str>::from);
        for (name, _) in &function.params {
            Self::parameter(&mut symbols, &name.name);
        }
        for default in function.params.iter().filter_map(|(_, default)| default.as_ref()) {
            self.analyze_expr(&mut symbols, default);
        }
        self.analyze_body(&mut symbols, &function.body);
        let mut used = [false; 3];
        if is_macro {
            let mut finder = Undeclared::of(&special);
            finder.body(&function.body);
            let undeclared = finder.found;
            for (at, name) in special.iter().enumerate() {
                let param = function.params.iter().find(|(param, _)| param.name == *name);
                let is_caller = **name == *"caller";
                function.explicit_caller |= is_caller && param.is_some();
                match param {
                    // Not read, or assigned to first: then it is a variable like any other.
                    _ if !undeclared.contains(name) => {}
                    Some((_, None)) if is_caller => {
                        return fail(0, "the parameter `caller` of a macro needs a default");
                    }
                    Some(_) => {}
                    None => {
                        Self::parameter(&mut symbols, name);
                        used[at] = true;
                    }
                }
            }
        }
        self.functions.push(FunctionSlots::default());
        function.scope = self.push(symbols, false);
        let level = self.levels.len() - 1;
        [function.caller, function.kwargs, function.varargs] =
            std::array::from_fn(|at| used[at].then(|| self.slot(level, &special[at])));
        for (name, default) in &mut function.params {
            name.var = self.var(0, &name.name)?;
            if let Some(default) = default {
                self.expr(default, false)?;
            }
        }
        self.body(&mut function.body, false)?;
        self.levels.pop();
        if let Some(done) = self.functions.pop() {
            function.slots = done.slots.len() as u32;
            function.captured = done.captured;
        }
        Ok(())
    }

    /// `soft`: inside of a condition, where Jinja2 refuses unknown filters and tests only when they are reached.
    fn body(&mut self, body: &mut [Stmt], soft: bool) -> Result<(), TemplateError> {
        for stmt in body {
            self.stmt(stmt, soft)?;
        }
        Ok(())
    }

    fn target(&mut self, line: u32, target: &mut Target) -> Result<(), TemplateError> {
        match target {
            Target::Name(name) | Target::Namespace(name, _) => name.var = self.var(line, &name.name)?,
            Target::Tuple(targets) => {
                for target in targets {
                    self.target(line, target)?;
                }
            }
        }
        Ok(())
    }

    fn stmt(&mut self, stmt: &mut Stmt, soft: bool) -> Result<(), TemplateError> {
        let line = stmt.line;
        let in_loop = self.in_loop();
        match &mut stmt.kind {
            StmtKind::Raw(text) => self.literals.push(text.clone()),
            StmtKind::Break | StmtKind::Continue => {
                if !in_loop {
                    return fail(line, "`break` and `continue` are allowed only inside of a loop");
                }
            }
            StmtKind::Print(value) => self.expr(value, soft)?,
            StmtKind::For(node) => self.for_loop(line, node, soft)?,
            StmtKind::If(branches, otherwise) => {
                // The order of the literals.
                for (test, _) in &mut *branches {
                    self.expr(test, true)?;
                }
                for (_, body) in branches {
                    self.body(body, true)?;
                }
                self.body(otherwise, true)?;
            }
            StmtKind::Set(target, value) => {
                self.expr(value, soft)?;
                self.target(line, target)?;
            }
            // The body is a scope of its own; the target belongs to the scope around it.
            StmtKind::SetBlock(node) => {
                let mut symbols = Symbols::default();
                self.analyze_body(&mut symbols, &node.body);
                if let Some(filter) = &node.filter {
                    // Jinja2 does not look at the arguments of this filter, and refuses names in them that are new.
                    self.analyze_expr(&mut symbols, filter);
                }
                self.target(line, &mut node.target)?;
                node.scope = self.push(symbols, in_loop);
                self.body(&mut node.body, false)?;
                if let Some(filter) = &mut node.filter {
                    self.expr(filter, false)?;
                }
                self.levels.pop();
            }
            StmtKind::With(node) => {
                for (_, value) in &mut node.targets {
                    self.expr(value, soft)?;
                }
                let mut symbols = Symbols::default();
                for (target, _) in &node.targets {
                    self.analyze_target(&mut symbols, target, true);
                }
                self.analyze_body(&mut symbols, &node.body);
                node.scope = self.push(symbols, in_loop);
                for (target, _) in &mut node.targets {
                    self.target(line, target)?;
                }
                self.body(&mut node.body, false)?;
                self.levels.pop();
            }
            StmtKind::Macro(name, function) => {
                name.var = self.var(line, &name.name)?;
                self.shared_function(line, function, true)?;
            }
            StmtKind::CallBlock(node) => {
                self.expr(&mut node.0, soft)?;
                self.shared_function(line, &mut node.1, true)?;
            }
            StmtKind::FilterBlock(node) => {
                let (filter, scope, body) = &mut **node;
                let mut symbols = Symbols::default();
                self.analyze_body(&mut symbols, body);
                self.analyze_expr(&mut symbols, filter);
                *scope = self.push(symbols, in_loop);
                self.body(body, false)?;
                self.expr(filter, false)?;
                self.levels.pop();
            }
            StmtKind::Generation(function) => {
                self.generation = true;
                self.shared_function(line, function, true)?;
            }
        }
        Ok(())
    }

    fn shared_function(
        &mut self,
        line: u32,
        function: &mut Arc<Function>,
        is_macro: bool,
    ) -> Result<(), TemplateError> {
        match Arc::get_mut(function) {
            Some(function) => self.function(function, is_macro).map_err(|error| error.or_line(line)),
            None => fail(line, "a function is shared before its names are resolved"),
        }
    }

    /// A loop has up to three scopes: its condition, its body and its `else` block.
    fn for_loop(&mut self, line: u32, node: &mut For, soft: bool) -> Result<(), TemplateError> {
        self.expr(&mut node.iter, soft)?;
        let name: Arc<str> = "loop".into();
        let mut finder = Undeclared::of(std::slice::from_ref(&name));
        finder.target(&node.target);
        if finder.names.is_empty() {
            return fail(line, "a loop cannot assign to `loop`");
        }
        node.test.iter().for_each(|test| finder.expr(test));
        finder.body(&node.body);
        // `CodeGenerator.visit_For`: `loop` exists only where it is used, or if the loop calls itself.
        let special = node.recursive || !finder.found.is_empty();

        let mut symbols = Symbols::default();
        if let Some(test) = &mut node.test {
            let mut symbols = Symbols::default();
            self.analyze_target(&mut symbols, &node.target, true);
            self.analyze_expr(&mut symbols, test);
            node.test_scope = self.push(symbols, false);
            self.expr(test, false)?;
            self.levels.pop();
        }
        if special {
            Self::parameter(&mut symbols, &name);
        }
        self.analyze_target(&mut symbols, &node.target, true);
        self.analyze_body(&mut symbols, &node.body);
        node.scope = self.push(symbols, true);
        if special {
            let level = self.levels.len() - 1;
            node.loop_slot = Some(self.slot(level, &name));
        }
        self.target(line, &mut node.target)?;
        self.body(&mut node.body, false)?;
        self.levels.pop();

        if !node.otherwise.is_empty() {
            let mut symbols = Symbols::default();
            self.analyze_body(&mut symbols, &node.otherwise);
            let in_loop = self.in_loop();
            node.otherwise_scope = self.push(symbols, in_loop);
            self.body(&mut node.otherwise, false)?;
            self.levels.pop();
        }
        Ok(())
    }

    fn expr(&mut self, expr: &mut Expr, soft: bool) -> Result<(), TemplateError> {
        let line = expr.line;
        let mut soft_children = soft;
        match &mut expr.kind {
            ExprKind::Name(name) => name.var = self.var(line, &name.name)?,
            ExprKind::Const(Const::Str(text)) => self.literals.push(text.clone()),
            ExprKind::Filter(call) if call.filter.is_none() && !soft => {
                return fail(line, format!("unknown filter `{}`", call.name));
            }
            ExprKind::Test(call) if call.test.is_none() && !soft => {
                return fail(line, format!("unknown test `{}`", call.name));
            }
            // `{{ x|unknown if false }}` compiles in Jinja2.
            ExprKind::Cond(_) => soft_children = true,
            _ => {}
        }
        let mut result = Ok(());
        each_child_mut(expr, &mut |child| {
            if result.is_ok() {
                result = self.expr(child, soft_children);
            }
        });
        result
    }
}
