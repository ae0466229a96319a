//! An Ethernet frame as native programs work on it: in a buffer of a fixed length, with room before
//! it to grow into, and without an allocation for each packet.

/// Bytes of a frame's buffer.
const BUFFER: usize = 4096;
/// Bytes before a frame that just came in: a program may grow it there.
const HEAD_ROOM: usize = 216;

/// An Ethernet frame in a buffer that has room around it, as a driver's has.
pub struct Frame {
    buffer: Box<[u8; BUFFER]>,
    start: usize,
    len: usize,
}

impl Default for Frame {
    fn default() -> Frame {
        Frame { buffer: Box::new([0; BUFFER]), start: HEAD_ROOM, len: 0 }
    }
}

impl Frame {
    /// Longest frame in bytes that a buffer takes.
    pub const MAX: usize = BUFFER - HEAD_ROOM;

    /// A frame of these bytes.
    ///
    /// # Panics
    /// If there are more than [`Frame::MAX`].
    pub fn new(bytes: &[u8]) -> Frame {
        let mut frame = Frame::default();
        frame.set(bytes);
        frame
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.len]
    }

    /// Its bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + self.len]
    }

    /// Makes it another frame, in the same buffer.
    ///
    /// # Panics
    /// If there are more than [`Frame::MAX`] bytes.
    pub fn set(&mut self, bytes: &[u8]) {
        self.resize(bytes.len()).copy_from_slice(bytes);
    }

    /// Makes it a frame of so many bytes, of whatever is in the buffer; they are to be written.
    ///
    /// # Panics
    /// If there are more than [`Frame::MAX`].
    pub fn resize(&mut self, len: usize) -> &mut [u8] {
        (self.start, self.len) = (HEAD_ROOM, len);
        &mut self.buffer[HEAD_ROOM..HEAD_ROOM + len]
    }

    /// Where the bytes begin, with the room before and behind them.
    pub(super) fn parts(&mut self) -> (*mut u8, u32, u32, u32) {
        let tail = BUFFER - self.start - self.len;
        // SAFETY: `start` lies within the buffer.
        let first = unsafe { self.buffer.as_mut_ptr().add(self.start) };
        (first, self.len as u32, self.start as u32, tail as u32)
    }

    /// After a program moved start and end.
    pub(super) fn moved(&mut self, head_room: u32, len: u32) {
        (self.start, self.len) = (head_room as usize, len as usize);
        debug_assert!(self.start + self.len <= BUFFER);
    }
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        Frame::new(self.bytes())
    }
}
