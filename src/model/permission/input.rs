//! What a tool was given (`rawInput` in ACP), read as one action. Agents name the same thing differently.
//!
//! What acpd does not understand makes the action unclear. No rule allows an unclear action, and "always" covers the same
//! input only.

use std::collections::BTreeMap;

use serde_json::Value;

use super::CommandText;

/// As long as a path can be.
const PATH_BYTES_MAX: usize = 4096;

// Keys are compared by their letters and digits, without case.
const ARGUMENTS: &str = "args arguments argv";
const DIRECTORIES: &str = "currentdirectory cwd dir directory dirpath workdir workingdir workingdirectory";
const VARIABLES: &str = "env environment environmentvariables envvars";
/// Commands that acpd does not read.
const OTHER_COMMANDS: &str = "argv bashcommand cmd cmdline command commandline commands script shellcommand";
/// What only explains a call, or says how to wait for it.
const NOTES: &str = "background callid description displaydescription explanation id intent isbackground justification \
                     parsedcmd processid rationale reason requestid runinbackground sessionid summary title toolcallid turnid";
/// Parts of keys whose numbers are bounds.
const BOUNDS: &str = "limit max ms seconds timeout wait";
/// Texts that a path may be a part of.
const TEXTS: &str = "aiproposedcontent content contents diff filetext inserttext instruction instructions message mimetype \
                     newsource newstr newstring newtext oldsource oldstr oldstring oldtext patch prompt text thought \
                     unifieddiff";
/// Keys of strings that are always paths, like keys that end in `path` or `paths`.
const PATHS: &str = "cwd dir directories directory dirs file filename filenames files folder";
/// Between paths that are one string.
const SEPARATORS: &[char] = &[',', ';', ':', '|', '=', '&', '<', '>', ' ', '\t', '\n', '"', '\'', '(', '[', '{'];

#[derive(Debug, Default)]
pub struct Input {
    pub command: Option<CommandText>,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    /// The strings that name paths.
    pub paths: Vec<String>,
    /// The strings that can be paths.
    pub mentioned: Vec<String>,
    /// What else came with a command.
    pub texts: Vec<String>,
    pub is_unclear: bool,
}

impl Input {
    pub fn of(value: &Value) -> Self {
        let mut input = Self { is_unclear: value["truncated"] == true, ..Self::default() };
        let fields = value.as_object().into_iter().flatten().filter(|(_, value)| !is_empty(value));
        let fields: Vec<(String, &Value)> = fields.map(|(key, value)| (plain(key), value)).collect();
        let of_role = |list| fields.iter().filter(|(key, _)| is_in(list, key)).map(|(_, value)| *value).collect();
        let [commands, arguments, directories, variables]: [Vec<&Value>; 4] =
            ["command", ARGUMENTS, DIRECTORIES, VARIABLES].map(of_role);
        input.cwd =
            (!directories.is_empty()).then(|| directories.iter().map(|v| shown(v)).collect::<Vec<_>>().join(" "));
        if commands.is_empty() {
            input.is_unclear |= !value.is_object() && !is_empty(value);
            input.walk("", value);
            return input;
        }
        input.is_unclear |= [&commands, &arguments, &directories, &variables].iter().any(|values| values.len() > 1);
        for value in variables {
            input.read_variables(value);
        }
        input.read_command(&commands, &arguments);
        let is_read = |key: &str, value: &Value| {
            let is_bound = value.is_number() && BOUNDS.split(' ').any(|bound| key.contains(bound));
            Self::is_of_command(key) || is_in(NOTES, key) || is_bound
        };
        for (key, value) in fields.iter().filter(|(key, value)| !is_read(key, value)) {
            input.is_unclear = true;
            input.texts.extend([key.clone(), shown(value).replace("\\n", "\n")]);
            input.walk(key, value);
        }
        input
    }

    /// Whether a key has a text that changes show.
    pub fn is_text(key: &str) -> bool {
        is_in(TEXTS, &plain(key))
    }

    /// Whether a key of an input with a command is part of that command.
    pub fn is_of_command(key: &str) -> bool {
        ["command", ARGUMENTS, DIRECTORIES, VARIABLES].iter().any(|list| is_in(list, &plain(key)))
    }

    fn read_command(&mut self, commands: &[&Value], arguments: &[&Value]) {
        if let ([Value::String(line)], []) = (commands, arguments) {
            self.command = Some(CommandText::Shell(line.clone()));
            return;
        }
        // Only the tool knows how it splits one text that has several words.
        let is_word = |value: &&Value| value.as_str().is_some_and(|text| !text.contains(char::is_whitespace));
        let is_list = |value: &&Value| value.as_array().is_some_and(|items| items.iter().all(|item| !item.is_object()));
        self.is_unclear |=
            !commands.iter().all(|value| is_word(value) || is_list(value)) || !arguments.iter().all(is_list);
        let words = commands.iter().chain(arguments).flat_map(|value| match value {
            Value::Array(items) => items.iter().map(shown).collect(),
            value => vec![shown(value)],
        });
        self.command = Some(CommandText::Arguments(words.collect()));
    }

    fn read_variables(&mut self, value: &Value) {
        let named = |item: &Value| match item {
            Value::String(text) => text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())),
            _ => Some((item["name"].as_str().or(item["key"].as_str())?.to_owned(), shown(&item["value"]))),
        };
        let read = match value {
            Value::Object(fields) => Some(fields.iter().map(|(name, value)| (name.clone(), shown(value))).collect()),
            Value::Array(items) => items.iter().map(named).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        self.is_unclear |= read.is_none();
        for (name, value) in read.unwrap_or_else(|| vec![("env".to_owned(), shown(value))]) {
            self.is_unclear |= self.env.insert(name, value).is_some();
        }
    }

    /// Examines every string, under any key.
    fn walk(&mut self, key: &str, value: &Value) {
        match value {
            Value::String(text) => self.string(key, text),
            Value::Array(items) => items.iter().for_each(|item| self.walk(key, item)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    let key = plain(name);
                    self.is_unclear |= is_in(OTHER_COMMANDS, &key) && !is_empty(value);
                    if name.contains('/') || name.starts_with(['.', '~']) {
                        self.string("", name);
                    }
                    self.walk(&key, value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn string(&mut self, key: &str, text: &str) {
        let is_named = is_in(PATHS, key) || key.ends_with("path") || key.ends_with("paths");
        let is_long = text.len() > PATH_BYTES_MAX || text.contains(char::is_control);
        if text.is_empty() || is_in(TEXTS, key) || is_in(NOTES, key) || (is_long && !is_named) {
            return;
        }
        let is_file = text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"));
        match text.get(5..) {
            Some(rest) if is_file => {
                self.is_unclear |= rest.contains('%');
                self.mentioned.push(rest.strip_prefix("//").unwrap_or(rest).to_owned());
            }
            _ if is_named => self.paths.push(text.to_owned()),
            _ if text.contains("://") => {}
            _ => self.mentioned.push(text.to_owned()),
        }
        let is_elsewhere = |part: &&str| {
            (part.starts_with(['/', '~']) && !part.starts_with("//")) || part.split('/').any(|name| name == "..")
        };
        self.mentioned.extend(text.split(SEPARATORS).skip(1).filter(is_elsewhere).map(str::to_owned));
    }
}

fn plain(key: &str) -> String {
    key.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn is_in(list: &str, key: &str) -> bool {
    list.split(' ').any(|known| known == key)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
