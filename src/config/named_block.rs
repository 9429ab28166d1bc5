//! Whole blocks by name, for `--block`.

use super::layout::{Layout, StateMixer};

/// Block of a published architecture, around any mixer.
#[derive(Debug, PartialEq)]
pub struct NamedBlock {
    /// Name as typed.
    pub name: &'static str,
    /// Arrangement of mixer and feed-forward half on the residual stream.
    pub layout: Layout,
    /// Feed-forward half.
    pub state_mixer: StateMixer,
    /// Parts that differ from those of the layout, as in `--block`.
    pub parts: &'static str,
    /// Whether learned embeddings of positions are added to the tokens.
    pub positions: bool,
    /// Whether queries and keys are rotated by their positions, in mixers that have them.
    pub rotary: bool,
    /// Options of the mixer, where it has them and the value is one of theirs.
    pub options: &'static [(&'static str, &'static str)],
    /// Hidden width of the feed-forward half as a fraction of d, rounded up to a multiple of 16; `None` for 4 d.
    mlp_ratio: Option<[usize; 2]>,
}

/// All named blocks.
pub static NAMED_BLOCKS: [NamedBlock; 6] = [
    // Radford et al. 2019.
    NamedBlock {
        name: "gpt",
        layout: Layout::Transformer,
        state_mixer: StateMixer::Mlp,
        parts: "",
        positions: true,
        rotary: false,
        options: &[],
        mlp_ratio: None,
    },
    // Touvron et al. 2023, called so by Gu and Dao 2023: RMS norms, SwiGLU, rotary positions, no biases.
    NamedBlock {
        name: "transformer++",
        layout: Layout::Transformer,
        state_mixer: StateMixer::GatedMlp,
        parts: "norm=rms,eps=0.00001,activation=silu,bias=false",
        positions: false,
        rotary: true,
        options: &[("bias", "none")],
        mlp_ratio: Some([8, 3]),
    },
    // Gu and Dao 2023: an RMS norm and the mixer, without a feed-forward half.
    NamedBlock {
        name: "mamba",
        layout: Layout::Mamba,
        state_mixer: StateMixer::None,
        parts: "norm=rms,eps=0.00001",
        positions: false,
        rotary: false,
        options: &[],
        mlp_ratio: None,
    },
    // De et al. 2024: RMS norms and a feed-forward half gated by GELU, three times as wide as d.
    NamedBlock {
        name: "griffin",
        layout: Layout::Transformer,
        state_mixer: StateMixer::GatedMlp,
        parts: "norm=rms,eps=0.000001,activation=gelu-tanh,bias=true",
        positions: false,
        rotary: true,
        options: &[],
        mlp_ratio: Some([3, 1]),
    },
    // Qin et al. 2023: RMS norms without weights, and a feed-forward half W2 (V x ⊙ U x), whose width is that of their
    // models.
    NamedBlock {
        name: "transnormer",
        layout: Layout::Transformer,
        state_mixer: StateMixer::GatedMlp,
        parts: "norm=simple-rms,eps=0.000001,activation=identity,bias=false",
        positions: false,
        rotary: false,
        options: &[],
        mlp_ratio: Some([8, 3]),
    },
    // Wang and Komatsuzaki 2021; Pythia.
    NamedBlock {
        name: "parallel",
        layout: Layout::Parallel,
        state_mixer: StateMixer::Mlp,
        parts: "",
        positions: false,
        rotary: true,
        options: &[],
        mlp_ratio: None,
    },
];

impl NamedBlock {
    /// Block called `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        NAMED_BLOCKS.iter().find(|block| block.name == name)
    }

    /// Hidden width of the feed-forward half in a model of width `d`.
    pub fn mlp_width(&self, d: usize) -> usize {
        match self.mlp_ratio {
            Some([times, over]) => (times * d).div_ceil(over).next_multiple_of(16),
            None => 4 * d,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BlockConfig;

    #[test]
    fn the_parts_of_named_blocks_are_those_of_a_block() {
        for named in &NAMED_BLOCKS {
            let block: BlockConfig = named.parts.parse().unwrap();
            assert_eq!(block.to_string(), named.parts);
            assert_eq!(NamedBlock::find(named.name), Some(named));
        }
    }

    #[test]
    fn a_feed_forward_half_is_as_wide_as_its_architecture_has_it() {
        let width = |name: &str, d| NamedBlock::find(name).unwrap().mlp_width(d);
        // SwiGLU of MAD at d = 128: 2/3 of 4 d, in multiples of 16.
        assert_eq!(width("transformer++", 128), 352);
        assert_eq!((width("griffin", 64), width("gpt", 64)), (192, 256));
    }
}
