//! A prompt on its way to the agent: what it is made of, in which order, and whether the agent takes it.
//!
//! ```text
//! the profile's system prompt and the transcript, for an agent that starts from nothing
//!     ─▶ system messages that waited ─▶ links ─▶ the prompt's own blocks
//! ```
//!
//! A prompt that waits holds the names of its media and not the data. That is read from the record when the turn has
//! started, and the actor does not wait for it: it comes as an input, and only then the agent hears of the turn.

use std::collections::HashMap;
use std::pin::Pin;

use serde_json::Value;
use tokio::time::Instant;

use super::actor::{After, Purpose, SessionActor, answer};
use super::link::Phase;
use super::turns::Stage;
use super::{Refusal, Reply, SystemMessage, history};
use crate::acp::{content, outgoing};
use crate::hub::Hub;
use crate::model::{
    BlobHash, BlockKind, Content, ErrorCode, MessageId, PromptAbilities, Role, SessionContext, SessionId,
    SessionStatus, TurnError, TurnId, TurnStatus,
};
use crate::store::{Made, NewMessage, Op, StoreError, WaitingMessage};

/// System messages that wait for one prompt. Together they are bounded in bytes as a prompt is.
pub const WAITING_MAX: usize = 32;

/// The data of a prompt's media.
pub type Media = HashMap<BlobHash, Vec<u8>>;

type MediaFuture = Pin<Box<dyn Future<Output = Result<Media, StoreError>> + Send>>;

/// What a prompt is made of.
#[derive(Debug)]
pub struct Parts {
    pub transcript: Option<String>,
    pub system: Vec<WaitingMessage>,
    /// What the turn has in place of the session's own context.
    pub context: Option<SessionContext>,
    pub prompt: Content,
}

impl Parts {
    /// The names of the data that its blocks need.
    fn media(&self) -> Vec<BlobHash> {
        match &self.prompt {
            Content::Blocks { blocks } => blocks.iter().filter_map(content::detached).collect(),
            // Nothing else has data.
            _ => Vec::new(),
        }
    }

    /// The system messages that it shows.
    pub fn system_ids(&self) -> Vec<MessageId> {
        self.system.iter().map(|message| message.id).collect()
    }

    /// The blocks as the agent gets them. The transcript is not kept.
    fn take_blocks(
        &mut self,
        session: SessionId,
        abilities: PromptAbilities,
        instructions: Option<&str>,
        links: Vec<Value>,
        media: &Media,
    ) -> Vec<Value> {
        let transcript = self.transcript.take().map(|text| history::block(session, &text, abilities));
        let system = self.system.iter().map(|message| text_block(&message.text));
        instructions
            .map(text_block)
            .into_iter()
            .chain(transcript)
            .chain(system)
            .chain(links)
            .chain(prompt_blocks(&self.prompt, media))
            .collect()
    }
}

fn text_block(text: &str) -> Value {
    serde_json::json!({ "type": "text", "text": text })
}

fn prompt_blocks(prompt: &Content, media: &Media) -> Vec<Value> {
    let whole = |block: &Value| {
        let mut block = block.clone();
        if let Some(data) = content::detached(&block).and_then(|hash| media.get(&hash)) {
            content::attach(&mut block, data);
        }
        block
    };
    match prompt {
        Content::Text { text, .. } => vec![text_block(text)],
        Content::Blocks { blocks } => blocks.iter().map(whole).collect(),
        // Nothing else is ever accepted as a prompt.
        _ => Vec::new(),
    }
}

/// The first block of a prompt that is not taken, with its place.
fn first_not_taken(prompt: &Content, abilities: PromptAbilities) -> Option<(usize, BlockKind)> {
    let Content::Blocks { blocks } = prompt else { return None };
    let mut kinds = blocks.iter().enumerate().filter_map(|(index, block)| Some((index, content::kind(block)?)));
    kinds.find(|(_, kind)| !abilities.takes(*kind))
}

/// The media of the turn that has just started, on its way from the record.
#[derive(Default)]
pub struct MediaReader(Option<(TurnId, MediaFuture)>);

impl MediaReader {
    fn begin(&mut self, hub: &Hub, turn: TurnId, hashes: Vec<BlobHash>) {
        let store = hub.store().clone();
        self.0 = Some((turn, Box::pin(async move { store.blobs(&hashes).await })));
    }

    /// Resolves when the media is read; never, when there is none. Safe to cancel.
    pub async fn read(&mut self) -> (TurnId, Result<Media, StoreError>) {
        let Some((turn, reading)) = &mut self.0 else { return std::future::pending().await };
        let read = (*turn, reading.as_mut().await);
        self.0 = None;
        read
    }
}

impl SessionActor {
    /// Why a prompt is not taken, as far as it is known what the agent takes.
    pub(super) fn unsupported(&self, prompt: &Content) -> Option<Refusal> {
        let abilities = self.prompt_abilities?;
        let (index, kind) = first_not_taken(prompt, abilities)?;
        let (agent, takes) = (self.profile.slug.clone(), abilities.taken());
        Some(Refusal::UnsupportedContent { index, kind: kind.as_str(), agent, takes })
    }

    /// Fails the turn that waits first when the agent does not take its prompt, which was not known when it was accepted.
    /// Whether it did.
    pub(super) fn fail_unsupported(&mut self) -> bool {
        let Some(first) = self.queue.front() else { return false };
        let Some(refusal) = self.unsupported(&first.prompt) else { return false };
        let turn = first.id;
        self.queue.pop_front();
        let error = TurnError::new(ErrorCode::UnsupportedContent, refusal.to_string());
        self.finish(turn, TurnStatus::Failed, None, Some(error));
        true
    }

    /// What the agent says that it takes is kept, for when it has no process.
    pub(super) fn learn_abilities(&mut self, abilities: PromptAbilities) {
        if self.prompt_abilities.replace(abilities) != Some(abilities) {
            self.record(Op::SetPromptAbilities(abilities));
        }
    }

    /// The start is committed: now, and only now, the agent gets the prompt, when there is nothing to read for it.
    pub(super) fn begin_turn(&mut self, turn: TurnId) {
        let Some(running) = self.running.as_mut().filter(|running| running.turn == turn) else {
            return;
        };
        let media = running.parts.media();
        if media.is_empty() {
            self.send_prompt(turn, &Media::new());
        } else {
            self.media.begin(&self.shared.hub, turn, media);
        }
    }

    /// Media that is missing fails its turn. What cannot be read is as bad as what cannot be written.
    pub(super) fn on_media(&mut self, turn: TurnId, media: Result<Media, StoreError>) -> Result<(), StoreError> {
        match media {
            Ok(media) => self.send_prompt(turn, &media),
            Err(error @ StoreError::Damaged { .. }) => {
                if self.running.as_ref().is_some_and(|running| running.turn == turn) {
                    let error = TurnError::new(ErrorCode::RecordDamaged, error.to_string());
                    self.finish_running(TurnStatus::Failed, None, Some(error));
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn send_prompt(&mut self, turn: TurnId, media: &Media) {
        let Some(running) = self.running.as_mut().filter(|running| running.turn == turn) else {
            return;
        };
        if let Some(ending) = running.take_ending() {
            return self.execute(ending, None);
        }
        let Some(Phase::Ready { agent_session, abilities }) = self.link.phase() else {
            let error = TurnError::new(ErrorCode::AgentExited, "the agent exited before it received the prompt");
            return self.finish_running(TurnStatus::Failed, None, Some(error));
        };
        running.stage = Stage::Prompted;
        running.is_heard = false;
        running.heard_at = Instant::now();
        // A turn may take hours: no deadline, only the end of the process.
        let id = self.requests.begin(Purpose::Prompt(turn), None);
        let links = self.links.blocks(&self.workspace, running.parts.context.as_ref());
        let instructions = self.context.instructions.show();
        let blocks = running.parts.take_blocks(self.id, abilities.prompt, instructions, links, media);
        let line = outgoing::prompt(id, agent_session, &blocks);
        tracing::debug!(%turn, blocks = blocks.len(), "sending the prompt to the agent");
        self.send(line);
    }

    /// A message for the agent that begins no turn: it is recorded, and waits for the next prompt.
    pub(super) fn on_system_message(&mut self, message: SystemMessage, reply: Reply<()>) {
        let SystemMessage { id, text, by, claim } = message;
        if self.status != SessionStatus::Active {
            return answer(reply, Err(Refusal::NotActive(self.status)));
        }
        let waiting = self.waiting.len();
        let bytes = self.waiting.iter().map(|message| message.text.len()).sum::<usize>() + text.len();
        if waiting >= WAITING_MAX || bytes > self.shared.config().limits.prompt_max.0 {
            return answer(reply, Err(Refusal::WaitingFull { waiting }));
        }
        let mark = self.outbox.mark();
        if let Some(claim) = claim {
            self.record(Op::Remember(Box::new((claim, Made { message: Some(id), ..Made::default() }))));
        }
        let content = Content::text(text.clone());
        self.record(Op::Message(NewMessage::new(id, None, Role::System, &content).added_by(by)));
        self.record(Op::KeepForPrompt(id));
        self.waiting.push(WaitingMessage { id, text });
        self.outbox.then(mark, After::Answer(vec![reply]));
    }

    /// The agent has these; what came meanwhile waits on.
    pub(super) fn forget_waiting(&mut self, shown: Vec<MessageId>) {
        if !shown.is_empty() {
            self.waiting.retain(|message| !shown.contains(&message.id));
            self.record(Op::ForgetWaiting(shown));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::BlobHash;

    #[test]
    fn the_blocks_come_in_their_order_and_with_their_data() {
        let hash = BlobHash::of(b"png");
        let image = json!({"type": "image", "mimeType": "image/png", "size": 3, "sha256": hash.to_string()});
        let mut parts = Parts {
            transcript: Some("before".to_owned()),
            system: vec![WaitingMessage { id: MessageId::new(), text: "note".to_owned() }],
            context: None,
            prompt: Content::Blocks { blocks: vec![text_block("look"), image] },
        };
        assert_eq!(parts.media(), [hash]);
        let media = Media::from([(hash, b"png".to_vec())]);
        let (abilities, links) = (PromptAbilities::default(), vec![text_block("link")]);
        let blocks = parts.take_blocks(SessionId::new(), abilities, Some("be brief"), links, &media);
        let expected = [
            text_block("be brief"),
            text_block("before"),
            text_block("note"),
            text_block("link"),
            text_block("look"),
            json!({"type": "image", "mimeType": "image/png", "data": "cG5n"}),
        ];
        assert_eq!(blocks, expected);
        assert_eq!(first_not_taken(&parts.prompt, PromptAbilities::default()), Some((1, BlockKind::Image)));
    }
}
