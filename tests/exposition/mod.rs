//! A strict reader of Prometheus's text formats: what a lenient one would forgive is a panic here.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

type Labels = Vec<(String, String)>;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    Classic,
    OpenMetrics,
}

/// What was read.
pub struct Exposition {
    /// Type by family.
    pub families: BTreeMap<String, String>,
    /// Value by series, as it is written.
    pub series: BTreeMap<String, f64>,
}

impl Exposition {
    pub fn parse(text: &str, flavour: Flavour) -> Self {
        assert!(text.ends_with('\n'), "the last line has no end");
        let mut read = Self { families: BTreeMap::new(), series: BTreeMap::new() };
        let mut help: Option<String> = None;
        let mut family: Option<(String, String)> = None;
        let mut ended = false;
        for line in text.lines() {
            assert!(!ended, "something follows the end: {line}");
            if line == "# EOF" {
                assert!(flavour == Flavour::OpenMetrics, "the older format has no end mark");
                ended = true;
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, text) = rest.split_once(' ').expect(line);
                assert!(!text.is_empty(), "{line}");
                help = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert_eq!(help.take().as_deref(), Some(name), "help comes before type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let had = read.families.insert(name.to_owned(), kind.to_owned());
                assert!(had.is_none(), "the family is there twice: {line}");
                family = Some((name.to_owned(), kind.to_owned()));
            } else if let Some(rest) = line.strip_prefix("# UNIT ") {
                assert!(flavour == Flavour::OpenMetrics, "the older format has no units");
                let (name, unit) = rest.split_once(' ').expect(line);
                assert!(name.ends_with(&format!("_{unit}")), "{line}");
            } else {
                let (name, kind) = family.as_ref().unwrap_or_else(|| panic!("a sample without a type: {line}"));
                read.sample(line, name, kind, flavour);
            }
        }
        assert_eq!(ended, flavour == Flavour::OpenMetrics);
        read.check_histograms();
        read
    }

    fn sample(&mut self, line: &str, family: &str, kind: &str, flavour: Flavour) {
        let (series, value) = line.rsplit_once(' ').expect(line);
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect(line)),
            None => (series, ""),
        };
        assert!(is_name(name), "{line}");
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is none of {family}"));
        let allowed: &[&str] = match (kind, flavour) {
            ("counter", Flavour::OpenMetrics) => &["_total"],
            ("counter", Flavour::Classic) => {
                assert!(family.ends_with("_total"), "{family}");
                &[""]
            }
            ("gauge", _) => &[""],
            _ => &["_bucket", "_sum", "_count"],
        };
        assert!(allowed.contains(&suffix), "{line} does not fit a {kind}");
        let names: Vec<String> = labels_of(labels).into_iter().map(|(name, _)| name).collect();
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), names.len(), "a label is there twice: {line}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(value.is_finite() && (kind == "gauge" || value >= 0.0), "{line}");
        assert!(self.series.insert(series.to_owned(), value).is_none(), "the series is there twice: {line}");
    }

    /// Buckets only grow, the last one is the count, and nothing is missing.
    fn check_histograms(&self) {
        let histograms = self.families.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name);
        for name in histograms {
            let mut buckets: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for (series, value) in &self.series {
                let Some(labels) = series.strip_prefix(&format!("{name}_bucket{{")) else { continue };
                let mut labels = labels_of(labels.strip_suffix('}').unwrap());
                let at = labels.iter().position(|(label, _)| label == "le").expect("a bucket says its bound");
                let (_, bound) = labels.remove(at);
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
                buckets.entry(labels).or_default().push((bound, *value));
            }
            for (labels, mut buckets) in buckets {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {labels:?} {buckets:?}");
                let (bound, last) = *buckets.last().unwrap();
                assert!(bound.is_infinite(), "{name} {labels:?} has no +Inf");
                let inner: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
                let of = |what: &str| {
                    let labels = if inner.is_empty() { String::new() } else { format!("{{{}}}", inner.join(",")) };
                    format!("{name}_{what}{labels}")
                };
                assert_eq!(self.series.get(&of("count")).copied(), Some(last), "{name} {labels:?}");
                assert!(self.series.contains_key(&of("sum")), "{name} {labels:?}");
            }
        }
    }

    /// A series that is not there has not happened.
    pub fn value(&self, series: &str) -> f64 {
        self.series.get(series).copied().unwrap_or(0.0)
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn labels_of(mut text: &str) -> Labels {
    let mut labels = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").expect("a label has a value");
        assert!(is_name(name), "{name}");
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next().expect("a value ends") {
                (at, '"') => break at,
                (_, '\\') => match characters.next().expect("an escape goes on").1 {
                    'n' => value.push('\n'),
                    escaped @ ('\\' | '"') => value.push(escaped),
                    other => panic!("unknown escape {other}"),
                },
                (_, character) => value.push(character),
            }
        };
        labels.push((name.to_owned(), value));
        text = &rest[end + 1..];
        if let Some(rest) = text.strip_prefix(',') {
            assert!(!rest.is_empty(), "a comma without a label");
            text = rest;
        } else {
            assert!(text.is_empty(), "labels are parted by commas: {text}");
        }
    }
    labels
}
