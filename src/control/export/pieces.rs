//! A body that is written while it is read: whoever writes it waits until the piece before is taken.

use std::error::Error;
use std::future::Future;

use axum::body::{Body, Bytes};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::control::streams::OpenStream;
use crate::store::StoreError;

/// What is gathered before it is handed on.
const PIECE_BYTES: usize = 32 << 10;

/// Why a body ends before its end.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("cannot read the session from the store")]
    Store(#[from] StoreError),
    #[error("cannot write a part of the session as JSON")]
    Json(#[from] serde_json::Error),
    #[error("the client stopped reading")]
    Gone,
}

/// Where the text goes.
pub struct Out {
    pieces: mpsc::Sender<Bytes>,
    gathered: Vec<u8>,
}

impl Out {
    pub async fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.gathered.extend_from_slice(text.as_bytes());
        if self.gathered.len() >= PIECE_BYTES { self.end().await } else { Ok(()) }
    }

    pub async fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.gathered, value)?;
        self.text("").await
    }

    /// Hands on what is gathered.
    pub async fn end(&mut self) -> Result<(), Failure> {
        let piece = std::mem::take(&mut self.gathered);
        if piece.is_empty() {
            return Ok(());
        }
        self.pieces.send(piece.into()).await.map_err(|_| Failure::Gone)
    }
}

/// The body that `write` writes. It counts as one of its reader's streams for as long as it is there.
pub fn body<W>(open: OpenStream, write: impl FnOnce(Out) -> W) -> Body
where
    W: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let (pieces, taken) = mpsc::channel(1);
    let writing = Some(Box::pin(write(Out { pieces, gathered: Vec::new() })));
    let chunks = stream::unfold((writing, taken, open), |(mut writing, mut taken, open)| async move {
        loop {
            let Some(work) = &mut writing else {
                let piece = taken.recv().await?;
                return Some((Ok(piece), (writing, taken, open)));
            };
            tokio::select! {
                biased;
                Some(piece) = taken.recv() => return Some((Ok(piece), (writing, taken, open))),
                outcome = work => {
                    writing = None;
                    if let Err(error) = outcome {
                        tracing::error!(error = &error as &dyn Error, "an export ended early");
                        taken.close();
                        return Some((Err(error), (writing, taken, open)));
                    }
                }
            }
        }
    });
    Body::from_stream(chunks)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;
    use crate::control::streams::Streams;

    fn streamed<W>(write: impl FnOnce(Out) -> W) -> Body
    where
        W: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        body(Streams::new(1).open(1, Arc::default()).unwrap(), write)
    }

    #[tokio::test]
    async fn all_that_is_written_comes_in_pieces_and_in_order() {
        let lines: Vec<String> = (0..20_000).map(|number| format!("{number}\n")).collect();
        let expected = lines.concat() + "[1,2]";
        let mut body = streamed(|mut out| async move {
            for line in lines {
                out.text(&line).await?;
            }
            out.json(&[1, 2]).await?;
            out.end().await
        });
        let (mut got, mut count) = (Vec::new(), 0);
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() < 2 * PIECE_BYTES);
            got.extend_from_slice(&piece);
            count += 1;
        }
        assert!(got == expected.as_bytes() && count > 2);
        assert!(streamed(|_| async { Ok(()) }).collect().await.unwrap().to_bytes().is_empty());
    }

    #[tokio::test]
    async fn what_fails_is_not_taken_for_the_end() {
        let body = streamed(|mut out| async move {
            out.text("the beginning").await?;
            out.end().await?;
            Err(Failure::Store(StoreError::Closed))
        });
        assert!(body.collect().await.is_err());
    }
}
