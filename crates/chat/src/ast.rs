//! The syntax tree of a template. Names are resolved to slots by [`scope`](crate::scope).

use std::sync::Arc;

use crate::filters::{Filter, Test};
use crate::operators::{BinaryOp, CompareOp};

/// A variable: the slot in the frame of a function, counted outward from the current function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Var {
    pub(crate) up: u32,
    pub(crate) slot: u32,
}

/// A name in the source. The resolver sets `var`; the name itself is needed for messages.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) name: Arc<str>,
    pub(crate) var: Var,
}

/// A literal of the source. Its characters belong to the template, never to the chat.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Const {
    None,
    Bool(bool),
    Int(i64),
    /// An integer outside of 64 bits, as written: Python has integers of any size.
    Big(Arc<str>),
    Float(f64),
    Str(Arc<str>),
}

/// An expression and the line on which it starts: errors name it, as tracebacks of Jinja2 do.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) line: u32,
    pub(crate) kind: ExprKind,
}

/// The expressions of `jinja2.nodes`. Long chains of one operator are one node with a list (`And`, `Or`, `Concat`,
/// `Binary`), where Jinja2 nests nodes: templates that add forty strings would otherwise be forty levels deep.
#[derive(Debug)]
pub(crate) enum ExprKind {
    Const(Const),
    Name(Name),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    /// `Getattr`: an attribute, or else the key of a mapping (`message.role`).
    Attribute(Box<Expr>, Arc<str>),
    /// `Getitem`: an element or key, or else an attribute (`message["role"]`).
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Box<Args>),
    Filter(Box<FilterCall>),
    Test(Box<TestCall>),
    Not(Box<Expr>),
    Negative(Box<Expr>),
    Positive(Box<Expr>),
    /// Operators of the same precedence, from left to right.
    Binary(Box<Expr>, Vec<(BinaryOp, Expr)>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// `~`, which prints its operands, so that numbers can be joined with text.
    Concat(Vec<Expr>),
    /// Comparisons in a chain, each with the operand before it: `0 < loop.index < 3`.
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    /// Condition, value, and the value otherwise.
    Cond(Box<(Expr, Expr, Option<Expr>)>),
}

/// The arguments of a call in the source.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Expr>,
    pub(crate) keyword: Vec<(Arc<str>, Expr)>,
    /// `*args`.
    pub(crate) splat: Option<Expr>,
    /// `**kwargs`.
    pub(crate) keyword_splat: Option<Expr>,
}

// In the order of the fields of `nodes.Call`, in which Jinja2 visits them.
impl Args {
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let keyword = self.keyword.iter().map(|(_, value)| value);
        self.positional.iter().chain(keyword).chain(&self.splat).chain(&self.keyword_splat)
    }

    pub(crate) fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let keyword = self.keyword.iter_mut().map(|(_, value)| value);
        self.positional.iter_mut().chain(keyword).chain(&mut self.splat).chain(&mut self.keyword_splat)
    }
}

/// `value|filter(args)`.
#[derive(Debug)]
pub(crate) struct FilterCall {
    /// `None` in a filter block: the text of the block.
    pub(crate) value: Option<Expr>,
    pub(crate) name: Arc<str>,
    /// `None` if there is no filter of this name. Jinja2 refuses it when it compiles, unless it is inside a condition.
    pub(crate) filter: Option<&'static Filter>,
    pub(crate) args: Args,
}

/// `value is test(args)`.
#[derive(Debug)]
pub(crate) struct TestCall {
    pub(crate) value: Expr,
    pub(crate) name: Arc<str>,
    /// `None` if there is no test of this name, as for filters.
    pub(crate) test: Option<&'static Test>,
    pub(crate) args: Args,
}

/// What is assigned to: by `set`, `with` and loops.
#[derive(Debug)]
pub(crate) enum Target {
    Name(Name),
    /// `ns.attribute`: the only thing that a loop can change for the code after it, because each iteration is a scope.
    Namespace(Name, Arc<str>),
    Tuple(Vec<Target>),
}

/// What to do with variables when a scope is entered.
/// Jinja2 has the same instructions in `idtracking.py`: `VAR_LOAD_RESOLVE`, `VAR_LOAD_ALIAS` and `VAR_LOAD_UNDEFINED`.
#[derive(Debug)]
pub(crate) enum Load {
    /// From the variables of the context, or the functions of Jinja2.
    Global(Arc<str>),
    /// From an outer scope. Assigning to the copy leaves the outer variable as it is, which surprises writers of
    /// templates.
    Copy(Var),
    Undefined,
}

/// The variables of a scope.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) loads: Vec<(u32, Load)>,
}

/// Code with variables of its own.
#[derive(Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    pub(crate) slots: u32,
    /// Whether functions are defined inside, which may outlive a call.
    pub(crate) captured: bool,
    /// Parameters with their defaults.
    pub(crate) params: Vec<(Name, Option<Expr>)>,
    /// The slots of the special variables that the body uses.
    pub(crate) caller: Option<u32>,
    pub(crate) kwargs: Option<u32>,
    pub(crate) varargs: Option<u32>,
    /// Whether `caller` is one of the parameters. Then a call may leave it out, and its default applies.
    pub(crate) explicit_caller: bool,
    pub(crate) scope: Scope,
    pub(crate) body: Vec<Stmt>,
}

#[derive(Debug)]
pub(crate) struct Stmt {
    pub(crate) line: u32,
    pub(crate) kind: StmtKind,
}

/// The statements of `jinja2.nodes`, without those that need other templates, such as `include` and `extends`.
#[derive(Debug)]
pub(crate) enum StmtKind {
    Raw(Arc<str>),
    Print(Expr),
    For(Box<For>),
    /// `if` and its `elif`s in order, then the `else` block.
    If(Vec<(Expr, Vec<Stmt>)>, Vec<Stmt>),
    /// `{% set x = value %}`.
    Set(Target, Expr),
    SetBlock(Box<SetBlock>),
    With(Box<With>),
    Macro(Name, Arc<Function>),
    /// The call and the function that it gets as `caller`.
    CallBlock(Box<(Expr, Arc<Function>)>),
    /// The call is a `Filter` whose innermost value is `None`.
    FilterBlock(Box<(Expr, Scope, Vec<Stmt>)>),
    /// The block of the extension `AssistantTracker` of transformers, whose text is what the assistant wrote. It is a
    /// function because transformers makes a `CallBlock` of it: assignments inside do not reach the code after it.
    Generation(Arc<Function>),
    /// Of the extension `jinja2.ext.loopcontrols`, which transformers enables.
    Break,
    Continue,
}

/// A loop. Its three scopes are those of Jinja2: the condition sees only the target, the body also `loop`, and the
/// `else` block neither of them.
#[derive(Debug)]
pub(crate) struct For {
    pub(crate) target: Target,
    pub(crate) iter: Expr,
    pub(crate) test: Option<Expr>,
    /// Whether the body may call `loop(items)` to run itself, for trees.
    pub(crate) recursive: bool,
    pub(crate) body: Vec<Stmt>,
    /// Runs if no iteration reached the end of the body.
    pub(crate) otherwise: Vec<Stmt>,
    /// The slot of `loop`, if the body uses it.
    pub(crate) loop_slot: Option<u32>,
    pub(crate) scope: Scope,
    pub(crate) test_scope: Scope,
    pub(crate) otherwise_scope: Scope,
}

/// `{% set x | filter %}…{% endset %}`: the text of the body, after the filters.
#[derive(Debug)]
pub(crate) struct SetBlock {
    pub(crate) target: Target,
    pub(crate) filter: Option<Expr>,
    pub(crate) scope: Scope,
    pub(crate) body: Vec<Stmt>,
}

/// `{% with a = 1, b = 2 %}`. Values cannot use the names that are set beside them.
#[derive(Debug)]
pub(crate) struct With {
    pub(crate) targets: Vec<(Target, Expr)>,
    pub(crate) scope: Scope,
    pub(crate) body: Vec<Stmt>,
}

/// Calls `$visit` for the parts of an expression, which is borrowed with `$iter` and `$exprs`: all of it is shared, or all
/// of it is exclusive.
macro_rules! each_part {
    ($expr:expr, $visit:ident, $iter:ident, $exprs:ident $(, $mut:tt)?) => {
        match &$($mut)? $expr.kind {
            ExprKind::Const(_) | ExprKind::Name(_) => {}
            ExprKind::Tuple(items)
            | ExprKind::List(items)
            | ExprKind::And(items)
            | ExprKind::Or(items)
            | ExprKind::Concat(items) => items.$iter().for_each($visit),
            ExprKind::Dict(items) => items.$iter().for_each(|(key, value)| {
                $visit(key);
                $visit(value);
            }),
            ExprKind::Attribute(value, _)
            | ExprKind::Not(value)
            | ExprKind::Negative(value)
            | ExprKind::Positive(value) => $visit(value),
            ExprKind::Item(object, index) => {
                $visit(object);
                $visit(index);
            }
            ExprKind::Slice(object, bounds) => {
                $visit(object);
                bounds.$iter().flatten().for_each($visit);
            }
            ExprKind::Call(callee, args) => {
                $visit(callee);
                args.$exprs().for_each($visit);
            }
            ExprKind::Filter(call) => {
                call.value.$iter().for_each(&mut *$visit);
                call.args.$exprs().for_each($visit);
            }
            ExprKind::Test(call) => {
                $visit(&$($mut)? call.value);
                call.args.$exprs().for_each($visit);
            }
            ExprKind::Binary(first, rest) => {
                $visit(first);
                rest.$iter().for_each(|(_, item)| $visit(item));
            }
            ExprKind::Compare(first, rest) => {
                $visit(first);
                rest.$iter().for_each(|(_, item)| $visit(item));
            }
            ExprKind::Cond(parts) => {
                $visit(&$($mut)? parts.0);
                $visit(&$($mut)? parts.1);
                parts.2.$iter().for_each($visit);
            }
        }
    };
}

/// Calls `visit` for the parts of an expression.
pub(crate) fn each_child<'a>(expr: &'a Expr, visit: &mut dyn FnMut(&'a Expr)) {
    each_part!(expr, visit, iter, exprs);
}

/// As [`each_child`], to change them.
pub(crate) fn each_child_mut(expr: &mut Expr, visit: &mut dyn FnMut(&mut Expr)) {
    each_part!(expr, visit, iter_mut, exprs_mut, mut);
}
