//! Frames on their way: buffers that are used again, so that no packet allocates.

use dataplane::native::Frame;

/// Names a frame until it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameId(u32);

/// Every frame of a world.
#[derive(Default)]
pub struct Frames {
    all: Vec<Frame>,
    free: Vec<FrameId>,
}

impl Frames {
    /// A frame of whatever was in it before.
    #[inline]
    pub fn take(&mut self) -> FrameId {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(Frame::default());
            FrameId((self.all.len() - 1) as u32)
        })
    }

    /// Gives a frame back.
    #[inline]
    pub fn give(&mut self, frame: FrameId) {
        self.free.push(frame);
    }

    /// A frame of the same bytes.
    pub fn copy(&mut self, frame: FrameId) -> FrameId {
        let copy = self.take();
        let [from, to] = self
            .all
            .get_disjoint_mut([frame.0 as usize, copy.0 as usize])
            .expect("a frame that was just taken is another one");
        to.set(from.bytes());
        copy
    }

    /// A frame's bytes.
    #[inline]
    pub fn bytes(&self, frame: FrameId) -> &[u8] {
        self.all[frame.0 as usize].bytes()
    }

    /// A frame.
    #[inline]
    pub fn at(&mut self, frame: FrameId) -> &mut Frame {
        &mut self.all[frame.0 as usize]
    }

    /// Exchanges a frame for another one: out while somebody reads it, who may write others, and
    /// in again.
    #[inline]
    pub fn swap(&mut self, frame: FrameId, other: &mut Frame) {
        std::mem::swap(self.at(frame), other);
    }

    /// Frames that are under way.
    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
