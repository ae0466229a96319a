//! Answers that a peer asked for and does not take. By HTTP/2 a peer says how many bytes it takes
//! of each answer: one that takes none, and reads the connection all the same, would keep its
//! answers here for ever, for TCP has nothing that waits. So each answer is followed until its last
//! byte is on its way, and a connection ends on which one has waited too long without a byte's
//! being taken.
//!
//! Streams of gRPC are not followed: they last as long as switches and stores do, and what waits in
//! them is bounded by their senders. What else is served is complete when it is handed over here,
//! so it waits for the peer alone.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, BodyDataStream, HttpBody},
    http::header::{CONTENT_LENGTH, CONTENT_TYPE},
    response::Response,
};
use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};
use tokio_stream::Stream;

/// Most bytes of an answer that are handed to the connection at a time.
const PIECE: usize = 16 << 10;
/// With so many answers on the list, those that were taken are struck from it.
const LIST_MAX: usize = 128;

/// The answers of a connection that are still here, or something of them.
#[derive(Clone, Default)]
pub struct UnreadAnswers(Arc<AnswerList>);

#[derive(Default)]
struct AnswerList {
    answers: Mutex<Vec<Weak<Answer>>>,
    came: Notify,
}

/// An answer, for as long as a byte of it is here.
struct Answer {
    /// When it began to wait, or a piece of it went last.
    moved: Mutex<Instant>,
}

/// A part of an answer, which is dropped when it was sent.
struct Piece {
    bytes: Bytes,
    answer: Arc<Answer>,
}

/// An answer as the connection takes it.
struct Pieces {
    body: BodyDataStream,
    rest: Bytes,
    answer: Arc<Answer>,
}

impl UnreadAnswers {
    /// An answer that is to be sent; it is followed from now on.
    pub fn follow(&self, response: Response) -> Response {
        let (mut head, body) = response.into_parts();
        let kind = head.headers.get(CONTENT_TYPE);
        let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let length = body.size_hint().exact();
        if is_grpc || length == Some(0) {
            return Response::from_parts(head, body);
        }
        // In pieces it would be of no known length.
        if let Some(length) = length {
            head.headers.entry(CONTENT_LENGTH).or_insert(length.into());
        }
        let answer = Arc::new(Answer { moved: Mutex::new(Instant::now()) });
        self.add(Arc::downgrade(&answer));
        let (body, rest) = (body.into_data_stream(), Bytes::new());
        Response::from_parts(head, Body::from_stream(Pieces { body, rest, answer }))
    }

    /// Waits until one of them has waited for so long.
    pub async fn waits_for(&self, longest: Duration) {
        loop {
            match self.waits_since().map(|since| since + longest) {
                None => self.0.came.notified().await,
                Some(until) if until <= Instant::now() => return,
                Some(until) => tokio::time::sleep_until(until).await,
            }
        }
    }

    fn add(&self, answer: Weak<Answer>) {
        let mut answers = lock(&self.0.answers);
        if answers.len() >= LIST_MAX {
            answers.retain(|answer| answer.strong_count() > 0);
        }
        answers.push(answer);
        self.0.came.notify_one();
    }

    /// Since when the one waits that has waited longest.
    fn waits_since(&self) -> Option<Instant> {
        let mut answers = lock(&self.0.answers);
        answers.retain(|answer| answer.strong_count() > 0);
        let here = answers.iter().filter_map(Weak::upgrade);
        here.map(|answer| *lock(&answer.moved)).min()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        *lock(&self.answer.moved) = Instant::now();
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_next(cx)) {
                Some(Ok(bytes)) => self.rest = bytes,
                other => return Poll::Ready(other),
            }
        }
        let len = self.rest.len().min(PIECE);
        let bytes = self.rest.split_to(len);
        let piece = Piece { bytes, answer: self.answer.clone() };
        Poll::Ready(Some(Ok(Bytes::from_owner(piece))))
    }
}
