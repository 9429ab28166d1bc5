//! Sizes that kernels share with the code that launches them. They are stated here alone: nvcc and the
//! emulation include [`header`] before each file of kernels.

/// Declares a module of sizes for each file of kernels, and `header`, which defines them all as `FILE_SIZE`.
macro_rules! sizes {
    ($($(#[$of_file:meta])* $file:ident { $($(#[$of_size:meta])* $size:ident = $value:expr;)+ })+) => {
        $(
            $(#[$of_file])*
            pub mod $file {
                $($(#[$of_size])* pub const $size: usize = $value;)+
            }
        )+

        /// The sizes as macros of C++, such as `SUMS_WARPS`.
        pub fn header() -> String {
            let sizes = [$($((stringify!($file), stringify!($size), $file::$size),)+)+];
            let define = |(file, size, value): (&str, &str, usize)| {
                format!("#define {}_{size} {value}\n", file.to_uppercase())
            };
            sizes.into_iter().map(define).collect()
        }
    };
}

sizes! {
    /// `cuda/device.cuh`.
    device {
        /// Threads of a warp.
        WARP = 32;
    }
    /// `cuda/adamw.cu`.
    adamw {
        /// Parameters of a launch.
        TENSORS = 64;
        /// Threads of a block.
        THREADS = 256;
        /// Elements of a thread.
        EACH = 8;
        /// Words that describe a block.
        WORDS = 4;
    }
    /// `cuda/cascade.cu`.
    cascade {
        /// Steps between stored states.
        SPAN = 128;
    }
    /// `cuda/causal_attention*`.
    causal_attention {
        /// Threads of a block.
        THREADS = 256;
        /// Threads of a block of `causal_attention_narrow.cu`.
        NARROW_THREADS = 128;
        /// Keys of a tile.
        KEYS = 64;
    }
    /// `cuda/cross_entropy.cu`.
    cross_entropy {
        /// Threads of a block, which has one row.
        THREADS = 512;
    }
    /// `cuda/dplr_kernel.cu`.
    dplr_kernel {
        /// Threads of a block.
        THREADS = 128;
    }
    /// `cuda/embedding.cu`.
    embedding {
        /// Tokens that are sorted together.
        CHUNK = 1024;
        /// Tokens that a block merges.
        MERGED = 256;
        /// Warps of a block that sums.
        WARPS = 16;
    }
    /// `cuda/expression.cu`.
    expression {
        /// Most tensors that an expression reads.
        INPUTS = 9;
        /// Most tensors that an expression returns.
        OUTPUTS = 4;
        /// Elements that a warp computes at a time where no row is summed.
        SPAN = 64;
    }
    /// `cuda/fft.cuh`.
    fft {
        /// Threads of a block.
        THREADS = 512;
        /// Coefficients of a thread.
        EACH = 16;
    }
    /// `cuda/gated_readout.cu`.
    gated_readout {
        /// Elements of a thread.
        EACH = 4;
    }
    /// `cuda/long_conv.cu`.
    long_conv {
        /// Channels of a block.
        CHANNELS = 32;
        /// Outputs of a thread.
        RUN = 8;
        /// Runs of a block.
        RUNS = 8;
        /// Factors that a block shares at one time.
        CHUNK = 32;
    }
    /// `cuda/long_conv_fft.cu`.
    long_conv_fft {
        /// Threads of a block that splits long rows into nodes, or merges them.
        MOVERS = 256;
    }
    /// `cuda/maps.cuh`.
    maps {
        /// Tensors of a launch.
        TENSORS = 4;
    }
    /// `cuda/matrix_state.cuh`.
    matrix_state {
        /// Events between stored states.
        SPAN = 16;
        /// Threads of a block.
        THREADS = 128;
        /// Features of a block of the gradients.
        SIDE = 64;
    }
    /// `cuda/pool.cu`.
    pool {
        /// Threads of a block.
        THREADS = 256;
        /// Groups of four channels of a block.
        GROUPS = 16;
    }
    /// `cuda/recurrent.cu`.
    recurrent {
        /// Sequences of a block.
        ROWS = 32;
        /// Channels of a block.
        CHANNELS = 16;
        /// Threads of a block.
        THREADS = 128;
    }
    /// `cuda/residual.cu`.
    residual {
        /// Threads of a block.
        THREADS = 256;
    }
    /// `cuda/row.cuh`.
    row {
        /// Threads of a block.
        THREADS = 256;
    }
    /// `cuda/scan.cuh`.
    scan {
        /// Threads of a block.
        THREADS = 64;
    }
    /// `cuda/selective_scan.cuh`.
    selective_scan {
        /// Steps between stored states.
        SPAN = 16;
    }
    /// `cuda/sums.cu`.
    sums {
        /// Warps of a block.
        WARPS = 16;
    }
    /// `cuda/time_steps.cu`.
    time_steps {
        /// Steps of a launch.
        STEPS = 64;
    }
    /// `cuda/vandermonde.cu`.
    vandermonde {
        /// Threads of a block.
        THREADS = 128;
        /// Taps of a thread.
        RUN = 16;
    }
    /// `cuda/walk.cuh`.
    walk {
        /// Threads of a block, which has a tile.
        TILE = 256;
    }
}
