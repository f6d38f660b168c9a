//! The `dsconvert` command.
fn main() {}
