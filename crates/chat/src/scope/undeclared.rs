//! `Undeclared`: names that are read before they are assigned to.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ast::*;

/// Finds which of some names are read, other than after an assignment (`find_undeclared` of Jinja2).
pub(super) struct Undeclared {
    /// The names without assignments so far.
    pub(super) names: BTreeSet<Arc<str>>,
    pub(super) found: BTreeSet<Arc<str>>,
}

impl Undeclared {
    pub(super) fn of(names: &[Arc<str>]) -> Undeclared {
        Undeclared { names: names.iter().cloned().collect(), found: BTreeSet::new() }
    }

    pub(super) fn expr(&mut self, expr: &Expr) {
        if let ExprKind::Name(name) = &expr.kind
            && self.names.contains(&name.name)
        {
            self.found.insert(name.name.clone());
        }
        each_child(expr, &mut |child| self.expr(child));
    }

    /// An assignment hides the special name from here on, as `UndeclaredNameVisitor.visit_Name` does.
    pub(super) fn target(&mut self, target: &Target) {
        match target {
            Target::Name(name) => {
                self.names.remove(&name.name);
            }
            Target::Namespace(name, _) if self.names.contains(&name.name) => {
                self.found.insert(name.name.clone());
            }
            Target::Namespace(..) => {}
            Target::Tuple(targets) => targets.iter().for_each(|target| self.target(target)),
        }
    }

    fn function(&mut self, function: &Function) {
        for (name, default) in &function.params {
            self.names.remove(&name.name);
            default.iter().for_each(|default| self.expr(default));
        }
        self.body(&function.body);
    }

    pub(super) fn body(&mut self, body: &[Stmt]) {
        for stmt in body {
            match &stmt.kind {
                StmtKind::Raw(_) | StmtKind::Break | StmtKind::Continue => {}
                StmtKind::Print(value) => self.expr(value),
                // In the order of the fields of `nodes.For`: the target hides a name in all that follows.
                StmtKind::For(node) => {
                    self.target(&node.target);
                    self.expr(&node.iter);
                    self.body(&node.body);
                    self.body(&node.otherwise);
                    node.test.iter().for_each(|test| self.expr(test));
                }
                StmtKind::If(branches, otherwise) => {
                    for (test, body) in branches {
                        self.expr(test);
                        self.body(body);
                    }
                    self.body(otherwise);
                }
                // The target is visited first in Jinja2, so that `{% set caller = caller %}` does not read the special
                // variable.
                StmtKind::Set(target, value) => {
                    self.target(target);
                    self.expr(value);
                }
                StmtKind::SetBlock(node) => {
                    self.target(&node.target);
                    node.filter.iter().for_each(|filter| self.expr(filter));
                    self.body(&node.body);
                }
                StmtKind::With(node) => {
                    node.targets.iter().for_each(|(target, _)| self.target(target));
                    node.targets.iter().for_each(|(_, value)| self.expr(value));
                    self.body(&node.body);
                }
                StmtKind::Macro(_, function) | StmtKind::Generation(function) => self.function(function),
                StmtKind::CallBlock(node) => {
                    self.expr(&node.0);
                    self.function(&node.1);
                }
                StmtKind::FilterBlock(node) => {
                    self.body(&node.2);
                    self.expr(&node.0);
                }
            }
        }
    }
}
