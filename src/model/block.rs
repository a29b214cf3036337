//! The blocks that a message is made of: which kinds there are, which of them an agent takes, and the data of those that
//! are not text, which is kept once and named by its hash.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

/// The kinds of ACP's content blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    Text,
    Image,
    Audio,
    ResourceLink,
    Resource,
}

impl BlockKind {
    pub const ALL: [Self; 5] = [Self::Text, Self::ResourceLink, Self::Image, Self::Audio, Self::Resource];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Audio => "audio",
            Self::ResourceLink => "resource_link",
            Self::Resource => "resource",
        }
    }
}

impl FromStr for BlockKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        known.ok_or_else(|| {
            format!("{text:?} is not a kind of content block; use one of {}", Self::ALL.map(Self::as_str).join(", "))
        })
    }
}

/// The kinds of content that an agent accepts in a prompt. Every agent accepts text and links to resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptAbilities {
    pub image: bool,
    pub audio: bool,
    /// Embedded documents.
    pub embedded_context: bool,
}

impl PromptAbilities {
    pub const fn takes(self, kind: BlockKind) -> bool {
        match kind {
            BlockKind::Text | BlockKind::ResourceLink => true,
            BlockKind::Image => self.image,
            BlockKind::Audio => self.audio,
            BlockKind::Resource => self.embedded_context,
        }
    }

    /// The kinds that are taken, for people.
    pub fn taken(self) -> String {
        let taken: Vec<&str> =
            BlockKind::ALL.into_iter().filter(|kind| self.takes(*kind)).map(BlockKind::as_str).collect();
        taken.join(", ")
    }
}

/// The SHA-256 of some data, which is its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobHash([u8; Self::BYTES]);

impl BlobHash {
    const BYTES: usize = 32;

    pub fn of(data: &[u8]) -> Self {
        Self(Sha256::digest(data).into())
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for BlobHash {
    type Err = String;

    /// In the one way that it is written: small letters, so that one blob has one address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is not a SHA-256 hash");
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(wrong()),
        };
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(wrong()) };
        let bytes: Vec<u8> =
            pairs.iter().map(|[high, low]| Ok(digit(*high)? << 4 | digit(*low)?)).collect::<Result<_, String>>()?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

impl Serialize for BlobHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Data that was taken out of a block, to be kept beside the message. Cheap to clone.
#[derive(Clone)]
pub struct Blob {
    pub hash: BlobHash,
    /// What the block says that it is; the same data may be called otherwise elsewhere.
    pub mime_type: String,
    pub data: Bytes,
}

impl fmt::Debug for Blob {
    /// Without the data, which is large and nobody's to read in a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Blob({}, {}, {} bytes)", self.hash, self.mime_type, self.data.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_in_one_way() {
        let hash = BlobHash::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert_eq!(text.parse(), Ok(hash));
        for wrong in ["", "ba", &text[1..], &text.to_uppercase(), &format!("{text}00"), &text.replace('b', "g")] {
            assert!(wrong.parse::<BlobHash>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn text_and_links_are_always_taken() {
        assert_eq!(PromptAbilities::default().taken(), "text, resource_link");
        let all = PromptAbilities { image: true, audio: true, embedded_context: true };
        assert_eq!(all.taken(), "text, resource_link, image, audio, resource");
    }
}
