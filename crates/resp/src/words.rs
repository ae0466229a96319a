//! The words of a command, where they stand.

/// Where a word stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }
}

/// The words of a command: its name, and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) spans: &'a [Span],
}

impl<'a> Words<'a> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// One of them, 0 is the name.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        self.text.get(span.start as usize..span.end as usize)
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a> {
        let Words { text, spans } = *self;
        spans.iter().map(move |span| &text[span.start as usize..span.end as usize])
    }

    /// Where a word stands in the [bytes](crate::Request::bytes) of its request. Of no use for a
    /// command on a line ([`is_inline`](crate::Request::is_inline)), whose words may be escaped
    /// there; `None` if there is no such word.
    pub fn range(&self, index: usize) -> Option<std::ops::Range<usize>> {
        let span = self.spans.get(index)?;
        Some(span.start as usize..span.end as usize)
    }
}
