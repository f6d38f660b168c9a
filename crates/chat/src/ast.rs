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

#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) name: Arc<str>,
    pub(crate) var: Var,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Const {
    None,
    Bool(bool),
    Int(i64),
    Big(Arc<str>),
    Float(f64),
    Str(Arc<str>),
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) line: u32,
    pub(crate) kind: ExprKind,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Const(Const),
    Name(Name),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Attribute(Box<Expr>, Arc<str>),
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
    Concat(Vec<Expr>),
    Compare(Box<Expr>, Vec<(CompareOp, Expr)>),
    /// Condition, value, and the value otherwise.
    Cond(Box<(Expr, Expr, Option<Expr>)>),
}

#[derive(Debug, Default)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Expr>,
    pub(crate) keyword: Vec<(Arc<str>, Expr)>,
    pub(crate) splat: Option<Expr>,
    pub(crate) keyword_splat: Option<Expr>,
}

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

#[derive(Debug)]
pub(crate) struct FilterCall {
    /// `None` in a filter block: the text of the block.
    pub(crate) value: Option<Expr>,
    pub(crate) name: Arc<str>,
    pub(crate) filter: Option<&'static Filter>,
    pub(crate) args: Args,
}

#[derive(Debug)]
pub(crate) struct TestCall {
    pub(crate) value: Expr,
    pub(crate) name: Arc<str>,
    pub(crate) test: Option<&'static Test>,
    pub(crate) args: Args,
}

#[derive(Debug)]
pub(crate) enum Target {
    Name(Name),
    Namespace(Name, Arc<str>),
    Tuple(Vec<Target>),
}

/// What to do with variables when a scope is entered.
#[derive(Debug)]
pub(crate) enum Load {
    Global(Arc<str>),
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
    pub(crate) params: Vec<(Name, Option<Expr>)>,
    /// The slots of the special variables that the body uses.
    pub(crate) caller: Option<u32>,
    pub(crate) kwargs: Option<u32>,
    pub(crate) varargs: Option<u32>,
    pub(crate) explicit_caller: bool,
    pub(crate) scope: Scope,
    pub(crate) body: Vec<Stmt>,
}

#[derive(Debug)]
pub(crate) struct Stmt {
    pub(crate) line: u32,
    pub(crate) kind: StmtKind,
}

#[derive(Debug)]
pub(crate) enum StmtKind {
    Raw(Arc<str>),
    Print(Expr),
    For(Box<For>),
    If(Vec<(Expr, Vec<Stmt>)>, Vec<Stmt>),
    Set(Target, Expr),
    SetBlock(Box<SetBlock>),
    With(Box<With>),
    Macro(Name, Arc<Function>),
    /// The call and the function that it gets as `caller`.
    CallBlock(Box<(Expr, Arc<Function>)>),
    /// The call is a `Filter` whose innermost value is `None`.
    FilterBlock(Box<(Expr, Scope, Vec<Stmt>)>),
    Generation(Arc<Function>),
    Break,
    Continue,
}

#[derive(Debug)]
pub(crate) struct For {
    pub(crate) target: Target,
    pub(crate) iter: Expr,
    pub(crate) test: Option<Expr>,
    pub(crate) recursive: bool,
    pub(crate) body: Vec<Stmt>,
    pub(crate) otherwise: Vec<Stmt>,
    /// The slot of `loop`, if the body uses it.
    pub(crate) loop_slot: Option<u32>,
    pub(crate) scope: Scope,
    pub(crate) test_scope: Scope,
    pub(crate) otherwise_scope: Scope,
}

#[derive(Debug)]
pub(crate) struct SetBlock {
    pub(crate) target: Target,
    pub(crate) filter: Option<Expr>,
    pub(crate) scope: Scope,
    pub(crate) body: Vec<Stmt>,
}

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
