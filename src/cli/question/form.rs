//! A form of an agent's, asked field by field. What a line cannot answer (lists, objects) makes a form too hard.

use serde_json::{Map, Number, Value};

use crate::model::permission::shown::visible_line;

const FIELDS_MAX: usize = 32;

#[derive(Debug)]
pub struct Form {
    fields: Vec<Field>,
    /// How many have been asked.
    asked: usize,
    content: Map<String, Value>,
}

#[derive(Debug)]
struct Field {
    name: String,
    label: String,
    kind: Kind,
    is_required: bool,
    default: Option<Value>,
    schema: Value,
}

#[derive(Debug)]
enum Kind {
    Text,
    Truth,
    Integer,
    Number,
    /// The values, each with how it is called.
    Choice(Vec<(String, String)>),
}

impl Form {
    /// The form of a request, when all of its fields can be answered with a line.
    pub fn of(request: &Value) -> Option<Self> {
        let schema = &request["requestedSchema"];
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let properties = schema["properties"].as_object()?;
        if request["mode"] != "form" || properties.len() > FIELDS_MAX {
            return None;
        }
        let field = |(name, schema): (&String, &Value)| {
            let title = visible_line(schema["title"].as_str().unwrap_or(name));
            let description = visible_line(schema["description"].as_str().unwrap_or_default());
            Some(Field {
                name: name.clone(),
                label: if description.is_empty() { title } else { format!("{title} ({description})") },
                kind: Kind::of(schema)?,
                is_required: required.iter().any(|required| required == name.as_str()),
                default: schema.get("default").filter(|default| !default.is_null()).cloned(),
                schema: schema.clone(),
            })
        };
        let fields = properties.iter().map(field).collect::<Option<Vec<_>>>()?;
        Some(Self { fields, asked: 0, content: Map::new() })
    }

    /// The next field's question; nothing when all have been asked.
    pub fn prompt(&self) -> Option<String> {
        let field = self.fields.get(self.asked)?;
        let choices = match &field.kind {
            Kind::Choice(values) => {
                let numbered =
                    (1..).zip(values).map(|(number, (_, title))| format!("[{number}] {}", visible_line(title)));
                format!("  {}", numbered.collect::<Vec<_>>().join("  "))
            }
            Kind::Truth => "  [y] yes  [n] no".to_owned(),
            Kind::Text | Kind::Integer | Kind::Number => String::new(),
        };
        let otherwise = match (&field.default, field.is_required) {
            (Some(Value::String(default)), _) => format!(" [default: {}]", visible_line(default)),
            (Some(default), _) => format!(" [default: {}]", visible_line(&default.to_string())),
            (None, true) => String::new(),
            (None, false) => " [optional]".to_owned(),
        };
        Some(format!("{}{otherwise}{choices} > ", field.label))
    }

    /// Takes the answer to the field that was asked, or says what is wrong with it.
    pub fn line(&mut self, line: &str) -> Result<(), String> {
        let Some(field) = self.fields.get(self.asked) else { return Ok(()) };
        let value = match (line.trim(), &field.default) {
            ("", Some(default)) => Some(default.clone()),
            ("", None) if field.is_required => {
                return Err("a value is required; press Ctrl-D to leave the form".to_owned());
            }
            ("", None) => None,
            (text, _) => Some(field.value(text)?),
        };
        if let Some(value) = value {
            self.content.insert(field.name.clone(), value);
        }
        self.asked += 1;
        Ok(())
    }

    pub fn content(&self) -> Map<String, Value> {
        self.content.clone()
    }
}

impl Kind {
    fn of(schema: &Value) -> Option<Self> {
        let value = |value: &Value| value.as_str().map(|text| (text.to_owned(), text.to_owned()));
        let titled = |option: &Value| {
            let (value, _) = value(&option["const"])?;
            Some((value.clone(), option["title"].as_str().unwrap_or(&value).to_owned()))
        };
        match (schema["type"].as_str()?, schema["enum"].as_array(), schema["oneOf"].as_array()) {
            ("string", Some(values), _) => Some(Self::Choice(values.iter().map(value).collect::<Option<_>>()?)),
            ("string", None, Some(options)) => Some(Self::Choice(options.iter().map(titled).collect::<Option<_>>()?)),
            ("string", None, None) => Some(Self::Text),
            ("boolean", ..) => Some(Self::Truth),
            ("integer", ..) => Some(Self::Integer),
            ("number", ..) => Some(Self::Number),
            _ => None,
        }
    }
}

impl Field {
    fn value(&self, text: &str) -> Result<Value, String> {
        match &self.kind {
            Kind::Text => self.within("Length", &text.chars().count().into(), "characters").map(|()| text.into()),
            Kind::Truth => match text.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err("type y or n".to_owned()),
            },
            Kind::Integer => {
                let number: i64 = text.parse().map_err(|_| "type a whole number".to_owned())?;
                self.within("imum", &number.into(), "").map(|()| number.into())
            }
            Kind::Number => {
                let number: f64 = text.parse().map_err(|_| "type a number".to_owned())?;
                self.within("imum", &number.into(), "")?;
                Number::from_f64(number).map(Value::Number).ok_or_else(|| "type a number".to_owned())
            }
            Kind::Choice(values) => {
                let by_number = text.parse::<usize>().ok().and_then(|number| values.get(number.checked_sub(1)?));
                let named = values.iter().find(|(value, title)| value == text || title == text);
                let (value, _) = named.or(by_number).ok_or_else(|| "type one of the numbers".to_owned())?;
                Ok(value.as_str().into())
            }
        }
    }

    /// Holds a quantity against the schema's `min…` and `max…`.
    fn within(&self, what: &str, quantity: &Value, unit: &str) -> Result<(), String> {
        let quantity = quantity.as_f64().unwrap_or(f64::MAX);
        let bound = |name: &str| self.schema[format!("{name}{what}")].as_f64();
        match (bound("min"), bound("max")) {
            (Some(least), _) if quantity < least => Err(format!("the minimum is {least} {unit}").trim_end().to_owned()),
            (_, Some(most)) if quantity > most => Err(format!("the maximum is {most} {unit}").trim_end().to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form(properties: Value, required: Value) -> Option<Form> {
        let mut request = json!({"mode": "form", "message": "x", "requestedSchema": {"type": "object"}});
        request["requestedSchema"]["properties"] = properties;
        request["requestedSchema"]["required"] = required;
        Form::of(&request)
    }

    #[test]
    fn a_form_is_asked_field_by_field() {
        let mut form = form(
            json!({
                "name": {"type": "string", "title": "The\x1b name", "minLength": 2},
                "port": {"type": "integer", "default": 5432, "maximum": 65535},
                "share": {"type": "number"},
                "tls": {"type": "boolean", "description": "encrypt"},
                "engine": {"type": "string", "oneOf": [{"const": "pg", "title": "PostgreSQL"}, {"const": "lite", "title": "SQLite"}]},
                "size": {"type": "string", "enum": ["small", "large"]},
            }),
            json!(["name", "tls"]),
        )
        .unwrap();
        let mut asked = Vec::new();
        for (line, complaint) in [
            ("", Some("a value is required; press Ctrl-D to leave the form")),
            ("x", Some("the minimum is 2 characters")),
            ("main", None),
            ("70000", Some("the maximum is 65535")),
            ("", None),
            ("a lot", Some("type a number")),
            ("", None),
            ("maybe", Some("type y or n")),
            ("y", None),
            ("3", Some("type one of the numbers")),
            ("2", None),
            ("large", None),
        ] {
            asked.push(form.prompt().unwrap());
            assert_eq!(form.line(line).err().as_deref(), complaint, "{line:?} to {:?}", asked.last());
        }
        assert_eq!(form.prompt(), None);
        asked.dedup();
        insta::assert_snapshot!(asked.join("\n"), @r"
        The\u{1b} name > 
        port [default: 5432] > 
        share [optional] > 
        tls (encrypt)  [y] yes  [n] no > 
        engine [optional]  [1] PostgreSQL  [2] SQLite > 
        size [optional]  [1] small  [2] large > 
        ");
        let content = json!({"name": "main", "port": 5432, "tls": true, "engine": "lite", "size": "large"});
        assert_eq!(Value::Object(form.content()), content);
    }

    #[test]
    fn what_no_line_answers_is_no_form_for_here() {
        assert!(form(json!({"tags": {"type": "array", "items": {"type": "string"}}}), json!([])).is_none());
        assert!(form(json!({"x": {}}), json!([])).is_none());
        assert!(Form::of(&json!({"mode": "url", "url": "https://example.com"})).is_none());
        assert!(form(json!({}), Value::Null).unwrap().prompt().is_none());
    }
}
