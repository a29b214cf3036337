//! The keeper: one thread that is there from the start, for clearing up that blocks.
//!
//! An agent that starts processes without end takes every place that its user has, and then no new thread can be made to
//! end it. This one has its place already.

use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone, Debug)]
pub struct Keeper(mpsc::Sender<Job>);

impl Keeper {
    /// The thread ends with its last owner.
    pub fn start() -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("keeper".to_owned()).spawn(move || jobs.into_iter().for_each(|job| job()))?;
        Ok(Self(sender))
    }

    /// Has a job done after those that came before, and waits for it, but not for long: it is done all the same.
    pub async fn run(&self, patience: Duration, job: impl FnOnce() + Send + 'static) {
        let (done, end) = oneshot::channel();
        let job = move || {
            job();
            // Whoever asked may not have waited.
            done.send(()).ok();
        };
        let is_taken = self.0.send(Box::new(job)).is_ok();
        match tokio::time::timeout(patience, end).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::error!(is_taken, "cannot clean up after an agent"),
            Err(_) => tracing::error!("cleaning up after an agent takes long; not waiting for it"),
        }
    }
}
