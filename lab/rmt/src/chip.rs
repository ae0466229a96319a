//! What a switch chip has to lay tables out in: stages, and in each of them memory and ALUs.

/// What a pipeline has.
#[derive(Clone, Copy, Debug)]
pub struct Chip {
    /// Match-action stages that a packet meets in one pass.
    pub stages: u32,
    /// Blocks of SRAM in a stage.
    pub sram_blocks: u32,
    /// Words of a block.
    pub sram_words: u32,
    /// Bits of a word.
    pub sram_bits: u32,
    /// Blocks of TCAM in a stage.
    pub tcam_blocks: u32,
    /// Entries of such a block.
    pub tcam_entries: u32,
    /// Bits of an entry of one block.
    pub tcam_bits: u32,
    /// Stateful ALUs of a stage: each reads and writes one word of an array once for a packet.
    pub alus: u32,
    /// Bits of such a word.
    pub alu_bits: u32,
    /// Bits of the header vector: all that a packet can carry from stage to stage.
    pub phv_bits: u32,
}

impl Chip {
    /// As published of RMT (Bosshart and others, SIGCOMM 2013: the header vector of 4 Kbit, TCAM
    /// blocks) and of Tofino (12 stages, 80 blocks of 128 Kbit and 24 of TCAM in each, four
    /// stateful ALUs). Four words of 32 bits in a stage are the 16 bytes of value that caches
    /// have there.
    pub const TOFINO: Chip = Chip {
        stages: 12,
        sram_blocks: 80,
        sram_words: 1024,
        sram_bits: 128,
        tcam_blocks: 24,
        tcam_entries: 512,
        tcam_bits: 44,
        alus: 4,
        alu_bits: 32,
        phv_bits: 4096,
    };
}
