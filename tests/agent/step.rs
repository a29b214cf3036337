//! Reading a step: its verb, and the arguments in the shape that the verb wants.

use serde_json::{Map, Value};

use crate::wire::End;

/// One step of a script, taken apart.
pub struct Step<'a> {
    pub verb: &'a str,
    pub argument: &'a Value,
    object: &'a Map<String, Value>,
}

impl<'a> Step<'a> {
    /// The first key is the verb. A second key that the verb does not know is an error: a misspelt `contains` would
    /// otherwise make a test weaker without a word.
    pub fn parse(value: &'a Value) -> Result<Self, End> {
        let object = value.as_object().ok_or_else(|| End::bad_script(format!("a step is not an object: {value}")))?;
        let (verb, argument) = object.iter().next().ok_or_else(|| End::bad_script("a step is empty"))?;
        let optional = match verb.as_str() {
            "expect" => "contains",
            "repeat" => "times",
            "gate" => "cases",
            _ => "",
        };
        match object.keys().skip(1).find(|key| *key != optional) {
            Some(key) => Err(End::bad_script(format!("unknown key {key:?} in the step {value}"))),
            None => Ok(Self { verb, argument, object }),
        }
    }

    /// The verb's second key, when it is there.
    pub fn option(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key)
    }

    pub fn unknown(&self) -> End {
        End::bad_script(format!("unknown step {:?}", self.verb))
    }

    pub fn text(&self) -> Result<&'a str, End> {
        self.argument.as_str().ok_or_else(|| self.wants("a string"))
    }

    pub fn number(&self) -> Result<usize, End> {
        let number = self.argument.as_u64().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.wants("a number"))
    }

    pub fn array(&self) -> Result<&'a [Value], End> {
        self.argument.as_array().map(Vec::as_slice).ok_or_else(|| self.wants("an array"))
    }

    /// A string in the verb's object.
    pub fn text_at(&self, key: &str) -> Result<&'a str, End> {
        self.argument[key].as_str().ok_or_else(|| self.wants(&format!("an object with the string {key:?}")))
    }

    pub fn number_at(&self, key: &str) -> Result<usize, End> {
        let number = self.argument[key].as_u64().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| self.wants(&format!("an object with the number {key:?}")))
    }

    pub fn flag_at(&self, key: &str) -> bool {
        self.argument[key] == Value::Bool(true)
    }

    pub fn wants(&self, what: &str) -> End {
        End::bad_script(format!("the step {:?} wants {what}, not {}", self.verb, self.argument))
    }
}
