//! Methods of mappings, lists and loops.

use std::sync::Arc;

use crate::args::CallArgs;
use crate::error::{ErrorKind, Result, error, unsupported};
use crate::runtime::Runtime;
use crate::string_methods;
use crate::value::{Kind, List, Map, TEMPLATE, Value, View, hashable};

impl Runtime {
    /// Calls a method. The attribute exists: [`attributes`](crate::attributes) says which ones a type has.
    pub(crate) fn call_method(&mut self, object: &Value, name: &Arc<str>, args: CallArgs) -> Result<Value> {
        match &object.0 {
            Kind::Str(text) => {
                self.budget.read(text.len())?;
                string_methods::call(self, text, name, args)
            }
            Kind::Map(map) => match &**name {
                // A view of Python shows later changes of the mapping; a template cannot change one.
                "items" | "keys" | "values" => {
                    let [] = args.bind(name, [], 0)?;
                    let view = match &**name {
                        "items" => View::Items,
                        "keys" => View::Keys,
                        _ => View::Values,
                    };
                    Ok(Kind::View(view, map.clone()).into())
                }
                // `message.get("content", "")`, which many templates prefer to a test.
                "get" => {
                    let [key, default] = args.bind(name, ["key", "default"], 1)?;
                    let key = key.unwrap_or_else(Value::none);
                    hashable(&key, &mut self.budget)?;
                    Ok(map
                        .get_value(&key, &mut self.budget)?
                        .cloned()
                        .or(default)
                        .unwrap_or_else(Value::none))
                }
                // `{% set message = message.copy() %}`: the copy still stands for its message.
                "copy" => {
                    let [] = args.bind(name, [], 0)?;
                    self.budget.make_entries(map.len())?;
                    let mut copy = Map::clone(map);
                    copy.message = map.message;
                    self.new_map(copy)
                }
                _ => {
                    // `fromkeys`, the only other method: see `map_attribute`.
                    let [keys, value] = args.bind(name, ["keys", "value"], 1)?;
                    let keys = self.iterate(&keys.unwrap_or_else(Value::none))?;
                    let mut map = Map::new();
                    for key in keys {
                        self.insert(&mut map, key, value.clone().unwrap_or_else(Value::none))?;
                    }
                    self.new_map(map)
                }
            },
            Kind::List(list) | Kind::Tuple(list) => {
                self.budget.charge(1)?;
                self.list_method(list, name, args)
            }
            Kind::Range(..) => {
                let items = self.iterate(object)?;
                self.list_method(&List::new(items, TEMPLATE), name, args)
            }
            // `loop.cycle("odd", "even")` and `loop.changed(message.role)`.
            Kind::Loop(at, serial) => self.call_loop_method(*at, *serial, name, args),
            // The only method of numbers that is supported.
            Kind::Float(value, _) if **name == *"is_integer" => Ok((value.fract() == 0.0).into()),
            _ => unsupported(format!("the method `{name}` of {} is not supported", object.type_name())),
        }
    }

    /// `copy`, `count` and `index`. Those that change a list are unsafe in a sandbox.
    fn list_method(&mut self, list: &List, name: &str, args: CallArgs) -> Result<Value> {
        if name == "copy" {
            self.budget.make_items(list.items.len())?;
            return self.new_list(list.items.clone(), false);
        }
        let value = args.one(name, "value")?;
        if name == "count" {
            // The search goes on after each hit.
            let (mut count, mut rest) = (0, list.items.as_slice());
            while let Some(at) = self.position(rest, &value)? {
                count += 1;
                rest = rest.get(at + 1..).unwrap_or_default();
            }
            return Ok(Value::int(count));
        }
        match self.position(&list.items, &value)? {
            Some(at) => Ok(Value::int(at)),
            None => error(ErrorKind::Value, "`index` does not find the value in the list"),
        }
    }
}
