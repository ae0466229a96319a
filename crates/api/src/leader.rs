//! Finding the controller that leads, among several.

use std::{ops::ControlFlow, time::Instant};

use tracing::warn;

use crate::{ControlEndpoint, Link, Pauses};

/// Most controllers that one search turns to, redirections included; or each once, where there
/// are more.
const TRIES: usize = 8;

/// What one controller said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerAnswer<T> {
    /// It leads, and this is its answer.
    Done(T),
    /// The one at this URL leads.
    Leader(String),
    /// Not it, or not now; nothing was changed. The line says why.
    Later(String),
    /// No, and no other shall be asked. The line says why.
    Refused(String),
}

impl ControlEndpoint {
    /// Asks the controllers in turn, beginning at `first` (counted around), until one gives the
    /// leader's answer; with the number of the one that did, or that pointed to it. `ask` is told
    /// the URL.
    ///
    /// # Errors
    /// One line: what the one that refused said, or why the last one that was asked did not answer.
    pub async fn leader<T>(
        &self,
        first: usize,
        mut ask: impl AsyncFnMut(Link, &str) -> ControllerAnswer<T>,
    ) -> Result<(T, usize), String> {
        let (mut turn, mut redirected) = (0, None);
        let mut trouble = "no address of a controller is given".to_string();
        for _ in 0..TRIES.max(self.urls.len()) {
            if turn == self.urls.len() {
                break;
            }
            let which = first.wrapping_add(turn) % self.urls.len();
            let url = redirected.take().unwrap_or_else(|| self.urls[which].clone());
            let heard = match self.connect_to(&url).await {
                Ok(link) => ask(link, &url).await,
                Err(line) => ControllerAnswer::Later(line),
            };
            match heard {
                ControllerAnswer::Done(answer) => return Ok((answer, which)),
                ControllerAnswer::Refused(line) => return Err(line),
                ControllerAnswer::Later(line) => {
                    trouble = line;
                    turn += 1;
                }
                // The token goes along, so it must not go where others could read it.
                ControllerAnswer::Leader(leader)
                    if url.starts_with("https:") && !leader.starts_with("https:") =>
                {
                    return Err(format!(
                        "{url} says that {leader} leads, which is not encrypted; name the leader in --control"
                    ));
                }
                ControllerAnswer::Leader(leader) => {
                    trouble = format!("{url} says that {leader} leads, and that one does not");
                    redirected = Some(leader);
                }
            }
        }
        Err(trouble)
    }

    /// Connects to the first that answers, beginning at `first` (counted around), and says which
    /// it was.
    ///
    /// # Errors
    /// As [`ControlEndpoint::connect_to`], of the last one.
    pub async fn connect(&self, first: usize) -> Result<(Link, usize), String> {
        self.leader(first, async |link, _| ControllerAnswer::Done(link)).await
    }

    /// Keeps a stream to the controller that leads, for as long as this is polled. `stream` begins
    /// one and sees it to its end: an error if it did not begin, `Continue` with the reason once it
    /// ended, `Break` to give up. `meanwhile` says in the log what goes on without a controller.
    pub async fn keep<T>(
        &self,
        meanwhile: &str,
        mut stream: impl AsyncFnMut(Link, &str) -> Result<ControlFlow<T, String>, String>,
    ) -> T {
        let (mut pauses, mut first, mut absence) = (Pauses::default(), 0, Absence::default());
        loop {
            let ended = self.leader(first, async |link, url| {
                let began = Instant::now();
                match stream(link, url).await {
                    Ok(end) => ControllerAnswer::Done((end, began.elapsed())),
                    Err(line) => ControllerAnswer::Later(line),
                }
            });
            match ended.await {
                Ok(((ControlFlow::Break(done), _), _)) => return done,
                Ok(((ControlFlow::Continue(reason), lasted), which)) => {
                    warn!("controller: {reason}; {meanwhile}");
                    pauses.lasted(lasted);
                    absence = Absence::default();
                    // The next one may lead already.
                    first = which + 1;
                    if first < self.urls.len() {
                        continue;
                    }
                }
                Err(reason) => {
                    if absence.is_news(&reason) {
                        warn!("controller: {reason}; trying again, {meanwhile}");
                    }
                }
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }
}

/// Why there has been no stream since the last one: each reason is said once, though it is found
/// again several times a second.
#[derive(Debug, Default)]
struct Absence {
    said: Vec<String>,
}

impl Absence {
    /// Reasons that are said; what tells itself anew each time is said no more after that.
    const MOST: usize = 8;

    /// Whether that was not said yet.
    fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.said.len() < Absence::MOST && !self.said.iter().any(|it| it == reason);
        if is_news {
            self.said.push(reason.into());
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_of_an_absence_is_said_once() {
        let mut absence = Absence::default();
        assert!(absence.is_news("refused"));
        assert!(!absence.is_news("refused"));
        assert!(absence.is_news("its certificate has expired"));
        assert!(!absence.is_news("refused"), "it was said before");
        let told = (0..100).filter(|n| absence.is_news(&n.to_string())).count();
        assert_eq!(told, Absence::MOST - 2);
    }
}
