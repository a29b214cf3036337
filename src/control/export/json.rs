//! The document that another acpd reads. Its type is [`crate::model::export::Document`]; here it is written in pieces, one
//! turn or message a line, so that two exports can be compared line by line.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::pieces::{Failure, Out};
use crate::model::export::{ExportedCheckpoint, ExportedSession, FORMAT, VERSION};
use crate::store::{Snapshot, TurnCursor};

/// Of a blob's data, what is written at a time. Of three bytes each four characters are made, and nothing is left over.
const DATA_BYTES: usize = 24 << 10;

pub async fn write(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    out.text(&format!("{{\"format\":\"{FORMAT}\",\"version\":{VERSION},\n\"session\":")).await?;
    out.json(&ExportedSession::from(snapshot.session().clone())).await?;
    turns(snapshot, out).await?;
    messages(snapshot, out).await?;
    blobs(snapshot, out).await?;
    checkpoints(snapshot, out).await?;
    observations(snapshot, out).await?;
    out.text("}\n").await
}

/// What stands before an item of a list, and after the last one.
struct List {
    is_empty: bool,
}

impl List {
    async fn begin(name: &str, out: &mut Out) -> Result<Self, Failure> {
        out.text(&format!(",\n\"{name}\":[")).await?;
        Ok(Self { is_empty: true })
    }

    async fn item(&mut self, out: &mut Out) -> Result<(), Failure> {
        out.text(if std::mem::take(&mut self.is_empty) { "\n" } else { ",\n" }).await
    }

    async fn end(self, out: &mut Out) -> Result<(), Failure> {
        out.text(if self.is_empty { "]" } else { "\n]" }).await
    }
}

async fn turns(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    let mut list = List::begin("turns", out).await?;
    let mut cursor = TurnCursor::default();
    loop {
        let (page, next) = snapshot.turns(cursor).await?;
        if page.is_empty() {
            return list.end(out).await;
        }
        for turn in &page {
            list.item(out).await?;
            out.json(turn).await?;
        }
        cursor = next;
    }
}

async fn messages(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    let mut list = List::begin("messages", out).await?;
    let mut after = 0;
    loop {
        let page = snapshot.messages(after).await?;
        let Some(last) = page.last() else { return list.end(out).await };
        after = last.sequence;
        for message in &page {
            list.item(out).await?;
            out.json(message).await?;
        }
    }
}

async fn blobs(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    let mut list = List::begin("blobs", out).await?;
    let mut after = None;
    while let Some((hash, blob)) = snapshot.blob(after).await? {
        list.item(out).await?;
        let mime_type =
            if blob.mime_type.is_empty() { String::new() } else { format!(",\"mimeType\":{}", json!(blob.mime_type)) };
        out.text(&format!("{{\"sha256\":\"{hash}\",\"size\":{}{mime_type},\"data\":\"", blob.data.len())).await?;
        for part in blob.data.chunks(DATA_BYTES) {
            out.text(&BASE64_STANDARD.encode(part)).await?;
        }
        out.text("\"}").await?;
        after = Some(hash);
    }
    list.end(out).await
}

async fn checkpoints(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    let mut list = List::begin("checkpoints", out).await?;
    let mut after = 0;
    while let Some((row, checkpoint)) = snapshot.checkpoint(after).await? {
        list.item(out).await?;
        out.json(&ExportedCheckpoint::from(checkpoint)).await?;
        after = row;
    }
    list.end(out).await
}

async fn observations(snapshot: &Snapshot, out: &mut Out) -> Result<(), Failure> {
    let mut list = List::begin("observations", out).await?;
    let mut after = 0;
    while let Some((row, observation)) = snapshot.observation(after).await? {
        list.item(out).await?;
        out.text(observation.get()).await?;
        after = row;
    }
    list.end(out).await
}
