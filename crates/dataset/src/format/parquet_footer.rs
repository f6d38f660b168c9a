//! Structure of Parquet footers, checked before the `parquet` crate parses them.
//!
//! The crate reads the schema recursively and allocates as many children as a group claims, so a small damaged file could
//! overflow the stack or exhaust memory, which ends the process.
//!
//! Format: <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>

use super::thrift::{LIST, STRUCT, Thrift};

/// Field number of the schema in the footer.
const SCHEMA: i16 = 2;
/// Field number of the child count in a schema element.
const NUM_CHILDREN: i16 = 5;

/// Returns whether a footer is well-formed, and its columns have at most `max_depth` levels.
pub fn is_sound(footer: &[u8], max_depth: usize) -> bool {
    walk_footer(footer, max_depth).is_some()
}

fn walk_footer(bytes: &[u8], max_depth: usize) -> Option<()> {
    let mut thrift = Thrift::new(bytes);
    let mut field = 0;
    while let Some(ty) = thrift.field(&mut field)? {
        match (field, ty) {
            (SCHEMA, LIST) => walk_schema(&mut thrift, max_depth)?,
            (SCHEMA, _) => return None,
            _ => thrift.skip(ty)?,
        }
    }
    Some(())
}

/// Walks the schema elements, which are in depth-first order.
fn walk_schema(thrift: &mut Thrift<'_>, max_depth: usize) -> Option<()> {
    let (item, elements) = thrift.list()?;
    if item != STRUCT {
        return None;
    }
    // Remaining children of each group that is still open.
    let mut open: Vec<u64> = Vec::new();
    for _ in 0..elements {
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        let mut field = 0;
        let mut children = 0;
        while let Some(ty) = thrift.field(&mut field)? {
            match field {
                NUM_CHILDREN => children = u64::try_from(thrift.number(ty)?).ok()?,
                _ => thrift.skip(ty)?,
            }
        }
        if children > elements {
            return None;
        }
        if children > 0 {
            open.push(children);
        }
        if open.len() > max_depth {
            return None;
        }
    }
    open.iter().all(|&left| left == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a footer that contains only a schema, with the given child count for each element.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xfc, children.len() as u8 | 0x80, (children.len() >> 7) as u8];
        for &children in children {
            // The name, then the child count.
            bytes.extend([0x48, 1, b'a', 0x15, children * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    const MAX_DEPTH: usize = 8;

    #[test]
    fn a_schema_is_a_tree_of_limited_depth() {
        let is_sound = |children: &[u8]| is_sound(&footer(children), MAX_DEPTH);
        assert!(is_sound(&[2, 0, 1, 0]));
        assert!(!is_sound(&[3, 0, 1, 0]), "a child is missing");
        assert!(!is_sound(&[60]));
        let deep = |depth: usize| [vec![1; depth], vec![0]].concat();
        assert!(is_sound(&deep(MAX_DEPTH)));
        assert!(!is_sound(&deep(MAX_DEPTH + 1)));
        assert!(!is_sound(&deep(3000)));
    }
}
