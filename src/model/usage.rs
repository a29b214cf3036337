//! What turns and sessions use: tokens, cost, and how full the agent's context is. Pure sums, so that they can be tested
//! without an agent.
//!
//! An agent tells tokens per turn, and its cost as a sum over its own session. So the cost of a turn is by how much that
//! sum grew. A sum that becomes smaller is a correction: it takes nothing away, and counts again only above the highest that
//! was told. A new agent session is a new start, and so is a smaller sum when it is the first that a new process tells.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// More tokens than any turn has; what is larger is a mistake of the agent's.
pub const TOKENS_MAX: u64 = 1 << 50;
/// A currency is a short code.
const CURRENCY_CHARS_MAX: usize = 16;

/// An amount of money with at most nine decimal places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = f64, minimum = 0, maximum = 1_000_000_000)]
pub struct Amount(u64);

impl Amount {
    const PARTS: f64 = 1e9;
    /// The largest amount that is believed.
    const MAX: f64 = 1e9;

    /// Nothing for what is no amount: negative, not a number, or absurdly large.
    pub fn new(value: f64) -> Option<Self> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        (0.0..=Self::MAX).contains(&value).then(|| Self((value * Self::PARTS).round() as u64))
    }

    /// An amount as somebody writes it. What is above nothing and too small to be told from it is none: nothing means that
    /// there is no limit.
    pub fn written(value: f64) -> Option<Self> {
        Self::new(value).filter(|amount| !amount.is_zero() || value <= 0.0)
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    #[expect(clippy::cast_precision_loss, reason = "it is for showing")]
    fn value(self) -> f64 {
        self.0 as f64 / Self::PARTS
    }

    const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.value())
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.value())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = f64::deserialize(deserializer)?;
        let problem = || format!("{value} is not an amount from 0 to {} with at most nine decimal places", Self::MAX);
        Self::written(value).ok_or_else(|| serde::de::Error::custom(problem()))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Cost {
    pub amount: Amount,
    pub currency: String,
}

impl Cost {
    /// Nothing for what is no cost.
    pub fn new(amount: f64, currency: &str) -> Option<Self> {
        let is_currency = !currency.is_empty()
            && currency.chars().count() <= CURRENCY_CHARS_MAX
            && !currency.chars().any(char::is_control);
        Some(Self { amount: Amount::new(amount).filter(|_| is_currency)?, currency: currency.to_owned() })
    }
}

/// The current size of the agent's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ContextWindow {
    pub used: u64,
    pub size: u64,
}

/// Tokens of one turn, or summed over turns. Counts that the agent did not report are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Tokens {
    #[serde(default, rename = "inputTokens", skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    #[serde(default, rename = "outputTokens", skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    #[serde(default, rename = "totalTokens", skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    #[serde(default, rename = "thoughtTokens", skip_serializing_if = "Option::is_none")]
    pub thought: Option<u64>,
    #[serde(default, rename = "cachedReadTokens", skip_serializing_if = "Option::is_none")]
    pub cached_read: Option<u64>,
    #[serde(default, rename = "cachedWriteTokens", skip_serializing_if = "Option::is_none")]
    pub cached_write: Option<u64>,
}

impl Tokens {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn plus(self, other: Self) -> Self {
        let sum = |left: Option<u64>, right: Option<u64>| match (left, right) {
            (Some(left), Some(right)) => Some(left.saturating_add(right)),
            (left, right) => left.or(right),
        };
        Self {
            input: sum(self.input, other.input),
            output: sum(self.output, other.output),
            total: sum(self.total, other.total),
            thought: sum(self.thought, other.thought),
            cached_read: sum(self.cached_read, other.cached_read),
            cached_write: sum(self.cached_write, other.cached_write),
        }
    }
}

/// The usage of a turn or a session, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    #[serde(flatten)]
    pub tokens: Tokens,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The current context; only for a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextWindow>,
}

impl Usage {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn add_tokens(&mut self, tokens: Tokens) {
        self.tokens = self.tokens.plus(tokens);
    }

    pub fn add_cost(&mut self, growth: Cost) {
        match &mut self.cost {
            Some(cost) => cost.amount = cost.amount.plus(growth.amount),
            None => self.cost = Some(growth),
        }
    }
}

/// What the next growth is reckoned from; kept, so that sums are right after a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Basis {
    /// The most that the agent told as the cost of its own session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<Amount>,
    /// A currency that is kept out of the sum, of which somebody was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_currency: Option<String>,
}

/// A session's sums, and how they go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    pub usage: Usage,
    pub basis: Basis,
}

/// What came of a cost that the agent told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    By(Cost),
    /// It is in another currency than the sum, for the first time.
    OtherCurrency {
        sum: String,
    },
    Nothing,
}

impl Meter {
    /// The agent begins a session of its own, whose cost is nothing yet. Whether that changes anything.
    pub fn start_anew(&mut self) -> bool {
        self.basis.told.take().is_some()
    }

    /// The agent tells what its session has cost until now. `is_first`: its process has told nothing before.
    pub fn tell_cost(&mut self, told: Cost, is_first: bool) -> Growth {
        if let Some(sum) = &self.usage.cost
            && sum.currency != told.currency
        {
            let is_known = self.basis.other_currency.is_some();
            let sum = sum.currency.clone();
            self.basis.other_currency.get_or_insert(told.currency);
            return if is_known { Growth::Nothing } else { Growth::OtherCurrency { sum } };
        }
        let before = self.basis.told.filter(|before| !is_first || *before <= told.amount).unwrap_or_default();
        self.basis.told = Some(before.max(told.amount));
        let growth = Amount(told.amount.0.saturating_sub(before.0));
        let growth = Cost { amount: growth, currency: told.currency };
        self.usage.add_cost(growth.clone());
        Growth::By(growth)
    }

    /// The sum so far.
    pub fn cost(&self) -> Amount {
        self.usage.cost.as_ref().map(|cost| cost.amount).unwrap_or_default()
    }
}

/// What happens to turns when a session's cost has reached its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExceed {
    /// They fail at once.
    Fail,
    /// They wait until the limit is raised.
    Pause,
}

impl FromStr for OnExceed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "fail" => Ok(Self::Fail),
            "pause" => Ok(Self::Pause),
            _ => Err(format!("{text:?} is not valid; use fail or pause")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(amount: f64) -> Cost {
        Cost::new(amount, "USD").unwrap()
    }

    fn grow(meter: &mut Meter, amount: f64) -> String {
        match meter.tell_cost(dollars(amount), false) {
            Growth::By(cost) => cost.amount.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cost_grows_by_what_was_added_and_never_shrinks() {
        let mut meter = Meter::default();
        assert_eq!(grow(&mut meter, 0.1), "0.1");
        assert_eq!(grow(&mut meter, 0.3), "0.2");
        assert_eq!(grow(&mut meter, 0.3), "0");
        assert_eq!(grow(&mut meter, 0.05), "0", "less than before is a correction");
        assert_eq!(grow(&mut meter, 0.35), "0.05", "which is not counted twice");
        assert!(meter.start_anew() && !meter.start_anew());
        assert_eq!(grow(&mut meter, 0.2), "0.2", "a new agent session is a new start");
        assert_eq!(meter.cost().to_string(), "0.55");
        let kept: Basis = serde_json::from_str(&serde_json::to_string(&meter.basis).unwrap()).unwrap();
        let mut restored = Meter { usage: meter.usage.clone(), basis: kept };
        assert_eq!(grow(&mut restored, 0.5), "0.3", "a restored one goes on");
        let told = |amount: f64| Growth::By(dollars(amount));
        assert_eq!(restored.tell_cost(dollars(0.75), true), told(0.25), "in a new process too");
        assert_eq!(restored.tell_cost(dollars(0.1), true), told(0.1), "unless that counts from nothing");
        assert_eq!(restored.tell_cost(dollars(0.05), false), told(0.0));
    }

    #[test]
    fn another_currency_stays_out_of_the_sum_and_is_told_once() {
        let mut meter = Meter::default();
        meter.tell_cost(dollars(1.0), true);
        let euros = Cost::new(5.0, "EUR").unwrap();
        assert_eq!(meter.tell_cost(euros.clone(), false), Growth::OtherCurrency { sum: "USD".to_owned() });
        assert_eq!(meter.tell_cost(euros, false), Growth::Nothing);
        assert_eq!(grow(&mut meter, 1.5), "0.5");
    }

    #[test]
    fn what_is_no_amount_is_none() {
        for bad in [f64::NAN, f64::INFINITY, -0.01, 1e12] {
            assert_eq!(Amount::new(bad), None, "{bad}");
        }
        assert_eq!(Cost::new(1.0, ""), None);
        assert!(serde_json::from_str::<Amount>("1e-12").is_err(), "it would be nothing, which is no limit");
        assert!(serde_json::from_str::<Amount>("0").unwrap().is_zero() && Amount::new(1e-12).unwrap().is_zero());
        assert!(serde_json::from_str::<Amount>("-1").unwrap_err().to_string().contains("not an amount"));
        assert_eq!(serde_json::to_string(&Amount::new(0.1).unwrap().plus(Amount::new(0.2).unwrap())).unwrap(), "0.3");
    }

    #[test]
    fn tokens_are_summed_field_by_field() {
        let mut usage = Usage::default();
        assert!(usage.is_empty());
        usage.add_tokens(Tokens { input: Some(1), total: Some(1), ..Tokens::default() });
        usage.add_tokens(Tokens { input: Some(2), output: Some(u64::MAX), ..Tokens::default() });
        let json = serde_json::to_value(&usage).unwrap();
        assert_eq!(json, serde_json::json!({"inputTokens": 3, "outputTokens": u64::MAX, "totalTokens": 1}));
        assert_eq!(serde_json::from_value::<Usage>(json).unwrap(), usage);
    }
}
