//! Objects within a request, which must be JSON objects. Serde takes a list for the fields of a struct in their order; in a
//! request that is a mistake, and is told as one.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::context::Change;

/// For `deserialize_with`: a value that is there.
pub fn plain<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|Object(value)| value)
}

/// For `deserialize_with`: a value that may be null.
pub fn optional<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::<Object<T>>::deserialize(deserializer).map(|value| value.map(|Object(value)| value))
}

/// For `deserialize_with`: a value that null removes.
pub fn change<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Change<T>, D::Error> {
    optional(deserializer).map(|value| value.map_or(Change::Remove, Change::Set))
}

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OnlyMaps(PhantomData)).map(Self)
    }
}

struct OnlyMaps<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMaps<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
